/* The Vulkan loader, opened at run time, and an instance. */
#include "backends/vulkan/vulkan.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const struct {
  VkResult result;
  iso_status status;
  const char *text;
} errors[] = {
    {VK_ERROR_OUT_OF_HOST_MEMORY, ISO_ERROR_OUT_OF_MEMORY, "no host memory"},
    {VK_ERROR_OUT_OF_DEVICE_MEMORY, ISO_ERROR_OUT_OF_MEMORY, "no device memory"},
    {VK_ERROR_TOO_MANY_OBJECTS, ISO_ERROR_OUT_OF_MEMORY, "the driver keeps no more of them"},
    {VK_ERROR_MEMORY_MAP_FAILED, ISO_ERROR_OUT_OF_MEMORY, "no room in the address space"},
    {VK_ERROR_DEVICE_LOST, ISO_ERROR_DEVICE, "the device is lost: a kernel or the driver failed"},
    {VK_ERROR_INITIALIZATION_FAILED, ISO_ERROR_DEVICE, "the driver does not start"},
    {VK_ERROR_INCOMPATIBLE_DRIVER, ISO_ERROR_NOT_FOUND, "no driver is installed"},
    {VK_ERROR_FEATURE_NOT_PRESENT, ISO_ERROR_UNSUPPORTED, "the driver lacks a feature"},
    {VK_ERROR_EXTENSION_NOT_PRESENT, ISO_ERROR_UNSUPPORTED, "the driver lacks an extension"},
};

iso_status vulkan_error_text(VkResult result, char out_text[VULKAN_ERROR_BYTES]) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].result == result) {
      snprintf(out_text, VULKAN_ERROR_BYTES, "%s", errors[i].text);
      return errors[i].status;
    }
  snprintf(out_text, VULKAN_ERROR_BYTES, "Vulkan error %d", (int)result);
  return ISO_ERROR_DEVICE;
}

iso_status vulkan_error(VkResult result, const char *what) {
  char text[VULKAN_ERROR_BYTES];
  iso_status status = vulkan_error_text(result, text);
  return vulkan_fail(status, "%s: %s", what, text);
}

/* Once a process: drivers keep threads and state of their own, so it is never closed. */
static PFN_vkGetInstanceProcAddr open_loader(void) {
  static PFN_vkGetInstanceProcAddr get;
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  if (!get) {
    void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "vkGetInstanceProcAddr") : NULL;
    memcpy(&get, &symbol, sizeof get);
  }
  pthread_mutex_unlock(&lock);
  return get;
}

bool vulkan_api_create(vulkan_api *out_api, char *out_reason) {
  *out_api = (vulkan_api){0};
  PFN_vkGetInstanceProcAddr get = open_loader();
  if (!get) {
    snprintf(out_reason, 256, "the Vulkan loader libvulkan.so.1 is not installed");
    return false;
  }
  out_api->vkGetInstanceProcAddr = get;
#define VULKAN_GLOBAL(name) out_api->name = (PFN_##name)get(NULL, #name);
#include "backends/vulkan/functions.def"
  if (!out_api->vkCreateInstance) {
    snprintf(out_reason, 256, "the Vulkan loader has no vkCreateInstance");
    return false;
  }
  uint32_t version = VK_API_VERSION_1_0;
  if (out_api->vkEnumerateInstanceVersion)
    out_api->vkEnumerateInstanceVersion(&version);
  if (version < VK_API_VERSION_1_2) {
    snprintf(out_reason, 256, "the Vulkan loader speaks %u.%u, 1.2 is needed",
             VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
    return false;
  }
  /* SPIR-V 1.6, in which the matrix tiers' shaders are, is part of 1.3. */
  out_api->version = version < VK_API_VERSION_1_3 ? VK_API_VERSION_1_2 : VK_API_VERSION_1_3;
  VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                   .pApplicationName = "Isomer",
                                   .pEngineName = "Isomer",
                                   .apiVersion = out_api->version};
  VkInstanceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &application};
  VkResult result = out_api->vkCreateInstance(&create, NULL, &out_api->instance);
  if (result != VK_SUCCESS) {
    out_api->instance = VK_NULL_HANDLE; /* undefined until now */
    snprintf(out_reason, 256,
             result == VK_ERROR_INCOMPATIBLE_DRIVER ? "no Vulkan driver is installed"
                                                    : "Vulkan does not start (error %d)",
             (int)result);
    return false;
  }
  const char *absent = NULL;
#define VULKAN_INSTANCE(name)                                                                      \
  out_api->name = (PFN_##name)get(out_api->instance, #name);                                       \
  absent = out_api->name ? absent : #name;
#include "backends/vulkan/functions.def"
  if (!absent)
    return true;
  snprintf(out_reason, 256, "the Vulkan loader has no %s", absent);
  vulkan_api_destroy(out_api);
  return false;
}

iso_status vulkan_api_load_device(vulkan_api *api, VkDevice device) {
  const char *absent = NULL;
#define VULKAN_DEVICE(name)                                                                        \
  api->name = (PFN_##name)api->vkGetDeviceProcAddr(device, #name);                                 \
  absent = api->name ? absent : #name;
#include "backends/vulkan/functions.def"
  return absent ? vulkan_fail(ISO_ERROR_UNSUPPORTED, "the Vulkan driver has no %s", absent)
                : ISO_OK;
}

void vulkan_api_destroy(vulkan_api *api) {
  if (api->instance && api->vkDestroyInstance)
    api->vkDestroyInstance(api->instance, NULL);
  *api = (vulkan_api){0};
}
