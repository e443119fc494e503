/* Attention over paged keys and values, one sequence, key head, row and query head after another.
 * Only positions that some row sees are read, so unwritten rows and pages may hold anything. */
#include "ops/ref/reference.h"
#include <math.h>

enum { Q, K_CACHE, V_CACHE, BLOCK_TABLE, QUERY_START, QUERY_LENGTH, CONTEXT_LENGTH, ALIBI_SLOPES };

typedef struct attention {
  iso_reference_call *call;
  int64_t n_heads, n_kv_heads, head_dim, value_dim, page_size;
  double scale, soft_cap;
  float *slopes;        /* NULL: none */
  float *keys, *values; /* rows [first, last) of one sequence and key head */
  float *query, *result;
  double *scores, *sums;
} attention;

/* One sequence of the batch. */
typedef struct span {
  int64_t index, row, n_rows, n_context;
  int64_t first; /* lowest position that any of its rows sees */
} span;

static iso_status read_span(const iso_reference_call *call, int64_t index, span *out_span) {
  const iso_host_tensor *inputs = call->inputs;
  int64_t capacity = iso_n_columns(&inputs[BLOCK_TABLE]) * inputs[K_CACHE].meta->dims[2];
  int64_t n_tokens = inputs[Q].meta->dims[0];
  span sequence = {.index = index, .n_rows = iso_load_index(&inputs[QUERY_LENGTH], index)};
  ISO_TRY(iso_check_index(call, QUERY_LENGTH, index, sequence.n_rows, 0, n_tokens + 1));
  if (sequence.n_rows > 0) {
    sequence.row = iso_load_index(&inputs[QUERY_START], index);
    sequence.n_context = iso_load_index(&inputs[CONTEXT_LENGTH], index);
    ISO_TRY(
        iso_check_index(call, QUERY_START, index, sequence.row, 0, n_tokens - sequence.n_rows + 1));
    ISO_TRY(iso_check_index(call, CONTEXT_LENGTH, index, sequence.n_context, sequence.n_rows,
                            capacity + 1));
    int64_t window = call->attributes.paged_attention.window;
    int64_t position = sequence.n_context - sequence.n_rows;
    sequence.first = window && position >= window ? position - window + 1 : 0;
  }
  *out_span = sequence;
  return ISO_OK;
}

static iso_status load_head(attention *work, const span *sequence, int64_t kv_head) {
  const iso_host_tensor *inputs = work->call->inputs;
  int64_t n_blocks = iso_n_columns(&inputs[BLOCK_TABLE]), n_pages = inputs[K_CACHE].meta->dims[0];
  for (int64_t p = sequence->first; p < sequence->n_context; p++) {
    int64_t entry = sequence->index * n_blocks + p / work->page_size;
    int32_t page = iso_load_index(&inputs[BLOCK_TABLE], entry);
    ISO_TRY(iso_check_index(work->call, BLOCK_TABLE, entry, page, 0, n_pages));
    int64_t row = (page * work->n_kv_heads + kv_head) * work->page_size + p % work->page_size;
    int64_t place = p - sequence->first;
    iso_load_row(&inputs[K_CACHE], row, work->keys + place * work->head_dim);
    iso_load_row(&inputs[V_CACHE], row, work->values + place * work->value_dim);
  }
  return ISO_OK;
}

static double score(const attention *work, int64_t head, const float *key, int64_t distance) {
  double sum = 0;
  for (int64_t i = 0; i < work->head_dim; i++)
    sum += (double)work->query[i] * key[i];
  sum *= work->scale;
  if (work->soft_cap > 0)
    sum = work->soft_cap * tanh(sum / work->soft_cap);
  return work->slopes ? sum + work->slopes[head] * (double)distance : sum;
}

static void attend(attention *work, const span *sequence, int64_t i, int64_t head) {
  const iso_paged_attention_attributes *attributes = &work->call->attributes.paged_attention;
  int64_t row = (sequence->row + i) * work->n_heads + head;
  int64_t position = sequence->n_context - sequence->n_rows + i;
  int64_t last = attributes->causal ? position : sequence->n_context - 1;
  int64_t first =
      attributes->window && position >= attributes->window ? position - attributes->window + 1 : 0;
  iso_load_row(&work->call->inputs[Q], row, work->query);
  double largest = -INFINITY, total = 0;
  for (int64_t p = first; p <= last; p++) {
    const float *key = work->keys + (p - sequence->first) * work->head_dim;
    work->scores[p - first] = score(work, head, key, p - position);
    largest = fmax(largest, work->scores[p - first]);
  }
  for (int64_t e = 0; e < work->value_dim; e++)
    work->sums[e] = 0;
  for (int64_t p = first; p <= last; p++) {
    double weight = exp(work->scores[p - first] - largest);
    const float *value = work->values + (p - sequence->first) * work->value_dim;
    total += weight;
    for (int64_t e = 0; e < work->value_dim; e++)
      work->sums[e] += weight * value[e];
  }
  for (int64_t e = 0; e < work->value_dim; e++)
    work->result[e] = (float)(work->sums[e] / total);
  iso_store_row(&work->call->outputs[0], row, work->result);
}

static iso_status prepare(attention *work) {
  iso_reference_call *call = work->call;
  const iso_host_tensor *inputs = call->inputs;
  work->n_heads = inputs[Q].meta->dims[1];
  work->n_kv_heads = inputs[K_CACHE].meta->dims[1];
  work->page_size = inputs[K_CACHE].meta->dims[2];
  work->head_dim = iso_n_columns(&inputs[Q]);
  work->value_dim = iso_n_columns(&inputs[V_CACHE]);
  float scale = call->attributes.paged_attention.scale;
  work->scale = scale != 0 ? scale : 1 / sqrt((double)work->head_dim);
  work->soft_cap = call->attributes.paged_attention.soft_cap;
  int64_t longest = 0;
  for (int64_t s = 0; s < inputs[QUERY_LENGTH].meta->dims[0]; s++) {
    span sequence;
    ISO_TRY(read_span(call, s, &sequence));
    if (sequence.n_context - sequence.first > longest)
      longest = sequence.n_context - sequence.first;
  }
  ISO_TRY(iso_reference_scratch(call, longest * work->head_dim, sizeof(float), &work->keys));
  ISO_TRY(iso_reference_scratch(call, longest * work->value_dim, sizeof(float), &work->values));
  ISO_TRY(iso_reference_scratch(call, longest, sizeof(double), &work->scores));
  ISO_TRY(iso_reference_scratch(call, work->value_dim, sizeof(double), &work->sums));
  ISO_TRY(iso_reference_scratch(call, work->head_dim, sizeof(float), &work->query));
  ISO_TRY(iso_reference_scratch(call, work->value_dim, sizeof(float), &work->result));
  if (iso_is_present(&inputs[ALIBI_SLOPES]))
    ISO_TRY(iso_load_all(call, &inputs[ALIBI_SLOPES], &work->slopes));
  return ISO_OK;
}

iso_status iso_reference_paged_attention(iso_reference_call *call) {
  attention work = {.call = call};
  ISO_TRY(prepare(&work));
  /* Rows of no sequence are zero; `result` still is. */
  for (int64_t row = 0; row < iso_n_rows(&call->outputs[0]); row++)
    iso_store_row(&call->outputs[0], row, work.result);
  int64_t group = work.n_heads / work.n_kv_heads; /* query heads that share a key head */
  for (int64_t s = 0; s < call->inputs[QUERY_LENGTH].meta->dims[0]; s++) {
    span sequence;
    ISO_TRY(read_span(call, s, &sequence));
    for (int64_t g = 0; g < work.n_kv_heads && sequence.n_rows > 0; g++) {
      ISO_TRY(load_head(&work, &sequence, g));
      for (int64_t i = 0; i < sequence.n_rows; i++)
        for (int64_t h = g * group; h < (g + 1) * group; h++)
          attend(&work, &sequence, i, h);
    }
  }
  return ISO_OK;
}
