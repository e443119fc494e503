/* paged_attention on CPUs: what its parts share. The parts are .inc files, compiled once a tier.
 *
 * Work is cut into items: one sequence, one key head, and some of its query rows. A query row is
 * one token and one of the `group` query heads that read this key head; rows are counted
 * token * group + head, so an item's rows share every key and value they read.
 *
 *   narrow  few rows, as in decoding: vectors run along the head, keys are taken in chunks whose
 *           partial results are merged in order. When there are few items a thread, the chunks
 *           go to different threads (flash-decoding, Dao et al. 2023).
 *   wide    many rows, as in prefill: a lane a row. Keys and values are broadcast from their own
 *           rows, so nothing but the queries is ever transposed, and the softmax needs no sums
 *           across lanes.
 *
 * Both are one pass over the keys with an online softmax in f32 (arXiv:2205.14135). What a row
 * computes depends on its own sequence and the width of the block table, never on the other rows
 * of the batch or on the number of threads. */
#ifndef ISOMER_BACKENDS_CPU_ATTENTION_H
#define ISOMER_BACKENDS_CPU_ATTENTION_H

#include "backends/cpu/cpu.h"

#include <stdatomic.h>

/* Keys of a narrow item whose scores are held at a time, and those of a wide one. */
#define ATTENTION_NARROW_KEYS 64
#define ATTENTION_WIDE_KEYS 32
/* Keys of a chunk, unless the block table is so wide that there would be more chunks than this. */
#define ATTENTION_CHUNK_KEYS 256
#define ATTENTION_MAX_CHUNKS 64
/* Items a thread below which chunks are shared out, so that threads finish together. */
#define ATTENTION_SPLIT_BELOW 4

typedef struct attention_item {
  int32_t sequence, kv_head;
  int32_t first_row; /* of the sequence's token * group + head */
  int32_t n_rows;
  int32_t narrow; /* counts narrow items: whose partial results are its */
} attention_item;

typedef struct attention {
  const iso_tensor *q, *k_cache, *v_cache, *y;
  const int32_t *block_table, *query_start, *query_length, *context_length;
  const float *slopes; /* by query head, or NULL */
  int64_t n_sequences, n_blocks, n_heads, n_kv_heads, group, head_dim, value_dim, page_size;
  int64_t head_stride, value_stride; /* floats of a row in scratch: whole vectors */
  int64_t chunk_keys, max_chunks;
  int64_t window; /* 0: all */
  float scale, soft_cap;
  bool causal;
  bool asks_twice; /* into the second-level cache and then the first; README.md has the numbers */
  iso_cpu_pool *pool;
  attention_item *items; /* in workspace */
  int64_t n_items;
  bool split;      /* chunks of the narrow items go to different threads */
  float *partials; /* [narrow items, max_chunks, partial_floats] when split */
  float *scratch;  /* [threads, scratch_floats] */
  int64_t partial_floats, scratch_floats;
  atomic_llong next; /* unit of work that nobody has taken yet */
} attention;

/* Positions that one query row sees: [first, last]. */
typedef struct attention_range {
  int64_t first, last;
} attention_range;

static inline attention_range attention_row_range(const attention *job, int64_t sequence,
                                                  int64_t row, int64_t *out_position) {
  int64_t context = job->context_length[sequence];
  int64_t position = context - job->query_length[sequence] + row / job->group;
  attention_range range = {0, job->causal ? position : context - 1};
  if (job->window && position >= job->window)
    range.first = position - job->window + 1;
  *out_position = position;
  return range;
}

/* Positions that any row of an item sees. */
static inline attention_range attention_item_range(const attention *job,
                                                   const attention_item *item) {
  int64_t position;
  attention_range first = attention_row_range(job, item->sequence, item->first_row, &position);
  attention_range last =
      attention_row_range(job, item->sequence, item->first_row + item->n_rows - 1, &position);
  return (attention_range){first.first, last.last};
}

/* Address of a cache row. */
static inline const void *attention_cache_row(const attention *job, const iso_tensor *cache,
                                              int64_t sequence, int64_t kv_head, int64_t position) {
  int64_t page = job->block_table[sequence * job->n_blocks + position / job->page_size];
  return (const uint8_t *)iso_cpu_address(cache) + page * cache->strides[0] +
         kv_head * cache->strides[1] + position % job->page_size * cache->strides[2];
}

/* Row of q or y of an item's row. */
static inline void *attention_row(const attention *job, const iso_tensor *tensor, int64_t sequence,
                                  int64_t kv_head, int64_t row) {
  int64_t token = job->query_start[sequence] + row / job->group;
  int64_t head = kv_head * job->group + row % job->group;
  return (uint8_t *)iso_cpu_address(tensor) + token * tensor->strides[0] +
         head * tensor->strides[1];
}

/* Reads the sizes, which exist before there are buffers. `vector_width` is in floats. */
void iso_cpu_attention_sizes(const iso_op_arguments *arguments, int64_t vector_width,
                             attention *out_job);

/* Reads and checks the arguments of a launch; every index it accepts is safe to follow. */
ISO_MUST_CHECK iso_status iso_cpu_attention_read(const iso_op_arguments *arguments,
                                                 int64_t vector_width, attention *out_job);

/* Whether a sequence's rows make narrow items: if they are few, and in decoding, where many heads
 * of one key head would else be a single item that no other thread can share. */
static inline bool attention_is_narrow(const attention *job, int64_t sequence,
                                       int64_t narrow_rows) {
  int64_t n_tokens = job->query_length[sequence];
  return n_tokens == 1 || n_tokens * job->group <= narrow_rows;
}

/* Lists the items: narrow ones of up to `narrow_rows`, wide ones of up to `wide_rows`, which is
 * more. Writes zero to rows of no sequence. */
void iso_cpu_attention_list(attention *job, int64_t narrow_rows, int64_t wide_rows);

/* Most items that iso_cpu_attention_list() makes, and how many of them are narrow. */
uint64_t iso_cpu_attention_max_items(const attention *job, int64_t n_tokens, int64_t narrow_rows);
uint64_t iso_cpu_attention_max_narrow_items(const attention *job, int64_t narrow_rows);

#endif
