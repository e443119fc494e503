/* The kernel records of the backend. */
#ifndef ISOMER_VULKAN_KERNELS_H
#define ISOMER_VULKAN_KERNELS_H

#include <isomer/backend.h>

extern const iso_kernel vulkan_kernels[];
extern const uint32_t vulkan_kernel_count;

#endif
