/* Weights in memory: as files hold them, or packed. */
#ifndef ISOMER_VULKAN_WEIGHTS_H
#define ISOMER_VULKAN_WEIGHTS_H

#include "backends/vulkan/vulkan.h"

/* Blocks whose rest would lie at no whole words or, in groups of 128, at no whole vectors, taken
 * apart: all blocks without their scale (2 bytes; 4 of groups, with the zero point of I4_G128), one
 * after another, then from the next multiple of 16 bytes on all scales. */
enum { VULKAN_LAYOUT_SPLIT = 1 };

/* Schemes that have this layout. */
#define VULKAN_SPLIT_SCHEMES                                                                       \
  (ISO_SCHEME_BIT(ISO_SCHEME_Q8_0) | ISO_SCHEME_BIT(ISO_SCHEME_Q4_0) |                             \
   ISO_SCHEME_BIT(ISO_SCHEME_Q5_0) | ISO_SCHEME_BIT(ISO_SCHEME_Q3_K) |                             \
   ISO_SCHEME_BIT(ISO_SCHEME_Q6_K) | ISO_SCHEME_BIT(ISO_SCHEME_IQ4_NL) |                           \
   ISO_SCHEME_BIT(ISO_SCHEME_I8_G128) | ISO_SCHEME_BIT(ISO_SCHEME_F8_G128) |                       \
   ISO_SCHEME_BIT(ISO_SCHEME_I4_G128))

typedef struct vulkan_planes {
  uint64_t rest, scales; /* addresses; equal in the plain layout */
  bool split;
} vulkan_planes;

vulkan_planes vulkan_planes_of(const iso_tensor *weight);
/* Whether rows of a weight can be read in vectors of 16 bytes (only asked of plain floats). */
bool vulkan_is_vector_weight(const iso_tensor *weight);

/* packed_bytes() and pack() of VULKAN_LAYOUT_SPLIT. */
iso_status vulkan_packed_bytes(const iso_device *device, const iso_host_weight *weight,
                               uint64_t *out_bytes);
iso_status vulkan_pack(iso_queue *queue, const iso_host_weight *weight, iso_buffer *buffer,
                       uint64_t offset);

#endif
