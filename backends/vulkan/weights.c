#include "backends/vulkan/weights.h"
#include <string.h>

enum { PIECE_BYTES = 4 << 20, N_PIECES = 3 };

typedef struct split_format {
  uint32_t elements, bytes; /* of a block */
  uint32_t scale_at, scale_bytes;
} split_format;

static const split_format formats[ISO_SCHEME_COUNT] = {
    [ISO_SCHEME_Q8_0] = {32, 34, 0, 2},      [ISO_SCHEME_Q4_0] = {32, 18, 0, 2},
    [ISO_SCHEME_Q5_0] = {32, 22, 0, 2},      [ISO_SCHEME_IQ4_NL] = {32, 18, 0, 2},
    [ISO_SCHEME_Q3_K] = {256, 110, 108, 2},  [ISO_SCHEME_Q6_K] = {256, 210, 208, 2},
    [ISO_SCHEME_I8_G128] = {128, 132, 0, 4}, [ISO_SCHEME_F8_G128] = {128, 132, 0, 4},
    [ISO_SCHEME_I4_G128] = {128, 68, 0, 4},
};

static uint32_t rest_bytes_of(const split_format *format) {
  return format->bytes - format->scale_bytes;
}

static uint64_t count_blocks(iso_scheme scheme, const int64_t *dims, uint32_t n_dims) {
  uint64_t elements = 1;
  for (uint32_t d = 0; d < n_dims; d++)
    elements *= (uint64_t)dims[d];
  return elements / formats[scheme].elements;
}

/* Where the plane of scales starts. */
static uint64_t scales_at(iso_scheme scheme, uint64_t n_blocks) {
  return (n_blocks * rest_bytes_of(&formats[scheme]) + 15) & ~UINT64_C(15);
}

vulkan_planes vulkan_planes_of(const iso_tensor *weight) {
  uint64_t address = vulkan_address(weight);
  if (weight->layout != VULKAN_LAYOUT_SPLIT)
    return (vulkan_planes){address, address, false};
  uint64_t n_blocks = count_blocks(weight->scheme, weight->dims, weight->n_dims);
  return (vulkan_planes){address, address + scales_at(weight->scheme, n_blocks), true};
}

bool vulkan_is_vector_weight(const iso_tensor *weight) {
  int64_t n_columns = weight->dims[weight->n_dims - 1];
  return n_columns % 8 == 0 && vulkan_address(weight) % 16 == 0 &&
         (weight->n_dims < 2 || weight->strides[weight->n_dims - 2] % 16 == 0);
}

iso_status vulkan_packed_bytes(const iso_device *device, const iso_host_weight *weight,
                               uint64_t *out_bytes) {
  (void)device;
  uint64_t n_blocks = count_blocks(weight->scheme, weight->dims, weight->n_dims);
  *out_bytes = scales_at(weight->scheme, n_blocks) + n_blocks * formats[weight->scheme].scale_bytes;
  return ISO_OK;
}

/* Takes `n` blocks apart. */
static void split(const split_format *format, const uint8_t *blocks, uint64_t n, uint8_t *rest,
                  uint8_t *scales) {
  uint32_t scale_bytes = format->scale_bytes, rest_bytes = rest_bytes_of(format);
  uint32_t rest_at = format->scale_at == 0 ? scale_bytes : 0;
  for (uint64_t i = 0; i < n; i++, blocks += format->bytes) {
    memcpy(rest + i * rest_bytes, blocks + rest_at, rest_bytes);
    memcpy(scales + i * scale_bytes, blocks + format->scale_at, scale_bytes);
  }
}

/* Through a ring of pieces in a staging buffer: while some are copied, the next is filled. */
static iso_status pack_staged(iso_queue *queue, const iso_host_weight *weight, iso_buffer *buffer,
                              uint64_t offset, iso_buffer *staging) {
  const split_format *format = &formats[weight->scheme];
  uint64_t n_blocks = count_blocks(weight->scheme, weight->dims, weight->n_dims);
  uint64_t rest_bytes = rest_bytes_of(format), scale_bytes = format->scale_bytes;
  uint64_t at = scales_at(weight->scheme, n_blocks);
  uint64_t piece = PIECE_BYTES / format->bytes, done_at[N_PIECES] = {0};
  for (uint64_t done = 0, i = 0; done < n_blocks; done += piece, i++) {
    uint64_t n = n_blocks - done < piece ? n_blocks - done : piece;
    uint64_t place = i % N_PIECES * PIECE_BYTES, scales = place + n * rest_bytes;
    uint8_t *mapped = staging->mapped;
    ISO_TRY(vulkan_queue_table.host_wait(queue, done_at[i % N_PIECES], UINT64_MAX));
    split(format, (const uint8_t *)weight->data + done * format->bytes, n, mapped + place,
          mapped + scales);
    ISO_TRY(vulkan_queue_table.copy(queue, buffer, offset + done * rest_bytes, staging, place,
                                    n * rest_bytes));
    ISO_TRY(vulkan_queue_table.copy(queue, buffer, offset + at + done * scale_bytes, staging,
                                    scales, n * scale_bytes));
    ISO_TRY(vulkan_queue_table.signal(queue, &done_at[i % N_PIECES]));
  }
  uint64_t end; /* the buffer may be used for other things then */
  ISO_TRY(vulkan_queue_table.signal(queue, &end));
  return vulkan_queue_table.host_wait(queue, end, UINT64_MAX);
}

iso_status vulkan_pack(iso_queue *queue, const iso_host_weight *weight, iso_buffer *buffer,
                       uint64_t offset) {
  uint64_t n_blocks = count_blocks(weight->scheme, weight->dims, weight->n_dims);
  if (buffer->mapped) {
    uint8_t *target = (uint8_t *)buffer->mapped + offset;
    split(&formats[weight->scheme], weight->data, n_blocks, target,
          target + scales_at(weight->scheme, n_blocks));
    return ISO_OK;
  }
  iso_buffer *staging;
  ISO_TRY(vulkan_queue_staging(queue, (uint64_t)N_PIECES * PIECE_BYTES, &staging));
  return pack_staged(queue, weight, buffer, offset, staging);
}
