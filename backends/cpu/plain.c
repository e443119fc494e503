/* Ops that move or encode whole rows, and need no instruction tier: embedding, gather_rows,
 * quantize_rows, route_top_k. Decoding and encoding are quant/'s. */
#include "backends/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* Elements decoded at a time: whole blocks of every scheme. */
#define CHUNK 1024

typedef struct plain_job {
  const iso_op_arguments *arguments;
  void (*row)(const iso_op_arguments *arguments, int64_t row);
  int64_t n_rows;
} plain_job;

static void plain_task(void *context, uint32_t thread, uint32_t n_threads) {
  const plain_job *job = context;
  int64_t row, end;
  iso_cpu_share(job->n_rows, 1, thread, n_threads, &row, &end);
  for (; row < end; row++)
    job->row(job->arguments, row);
}

static iso_status run_rows(iso_queue *queue, const iso_op_arguments *arguments, int64_t n_rows,
                           int64_t n_columns, void (*row)(const iso_op_arguments *, int64_t)) {
  plain_job job = {arguments, row, n_rows};
  iso_cpu_pool *pool = queue->device->pool;
  iso_cpu_parallel(pool, iso_cpu_threads_for(pool, n_rows * n_columns, 8192), plain_task, &job);
  return ISO_OK;
}

/* Fails unless all of an operand's indices are in [0, limit). */
static iso_status check_indices(const iso_op_arguments *arguments, uint32_t operand,
                                int64_t limit) {
  const iso_tensor *tensor = &arguments->inputs[operand];
  const int32_t *indices = iso_cpu_address(tensor);
  int64_t n = iso_cpu_row_count(tensor) * tensor->dims[tensor->n_dims - 1];
  for (int64_t i = 0; i < n; i++)
    if (indices[i] < 0 || indices[i] >= limit)
      return iso_cpu_fail(ISO_ERROR_INVALID_ARGUMENT, "%s: %s[%lld] is %d, must be below %lld",
                          iso_op_get_info(arguments->op)->name,
                          iso_op_get_info(arguments->op)->inputs[operand].name, (long long)i,
                          indices[i], (long long)limit);
  return ISO_OK;
}

/* Address of element `index` (a multiple of the block) of a row. */
static uint8_t *element(iso_scheme scheme, void *row, int64_t index) {
  const iso_scheme_info *info = iso_scheme_get_info(scheme);
  return (uint8_t *)row + index / info->block_elements * info->block_bytes;
}

/* Decodes one row, scales it and encodes it in another scheme. */
static void transcode(const iso_tensor *from, void *source, const iso_tensor *to, void *target,
                      int64_t n, float scale) {
  float values[CHUNK];
  for (int64_t begin = 0; begin < n; begin += CHUNK) {
    int64_t count = n - begin < CHUNK ? n - begin : CHUNK;
    iso_scheme_decode_row(from->scheme, element(from->scheme, source, begin), values, count);
    for (int64_t i = 0; i < count; i++)
      values[i] *= scale;
    iso_scheme_encode_row(to->scheme, values, NULL, element(to->scheme, target, begin), count);
  }
}

static void embedding_row(const iso_op_arguments *arguments, int64_t row) {
  const iso_embedding_attributes *attributes = arguments->attributes;
  const int32_t *ids = iso_cpu_address(&arguments->inputs[0]);
  const iso_tensor *table = &arguments->inputs[1], *y = &arguments->outputs[0];
  bool inside = ids[row] >= 0 && ids[row] < table->dims[0];
  transcode(table, iso_cpu_row(table, inside ? ids[row] : 0), y, iso_cpu_row(y, row),
            table->dims[1], inside ? attributes->scale : NAN);
}

static iso_status embedding_launch(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor *y = &arguments->outputs[0];
  return run_rows(queue, arguments, y->dims[0], y->dims[1], embedding_row);
}

static void gather_rows_row(const iso_op_arguments *arguments, int64_t row) {
  const iso_tensor *x = &arguments->inputs[0], *y = &arguments->outputs[0];
  const int32_t *rows = iso_cpu_address(&arguments->inputs[1]);
  memcpy(iso_cpu_row(y, row), iso_cpu_row(x, rows[row]),
         (size_t)y->dims[1] * iso_scheme_get_info(y->scheme)->block_bytes);
}

static iso_status gather_rows_launch(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor *y = &arguments->outputs[0];
  ISO_TRY(check_indices(arguments, 1, arguments->inputs[0].dims[0]));
  return run_rows(queue, arguments, y->dims[0], y->dims[1], gather_rows_row);
}

static void quantize_rows_row(const iso_op_arguments *arguments, int64_t row) {
  const iso_tensor *x = &arguments->inputs[0], *y = &arguments->outputs[0];
  transcode(x, iso_cpu_row(x, row), y, iso_cpu_row(y, row), x->dims[x->n_dims - 1], 1.0f);
}

static iso_status quantize_rows_launch(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor *y = &arguments->outputs[0];
  return run_rows(queue, arguments, iso_cpu_row_count(y), y->dims[y->n_dims - 1] * 8,
                  quantize_rows_row);
}

/* ---- route_top_k ---------------------------------------------------------------------------- */

static float logit(const iso_tensor *logits, void *row, int64_t expert) {
  float value;
  iso_scheme_decode_row(logits->scheme, element(logits->scheme, row, expert), &value, 1);
  return value;
}

/* For choosing only: NaN is last. */
static float comparable(float value) { return isnan(value) ? -INFINITY : value; }

/* The choices so far stay sorted, best first; a new one moves past those it beats. */
static void route_top_k_row(const iso_op_arguments *arguments, int64_t row) {
  const iso_route_top_k_attributes *attributes = arguments->attributes;
  const iso_tensor *logits = &arguments->inputs[0];
  int64_t n_experts = logits->dims[1], k = attributes->k, count = 0;
  int32_t *experts = (int32_t *)iso_cpu_address(&arguments->outputs[0]) + row * k;
  float *weights = (float *)iso_cpu_address(&arguments->outputs[1]) + row * k;
  void *source = iso_cpu_row(logits, row);
  for (int64_t e = 0; e < n_experts; e++) {
    float value = logit(logits, source, e);
    int64_t place = count;
    while (place > 0 && comparable(value) > comparable(weights[place - 1]))
      place--;
    if (place == k)
      continue;
    count += count < k;
    for (int64_t i = count - 1; i > place; i--) {
      weights[i] = weights[i - 1];
      experts[i] = experts[i - 1];
    }
    weights[place] = value;
    experts[place] = (int32_t)e;
  }
  double largest = weights[0], sum = 0;
  for (int64_t e = 0; e < (attributes->normalize ? k : n_experts); e++)
    sum += exp((attributes->normalize ? weights[e] : logit(logits, source, e)) - largest);
  for (int64_t c = 0; c < k; c++)
    weights[c] = (float)(attributes->scale * exp(weights[c] - largest) / sum);
}

static iso_status route_top_k_launch(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor *logits = &arguments->inputs[0];
  return run_rows(queue, arguments, logits->dims[0], logits->dims[1] * 16, route_top_k_row);
}

/* ---- Records -------------------------------------------------------------------------------- */

#define RECORD(name_, NAME_, ...)                                                                  \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_##NAME_, .name = #name_ ".plain",                     \
    .activations = ISO_CPU_FLOAT_SCHEMES, .layout = ISO_LAYOUT_PLAIN,                              \
    .rank = ISO_CPU_RANK(ISO_CPU_TIER_BASELINE, 0), .launch = name_##_launch, __VA_ARGS__          \
  }

static const iso_kernel records[] = {
    RECORD(embedding, EMBEDDING, .schemes = ISO_CPU_ANY_SCHEME),
    RECORD(gather_rows, GATHER_ROWS, .schemes = 0),
    RECORD(quantize_rows, QUANTIZE_ROWS, .schemes = 0),
    RECORD(route_top_k, ROUTE_TOP_K, .schemes = 0),
};

const iso_cpu_records iso_cpu_plain = {records, sizeof records / sizeof records[0]};
