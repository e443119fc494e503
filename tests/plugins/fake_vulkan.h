/* A Vulkan loader and driver that do nothing but keep books: tests load it in place of the real
 * loader, before the plug-in asks for that. Copies and fills move bytes when they are submitted;
 * shaders do not run. */
#ifndef ISOMER_TESTS_FAKE_VULKAN_H
#define ISOMER_TESTS_FAKE_VULKAN_H

#include <stdbool.h>
#include <stdint.h>
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

typedef struct fake_vulkan {
  /* What there is; all devices are alike. */
  uint32_t n_devices;
  VkPhysicalDeviceProperties properties;
  VkPhysicalDeviceVulkan11Properties properties11;
  VkPhysicalDeviceVulkan12Properties properties12;
  VkPhysicalDeviceMaintenance4Properties sizes;
  VkPhysicalDeviceFeatures features;
  VkPhysicalDeviceVulkan11Features features11;
  VkPhysicalDeviceVulkan12Features features12;
  VkPhysicalDeviceSubgroupSizeControlFeatures width_features;
  VkPhysicalDeviceSubgroupSizeControlProperties width_properties;
  const char *hidden; /* a function that is not found; NULL: none */
  /* Calls that can fail are counted from 1 on; number `fail_at` fails with `fault`, and with
   * `is_lasting` all later ones. 0: none. What a failing call would make is garbage. */
  uint32_t n_calls, fail_at;
  VkResult fault;
  bool is_lasting;
  const char *failed; /* the first that failed */
  /* Submissions are counted from 1 on. Number `hang_at` and those behind it never end; number
   * `lose_at` loses the device as it runs. 0: none. */
  uint32_t n_submits, hang_at, lose_at;
  /* Waits for what is not done are over at once, and counted. After so many one more submission
   * ends; 0: all end when somebody looks. Every `work_every`-th costs processor time. */
  uint32_t n_timeouts, waits_each, work_every;
  /* Pipelines that asked for a width of their subgroups, and the last such width. */
  uint32_t n_of_width, width;
  /* Objects that live, misuses of them, and the first misuse. */
  uint32_t n_alive, n_wrong;
  const char *wrong;
} fake_vulkan;

/* Exported as "fake_vulkan_get"; everything is as at first after a reset. */
typedef fake_vulkan *(*fake_vulkan_function)(void);
/* Exported as "fake_vulkan_reset". */
typedef void (*fake_vulkan_reset_function)(void);

#endif
