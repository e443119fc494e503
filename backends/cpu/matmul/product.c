/* The driver of matrix products: prepares activations, shares the work, stores the results. */
#include "backends/cpu/matmul/product.h"

#include <stdatomic.h>
#include <string.h>

/* Most activation rows that one expanded stretch is used for. */
#define MAX_CHUNK_ROWS 512
#define MIN_CHUNK_ROWS 32
/* Tiles a thread should get at least, so that threads end together. */
#define TILES_PER_THREAD 4
/* Weight bytes that are worth waking one more thread for. */
#define BYTES_PER_THREAD (INT64_C(16) << 10)
/* Results of a row that are stored at once, when there are few rows: whole groups. */
#define STORE_FEATURES 64

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- Memory ------------------------------------------------------------------------------- */

static uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

static uint64_t row_buffer_bytes(int64_t elements) {
  return aligned((uint64_t)elements * sizeof(float)) * ISO_PANEL_ROWS;
}

/* Scratch of a thread: 4 rows as f32; activations of its own; a tile of stretches; its sums. */
typedef struct scratch_layout {
  uint64_t activations, stretches, sums, total; /* offsets in bytes */
} scratch_layout;

static scratch_layout scratch_of(const iso_product_kernel *kernel, int64_t rows,
                                 const iso_packed_shape *shape) {
  int64_t elements = shape->elements;
  scratch_layout layout = {.activations = row_buffer_bytes(elements)};
  layout.stretches =
      layout.activations + iso_activations_bytes(kernel, least(rows, ISO_PANEL_ROWS), elements);
  layout.sums = layout.stretches + (uint64_t)kernel->stretch_bytes * kernel->tile_groups;
  layout.total = layout.sums + (uint64_t)least((rows + 3) / 4 * 4, MAX_CHUNK_ROWS) *
                                   kernel->tile_groups * shape->group_rows * sizeof(float);
  return layout;
}

uint64_t iso_product_workspace(const iso_product_kernel *kernel, const iso_device *device,
                               const iso_op_arguments *arguments) {
  const iso_tensor *weight = &arguments->inputs[1];
  int64_t rows = iso_cpu_row_count(&arguments->inputs[0]);
  iso_packed_shape shape;
  if (!iso_packed_shape_of(weight->scheme, weight->dims[0], weight->dims[1], &shape))
    return 0;
  return iso_cpu_pool_size(device->pool) * scratch_of(kernel, rows, &shape).total +
         iso_activations_bytes(kernel, rows, shape.elements);
}

typedef struct product_job {
  const iso_product_kernel *kernel;
  const iso_op_arguments *arguments;
  iso_cpu_pool *pool;
  iso_packed_shape shape;
  const uint8_t *weight;
  const float *bias;
  int64_t rows;
  iso_activations activations; /* of all rows, where threads share them */
  uint8_t *scratch;
  scratch_layout layout;                  /* of each thread's part of the scratch */
  int64_t chunk_rows, group_tiles, tiles; /* where there is more than one row */
  atomic_int_fast64_t next_tile;
} product_job;

/* ---- Rows in and out ------------------------------------------------------------------------ */

/* The panel of activation rows from `row` on, as f32: in place, or decoded to `buffer`. */
static void read_rows(const product_job *job, int64_t row, float *buffer,
                      const float *out_rows[ISO_PANEL_ROWS]) {
  const iso_tensor *x = &job->arguments->inputs[0];
  int64_t elements = job->shape.elements;
  for (int64_t r = 0; r < least(ISO_PANEL_ROWS, job->rows - row); r++) {
    out_rows[r] = iso_cpu_row(x, row + r);
    if (x->scheme == ISO_SCHEME_F32)
      continue;
    float *target = buffer + (uint64_t)r * (row_buffer_bytes(elements) / ISO_PANEL_ROWS / 4);
    iso_scheme_decode_row(x->scheme, out_rows[r], target, elements);
    out_rows[r] = target;
  }
}

/* Stores values [first, first + count) of a row, those past the last feature left out, with the
 * bias added. `values` is overwritten. */
static void store_row(const product_job *job, int64_t row, int64_t first, int64_t count,
                      float *values) {
  const iso_tensor *y = &job->arguments->outputs[0];
  count = least(count, job->shape.rows - first);
  if (job->bias)
    for (int64_t i = 0; i < count; i++)
      values[i] += job->bias[first + i];
  uint8_t *target =
      (uint8_t *)iso_cpu_row(y, row) + first * iso_scheme_get_info(y->scheme)->block_bytes;
  if (y->scheme == ISO_SCHEME_F32)
    memcpy(target, values, (size_t)count * sizeof(float));
  else
    iso_scheme_encode_row(y->scheme, values, NULL, target, count);
}

/* Prepares all rows in the thread's own scratch. */
static iso_activations prepare_own(const product_job *job, uint8_t *scratch) {
  const float *rows[ISO_PANEL_ROWS];
  iso_activations activations =
      iso_activations_at(job->kernel, scratch + job->layout.activations, job->rows,
                         job->shape.elements, job->activations.stretch);
  read_rows(job, 0, (float *)(void *)scratch, rows);
  if (job->kernel->value_bytes == sizeof(float) && job->rows == 1)
    activations.values = (uint8_t *)(uintptr_t)rows[0];
  else
    iso_activations_prepare(job->kernel, &activations, 0, rows);
  return activations;
}

/* Prepares a share of the rows for all threads, and waits for theirs. */
static iso_activations prepare_share(const product_job *job, uint8_t *scratch, uint32_t thread,
                                     uint32_t n_threads) {
  int64_t begin, end;
  iso_cpu_share(job->rows, ISO_PANEL_ROWS, thread, n_threads, &begin, &end);
  for (int64_t row = begin; row < end; row += ISO_PANEL_ROWS) {
    const float *rows[ISO_PANEL_ROWS];
    read_rows(job, row, (float *)(void *)scratch, rows);
    iso_activations_prepare(job->kernel, &job->activations, row, rows);
  }
  iso_cpu_barrier(job->pool, n_threads);
  return job->activations;
}

/* The rows, prepared by each thread for itself where they are few: cheaper than to wait. */
static iso_activations prepare(const product_job *job, uint8_t *scratch, uint32_t thread,
                               uint32_t n_threads) {
  return job->rows <= ISO_PANEL_ROWS ? prepare_own(job, scratch)
                                     : prepare_share(job, scratch, thread, n_threads);
}

/* ---- Few rows ------------------------------------------------------------------------------- */

static void few_task(void *context, uint32_t thread, uint32_t n_threads) {
  const product_job *job = context;
  const iso_product_kernel *kernel = job->kernel;
  const iso_packed_shape *shape = &job->shape;
  iso_activations activations =
      prepare(job, job->scratch + thread * job->layout.total, thread, n_threads);
  /* One group at a time stays in the caches for all panels. */
  int64_t begin, end, step = job->rows > ISO_PANEL_ROWS ? 1 : STORE_FEATURES / shape->group_rows;
  iso_cpu_share(shape->groups, 1, thread, n_threads, &begin, &end);
  float out[ISO_PANEL_ROWS][STORE_FEATURES];
  for (int64_t group = begin; group < end; group += step) {
    int64_t count = least(step, end - group);
    for (int64_t row = 0; row < job->rows; row += ISO_PANEL_ROWS) {
      int64_t rows = least(ISO_PANEL_ROWS, job->rows - row);
      kernel->few[rows - 1](shape, job->weight + (uint64_t)group * shape->group_bytes, count,
                            iso_activations_panel(kernel, &activations, row, 0), out[0],
                            STORE_FEATURES);
      for (int64_t r = 0; r < rows; r++)
        store_row(job, row + r, group * shape->group_rows, count * shape->group_rows, out[r]);
    }
  }
}

/* ---- Many rows ------------------------------------------------------------------------------ */

/* Asks for the `part`th of `parts` pieces of the packed bytes that the next stretch decodes, so
 * that they arrive while this one is multiplied. Always inline, or it is taken for a function
 * without effect. */
static inline __attribute__((always_inline)) void
prefetch_part(const uint8_t *packed, uint64_t bytes, int64_t part, int64_t parts) {
  uint64_t begin = bytes * (uint64_t)part / (uint64_t)parts / 64 * 64;
  uint64_t end = bytes * (uint64_t)(part + 1) / (uint64_t)parts;
  for (; begin < end; begin += 64)
    __builtin_prefetch(packed + begin, 0, 2);
}

/* Rows [row, row_end) times the tile of groups [group, group + n_groups). */
static void multiply_tile(const product_job *job, const iso_activations *activations, int64_t row,
                          int64_t row_end, int64_t group, int64_t n_groups, uint8_t *stretches,
                          float *sums) {
  const iso_product_kernel *kernel = job->kernel;
  const iso_packed_shape *shape = &job->shape;
  int64_t width = kernel->tile_groups * shape->group_rows;
  const uint8_t *first = job->weight + (uint64_t)group * shape->group_bytes;
  memset(sums, 0, (size_t)((row_end - row) * width) * sizeof(float));
  for (int64_t k = 0; k < shape->elements; k += kernel->stretch_elements) {
    int64_t count = least(kernel->stretch_elements, shape->elements - k);
    const uint8_t *packed = first + iso_packed_step_offset(shape, k / shape->block_elements);
    uint64_t packed_bytes = iso_packed_step_offset(shape, count / shape->block_elements);
    const uint8_t *tile = kernel->expand ? stretches : packed;
    uint64_t stride = kernel->expand ? kernel->stretch_bytes : shape->group_bytes;
    for (int64_t i = 0; kernel->expand && i < n_groups; i++)
      kernel->expand(shape, first + (uint64_t)i * shape->group_bytes, k, count,
                     stretches + (uint64_t)i * stride);
    int64_t panels = (row_end - row + ISO_PANEL_ROWS - 1) / ISO_PANEL_ROWS;
    for (int64_t panel = 0; panel < panels; panel++) {
      int64_t at = row + panel * ISO_PANEL_ROWS;
      for (int64_t i = 0; i < n_groups; i++)
        prefetch_part(packed + (uint64_t)i * shape->group_bytes + packed_bytes, packed_bytes, panel,
                      panels);
      kernel->many[least(ISO_PANEL_ROWS, row_end - at) - 1](
          tile, stride, n_groups, count, iso_activations_panel(kernel, activations, at, k),
          sums + (at - row) * width);
    }
  }
}

static void many_task(void *context, uint32_t thread, uint32_t n_threads) {
  product_job *job = context;
  const iso_product_kernel *kernel = job->kernel;
  uint8_t *scratch = job->scratch + thread * job->layout.total;
  iso_activations activations = prepare(job, scratch, thread, n_threads);
  float *sums = (float *)(void *)(scratch + job->layout.sums);
  int64_t width = kernel->tile_groups * job->shape.group_rows;
  for (;;) {
    int64_t tile = atomic_fetch_add_explicit(&job->next_tile, 1, memory_order_relaxed);
    if (tile >= job->tiles)
      return;
    int64_t group = tile % job->group_tiles * kernel->tile_groups;
    int64_t row = tile / job->group_tiles * job->chunk_rows;
    int64_t row_end = least(row + job->chunk_rows, job->rows);
    multiply_tile(job, &activations, row, row_end, group,
                  least(kernel->tile_groups, job->shape.groups - group),
                  scratch + job->layout.stretches, sums);
    for (int64_t r = row; r < row_end; r++)
      store_row(job, r, group * job->shape.group_rows, width, sums + (r - row) * width);
  }
}

/* Chunks of rows as large as they can be while every thread gets a few tiles. */
static void plan_tiles(product_job *job, uint32_t n_threads) {
  job->group_tiles = (job->shape.groups + job->kernel->tile_groups - 1) / job->kernel->tile_groups;
  job->chunk_rows = MAX_CHUNK_ROWS;
  while (job->chunk_rows > MIN_CHUNK_ROWS &&
         (job->chunk_rows >= 2 * job->rows ||
          job->group_tiles * ((job->rows + job->chunk_rows - 1) / job->chunk_rows) <
              (int64_t)n_threads * TILES_PER_THREAD))
    job->chunk_rows /= 2;
  job->tiles = job->group_tiles * ((job->rows + job->chunk_rows - 1) / job->chunk_rows);
}

iso_status iso_product_launch(const iso_product_kernel *kernel, iso_queue *queue,
                              const iso_op_arguments *arguments) {
  const iso_tensor *weight = &arguments->inputs[1];
  product_job job = {.kernel = kernel, .arguments = arguments, .pool = queue->device->pool};
  job.rows = iso_cpu_row_count(&arguments->inputs[0]);
  if (!iso_packed_shape_of(weight->scheme, weight->dims[0], weight->dims[1], &job.shape))
    return iso_cpu_fail(ISO_ERROR_INTERNAL, "matmul was given a weight that cannot be packed");
  if (job.rows == 0)
    return ISO_OK;
  job.weight = iso_cpu_address(weight);
  job.bias = iso_cpu_address(&arguments->inputs[2]);
  bool few = job.rows <= kernel->few_rows;
  int64_t stretch = few ? job.shape.elements : kernel->stretch_elements;
  uint8_t *workspace = iso_cpu_workspace(arguments);
  job.activations = iso_activations_at(kernel, workspace, job.rows, job.shape.elements, stretch);
  job.scratch = workspace + iso_activations_bytes(kernel, job.rows, job.shape.elements);
  job.layout = scratch_of(kernel, job.rows, &job.shape);
  int64_t bytes = (int64_t)((uint64_t)job.shape.groups * job.shape.group_bytes);
  int64_t passes = (job.rows + ISO_PANEL_ROWS - 1) / ISO_PANEL_ROWS;
  uint32_t n_threads = iso_cpu_threads_for(job.pool, bytes * passes, BYTES_PER_THREAD);
  if (few) {
    iso_cpu_parallel(job.pool, n_threads, few_task, &job);
    return ISO_OK;
  }
  plan_tiles(&job, n_threads);
  iso_cpu_parallel(job.pool, n_threads, many_task, &job);
  return ISO_OK;
}
