/* Cases of paged_attention: ragged batches over pages dealt out at random, whose unseen parts are
 * NaN. */
#ifndef ISOMER_TESTS_UNIT_ATTENTION_CASE_H
#define ISOMER_TESTS_UNIT_ATTENTION_CASE_H

#include "cpu_case.h"

#if !defined(ATTENTION_TOLERANCE)
#define ATTENTION_TOLERANCE 3e-5
#endif

static cpu_test_device device; /* that cases run on */

static const iso_scheme FLOATS[] = {ISO_SCHEME_F32, ISO_SCHEME_F16, ISO_SCHEME_BF16};
static const iso_scheme CACHES[] = {ISO_SCHEME_F32, ISO_SCHEME_F16, ISO_SCHEME_BF16,
                                    ISO_SCHEME_Q8_0, ISO_SCHEME_F8_G128};
enum { N_CACHES = sizeof CACHES / sizeof CACHES[0], N_FLOATS = 3 };

#define MAX_SEQUENCES 8

/* Sequences of a batch: rows of this step and positions in the cache with them. */
typedef struct batch {
  int64_t n_sequences;
  int32_t rows[MAX_SEQUENCES], contexts[MAX_SEQUENCES];
  int64_t unused_rows; /* rows of q of no sequence */
} batch;

typedef struct shape {
  int64_t n_heads, n_kv_heads, head_dim, value_dim, page_size;
} shape;

__attribute__((unused)) static const batch MIXED = {
    6, {1, 0, 19, 1, 70, 5}, {1, 0, 19, 203, 131, 40}, 3};
static const batch DECODE = {3, {1, 1, 1}, {1500, 64, 65}, 0};
static const batch ONE_LONG = {1, {1}, {3000}, 0};

typedef struct operands {
  int32_t *table, *start, *length, *context;
} operands;

/* Pages are dealt out at random and everything a sequence does not see is NaN. */
static void fill_caches(cpu_case *job, const batch *b, const shape *s, const int32_t *table,
                        int64_t n_blocks) {
  for (uint32_t operand = 1; operand <= 2; operand++) {
    iso_tensor cache = job->arguments.inputs[operand];
    struct iso_buffer buffer = {.data = job->inputs[operand]};
    cache.buffer = &buffer;
    int64_t dim = cache.dims[3];
    float row[512];
    memset(job->inputs[operand], POISON, job->input_bytes[operand]);
    for (int64_t q = 0; q < b->n_sequences; q++)
      for (int32_t p = 0; p < b->contexts[q]; p++)
        for (int64_t g = 0; g < s->n_kv_heads; g++) {
          for (int64_t i = 0; i < dim; i++)
            row[i] = cpu_random_float(-1, 1);
          int64_t page = table[q * n_blocks + p / s->page_size];
          iso_scheme_encode_row(
              cache.scheme, row, NULL,
              iso_cpu_row(&cache, (page * s->n_kv_heads + g) * s->page_size + p % s->page_size),
              dim);
        }
  }
}

static operands attention_begin(cpu_case *job, const batch *b, const shape *s,
                                const iso_paged_attention_attributes *attributes, iso_scheme from,
                                iso_scheme cache, iso_scheme to, bool alibi) {
  int64_t n_tokens = b->unused_rows, longest = 1;
  for (int64_t q = 0; q < b->n_sequences; q++) {
    n_tokens += b->rows[q];
    longest = b->contexts[q] > longest ? b->contexts[q] : longest;
  }
  int64_t n_blocks = (longest + s->page_size - 1) / s->page_size + 1;
  int64_t n_pages = b->n_sequences * n_blocks + 2;
  n_pages += n_pages % 7 == 0; /* so that multiples of 7 visit every page once */
  int64_t q[] = {n_tokens, s->n_heads, s->head_dim}, table[] = {b->n_sequences, n_blocks};
  int64_t k[] = {n_pages, s->n_kv_heads, s->page_size, s->head_dim};
  int64_t v[] = {n_pages, s->n_kv_heads, s->page_size, s->value_dim};
  int64_t y[] = {n_tokens, s->n_heads, s->value_dim};
  operands made;
  cpu_case_begin(job, ISO_OP_PAGED_ATTENTION, attributes, ATTENTION_TOLERANCE);
  cpu_case_floats(job, from, 3, q, 4, -3, 3);
  cpu_case_floats(job, cache, 4, k, 0, 0, 0);
  cpu_case_floats(job, cache, 4, v, 0, 0, 0);
  made.table = cpu_case_indices(job, 2, table);
  made.start = cpu_case_indices(job, 1, table);
  made.length = cpu_case_indices(job, 1, table);
  made.context = cpu_case_indices(job, 1, table);
  int32_t next_row = 1 < b->unused_rows ? 1 : 0;
  for (int64_t i = 0; i < b->n_sequences; i++) {
    made.start[i] = next_row;
    made.length[i] = b->rows[i];
    made.context[i] = b->contexts[i];
    next_row += b->rows[i];
    /* A permutation of the pages; what lies past the context must not be read. */
    for (int64_t j = 0; j < n_blocks; j++)
      made.table[i * n_blocks + j] =
          j * s->page_size < b->contexts[i] ? (int32_t)((i * n_blocks + j) * 7 % n_pages) : -1;
  }
  fill_caches(job, b, s, made.table, n_blocks);
  if (alibi) {
    cpu_case_floats(job, ISO_SCHEME_F32, 1, &s->n_heads, 0, 0.01f, 0.3f);
  }
  cpu_case_output(job, to, 3, y, 2);
  return made;
}

static inline void attention_case(const batch *b, const shape *s,
                                  const iso_paged_attention_attributes *attributes, iso_scheme from,
                                  iso_scheme cache, iso_scheme to, bool alibi) {
  cpu_case job;
  attention_begin(&job, b, s, attributes, from, cache, to, alibi);
  /* AMX's tiles round queries and weights to bf16 where the cache is, and the exponentials of many
   * rows are within 2^-13 (attention_wide_tiles.inc), of averages of values up to 1. */
  int32_t most_rows = 0;
  for (int64_t q = 0; q < b->n_sequences; q++)
    most_rows = b->rows[q] > most_rows ? b->rows[q] : most_rows;
  if (device.device->tier == ISO_CPU_TIER_AMX)
    job.absolute = cache == ISO_SCHEME_BF16                   ? 0x1p-7
                   : cache == ISO_SCHEME_F16 && most_rows > 1 ? 0x1p-12
                                                              : 0;
  cpu_case_run(&job, &device);
  cpu_case_end(&job);
}

static inline int64_t between(int64_t low, int64_t high) {
  return low + (int64_t)(cpu_random() % (uint32_t)(high - low + 1));
}

#endif
