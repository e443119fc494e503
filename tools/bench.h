/* `isomer bench`: steps of a runtime, timed, with llama-bench's tests and names. */
#ifndef ISOMER_TOOLS_BENCH_H
#define ISOMER_TOOLS_BENCH_H

#include "tools/tool.h"

/* One test: a prompt of n_prompt tokens, or n_gen tokens generated one by one, after n_depth
 * tokens already cached. n_sequences decode at once. */
typedef struct iso_bench_test {
  int32_t n_prompt, n_gen; /* one of them is 0 */
  int32_t n_depth, n_sequences;
} iso_bench_test;

/* A runtime and the pages of its sequences. */
typedef struct iso_bench {
  const iso_options *options;
  const iso_model *model;
  iso_runtime *runtime;
  uint64_t seed;
  uint32_t drawn; /* random numbers so far */
  int32_t n_batch, pages_per_sequence;
  int32_t *pages; /* [n_sequences, pages_per_sequence] */
  int32_t *tokens;
  iso_batch_sequence *batch; /* [n_sequences] */
  int32_t *drawn_rows;       /* [n_sequences], 0 .. n_sequences - 1: whose token each takes */
} iso_bench;

/* Evaluates n_tokens random tokens of sequence `sequence` from `position` on, in steps of n_batch;
 * logits for the last one only. */
ISO_MUST_CHECK iso_status iso_bench_prompt(iso_bench *bench, int32_t sequence, int32_t position,
                                           int32_t n_tokens);
/* One decode step of sequences 0 .. n_sequences - 1, each with a random token at `position`. */
ISO_MUST_CHECK iso_status iso_bench_decode(iso_bench *bench, int32_t n_sequences, int32_t position);
/* Monotonic nanoseconds. */
uint64_t iso_bench_now(void);

/* Facts for the table's and the JSON's columns. */
typedef struct iso_bench_facts {
  char model_type[64]; /* "llama 1.5B Q4_0" */
  char device_name[128];
  uint64_t model_size, model_n_params;
  uint32_t n_threads;
} iso_bench_facts;

/* Samples of one test. */
typedef struct iso_bench_result {
  iso_bench_test test;
  uint64_t *samples_ns;
  int32_t n_samples;
  char test_time[32]; /* ISO 8601, UTC, of the start */
} iso_bench_result;

void iso_bench_find_facts(const iso_bench *bench, iso_bench_facts *out_facts);
void iso_bench_print_header(const iso_bench *bench);
ISO_MUST_CHECK iso_status iso_bench_print_result(const iso_bench *bench,
                                                 const iso_bench_facts *facts,
                                                 const iso_bench_result *result);

/* The --kernels report: one decode step and one prompt step, op by op. */
ISO_MUST_CHECK iso_status iso_bench_kernels(iso_bench *bench, const iso_bench_test *decode,
                                            const iso_bench_test *prompt);

#endif
