/* Products of activation rows with packed weights: what a kernel supplies, what the driver does.
 *
 *   y[m, n] = sum over k of x[m, k] w[n, k], plus bias[n]
 *
 * The driver (product.c) prepares the activations once, cuts the work into items that threads
 * take as they come free, and calls one of two loops that a kernel supplies for a scheme and a
 * tier:
 *
 *   few rows   `few` streams a group, decoding codes in registers, for a panel of rows. The bytes
 *              of the weight are the floor: every other cost must hide behind them. With a few
 *              panels the group comes from the second-level cache after the first one.
 *   more rows  `expand` decodes a stretch of a tile of groups into the first-level cache; `many`
 *              multiplies it with a panel at a time. The multiply-adds are the floor.
 *
 * Both add the same terms in the same order with the same roundings, so that a row's result does
 * not depend on how many rows came with it, bit for bit, within one kernel.
 *
 * Activations lie in panels, the last one of what is left: of panel_rows (4, or 32 of the tile
 * kernels), or for `few` of as few panels as few_panel_rows allow, all about equally high. The part
 * of a panel of R rows that belongs to a stretch of S elements holds
 *   values       [S / 4][R][4] of 15 bits for quantized weights: as int16, the second and third of
 *                four in each other's place, or the high planes of the four as int8 and then
 *                their low planes; or of 8 bits, as int8; [S][R] f32 for float weights;
 *                tiles_amx.c, tiles8_amx.c and tiles16_amx.c have their own
 *   scales       [S / 32][R] f32: a value (128 high + low) times its scale is the activation
 *   corrections  [S / 2^sub_shift][R]: int32 -offset * sum(values) that integer sums start
 *                from, or f32 scale * sum(values) that multiplies the minimum; whichever the
 *                scheme needs.
 * Parts of one stretch lie next to each other, panel by panel, then come those of the next
 * stretch: the order in which a tile uses them. Where rows are few, one stretch is all.
 *
 * A kernel that is so fast that all panels would have to come from the third-level cache for each
 * tile lets several tiles use a stretch of them, from the second level, before the next; or it
 * takes a span of stretches at a time, which are all expanded before its rows are multiplied. */
#ifndef ISOMER_BACKENDS_CPU_MATMUL_PRODUCT_H
#define ISOMER_BACKENDS_CPU_MATMUL_PRODUCT_H

#include "backends/cpu/matmul/packed.h"

#define ISO_MAX_PANEL_ROWS 32
/* Stretches of a span. */
#define ISO_MAX_SPAN_STRETCHES 16
/* Elements of an activation that share a scale. */
#define ISO_ACTIVATION_BLOCK 32
/* A quantized activation is high * 2^7 + low, high within +-127 and low in -64 .. 63. */
#define ISO_PLANE_BITS 7
#define ISO_ACTIVATION_MAXIMUM (127 << ISO_PLANE_BITS)

/* Activations of one panel and one stretch. */
typedef struct iso_panel {
  uint8_t *values;
  float *scales;
  int32_t *corrections;
  int64_t rows;
  /* Of `few`, where it should ask for codes ahead: those before `end` follow in order, then come
   * those `jump` bytes further. `end` is NULL where it should not. */
  const uint8_t *end;
  int64_t jump;
} iso_panel;

/* How far ahead `few` asks for codes, to the second-level cache: what a core's share of memory
 * brings in some times its latency. No multiple of a page: README.md has what was measured. */
#define ISO_FEW_AHEAD 10240

/* Where the codes lie that are read so much later than those at `at`, or NULL. */
static inline const uint8_t *iso_few_ahead(const iso_panel *panel, const uint8_t *at) {
  at += ISO_FEW_AHEAD;
  return at < panel->end ? at : panel->end ? at + panel->jump : NULL;
}

/* ---- Kernels ---------------------------------------------------------------------------- */

typedef struct iso_product_kernel iso_product_kernel;

/* Writes `count` f32 activations of row `row` of a panel, one stretch, in the kernel's form. */
typedef void (*iso_product_prepare)(const iso_product_kernel *kernel, const float *x, int64_t count,
                                    int64_t row, const iso_panel *panel);

typedef void (*iso_product_prepare_bf16)(const iso_product_kernel *kernel, const uint16_t *x,
                                         int64_t count, int64_t row, const iso_panel *panel);

/* out[r * out_stride + i] = row r of a panel, all elements, times row i of consecutive groups. */
typedef void (*iso_product_few)(const iso_packed_shape *shape, const uint8_t *groups,
                                int64_t n_groups, const iso_panel *panel, float *out,
                                int64_t out_stride);

/* Decodes elements [begin, begin + count) of one group. `begin` is a multiple of the stretch. */
typedef void (*iso_product_expand)(const uint8_t *group, int64_t begin, int64_t count,
                                   uint8_t *out_stretch);

/* A stretch of a tile that is expanded, or only brought near, unit by unit while the tile before it
 * is multiplied: vectors and memory have little to do then. */
typedef struct iso_ahead {
  const uint8_t *groups; /* packed, `group_bytes` from each other */
  uint64_t group_bytes;
  int64_t n_groups, begin, count; /* of elements */
  int64_t later;                  /* bytes from these codes to those that are needed next */
  uint8_t *out, *scratch;         /* stretch_stride bytes a group; scratch_bytes */
  int64_t unit, units;            /* done, and in all */
} iso_ahead;

/* Does the next `units` units, or what is left. */
typedef void (*iso_product_advance)(iso_ahead *ahead, int64_t units);

/* Packed codes that are expanded next: lines to bring near meanwhile, group by group. */
typedef struct iso_near {
  const uint8_t *codes;        /* of the first group, `group_bytes` from those of the next */
  uint64_t group_bytes, bytes; /* of a group, of which so many are asked for */
  int64_t n_groups;
  int64_t group; /* done */
  uint64_t at;   /* of the next group */
} iso_near;

/* A panel, or with call_rows as many as those rows at most, one after the other, times a tile of up
 * to tile_groups stretches, over `count` elements. */
typedef struct iso_product_call {
  const uint8_t *stretches;
  uint64_t stride; /* bytes from one to the next */
  int64_t n_groups, count;
  const iso_panel *panel; /* with span_elements one of each stretch, of the same rows */
  bool first;             /* stretch of the row: sums start from zero */
  /* sums[r * tile_groups * group_rows + i] of row r and row i of the tile: what was summed up, to
   * which this is added. Columns past n_groups may get anything. */
  float *sums;
  /* Kernels with `advance` or span_elements: where the sums go instead, after the last stretch;
   * NULL for nowhere. `out_rows` rows of f32 or bf16, `out_stride` bytes from each other; in lines
   * of 64 bytes that should not stay in caches. */
  uint8_t *out;
  int64_t out_rows, out_stride;
  bool out_is_bf16, out_is_streamed;
  iso_ahead *ahead; /* what to do meanwhile; NULL for nothing */
  iso_near *near;   /* with span_elements: what to bring near; NULL for nothing */
} iso_product_call;

typedef void (*iso_product_many)(const iso_product_call *call);

struct iso_product_kernel {
  uint32_t panel_rows;       /* of `many`; at most ISO_MAX_PANEL_ROWS */
  uint32_t few_panel_rows;   /* of `few`, at most; at most that too */
  bool whole_panels;         /* the last panel has room for panel_rows too */
  uint32_t call_rows;        /* rows, whole panels, that `many` takes at a time; 0: panel_rows */
  uint32_t span_elements;    /* whole stretches that `many` takes at a time; 0: one stretch. Else
                              * call_rows is as many rows as an item has at most */
  uint32_t value_bytes;      /* of an activation: 1 or 2 of quantized ones, 4 of f32 */
  uint32_t sub_shift;        /* quantized: 2^this elements share a correction, 4 or 5; else 0 */
  int32_t offset;            /* quantized: what codes are stored plus; 0 where `minimum` */
  bool minimum;              /* quantized: the scheme has minimums */
  uint32_t few_rows;         /* up to which `few` is faster than `many` */
  uint32_t ahead_rows;       /* from which `few` multiplies for longer than a CPU's own prefetcher
                              * reaches ahead: codes are asked for on every CPU */
  uint32_t tile_groups;      /* groups of a tile */
  uint32_t item_tiles;       /* tiles that go through a stretch together; 0: one */
  uint32_t stretch_elements; /* that `expand` and `many` take at a time, at most */
  uint32_t stretch_stride;   /* bytes from one expanded group of a tile to the next */
  uint32_t tile_bytes;       /* of an expanded tile */
  uint32_t ahead_units;      /* a group and 32 elements, of `advance` */
  uint32_t scratch_bytes;    /* of `advance` */
  iso_product_prepare prepare;
  iso_product_prepare prepare_one;       /* for `few` of one row, where it wants another form; or
                                          * NULL. Where there is one, other panels have more rows */
  iso_product_prepare_bf16 prepare_bf16; /* of bf16 values; NULL: by way of f32 */
  iso_product_few few;
  /* How a stretch is decoded: by `expand` before it is used (with span_elements all of a tile's,
   * tile_bytes from each other, between `begin` and `end`), or by `advance` while the one before
   * is; where there is neither stretch_stride, `many` takes the packed codes as they are. */
  iso_product_expand expand;
  iso_product_advance advance;
  iso_product_many many;
  /* Rows of float schemes to f32 and back. */
  void (*load)(iso_scheme scheme, const void *row, float *out_values, int64_t count);
  void (*store)(iso_scheme scheme, const float *values, void *row, int64_t count);
  void (*begin)(void); /* called by each thread before and after `many`; NULL for nothing */
  void (*end)(void);
};

/* The kernel of a scheme in a table of all; NULL where there is none. */
static inline const iso_product_kernel *iso_product_kernel_of(const iso_product_kernel *kernels,
                                                              iso_scheme scheme) {
  bool known = (unsigned)scheme < ISO_SCHEME_COUNT && kernels[scheme].value_bytes > 0;
  return known ? &kernels[scheme] : NULL;
}

/* The kernel of a scheme in a tier; NULL where there is none. */
const iso_product_kernel *iso_baseline_integer_kernel(iso_scheme scheme);
const iso_product_kernel *iso_baseline_float_kernel(iso_scheme scheme);
const iso_product_kernel *iso_avx2_integer_kernel(iso_scheme scheme);
const iso_product_kernel *iso_avx2_float_kernel(iso_scheme scheme);
const iso_product_kernel *iso_avx512_integer_kernel(iso_scheme scheme);
const iso_product_kernel *iso_avx512_float_kernel(iso_scheme scheme);
const iso_product_kernel *iso_avx512_integer_kernel8(iso_scheme scheme);
/* These take rows of whole 64 elements. */
const iso_product_kernel *iso_amx_tile_kernel(iso_scheme scheme);
const iso_product_kernel *iso_amx_tile8_kernel(iso_scheme scheme);
const iso_product_kernel *iso_amx_tile16_kernel(iso_scheme scheme);

/* Quantized rows: for each 32 elements a scale of max |x| / ISO_ACTIVATION_MAXIMUM, values rounded
 * to nearest even. A block that holds NaN or an infinity gets such a scale, so that it shows in
 * every product. Every tier computes the same values. */
void iso_avx2_quantize_planes(const iso_product_kernel *kernel, const float *x, int64_t count,
                              int64_t row, const iso_panel *panel);
void iso_avx2_quantize_words(const iso_product_kernel *kernel, const float *x, int64_t count,
                             int64_t row, const iso_panel *panel);
void iso_baseline_quantize_words(const iso_product_kernel *kernel, const float *x, int64_t count,
                                 int64_t row, const iso_panel *panel);
/* The same to 8 bits: a scale of max |x| / 127. */
void iso_avx2_quantize_bytes(const iso_product_kernel *kernel, const float *x, int64_t count,
                             int64_t row, const iso_panel *panel);

/* load and store of kernels, a tier each. */
#define ISO_ROW_IO(tier)                                                                           \
  void iso_##tier##_load_row(iso_scheme scheme, const void *row, float *out_values,                \
                             int64_t count);                                                       \
  void iso_##tier##_store_row(iso_scheme scheme, const float *values, void *row, int64_t count);
ISO_ROW_IO(baseline)
ISO_ROW_IO(avx2)
ISO_ROW_IO(avx512)
ISO_ROW_IO(amx)
#undef ISO_ROW_IO

/* ---- Activations ---------------------------------------------------------------------------- */

/* Prepared activations of `rows` rows, in one piece of memory. */
typedef struct iso_activations {
  uint8_t *values;
  float *scales;
  int32_t *corrections;
  int64_t rows; /* with those that fill up the last panel */
  int64_t panel_rows;
  int64_t elements; /* K */
  int64_t stretch;  /* elements of a stretch */
  bool few;         /* for the kernel's `few` */
} iso_activations;

/* Bytes of the prepared activations, a multiple of 64; monotonic in rows. */
uint64_t iso_activations_bytes(const iso_product_kernel *kernel, int64_t rows, int64_t elements);
/* Lays them out in `memory` (64-byte aligned): for `few`, or in stretches for `many`. */
iso_activations iso_activations_at(const iso_product_kernel *kernel, void *memory, int64_t rows,
                                   int64_t elements, bool few);
/* The panel of rows from `row` (a multiple of its panel_rows) on, for the stretch from `element` (a
 * multiple of the stretch) on. */
iso_panel iso_activations_panel(const iso_product_kernel *kernel,
                                const iso_activations *activations, int64_t row, int64_t element);
/* Prepares row `row` from its f32 values, or its bf16 ones where the kernel takes those. */
void iso_activations_prepare(const iso_product_kernel *kernel, const iso_activations *activations,
                             int64_t row, const float *x);
void iso_activations_prepare_bf16(const iso_product_kernel *kernel,
                                  const iso_activations *activations, int64_t row,
                                  const uint16_t *x);

/* ---- The driver ------------------------------------------------------------------------------ */

/* Rows that one packed matrix multiplies. */
typedef struct iso_product_segment {
  const uint8_t *weight;
  int64_t first, rows; /* among the product's rows, in order; `rows` may be 0 */
  /* The driver's own. */
  uint64_t activation_offset;
  int64_t item_rows, item_groups, first_item, row_items;
} iso_product_segment;

/* A product of rows with one or more matrices of the same shape. */
typedef struct iso_product {
  const iso_product_kernel *kernel;
  iso_packed_shape shape;
  const iso_tensor *x, *y;
  const float *bias; /* [N] or NULL */
  /* Row i of the product reads row x_rows[i] of x and writes row y_rows[i] of y; NULL: i. */
  const int32_t *x_rows, *y_rows;
  int64_t rows;
  bool asks_ahead; /* for the codes of few rows, however few; see iso_device */
  iso_product_segment *segments;
  int64_t n_segments;
  uint8_t *workspace; /* iso_product_bytes() */
} iso_product;

/* What its asks_ahead is. F32 is read for longer than multiplied. */
static inline bool iso_product_asks_ahead(const iso_device *device, iso_scheme scheme) {
  return device->asks_ahead || (device->asks_for_codes && scheme != ISO_SCHEME_F32);
}

/* Workspace of a product; monotonic in rows. */
uint64_t iso_product_bytes(const iso_product_kernel *kernel, const iso_cpu_pool *pool,
                           const iso_packed_shape *shape, int64_t rows, int64_t n_segments);
/* Runs it. Fills in the segments. */
void iso_product_run(iso_cpu_pool *pool, iso_product *product);

/* ---- Ops ----------------------------------------------------------------------------------------
 */

/* workspace() and launch() of `matmul` and `grouped_matmul` with a kernel. */
uint64_t iso_matmul_workspace(const iso_product_kernel *kernel, const iso_device *device,
                              const iso_op_arguments *arguments);
iso_status iso_matmul_launch(const iso_product_kernel *kernel, iso_queue *queue,
                             const iso_op_arguments *arguments);
uint64_t iso_grouped_matmul_workspace(const iso_product_kernel *kernel, const iso_device *device,
                                      const iso_op_arguments *arguments);
iso_status iso_grouped_matmul_launch(const iso_product_kernel *kernel, iso_queue *queue,
                                     const iso_op_arguments *arguments);

#endif
