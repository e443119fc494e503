/* The packed layout of weights for matrix products on CPUs: ISO_CPU_LAYOUT_GROUPS.
 *
 * Sixteen output rows (64 of a float weight, but 16 of one of F32 with few) make a group, in which
 * what belongs to the same place of each row lies together, so that a vector holds 16 rows (or 8)
 * and no kernel ever adds across its lanes. One layout serves every instruction tier, costs at most
 * 4% over the file's bytes (Q3_K; nothing for most schemes), and is read front to back by every
 * product.
 *
 * A matrix is ceil(rows / group_rows) groups of `group_bytes`; missing rows of the last group are
 * zero. A group is one run of steps. A step is one or two blocks of each row: a cache line with
 * their half scales and minimums, then the body of each. A body is a run of portions, one in a
 * block of 32, two or four in a super-block of 256:
 *
 *   bytes  the small scales and minimums of the portion, each of 16 rows next to each other
 *   codes  64-byte units, four bytes of each row: of an 8-bit scheme four elements, of a 4-bit
 *          scheme the low nibbles are four elements and the high nibbles four others, as the
 *          file's own block has them. Fifth and sixth bits come just before what needs them.
 *
 * Of an odd last block the step has the line of halves and one body.
 *
 * Floats have no scales. An element of F32 is 256 bytes (64 rows) or 64 (16), of F16 128 bytes;
 * BF16 has pairs of elements, 4 bytes a row (the last pair of an odd row is padded with zero).
 *
 * All is in the order of its first use, as only that reaches the read bandwidth: scales in a plane
 * of their own, a second stream beside that of the codes, halved it; so did all small scales of a
 * super-block, or of two, before the codes. */
#ifndef ISOMER_BACKENDS_CPU_MATMUL_PACKED_H
#define ISOMER_BACKENDS_CPU_MATMUL_PACKED_H

#include "backends/cpu/cpu.h"

#define ISO_CPU_LAYOUT_GROUPS 1u
/* Rows of a group. */
#define ISO_CPU_QUANTIZED_ROWS 16
#define ISO_CPU_FLOAT_ROWS 64
/* Matrices of F32 with at most so many rows, as adapters and routers have, are narrow: groups of 64
 * would be filled up with zeros that products read. */
#define ISO_CPU_NARROW_ROWS 16
#define ISO_CPU_MOST_NARROW_ROWS 32

/* Where the parts of a packed matrix lie. */
typedef struct iso_packed_shape {
  iso_scheme scheme;
  int64_t rows, elements; /* N and K */
  int64_t groups;         /* ceil(rows / group_rows) */
  int64_t blocks;         /* of a row; BF16: pairs, F16 and F32: elements */
  uint32_t block_elements;
  uint32_t group_rows;
  uint32_t half_bytes;  /* of a block of a group: 32, 64, or 0 of floats */
  uint32_t body_bytes;  /* of a block of a group */
  uint32_t step_blocks; /* 1 or 2 */
  uint64_t group_bytes; /* a multiple of 64 */
  bool is_narrow;       /* of F32, groups of ISO_CPU_NARROW_ROWS */
} iso_packed_shape;

/* False when the scheme has no packed layout or a row is not whole blocks. */
bool iso_packed_shape_of(iso_scheme scheme, int64_t rows, int64_t elements,
                         iso_packed_shape *out_shape);

/* Blocks of a step: as many as fill a line with their halves. */
#define ISO_PACKED_STEP_BLOCKS(half_bytes) ((half_bytes) == 32 ? 2 : 1)

/* Offset in a group of the step that `block` begins. */
static inline uint64_t iso_packed_step_offset(const iso_packed_shape *shape, int64_t block) {
  return (uint64_t)block * (shape->half_bytes + shape->body_bytes);
}

/* Where block `block` of a group lies. The sizes are constants in kernels. */
typedef struct iso_packed_block {
  const uint8_t *halves, *body;
} iso_packed_block;

static inline iso_packed_block iso_packed_block_at(const uint8_t *group, int64_t block,
                                                   uint32_t half_bytes, uint32_t body_bytes) {
  uint32_t step_blocks = ISO_PACKED_STEP_BLOCKS(half_bytes);
  uint32_t in_step = (uint32_t)block % step_blocks;
  const uint8_t *step = group + (uint64_t)(block - in_step) * (half_bytes + body_bytes);
  return (iso_packed_block){step + in_step * half_bytes,
                            step + step_blocks * half_bytes + in_step * body_bytes};
}

/* iso_kernel.packed_bytes and .pack of every record with this layout: [rows, elements], or
 * [experts, rows, elements] as one packed matrix after the other. */
iso_status iso_packed_bytes(const iso_device *device, const iso_host_weight *weight,
                            uint64_t *out_bytes);
iso_status iso_packed_pack(iso_queue *queue, const iso_host_weight *weight, iso_buffer *buffer,
                           uint64_t offset);

/* Decodes row `row` of a packed matrix to shape->elements floats: the values of the file, bit
 * for bit. */
void iso_packed_decode_row(const iso_packed_shape *shape, const void *packed, int64_t row,
                           float *out_values);

#endif
