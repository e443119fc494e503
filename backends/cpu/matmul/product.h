/* Products of activation rows with packed weights: what a kernel supplies, what the driver does.
 *
 *   y[m, n] = sum over k of x[m, k] w[n, k], plus bias[n]
 *
 * The driver (product.c) prepares the activations once, splits the groups of 16 output rows over
 * the threads, and calls one of two loops that a kernel supplies for a scheme and a tier:
 *
 *   few rows   `few` streams a group, decoding codes in registers, for a panel of up to 4 rows. The
 *              bytes of the weight are the floor: every other cost must hide behind them. With a
 *              few panels the group comes from the second-level cache after the first one.
 *   more rows  `expand` decodes a stretch of a tile of groups into the first-level cache; `many`
 *              multiplies it with a panel at a time. The multiply-adds are the floor.
 *
 * Both add the same terms in the same order with the same roundings, so that a row's result does
 * not depend on how many rows came with it, bit for bit.
 *
 * Activations lie in panels of 4 rows, the last one of what is left. The part of a panel of R rows
 * that belongs to a stretch of S elements holds
 *   values       [S / 4][R][2][4] int8 for quantized weights: the high planes of four values,
 *                then their low planes; [S][R] f32 for float weights
 *   scales       [S / 32][R] f32: 128 high + low, times its scale, is the activation
 *   corrections  [S / sub_elements][R]: int32 -offset * sum(values) that integer sums start
 *                from, or f32 scale * sum(values) that multiplies the minimum; whichever the
 *                scheme needs.
 * Parts of one stretch lie next to each other, panel by panel, then come those of the next
 * stretch: the order in which a tile uses them. Where rows are few, one stretch is all. */
#ifndef ISOMER_BACKENDS_CPU_MATMUL_PRODUCT_H
#define ISOMER_BACKENDS_CPU_MATMUL_PRODUCT_H

#include "backends/cpu/matmul/packed.h"

#define ISO_PANEL_ROWS 4
/* Elements of an activation that share a scale. */
#define ISO_ACTIVATION_BLOCK 32
/* A quantized activation is high * 2^7 + low, high within +-127 and low in -64 .. 63. */
#define ISO_PLANE_BITS 7
#define ISO_ACTIVATION_MAXIMUM (127 << ISO_PLANE_BITS)

/* Activations of one panel and one stretch. */
typedef struct iso_panel {
  const uint8_t *values;
  const float *scales;
  const void *corrections;
} iso_panel;

/* What `few` computes: out[r * out_stride + i] = row r of a panel, all elements, times row i of
 * consecutive groups. */
typedef void (*iso_product_few)(const iso_packed_shape *shape, const uint8_t *groups,
                                int64_t n_groups, iso_panel panel, float *out, int64_t out_stride);

/* Decodes elements [begin, begin + count) of one group into a stretch. Multiples of the block. */
typedef void (*iso_product_expand)(const iso_packed_shape *shape, const uint8_t *group,
                                   int64_t begin, int64_t count, uint8_t *out_stretch);

/* sums[r * tile_groups * group_rows + i] += the products over `count` elements of a tile of up to
 * tile_groups stretches, `stride` bytes from each other. */
typedef void (*iso_product_many)(const uint8_t *stretches, uint64_t stride, int64_t n_groups,
                                 int64_t count, iso_panel panel, float *sums);

typedef struct iso_product_kernel iso_product_kernel;

/* Quantizes one row of a panel of `panel_rows`: for each 32 elements a scale of max |x| /
 * ISO_ACTIVATION_MAXIMUM, values rounded to nearest even and split in two planes. A block that holds NaN or an
 * infinity gets such a scale, so that it shows in every product. `values`, `scales` and
 * `corrections` point at the row's first entries; entries of a row are panel_rows apart. */
typedef void (*iso_quantize_row)(const iso_product_kernel *kernel, const float *x, int64_t elements,
                                 int64_t panel_rows, uint8_t *values, float *scales,
                                 int32_t *corrections);
void iso_avx2_quantize_row(const iso_product_kernel *kernel, const float *x, int64_t elements,
                           int64_t panel_rows, uint8_t *values, float *scales,
                           int32_t *corrections);

struct iso_product_kernel {
  uint32_t value_bytes;      /* of an activation: 2 int8 planes, 4 f32 */
  uint32_t sub_elements;     /* planes: elements that share a correction, 16 or 32; else 0 */
  int32_t offset;            /* planes: what codes are stored plus; 0 where `minimum` */
  bool minimum;              /* planes: the scheme has minimums */
  uint32_t stretch_elements; /* elements that `expand` and `many` take at a time, at most */
  uint32_t stretch_bytes;    /* of an expanded stretch; 0: the packed codes serve as they are */
  uint32_t tile_groups;      /* groups of a tile */
  /* planes: quantizes one row of a panel; else NULL. */
  iso_quantize_row quantize;
  int64_t few_rows;                      /* up to which `few` is faster than `many` */
  iso_product_few few[ISO_PANEL_ROWS];   /* by rows - 1; up to few_rows */
  iso_product_expand expand;             /* NULL where stretch_bytes is 0 */
  iso_product_many many[ISO_PANEL_ROWS]; /* by rows - 1 */
};

/* The kernel of a scheme in a tier; NULL where there is none. */
const iso_product_kernel *iso_avx2_integer_kernel(iso_scheme scheme);
const iso_product_kernel *iso_avx2_float_kernel(iso_scheme scheme);
const iso_product_kernel *iso_avx512_integer_kernel(iso_scheme scheme);
const iso_product_kernel *iso_avx512_float_kernel(iso_scheme scheme);

/* ---- Activations ---------------------------------------------------------------------------- */

/* Prepared activations of `rows` rows, in one piece of memory. */
typedef struct iso_activations {
  uint8_t *values;
  float *scales;
  int32_t *corrections;
  int64_t rows, elements, stretch;
} iso_activations;

/* Bytes of the prepared activations; monotonic in rows. */
uint64_t iso_activations_bytes(const iso_product_kernel *kernel, int64_t rows, int64_t elements);
/* Lays them out in `memory` (64-byte aligned), in stretches of `stretch` elements: a multiple of
 * 32, or all of them. */
iso_activations iso_activations_at(const iso_product_kernel *kernel, void *memory, int64_t rows,
                                   int64_t elements, int64_t stretch);
/* The panel of rows from `row` (a multiple of 4) on, for the stretch from `element`
 * (a multiple of the stretch) on. */
iso_panel iso_activations_panel(const iso_product_kernel *kernel,
                                const iso_activations *activations, int64_t row, int64_t element);
/* Prepares the panel that starts at `row`, from as many f32 rows. */
void iso_activations_prepare(const iso_product_kernel *kernel, const iso_activations *activations,
                             int64_t row, const float *const *rows);

/* ---- Launch -----------------------------------------------------------------------------------
 */

/* workspace() and launch() of `matmul` with a kernel. */
uint64_t iso_product_workspace(const iso_product_kernel *kernel, const iso_device *device,
                               const iso_op_arguments *arguments);
iso_status iso_product_launch(const iso_product_kernel *kernel, iso_queue *queue,
                              const iso_op_arguments *arguments);

#endif
