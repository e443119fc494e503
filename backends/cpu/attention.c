/* The part of paged_attention that no instruction tier changes: arguments and items. */
#include "backends/cpu/attention.h"

#include <math.h>
#include <string.h>

enum { Q, K_CACHE, V_CACHE, BLOCK_TABLE, QUERY_START, QUERY_LENGTH, CONTEXT_LENGTH, SLOPES };

static iso_status refuse(const char *what, int64_t sequence, int64_t value, int64_t low,
                         int64_t high) {
  return iso_cpu_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "paged_attention: %s of sequence %lld is %lld, must be %lld to %lld", what,
                      (long long)sequence, (long long)value, (long long)low, (long long)high);
}

/* Checks the rows, the context and the pages of one sequence. */
static iso_status check_sequence(const attention *job, int64_t sequence, int64_t rows_left) {
  int64_t n_tokens = job->q->dims[0], n_rows = job->query_length[sequence];
  if (n_rows < 0 || n_rows > rows_left)
    return refuse("query_length", sequence, n_rows, 0, rows_left);
  if (n_rows == 0)
    return ISO_OK;
  int64_t start = job->query_start[sequence], context = job->context_length[sequence];
  int64_t capacity = job->n_blocks * job->page_size;
  if (start < 0 || start > n_tokens - n_rows)
    return refuse("query_start", sequence, start, 0, n_tokens - n_rows);
  if (context < n_rows || context > capacity)
    return refuse("context_length", sequence, context, n_rows, capacity);
  int64_t position;
  attention_range range = attention_row_range(job, sequence, 0, &position);
  const int32_t *pages = job->block_table + sequence * job->n_blocks;
  for (int64_t block = range.first / job->page_size; block <= (context - 1) / job->page_size;
       block++)
    if (pages[block] < 0 || pages[block] >= job->k_cache->dims[0])
      return refuse("a page", sequence, pages[block], 0, job->k_cache->dims[0] - 1);
  return ISO_OK;
}

static int64_t whole(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

void iso_cpu_attention_sizes(const iso_op_arguments *arguments, int64_t vector_width,
                             attention *out_job) {
  attention *job = out_job;
  const iso_tensor *inputs = arguments->inputs;
  *job = (attention){.q = &inputs[Q],
                     .k_cache = &inputs[K_CACHE],
                     .v_cache = &inputs[V_CACHE],
                     .y = &arguments->outputs[0],
                     .n_sequences = inputs[BLOCK_TABLE].dims[0],
                     .n_blocks = inputs[BLOCK_TABLE].dims[1],
                     .n_heads = inputs[Q].dims[1],
                     .n_kv_heads = inputs[K_CACHE].dims[1],
                     .head_dim = inputs[Q].dims[2],
                     .value_dim = inputs[V_CACHE].dims[3],
                     .page_size = inputs[K_CACHE].dims[2]};
  job->group = job->n_heads / job->n_kv_heads;
  job->head_stride = whole(job->head_dim, vector_width);
  job->value_stride = whole(job->value_dim, vector_width);
  int64_t capacity = job->n_blocks * job->page_size;
  job->chunk_keys = ATTENTION_CHUNK_KEYS *
                    whole(capacity, ATTENTION_CHUNK_KEYS * ATTENTION_MAX_CHUNKS) /
                    (ATTENTION_CHUNK_KEYS * ATTENTION_MAX_CHUNKS);
  job->max_chunks = capacity / job->chunk_keys + 1;
}

iso_status iso_cpu_attention_read(const iso_op_arguments *arguments, int64_t vector_width,
                                  attention *out_job) {
  const iso_paged_attention_attributes *attributes = arguments->attributes;
  attention *job = out_job;
  iso_cpu_attention_sizes(arguments, vector_width, job);
  job->scale = attributes->scale != 0 ? attributes->scale : 1.0f / sqrtf((float)job->head_dim);
  job->soft_cap = attributes->soft_cap;
  job->causal = attributes->causal;
  job->window = attributes->window;
  job->block_table = iso_cpu_address(&arguments->inputs[BLOCK_TABLE]);
  job->query_start = iso_cpu_address(&arguments->inputs[QUERY_START]);
  job->query_length = iso_cpu_address(&arguments->inputs[QUERY_LENGTH]);
  job->context_length = iso_cpu_address(&arguments->inputs[CONTEXT_LENGTH]);
  job->slopes = iso_cpu_input(arguments, SLOPES);
  int64_t rows_left = job->q->dims[0];
  for (int64_t s = 0; s < job->n_sequences; s++) {
    ISO_TRY(check_sequence(job, s, rows_left));
    rows_left -= job->query_length[s];
  }
  return ISO_OK;
}

uint64_t iso_cpu_attention_max_items(const attention *job, int64_t n_tokens, int64_t narrow_rows) {
  return (uint64_t)(job->n_kv_heads * (job->n_sequences + n_tokens * job->group / narrow_rows));
}

uint64_t iso_cpu_attention_max_narrow_items(const attention *job, int64_t narrow_rows) {
  return (uint64_t)(job->n_kv_heads * job->n_sequences *
                    (whole(job->group, narrow_rows) / narrow_rows));
}

static void zero_rows(const attention *job) {
  uint64_t bytes = (uint64_t)job->value_dim * iso_scheme_get_info(job->y->scheme)->block_bytes;
  for (int64_t row = 0; row < job->y->dims[0] * job->n_heads; row++)
    memset(iso_cpu_row(job->y, row), 0, bytes);
}

void iso_cpu_attention_list(attention *job, int64_t narrow_rows, int64_t wide_rows) {
  int64_t n_tokens = 0;
  int32_t narrow = 0;
  job->n_items = 0;
  for (int64_t s = 0; s < job->n_sequences; s++) {
    int64_t n_rows = job->query_length[s] * job->group;
    n_tokens += job->query_length[s];
    bool is_narrow = attention_is_narrow(job, s, narrow_rows);
    int64_t tile = is_narrow ? narrow_rows : wide_rows;
    /* The last rows see the most keys and come first, so that threads finish together. */
    for (int64_t row = whole(n_rows, tile) - tile; row >= 0; row -= tile)
      for (int64_t g = 0; g < job->n_kv_heads; g++)
        job->items[job->n_items++] = (attention_item){
            (int32_t)s, (int32_t)g, (int32_t)row,
            (int32_t)(n_rows - row < tile ? n_rows - row : tile), is_narrow ? narrow++ : 0};
  }
  if (n_tokens < job->y->dims[0])
    zero_rows(job);
}
