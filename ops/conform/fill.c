/* Inputs of a case: the same for the same text and seed, on every machine with IEEE arithmetic. */
#include "ops/conform/case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Random numbers: SplitMix64 (Steele et al., OOPSLA 2014) ------------------------------------
 */

typedef struct generator {
  uint64_t state;
} generator;

static uint64_t next(generator *g) {
  uint64_t z = (g->state += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

/* In [low, high), which is not empty. */
static int64_t between(generator *g, int64_t low, int64_t high) {
  return low + (int64_t)(next(g) % (uint64_t)(high - low));
}

static double uniform(generator *g) { return ((double)(next(g) >> 11) + 0.5) * 0x1p-53; }

static double normal(generator *g) {
  double radius = sqrt(-2 * log(uniform(g)));
  return radius * cos(2 * M_PI * uniform(g));
}

static generator seeded(const iso_case *test, uint64_t seed, uint32_t operand) {
  generator g = {seed ^ 0x15012345ull * (operand + 1)};
  for (const char *c = test->text; *c; c++)
    g.state = (g.state ^ (uint8_t)*c) * 0x100000001B3;
  (void)next(&g);
  return g;
}

/* ---- Values
 * ---------------------------------------------------------------------------------------- */

static void fill_values(generator *g, iso_fill fill, float *values, int64_t n) {
  static const double scales[ISO_FILL_COUNT] = {1, 1000, 1e-3, 1, 1, 1, 10};
  bool constant = next(g) & 1; /* EXTREME: all of one sign, so that products add up */
  float sign = next(g) & 1 ? 1.0f : -1.0f;
  for (int64_t i = 0; i < n; i++) {
    double value = normal(g) * scales[fill];
    values[i] = fill == ISO_FILL_TIES ? (float)(round(value * 2) / 2) : (float)value;
    if (fill == ISO_FILL_EXTREME)
      values[i] = constant ? sign : value < 0 ? -1.0f : 1.0f;
  }
  if (fill == ISO_FILL_OUTLIER)
    values[between(g, 0, n)] = 100;
}

/* Values that an op gives a meaning of their own. `row` has n elements. */
typedef void (*row_filler)(generator *g, const iso_case *test, float *row, int64_t n);

static void fill_gain(generator *g, const iso_case *test, float *row, int64_t n) {
  (void)test;
  for (int64_t i = 0; i < n; i++)
    row[i] = (float)(1 + 0.1 * normal(g));
}

static void fill_frequencies(generator *g, const iso_case *test, float *row, int64_t n) {
  (void)g, (void)test;
  for (int64_t i = 0; i < n; i++)
    row[i] = (float)pow(10000, -(double)i / (double)n);
}

static void fill_slopes(generator *g, const iso_case *test, float *row, int64_t n) {
  (void)g, (void)test;
  for (int64_t i = 0; i < n; i++)
    row[i] = (float)exp2(-8.0 * (double)(i + 1) / (double)n);
}

static void fill_sample_parameters(generator *g, const iso_case *test, float *row, int64_t n) {
  static const float choices[][4] = {
      [ISO_SAMPLE_TEMPERATURE] = {0, 0.7f, 1, 1.5f},
      [ISO_SAMPLE_TOP_K] = {0, 1, 5, 40},
      [ISO_SAMPLE_TOP_P] = {1, 0.5f, 0.9f, 1},
      [ISO_SAMPLE_MIN_P] = {0, 0, 0.05f, 0.3f},
      [ISO_SAMPLE_REPETITION_PENALTY] = {1, 1.1f, 2, 1},
      [ISO_SAMPLE_PRESENCE_PENALTY] = {0, 0.5f, 0, -0.5f},
      [ISO_SAMPLE_FREQUENCY_PENALTY] = {0, 0.25f, 0, 1},
      [ISO_SAMPLE_RESERVED] = {0, 0, 0, 0},
  };
  (void)test;
  for (int64_t i = 0; i < n; i++)
    row[i] = choices[i][next(g) % 4];
}

static const struct {
  iso_op op;
  uint32_t input;
  row_filler fill;
} special_rows[] = {
    {ISO_OP_RMS_NORM, 1, fill_gain},
    {ISO_OP_LAYER_NORM, 1, fill_gain},
    {ISO_OP_ROPE, 2, fill_frequencies},
    {ISO_OP_PAGED_ATTENTION, 7, fill_slopes},
    {ISO_OP_SAMPLE, 1, fill_sample_parameters},
};

static row_filler special_filler(iso_op op, uint32_t input) {
  for (size_t i = 0; i < sizeof special_rows / sizeof special_rows[0]; i++)
    if (special_rows[i].op == op && special_rows[i].input == input)
      return special_rows[i].fill;
  return NULL;
}

/* What a row of this operand is like: weights and parameters stay as in a model. */
static iso_fill fill_of(const iso_case *test, const iso_operand_info *operand) {
  bool of_model = operand->kind == ISO_OPERAND_WEIGHT || operand->kind == ISO_OPERAND_PARAMETER;
  return of_model && test->fill != ISO_FILL_EXTREME ? ISO_FILL_NORMAL : test->fill;
}

/* Rows beyond this many repeat the first ones: encoding a model's worth would take too long. */
enum { DISTINCT_ROWS = 509 };

static iso_status fill_float_input(const iso_case *test, uint64_t seed, uint32_t input,
                                   uint8_t *bytes) {
  const iso_tensor *tensor = &test->arguments.inputs[input];
  const iso_operand_info *operand = &iso_op_get_info(test->arguments.op)->inputs[input];
  generator g = seeded(test, seed, input);
  row_filler special = special_filler(test->arguments.op, input);
  int64_t n_columns = iso_case_columns(tensor);
  uint64_t row_bytes;
  ISO_TRY(iso_scheme_row_bytes(tensor->scheme, n_columns, &row_bytes));
  float *row = malloc((size_t)n_columns * sizeof *row);
  if (!row)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a row");
  for (int64_t r = 0; r < iso_case_rows(tensor); r++) {
    uint8_t *target = bytes + iso_case_row_offset(tensor, r);
    if (r >= DISTINCT_ROWS) {
      memcpy(target, bytes + iso_case_row_offset(tensor, r % DISTINCT_ROWS), row_bytes);
      continue;
    }
    if (special)
      special(&g, test, row, n_columns);
    else
      fill_values(&g, fill_of(test, operand), row, n_columns);
    iso_scheme_encode_row(tensor->scheme, row, NULL, target, n_columns);
  }
  free(row);
  return ISO_OK;
}

/* ---- Indices
 * ----------------------------------------------------------------------------------------- */

static iso_status no_memory(void) {
  return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a conformance case");
}

static int32_t *indices(const iso_case_data *data, uint32_t input) {
  return (int32_t *)(void *)data->inputs[input]; /* malloc aligns, and indices are dense */
}

static int64_t count(const iso_tensor *tensor) {
  return iso_case_rows(tensor) * iso_case_columns(tensor);
}

/* Uniform in [0, limit), both ends included where there is room. */
static void fill_below(generator *g, int32_t *out, int64_t n, int64_t limit) {
  for (int64_t i = 0; i < n; i++)
    out[i] = (int32_t)(i == 0 ? limit - 1 : i == 1 ? 0 : between(g, 0, limit));
}

/* Some of many name no row of the table. */
static iso_status fill_embedding(generator *g, const iso_case *test, iso_case_data *data) {
  int64_t n = count(&test->arguments.inputs[0]), n_rows = test->arguments.inputs[1].dims[0];
  const int32_t outside[] = {-1, (int32_t)n_rows, INT32_MIN, INT32_MAX};
  int32_t *ids = indices(data, 0);
  fill_below(g, ids, n, n_rows);
  for (int64_t i = 0; i < 4 && 4 * i + 4 < n; i++)
    ids[4 * i + 4] = outside[i];
  return ISO_OK;
}

static iso_status fill_gather_rows(generator *g, const iso_case *test, iso_case_data *data) {
  fill_below(g, indices(data, 1), count(&test->arguments.inputs[1]),
             test->arguments.inputs[0].dims[0]);
  return ISO_OK;
}

/* Low experts are chosen more often, so that some get many rows and some none. */
static iso_status fill_grouped_matmul(generator *g, const iso_case *test, iso_case_data *data) {
  int64_t n_experts = test->arguments.inputs[1].dims[0];
  for (int64_t i = 0; i < count(&test->arguments.inputs[2]); i++) {
    double u = uniform(g);
    indices(data, 2)[i] = (int32_t)((double)n_experts * u * u);
  }
  return ISO_OK;
}

static iso_status fill_rope(generator *g, const iso_case *test, iso_case_data *data) {
  static const int64_t limits[] = {2, 64, 4096, 131072};
  for (int64_t i = 0; i < count(&test->arguments.inputs[1]); i++)
    indices(data, 1)[i] = (int32_t)between(g, 0, limits[i % 4]);
  return ISO_OK;
}

/* out[0 .. n) becomes a random order of 0 .. n - 1. */
static void shuffle(generator *g, int32_t *out, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    int64_t j = between(g, 0, i + 1);
    out[i] = out[j];
    out[j] = (int32_t)i;
  }
}

/* Distinct slots, and -1 for every fifth token and those beyond the cache. */
static iso_status fill_kv_write(generator *g, const iso_case *test, iso_case_data *data) {
  const iso_tensor *cache = &test->arguments.inputs[3];
  int64_t n_slots = cache->dims[0] * cache->dims[2];
  int32_t *order = calloc((size_t)n_slots, sizeof *order);
  if (!order)
    return no_memory();
  shuffle(g, order, n_slots);
  for (int64_t t = 0; t < count(&test->arguments.inputs[2]); t++)
    indices(data, 2)[t] = t >= n_slots || t % 5 == 4 ? -1 : order[t];
  free(order);
  return ISO_OK;
}

static iso_status fill_sample(generator *g, const iso_case *test, iso_case_data *data) {
  const iso_tensor *inputs = test->arguments.inputs;
  int64_t n_rows = inputs[0].dims[0], n_tokens = inputs[0].dims[1], n_history = inputs[3].dims[1];
  for (int64_t r = 0; r < n_rows; r++) {
    int32_t *state = indices(data, 2) + r * 4;
    state[0] = (int32_t)next(g);
    state[1] = (int32_t)next(g);
    state[2] = (int32_t)between(g, 0, 100000);
    state[3] = (int32_t)between(g, 0, n_history + 1);
    for (int64_t i = 0; i < n_history; i++)
      indices(data, 3)[r * n_history + i] =
          next(g) % 4 == 0 ? -1 : (int32_t)between(g, 0, n_tokens);
  }
  for (int64_t i = 0; i < count(&inputs[4]); i++)
    indices(data, 4)[i] = (int32_t)next(g);
  return ISO_OK;
}

/* ---- Ragged batches
 * ----------------------------------------------------------------------------------- */

/* Chooses the rows of sequence s out of `left` rows that are not dealt out yet. */
static int64_t choose_length(generator *g, const iso_case *test, int64_t s, int64_t left,
                             int64_t capacity) {
  int64_t n_sequences = test->arguments.inputs[5].dims[0], length = 0;
  bool is_last = s == n_sequences - 1;
  if (test->batch == ISO_BATCH_DECODE || test->batch == ISO_BATCH_FULL ||
      (test->batch == ISO_BATCH_SERVE && !is_last))
    length = 1;
  else if (test->batch == ISO_BATCH_PREFILL || is_last)
    length = (left + n_sequences - s - 1) / (n_sequences - s);
  else if (next(g) % 4 > 0)
    length = next(g) % 3 == 0 ? 1 : between(g, 0, left + 1);
  length = length < left ? length : left;
  return length < capacity ? length : capacity;
}

/* Pages of one sequence: taken in turn from a shuffled list where a row sees them; elsewhere by turns
 * the page of NaN (the last of the list) and numbers of none. */
static void fill_pages(const iso_case *test, int32_t *table, const int32_t *pages, int64_t *taken,
                       int64_t first, int64_t context) {
  int64_t n_blocks = test->arguments.inputs[3].dims[1], n_pages = test->arguments.inputs[1].dims[0];
  int64_t page_size = test->arguments.inputs[1].dims[2];
  int64_t n_usable = n_pages > 1 ? n_pages - 1 : 1;
  const int32_t unseen[] = {pages[n_pages - 1], INT32_MAX, -1, INT32_MIN};
  for (int64_t b = 0; b < n_blocks; b++) {
    bool seen = (b + 1) * page_size > first && b * page_size < context;
    table[b] = seen ? pages[(*taken)++ % n_usable] : unseen[b % 4];
  }
}

static void fill_batch(generator *g, const iso_case *test, iso_case_data *data,
                       const int32_t *pages) {
  const iso_tensor *inputs = test->arguments.inputs;
  int64_t n_blocks = inputs[3].dims[1], capacity = n_blocks * inputs[1].dims[2];
  int64_t window = test->attributes.paged_attention.window, row = 0, taken = 0;
  int32_t *table = indices(data, 3), *start = indices(data, 4);
  int32_t *length = indices(data, 5), *context = indices(data, 6);
  for (int64_t s = 0; s < inputs[5].dims[0]; s++) {
    int64_t n = choose_length(g, test, s, inputs[0].dims[0] - row, capacity);
    int64_t past = test->batch == ISO_BATCH_PREFILL ? 0
                   : test->batch == ISO_BATCH_FULL  ? capacity - n
                                                    : between(g, 0, capacity - n + 1);
    bool idle = n == 0;
    start[s] = idle ? -1 : (int32_t)row;
    length[s] = (int32_t)n;
    context[s] = idle ? -1 : (int32_t)(past + n);
    int64_t first = window && past >= window ? past - window + 1 : 0;
    fill_pages(test, table + s * n_blocks, pages, &taken, first, idle ? 0 : past + n);
    row += n;
    if (test->batch == ISO_BATCH_MIXED && row < inputs[0].dims[0] && next(g) % 3 == 0)
      row++; /* a row of no sequence */
  }
}

static iso_status fill_paged_attention(generator *g, const iso_case *test, iso_case_data *data) {
  int64_t n_pages = test->arguments.inputs[1].dims[0];
  int32_t *pages = calloc((size_t)n_pages, sizeof *pages);
  if (!pages)
    return no_memory();
  shuffle(g, pages, n_pages);
  fill_batch(g, test, data, pages);
  free(pages);
  return ISO_OK;
}

/* Puts NaN back wherever no row of any sequence looks. */
static iso_status hide_unseen(const iso_case *test, iso_case_data *data, uint32_t input) {
  const iso_tensor *cache = &test->arguments.inputs[input];
  int64_t n_heads = cache->dims[1], page_size = cache->dims[2];
  int64_t n_slots = cache->dims[0] * page_size, n_blocks = test->arguments.inputs[3].dims[1];
  int64_t window = test->attributes.paged_attention.window;
  const int32_t *table = indices(data, 3), *length = indices(data, 5), *context = indices(data, 6);
  bool *seen = calloc((size_t)n_slots, sizeof *seen);
  if (!seen)
    return no_memory();
  for (int64_t s = 0; s < test->arguments.inputs[5].dims[0]; s++) {
    int64_t past = context[s] - length[s];
    for (int64_t p = window && past >= window ? past - window + 1 : 0;
         length[s] > 0 && p < context[s]; p++)
      seen[table[s * n_blocks + p / page_size] * page_size + p % page_size] = true;
  }
  for (int64_t slot = 0; slot < n_slots; slot++)
    for (int64_t h = 0; h < n_heads && !seen[slot]; h++) {
      int64_t row = (slot / page_size * n_heads + h) * page_size + slot % page_size;
      memset(data->inputs[input] + iso_case_row_offset(cache, row), 0xFF,
             (size_t)cache->strides[2]);
    }
  free(seen);
  return ISO_OK;
}

static iso_status (*const index_fillers[ISO_OP_COUNT])(generator *g, const iso_case *test,
                                                       iso_case_data *data) = {
    [ISO_OP_EMBEDDING] = fill_embedding,
    [ISO_OP_ROPE] = fill_rope,
    [ISO_OP_KV_WRITE] = fill_kv_write,
    [ISO_OP_PAGED_ATTENTION] = fill_paged_attention,
    [ISO_OP_GROUPED_MATMUL] = fill_grouped_matmul,
    [ISO_OP_GATHER_ROWS] = fill_gather_rows,
    [ISO_OP_SAMPLE] = fill_sample,
};

/* ---- Whole cases
 * ---------------------------------------------------------------------------------------- */

static iso_status allocate(const iso_tensor *tensor, uint8_t **out_bytes, uint64_t *out_size) {
  *out_size = iso_case_span(tensor);
  *out_bytes = malloc(*out_size ? (size_t)*out_size : 1);
  if (!*out_bytes)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for an operand of %llu bytes",
                    (unsigned long long)*out_size);
  memset(*out_bytes, 0xFF, (size_t)*out_size);
  return ISO_OK;
}

static iso_status fill(const iso_case *test, uint64_t seed, iso_case_data *data) {
  const iso_op_arguments *arguments = &test->arguments;
  const iso_op_info *info = iso_op_get_info(arguments->op);
  for (uint32_t i = 0; i < arguments->n_inputs; i++) {
    if (arguments->inputs[i].n_dims == 0)
      continue;
    ISO_TRY(allocate(&arguments->inputs[i], &data->inputs[i], &data->input_bytes[i]));
    if (info->inputs[i].kind != ISO_OPERAND_INDEX)
      ISO_TRY(fill_float_input(test, seed, i, data->inputs[i]));
    else if (!index_fillers[arguments->op])
      return iso_fail(ISO_ERROR_INTERNAL, "conformance cannot fill the indices of %s", info->name);
  }
  generator g = seeded(test, seed, ISO_MAX_INPUTS);
  if (index_fillers[arguments->op])
    ISO_TRY(index_fillers[arguments->op](&g, test, data));
  if (arguments->op == ISO_OP_PAGED_ATTENTION) {
    ISO_TRY(hide_unseen(test, data, 1));
    ISO_TRY(hide_unseen(test, data, 2));
  }
  for (uint32_t i = 0; i < arguments->n_outputs; i++) {
    ISO_TRY(allocate(&arguments->outputs[i], &data->outputs[i], &data->output_bytes[i]));
    if (info->outputs[i].alias_of >= 0)
      memcpy(data->outputs[i], data->inputs[info->outputs[i].alias_of],
             (size_t)data->output_bytes[i]);
  }
  return ISO_OK;
}

iso_status iso_case_fill(const iso_case *test, uint64_t seed, iso_case_data *out) {
  *out = (iso_case_data){0};
  iso_status status = fill(test, seed, out);
  if (status != ISO_OK)
    iso_case_data_free(out);
  return status;
}

void iso_case_data_free(iso_case_data *data) {
  for (uint32_t i = 0; i < ISO_MAX_INPUTS; i++)
    free(data->inputs[i]);
  for (uint32_t i = 0; i < ISO_MAX_OUTPUTS; i++)
    free(data->outputs[i]);
  *data = (iso_case_data){0};
}
