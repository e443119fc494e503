/* Kernel records: what this backend can run. */
#include "backends/vulkan/kernels.h"
#include "backends/vulkan/ops.h"

#define FLOATS                                                                                     \
  (ISO_SCHEME_BIT(ISO_SCHEME_F32) | ISO_SCHEME_BIT(ISO_SCHEME_F16) | ISO_SCHEME_BIT(ISO_SCHEME_BF16))

/* An op without weights that takes any float activations. */
#define PLAIN(op_name, OP_NAME)                                                                    \
  {.size = sizeof(iso_kernel),                                                                     \
   .op = ISO_OP_##OP_NAME,                                                                         \
   .name = #op_name ".plain",                                                                      \
   .schemes = ~(iso_scheme_mask)0,                                                                 \
   .activations = FLOATS,                                                                          \
   .layout = ISO_LAYOUT_PLAIN,                                                                     \
   .check = vulkan_check_rows,                                                                     \
   .launch = vulkan_##op_name}

const iso_kernel vulkan_kernels[] = {
    PLAIN(glu, GLU),
    PLAIN(activate, ACTIVATE),
    PLAIN(add, ADD),
    PLAIN(soft_cap, SOFT_CAP),
    PLAIN(convert, CONVERT),
    PLAIN(rms_norm, RMS_NORM),
    PLAIN(layer_norm, LAYER_NORM),
    PLAIN(softmax, SOFTMAX),
    PLAIN(rope, ROPE),
    PLAIN(gather_rows, GATHER_ROWS),
    PLAIN(argmax, ARGMAX),
};

const uint32_t vulkan_kernel_count = sizeof vulkan_kernels / sizeof *vulkan_kernels;
