/* The driver of matrix products: prepares activations, shares the work, stores the results. */
#include "backends/cpu/matmul/product.h"

#include <stdatomic.h>
#include <string.h>

/* Most activation rows that one expanded stretch is used for, and the least worth expanding. */
#define MAX_CHUNK_ROWS 512
#define MIN_CHUNK_ROWS 32
/* Items a thread should get at least, so that threads end together; and where each decodes all of
 * its weights first, which those that share columns do again. */
#define ITEMS_PER_THREAD 8
#define SPAN_ITEMS_PER_THREAD 4
/* Weight bytes that are worth waking one more thread for, and those of an item with one row. With
 * more an item takes longer and may be smaller, down to that share. */
#define BYTES_PER_THREAD (INT64_C(16) << 10)
#define BYTES_PER_ITEM (INT64_C(32) << 10)
#define MAX_ITEM_SHARE 8
/* Panels of an item of a narrow matrix at least, where there are so many. */
#define NARROW_PANELS 8
/* Activations up to this are prepared by every thread for itself: cheaper than to wait. */
#define PRIVATE_ELEMENTS 16384
/* Results of a row that are stored at once, when there are few rows: whole groups. */
#define STORE_FEATURES 64
/* Results larger than caches of a core are stored past them: to fetch lines that will be
 * overwritten took a fifth of the time. */
#define STREAMED_BYTES (INT64_C(4) << 20)

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

/* ---- Memory ------------------------------------------------------------------------------- */

static uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Scratch of a thread: a row as f32; activations of its own; an expanded tile; sums of an item. */
typedef struct scratch_layout {
  uint64_t activations, tile, sums, total; /* offsets in bytes */
} scratch_layout;

/* Activations of all segments, each of which may begin a panel and is padded. */
static uint64_t activation_bytes(const iso_product_kernel *kernel, int64_t rows, int64_t elements,
                                 int64_t n_segments) {
  int64_t used = least(rows, n_segments), filling = kernel->whole_panels ? kernel->panel_rows : 0;
  return iso_activations_bytes(kernel, rows + used * filling, elements) +
         (uint64_t)used * 3 * ISO_CPU_ALIGNMENT;
}

/* Whether the sums of an item wait for a second span of elements. */
static bool has_spans(const iso_product_kernel *kernel, const iso_packed_shape *shape) {
  return kernel->span_elements && shape->elements > kernel->span_elements;
}

/* Groups of an item at most, of more than a few rows. Tiles go together where that keeps
 * activations near. */
static int64_t item_groups_of(const iso_product_kernel *kernel, const iso_packed_shape *shape) {
  bool together = kernel->item_tiles && (!kernel->span_elements || has_spans(kernel, shape));
  return (int64_t)kernel->tile_groups * (together ? kernel->item_tiles : 1);
}

/* Expanded tiles: one, with all its stretches of a span; or one that is multiplied, one that is
 * made, and scratch of that. */
static uint64_t tile_memory(const iso_product_kernel *kernel, int64_t elements) {
  uint64_t tile = aligned(kernel->tile_bytes);
  if (kernel->span_elements)
    return tile * (uint64_t)parts(least(elements, kernel->span_elements), kernel->stretch_elements);
  return kernel->advance ? 2 * tile + aligned(kernel->scratch_bytes) : tile;
}

static scratch_layout scratch_of(const iso_product_kernel *kernel, const iso_packed_shape *shape,
                                 int64_t rows, int64_t n_segments) {
  scratch_layout layout = {.activations = aligned((uint64_t)shape->elements * sizeof(float))};
  int64_t width = item_groups_of(kernel, shape) * shape->group_rows;
  int64_t own_rows = least(rows, most(1, PRIVATE_ELEMENTS / most(1, shape->elements)));
  int64_t chunk = parts(least(rows, MAX_CHUNK_ROWS), kernel->panel_rows) * kernel->panel_rows;
  layout.tile =
      layout.activations + activation_bytes(kernel, own_rows, shape->elements, n_segments);
  layout.sums = layout.tile + tile_memory(kernel, shape->elements);
  layout.total = layout.sums + (uint64_t)(chunk * width) * sizeof(float);
  return layout;
}

uint64_t iso_product_bytes(const iso_product_kernel *kernel, const iso_cpu_pool *pool,
                           const iso_packed_shape *shape, int64_t rows, int64_t n_segments) {
  return activation_bytes(kernel, rows, shape->elements, n_segments) +
         iso_cpu_pool_size(pool) * scratch_of(kernel, shape, rows, n_segments).total;
}

/* ---- A running product ------------------------------------------------------------------------
 */

typedef struct product_job {
  const iso_product *product;
  iso_cpu_pool *pool;
  scratch_layout layout;
  uint8_t *activations, *scratch; /* shared; a part a thread */
  bool private_activations;
  int64_t n_items;
  atomic_int_fast64_t next_item;
} product_job;

/* One thread's view of it. */
typedef struct product_worker {
  product_job *job;
  uint8_t *scratch, *activations;
} product_worker;

/* Narrow matrices have no other loop. */
static bool is_few(const iso_product *product, const iso_product_segment *segment) {
  return product->shape.is_narrow || segment->rows <= product->kernel->few_rows;
}

static bool asks_ahead(const iso_product *product, const iso_product_segment *segment) {
  return is_few(product, segment) &&
         (product->asks_ahead || segment->rows >= product->kernel->ahead_rows);
}

static iso_activations activations_of(const product_worker *worker,
                                      const iso_product_segment *segment) {
  const iso_product *product = worker->job->product;
  return iso_activations_at(product->kernel, worker->activations + segment->activation_offset,
                            segment->rows, product->shape.elements, is_few(product, segment));
}

/* ---- Rows in and out ------------------------------------------------------------------------ */

/* A row as f32: in place, or decoded to `buffer`. */
static const float *read_row(const iso_product *product, const void *source, float *buffer) {
  iso_scheme scheme = product->x->scheme;
  if (scheme == ISO_SCHEME_F32)
    return source;
  product->kernel->load(scheme, source, buffer, product->shape.elements);
  return buffer;
}

static void prepare_row(const iso_product *product, const iso_activations *activations, int64_t row,
                        int64_t x_row, float *buffer) {
  const iso_tensor *x = product->x;
  const void *source = iso_cpu_row(x, product->x_rows ? product->x_rows[x_row] : x_row);
  if (x->scheme == ISO_SCHEME_BF16 && product->kernel->prepare_bf16)
    iso_activations_prepare_bf16(product->kernel, activations, row, source);
  else
    iso_activations_prepare(product->kernel, activations, row, read_row(product, source, buffer));
}

/* Stores values [first, first + count) of a row, those past the last feature left out, with the
 * bias added. `values` is overwritten. */
static void store_row(const iso_product *product, int64_t row, int64_t first, int64_t count,
                      float *values) {
  const iso_tensor *y = product->y;
  count = least(count, product->shape.rows - first);
  if (product->bias)
    for (int64_t i = 0; i < count; i++)
      values[i] += product->bias[first + i];
  uint8_t *target = iso_cpu_row(y, product->y_rows ? product->y_rows[row] : row);
  if (y->scheme == ISO_SCHEME_F32)
    memcpy(target + first * (int64_t)sizeof(float), values, (size_t)count * sizeof(float));
  else
    product->kernel->store(y->scheme, values, target + first * y->strides[y->n_dims - 1], count);
}

/* Prepares this thread's share of all panels: every one where activations are its own. */
static void prepare_panels(const product_worker *worker, uint32_t thread, uint32_t n_threads) {
  const product_job *job = worker->job;
  const iso_product *product = job->product;
  int64_t panels = 0, begin, end;
  for (int64_t s = 0; s < product->n_segments; s++)
    panels +=
        parts(product->segments[s].rows, activations_of(worker, &product->segments[s]).panel_rows);
  if (job->private_activations)
    thread = 0, n_threads = 1;
  iso_cpu_share(panels, 1, thread, n_threads, &begin, &end);
  float *buffer = (float *)(void *)worker->scratch;
  for (int64_t s = 0, panel = 0; s < product->n_segments && panel < end; s++) {
    const iso_product_segment *segment = &product->segments[s];
    iso_activations activations = activations_of(worker, segment);
    int64_t panel_rows = activations.panel_rows, count = parts(segment->rows, panel_rows);
    int64_t row = most(0, begin - panel) * panel_rows;
    int64_t row_end = least(segment->rows, (end - panel) * panel_rows);
    for (; row < row_end; row++)
      prepare_row(product, &activations, row, segment->first + row, buffer);
    panel += count;
  }
}

/* ---- Few rows ------------------------------------------------------------------------------- */

/* Groups [group, group_end) times rows [first, row_end) of a segment, which begin a panel. The
 * codes at `next` are read after them. */
static void run_few(const product_worker *worker, const iso_product_segment *segment, int64_t first,
                    int64_t row_end, int64_t group, int64_t group_end, const uint8_t *next) {
  const iso_product *product = worker->job->product;
  const iso_product_kernel *kernel = product->kernel;
  const iso_packed_shape *shape = &product->shape;
  iso_activations activations = activations_of(worker, segment);
  const uint8_t *end = asks_ahead(product, segment)
                           ? segment->weight + (uint64_t)group_end * shape->group_bytes
                           : NULL;
  /* One group at a time stays in the caches for all panels. */
  int64_t step = row_end - first > activations.panel_rows ? 1 : STORE_FEATURES / shape->group_rows;
  float out[ISO_MAX_PANEL_ROWS][STORE_FEATURES];
  for (; group < group_end; group += step) {
    int64_t count = least(step, group_end - group);
    for (int64_t row = first; row < row_end; row += activations.panel_rows) {
      iso_panel panel = iso_activations_panel(kernel, &activations, row, 0);
      if (end && row == first) {
        panel.end = end;
        panel.jump = next - end;
      }
      kernel->few(shape, segment->weight + (uint64_t)group * shape->group_bytes, count, &panel,
                  out[0], STORE_FEATURES);
      for (int64_t r = 0; r < panel.rows; r++)
        store_row(product, segment->first + row + r, group * shape->group_rows,
                  count * shape->group_rows, out[r]);
    }
  }
}

/* ---- Many rows ------------------------------------------------------------------------------ */

/* Asks for the lines of `packed` from *at on, some for each panel of a tile, so that what the next
 * stretch decodes arrives while this one is multiplied. Always inline, or it is taken for a
 * function without effect. */
static inline __attribute__((always_inline)) void prefetch_lines(const uint8_t *packed, uint64_t at,
                                                                 uint64_t end, uint64_t bytes) {
  for (uint64_t stop = at + bytes < end ? at + bytes : end; at < stop; at += 64)
    __builtin_prefetch(packed + at, 0, 2);
}

/* What an item multiplies: groups [group, group_end) times rows [row, row_end) of a segment. */
typedef struct item_work {
  const product_worker *worker;
  const iso_product_segment *segment;
  iso_activations activations;
  int64_t row, row_end, group, group_end;
} item_work;

/* Where an item is: a tile of groups and a stretch. All tiles use a stretch before the next one. */
typedef struct item_place {
  int64_t group, k;
} item_place;

static const iso_product *product_of(const item_work *item) { return item->worker->job->product; }

/* Goes to the next place. False past the last one: then it is where another item of this thread
 * may begin. */
static bool next_place(const item_work *item, item_place *place) {
  const iso_product *product = product_of(item);
  place->group += product->kernel->tile_groups;
  if (place->group < item->group_end)
    return true;
  place->group = item->group;
  place->k += product->kernel->stretch_elements;
  if (place->k < product->shape.elements)
    return true;
  int64_t width = item->group_end - item->group;
  *place = (item_place){item->group + width * iso_cpu_pool_size(item->worker->job->pool), 0};
  return false;
}

static const uint8_t *codes_at(const item_work *item, item_place place) {
  const iso_packed_shape *shape = &product_of(item)->shape;
  return item->segment->weight + (uint64_t)place.group * shape->group_bytes +
         iso_packed_step_offset(shape, place.k / shape->block_elements);
}

static int64_t elements_at(const item_work *item, item_place place) {
  const iso_product *product = product_of(item);
  return least(product->kernel->stretch_elements, product->shape.elements - place.k);
}

static int64_t groups_at(const item_work *item, item_place place) {
  const iso_product *product = product_of(item);
  return least(product->kernel->tile_groups, product->shape.groups - place.group);
}

/* Where the sums of a whole tile are rows of results as they are: those of row `row`, or NULL. */
static uint8_t *results_at(const item_work *item, item_place place, int64_t row,
                           iso_product_call *call) {
  const iso_product *product = product_of(item);
  const iso_tensor *y = product->y;
  int64_t first = place.group * product->shape.group_rows, n = y->n_dims;
  int64_t width = product->kernel->tile_groups * product->shape.group_rows;
  call->out_is_bf16 = y->scheme == ISO_SCHEME_BF16;
  bool last = place.k + call->count == product->shape.elements;
  bool dense = n == 2 || (n == 3 && y->strides[0] == y->dims[1] * y->strides[1]);
  bool can_store = product->kernel->advance || product->kernel->span_elements;
  if (!can_store || !last || !dense || product->bias || product->y_rows ||
      first + width > product->shape.rows || !(call->out_is_bf16 || y->scheme == ISO_SCHEME_F32))
    return NULL;
  call->out_stride = y->strides[n - 2];
  uint8_t *out = iso_cpu_row(y, item->segment->first + row);
  out += first * y->strides[n - 1];
  call->out_is_streamed = ((uintptr_t)out | (uintptr_t)call->out_stride) % 64 == 0 &&
                          product->rows * call->out_stride >= STREAMED_BYTES;
  return out;
}

/* Stores `count` rows of sums, from row `row` of the item's segment on, where they are whole and
 * the kernel has not done so. */
static void store_sums(const item_work *item, item_place place, const iso_product_call *call,
                       int64_t row, int64_t count) {
  const iso_product *product = product_of(item);
  int64_t width = product->kernel->tile_groups * product->shape.group_rows;
  if (call->out || place.k + call->count != product->shape.elements)
    return;
  for (int64_t r = 0; r < count; r++)
    store_row(product, item->segment->first + row + r, place.group * product->shape.group_rows,
              width, call->sums + r * width);
}

/* One tile and stretch times all rows. Sums of a call are stored while they are in the caches. */
static void run_place(const item_work *item, item_place place, const uint8_t *tile, float *sums,
                      iso_ahead *ahead) {
  const iso_product *product = product_of(item);
  const iso_product_kernel *kernel = product->kernel;
  const iso_packed_shape *shape = &product->shape;
  int64_t width = kernel->tile_groups * shape->group_rows, panel_rows = kernel->panel_rows;
  int64_t call_rows = kernel->call_rows ? kernel->call_rows : panel_rows;
  uint64_t calls = (uint64_t)parts(item->row_end - item->row, call_rows);
  iso_product_call call = {.stretches = tile, .stride = kernel->stretch_stride, .ahead = ahead};
  call.n_groups = groups_at(item, place);
  call.count = elements_at(item, place);
  call.first = place.k == 0;
  const uint8_t *packed = codes_at(item, place);
  uint64_t next = iso_packed_step_offset(shape, call.count / shape->block_elements);
  uint64_t next_end = 2 * next, next_part = next / calls / 64 * 64 + 64;
  for (int64_t at = item->row; at < item->row_end; at += call_rows, next += next_part) {
    int64_t count = least(call_rows, item->row_end - at);
    for (int64_t i = 0; !ahead && i < call.n_groups; i++)
      prefetch_lines(packed + (uint64_t)i * shape->group_bytes, next, next_end, next_part);
    iso_panel panel = iso_activations_panel(kernel, &item->activations, at, place.k);
    if (kernel->call_rows)
      panel.rows = parts(count, panel_rows) * panel_rows;
    call.panel = &panel;
    call.sums = sums + (at - item->row) * width;
    call.out = results_at(item, place, at, &call);
    call.out_rows = count;
    kernel->many(&call);
    store_sums(item, place, &call, at, count);
  }
}

/* The expansion of a place's tile to `out`, or what brings its codes near. */
static iso_ahead ahead_of(const item_work *item, item_place place, uint8_t *out, uint8_t *scratch) {
  const iso_product_kernel *kernel = product_of(item)->kernel;
  iso_ahead ahead = {.out = out, .scratch = scratch, .begin = place.k};
  ahead.group_bytes = product_of(item)->shape.group_bytes;
  ahead.groups = item->segment->weight + (uint64_t)place.group * ahead.group_bytes;
  ahead.n_groups = groups_at(item, place);
  ahead.count = elements_at(item, place);
  ahead.units = ahead.n_groups * ahead.count / 32 * kernel->ahead_units;
  const uint8_t *codes = codes_at(item, place);
  next_place(item, &place);
  ahead.later = codes_at(item, place) - codes;
  return ahead;
}

/* Every place of an item, with its next tile made meanwhile. */
static void run_ahead(const item_work *item, float *sums, int64_t tile_sums) {
  const iso_product *product = product_of(item);
  const iso_product_kernel *kernel = product->kernel;
  uint64_t tile_bytes = aligned(kernel->tile_bytes);
  uint8_t *tiles[2] = {item->worker->scratch + item->worker->job->layout.tile}, *scratch;
  tiles[1] = tiles[0] + tile_bytes;
  scratch = tiles[1] + tile_bytes;
  item_place place = {item->group, 0};
  iso_ahead ahead = ahead_of(item, place, tiles[0], scratch);
  kernel->advance(&ahead, tile_bytes ? ahead.units : 0);
  bool more = true;
  for (int turn = 0; more; turn ^= 1) {
    item_place at = place;
    more = next_place(item, &place);
    ahead = more ? ahead_of(item, place, tiles[!turn], scratch) : (iso_ahead){0};
    run_place(item, at, tile_bytes ? tiles[turn] : codes_at(item, at),
              sums + (at.group - item->group) / kernel->tile_groups * tile_sums, &ahead);
    kernel->advance(&ahead, tile_bytes ? ahead.units : 0);
  }
}

/* Elements of a span, from `k` on. */
static int64_t span_at(const item_work *item, int64_t k) {
  const iso_product *product = product_of(item);
  return least(product->kernel->span_elements, product->shape.elements - k);
}

/* The codes of the tile after a place, or perhaps of this thread's next item. */
static iso_near near_of(const item_work *item, item_place place) {
  const iso_product *product = product_of(item);
  const iso_packed_shape *shape = &product->shape;
  place.group += product->kernel->tile_groups;
  if (place.group >= item->group_end) {
    place = (item_place){item->group, place.k + product->kernel->span_elements};
    if (place.k >= shape->elements) {
      int64_t width = item->group_end - item->group;
      place = (item_place){item->group + width * iso_cpu_pool_size(item->worker->job->pool), 0};
    }
  }
  if (place.group >= shape->groups)
    return (iso_near){0};
  return (iso_near){
      .codes = codes_at(item, place),
      .group_bytes = shape->group_bytes,
      .bytes = iso_packed_step_offset(shape, span_at(item, place.k) / shape->block_elements),
      .n_groups = groups_at(item, place)};
}

/* All stretches of a tile over a span. */
static void expand_span(const item_work *item, item_place place, uint8_t *tile) {
  const iso_product *product = product_of(item);
  const iso_product_kernel *kernel = product->kernel;
  const iso_packed_shape *shape = &product->shape;
  int64_t end = place.k + span_at(item, place.k);
  for (int64_t i = 0; i < groups_at(item, place); i++) {
    const uint8_t *group = item->segment->weight + (uint64_t)(place.group + i) * shape->group_bytes;
    uint8_t *out = tile + (uint64_t)i * kernel->stretch_stride;
    for (int64_t k = place.k; k < end; k += kernel->stretch_elements, out += kernel->tile_bytes)
      kernel->expand(group, k, least(kernel->stretch_elements, end - k), out);
  }
}

/* A span of a tile times all rows of an item, which are call_rows at most. */
static void run_span(const item_work *item, item_place place, const uint8_t *tile, float *sums) {
  const iso_product_kernel *kernel = product_of(item)->kernel;
  int64_t count = item->row_end - item->row;
  iso_near near = near_of(item, place);
  iso_panel panels[ISO_MAX_SPAN_STRETCHES];
  iso_product_call call = {.stretches = tile,
                           .stride = kernel->stretch_stride,
                           .n_groups = groups_at(item, place),
                           .count = span_at(item, place.k),
                           .panel = panels,
                           .first = place.k == 0,
                           .sums = sums,
                           .out_rows = count,
                           .near = &near};
  for (int64_t k = 0, s = 0; k < call.count; k += kernel->stretch_elements, s++) {
    panels[s] = iso_activations_panel(kernel, &item->activations, item->row, place.k + k);
    panels[s].rows = parts(count, kernel->panel_rows) * kernel->panel_rows;
  }
  call.out = results_at(item, place, item->row, &call);
  kernel->many(&call);
  store_sums(item, place, &call, item->row, count);
}

/* Groups [group, group_end) times rows [row, row_end) of a segment. */
static void run_many(const product_worker *worker, const iso_product_segment *segment, int64_t row,
                     int64_t row_end, int64_t group, int64_t group_end) {
  const iso_product *product = worker->job->product;
  const iso_product_kernel *kernel = product->kernel;
  const iso_packed_shape *shape = &product->shape;
  int64_t tile_sums = parts(row_end - row, kernel->panel_rows) * kernel->panel_rows *
                      kernel->tile_groups * shape->group_rows;
  float *sums = (float *)(void *)(worker->scratch + worker->job->layout.sums);
  uint8_t *tile = worker->scratch + worker->job->layout.tile;
  item_work item = {worker, segment,  activations_of(worker, segment), row, row_end,
                    group,  group_end};
  if (kernel->advance) {
    run_ahead(&item, sums, tile_sums);
    return;
  }
  if (kernel->span_elements) {
    for (item_place place = {group, 0}; place.k < shape->elements; place.k += kernel->span_elements)
      for (place.group = group; place.group < group_end; place.group += kernel->tile_groups) {
        expand_span(&item, place, tile);
        run_span(&item, place, tile,
                 sums + (place.group - group) / kernel->tile_groups * tile_sums);
      }
    return;
  }
  for (item_place place = {group, 0}; place.k < shape->elements;
       place.k += kernel->stretch_elements)
    for (place.group = group; place.group < group_end; place.group += kernel->tile_groups) {
      for (int64_t i = 0; kernel->expand && i < groups_at(&item, place); i++)
        kernel->expand(segment->weight + (uint64_t)(place.group + i) * shape->group_bytes, place.k,
                       elements_at(&item, place), tile + (uint64_t)i * kernel->stretch_stride);
      run_place(&item, place, kernel->expand ? tile : codes_at(&item, place),
                sums + (place.group - group) / kernel->tile_groups * tile_sums, NULL);
    }
}

/* ---- Items ------------------------------------------------------------------------------------
 */

/* Cuts a segment into items: chunks of rows as large as they can be while every thread gets a few
 * items, times tiles; or runs of groups, where rows are few. */
static void cut_segment(const iso_product *product, iso_product_segment *segment,
                        int64_t items_wanted) {
  const iso_packed_shape *shape = &product->shape;
  if (is_few(product, segment)) {
    segment->item_rows = segment->rows;
    int64_t item_bytes = BYTES_PER_ITEM / most(1, least(segment->rows, MAX_ITEM_SHARE));
    segment->item_groups =
        most(parts(item_bytes, (int64_t)shape->group_bytes), shape->groups / items_wanted);
    /* Narrow matrices are short of groups, not of rows. */
    int64_t panels = most(1, parts(segment->rows, product->kernel->few_panel_rows));
    if (shape->is_narrow && panels >= NARROW_PANELS)
      segment->item_rows =
          most(NARROW_PANELS, parts(panels, items_wanted)) * parts(segment->rows, panels);
  } else {
    int64_t chunks = parts(segment->rows, MAX_CHUNK_ROWS);
    segment->item_groups = item_groups_of(product->kernel, shape);
    /* Of the widest items half as many will do where weights are used as they lie: all activations
     * come once for an item, from the third level if they are many (README.md). */
    int64_t widest = parts(shape->groups, segment->item_groups) * chunks;
    bool takes_packed = product->kernel->item_tiles && !product->kernel->tile_bytes;
    if (takes_packed && 2 * widest >= items_wanted)
      items_wanted = least(items_wanted, widest);
    while (segment->item_groups > product->kernel->tile_groups &&
           parts(shape->groups, segment->item_groups) * chunks < items_wanted)
      segment->item_groups -= product->kernel->tile_groups;
    int64_t tiles = parts(shape->groups, segment->item_groups);
    segment->item_rows = MAX_CHUNK_ROWS;
    while (segment->item_rows > MIN_CHUNK_ROWS &&
           (segment->item_rows >= 2 * segment->rows ||
            tiles * parts(segment->rows, segment->item_rows) < items_wanted))
      segment->item_rows /= 2;
  }
  segment->row_items = segment->rows ? parts(segment->rows, segment->item_rows) : 0;
}

/* Threads worth waking, and the cut into items for them. */
static uint32_t plan_items(product_job *job, iso_product *product) {
  const iso_packed_shape *shape = &product->shape;
  int64_t group_bytes = (int64_t)shape->group_bytes, work = 0, used = 0;
  for (int64_t s = 0; s < product->n_segments; s++) {
    work += shape->groups * group_bytes * parts(product->segments[s].rows, 4);
    used += product->segments[s].rows > 0;
  }
  int64_t items = product->kernel->span_elements ? SPAN_ITEMS_PER_THREAD : ITEMS_PER_THREAD;
  uint32_t n_threads = iso_cpu_threads_for(job->pool, work, BYTES_PER_THREAD);
  uint64_t offset = 0;
  for (int64_t s = 0; s < product->n_segments; s++) {
    iso_product_segment *segment = &product->segments[s];
    cut_segment(product, segment, most(1, (int64_t)n_threads * items / most(1, used)));
    segment->activation_offset = offset;
    offset += iso_activations_bytes(product->kernel, segment->rows, shape->elements);
    segment->first_item = job->n_items;
    job->n_items += segment->row_items * parts(shape->groups, segment->item_groups);
  }
  return n_threads;
}

/* The groups of an item; returns where their codes begin. */
static const uint8_t *item_groups(const iso_product *product, const iso_product_segment *segment,
                                  int64_t item, int64_t *out_group, int64_t *out_end) {
  int64_t group_items = parts(product->shape.groups, segment->item_groups);
  int64_t group = item % group_items * segment->item_groups;
  *out_group = group;
  *out_end = least(group + segment->item_groups, product->shape.groups);
  return segment->weight + (uint64_t)group * product->shape.group_bytes;
}

/* The segment of an item, `segment` or a later one. A segment without rows has no items. */
static const iso_product_segment *segment_of(const iso_product *product,
                                             const iso_product_segment *segment, int64_t item) {
  while (segment + 1 < product->segments + product->n_segments && segment[1].first_item <= item)
    segment++;
  return segment;
}

/* `next` is the item that this thread does then, if there is one. */
static void run_item(const product_worker *worker, const iso_product_segment *segment, int64_t item,
                     int64_t next) {
  const product_job *job = worker->job;
  const iso_product *product = job->product;
  int64_t in_segment = item - segment->first_item, group, group_end;
  const uint8_t *codes = item_groups(product, segment, in_segment, &group, &group_end);
  int64_t row =
      in_segment / parts(product->shape.groups, segment->item_groups) * segment->item_rows;
  int64_t row_end = least(row + segment->item_rows, segment->rows);
  if (!is_few(product, segment)) {
    run_many(worker, segment, row, row_end, group, group_end);
    return;
  }
  /* Without a next item the codes just read are asked for once more, which costs nothing. */
  const uint8_t *then =
      codes + (uint64_t)(group_end - group) * product->shape.group_bytes - ISO_FEW_AHEAD;
  if (next < job->n_items) {
    const iso_product_segment *later = segment_of(product, segment, next);
    int64_t next_group, next_end;
    then = item_groups(product, later, next - later->first_item, &next_group, &next_end);
  }
  run_few(worker, segment, row, row_end, group, group_end, then);
}

static int64_t take_item(product_job *job) {
  return atomic_fetch_add_explicit(&job->next_item, 1, memory_order_relaxed);
}

static void product_task(void *context, uint32_t thread, uint32_t n_threads) {
  product_job *job = context;
  const iso_product *product = job->product;
  if (job->private_activations &&
      atomic_load_explicit(&job->next_item, memory_order_relaxed) >= job->n_items)
    return; /* too late to be of use */
  product_worker worker = {.job = job, .scratch = job->scratch + thread * job->layout.total};
  worker.activations =
      job->private_activations ? worker.scratch + job->layout.activations : job->activations;
  prepare_panels(&worker, thread, n_threads);
  if (!job->private_activations)
    iso_cpu_barrier(job->pool, n_threads);
  if (product->kernel->begin)
    product->kernel->begin();
  const iso_product_segment *segment = product->segments;
  /* An item that codes are asked for is taken before the one before it is done. */
  for (int64_t item = take_item(job), next; item < job->n_items; item = next) {
    segment = segment_of(product, segment, item);
    bool early = asks_ahead(product, segment);
    next = early ? take_item(job) : job->n_items;
    run_item(&worker, segment, item, next);
    if (!early)
      next = take_item(job);
  }
  if (product->kernel->end)
    product->kernel->end();
}

void iso_product_run(iso_cpu_pool *pool, iso_product *product) {
  const iso_packed_shape *shape = &product->shape;
  product_job job = {.product = product, .pool = pool};
  job.layout = scratch_of(product->kernel, shape, product->rows, product->n_segments);
  job.activations = product->workspace;
  job.scratch = product->workspace + activation_bytes(product->kernel, product->rows,
                                                      shape->elements, product->n_segments);
  job.private_activations =
      product->rows == 1 || product->rows * shape->elements <= PRIVATE_ELEMENTS;
  uint32_t n_threads = plan_items(&job, product);
  if (job.n_items > 0 && job.private_activations)
    iso_cpu_parallel_items(pool, n_threads, product_task, &job);
  else if (job.n_items > 0)
    iso_cpu_parallel(pool, n_threads, product_task, &job);
}
