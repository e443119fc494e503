#include "tools/bench.h"

#include "engine/runtime.h"
#include "ops/sampling.h"
#include "tools/adapters.h"
#include "tools/json_output.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Most lengths in one -p or -n. */
enum { MAX_LENGTHS = 32, DEFAULT_PROMPT = 512, DEFAULT_GENERATE = 128, DEFAULT_BATCH = 512 };

uint64_t iso_bench_now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* ---- Steps ---------------------------------------------------------------------------------- */

static void draw_tokens(iso_bench *bench, int32_t *out_tokens, int32_t count) {
  uint32_t vocabulary = (uint32_t)iso_model_get_config(bench->model)->vocabulary_size;
  for (int32_t i = 0; i < count; i++) {
    uint32_t counter[4] = {bench->drawn++, 0, 0, 0}, words[4];
    iso_philox(bench->seed, counter, words);
    out_tokens[i] = (int32_t)(words[0] % vocabulary);
  }
}

static iso_batch_sequence sequence_at(const iso_bench *bench, int32_t sequence, int32_t position,
                                      const int32_t *tokens, int32_t n_tokens) {
  return (iso_batch_sequence){.n_tokens = n_tokens,
                              .tokens = tokens,
                              .position = position,
                              .pages = bench->pages +
                                       (size_t)sequence * (size_t)bench->pages_per_sequence,
                              .n_pages = bench->pages_per_sequence,
                              .adapter = bench->options->lora.n > 0};
}

/* What generating does: the host gets tokens where the device draws them, else logits. */
static iso_status run_step(iso_bench *bench, const iso_batch_sequence *sequences, int32_t n) {
  return iso_runtime_samples(bench->runtime) ? iso_runtime_run(bench->runtime, sequences, n)
                                             : iso_runtime_step(bench->runtime, sequences, n);
}

iso_status iso_bench_prompt(iso_bench *bench, int32_t sequence, int32_t position,
                            int32_t n_tokens) {
  for (int32_t done = 0; done < n_tokens;) {
    int32_t count = n_tokens - done < bench->n_batch ? n_tokens - done : bench->n_batch;
    draw_tokens(bench, bench->tokens, count);
    iso_batch_sequence row = sequence_at(bench, sequence, position + done, bench->tokens, count);
    done += count;
    row.no_logits = done < n_tokens;
    if (iso_tool_interrupted())
      return iso_fail(ISO_ERROR_CANCELLED, "interrupted");
    ISO_TRY(run_step(bench, &row, 1));
  }
  return ISO_OK;
}

static iso_status prepare_decode(iso_bench *bench, int32_t n_sequences, int32_t position) {
  draw_tokens(bench, bench->tokens, n_sequences);
  for (int32_t i = 0; i < n_sequences; i++)
    bench->batch[i] = sequence_at(bench, i, position, bench->tokens + i, 1);
  return iso_tool_interrupted() ? iso_fail(ISO_ERROR_CANCELLED, "interrupted") : ISO_OK;
}

iso_status iso_bench_decode(iso_bench *bench, int32_t n_sequences, int32_t position) {
  ISO_TRY(prepare_decode(bench, n_sequences, position));
  return run_step(bench, bench->batch, n_sequences);
}

/* As the engine decodes where the device draws tokens: each step takes those of the step before on
 * the device, and is submitted while that one runs. */
static iso_status decode_overlapped(iso_bench *bench, const iso_bench_test *test) {
  for (int32_t i = 0; i < test->n_gen; i++) {
    ISO_TRY(prepare_decode(bench, test->n_sequences, test->n_depth + i));
    ISO_TRY(iso_runtime_submit(bench->runtime, bench->batch, i > 0 ? bench->drawn_rows : NULL,
                               test->n_sequences));
    if (i > 0)
      ISO_TRY(iso_runtime_wait(bench->runtime));
  }
  return iso_runtime_wait(bench->runtime);
}

static iso_status run_test(iso_bench *bench, const iso_bench_test *test) {
  if (test->n_prompt > 0)
    return iso_bench_prompt(bench, 0, test->n_depth, test->n_prompt);
  if (iso_runtime_overlaps(bench->runtime))
    return decode_overlapped(bench, test);
  for (int32_t i = 0; i < test->n_gen; i++)
    ISO_TRY(iso_bench_decode(bench, test->n_sequences, test->n_depth + i));
  return ISO_OK;
}

/* ---- Tests ---------------------------------------------------------------------------------- */

/* "128,512" and repeated options to numbers. */
static iso_status parse_lengths(const char *option, const iso_option_list *list, int32_t fallback,
                                int32_t *out_lengths, int *out_count) {
  *out_count = 0;
  if (list->n == 0)
    out_lengths[(*out_count)++] = fallback;
  for (int i = 0; i < list->n; i++)
    for (const char *at = list->items[i];;) {
      char *end;
      errno = 0;
      long long value = strtoll(at, &end, 10);
      if (errno || end == at || value < 0 || value > 1 << 30 || (*end && *end != ','))
        return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                        "--%s takes numbers such as 128,512, not \"%s\"", option, list->items[i]);
      if (*out_count == MAX_LENGTHS)
        return iso_fail(ISO_ERROR_LIMIT, "--%s has more than %d numbers", option, MAX_LENGTHS);
      out_lengths[(*out_count)++] = (int32_t)value;
      if (!*end)
        break;
      at = end + 1;
    }
  return ISO_OK;
}

static iso_status list_tests(const iso_options *options, iso_bench_test *out_tests,
                             int *out_count) {
  int32_t prompts[MAX_LENGTHS], gens[MAX_LENGTHS];
  int n_prompts, n_gens;
  ISO_TRY(parse_lengths("n-prompt", &options->n_prompt, DEFAULT_PROMPT, prompts, &n_prompts));
  ISO_TRY(parse_lengths("n-gen", &options->n_gen, DEFAULT_GENERATE, gens, &n_gens));
  *out_count = 0;
  iso_bench_test test = {.n_depth = (int32_t)options->n_depth, .n_sequences = 1};
  for (int i = 0; i < n_prompts; i++) {
    test.n_prompt = prompts[i];
    if (test.n_prompt > 0)
      out_tests[(*out_count)++] = test;
  }
  test = (iso_bench_test){.n_depth = (int32_t)options->n_depth,
                          .n_sequences = (int32_t)options->batch};
  for (int i = 0; i < n_gens; i++) {
    test.n_gen = gens[i];
    if (test.n_gen > 0)
      out_tests[(*out_count)++] = test;
  }
  return *out_count ? ISO_OK
                    : iso_fail(ISO_ERROR_INVALID_ARGUMENT, "nothing to measure: -p and -n are 0");
}

static void stamp_time(char *out, size_t capacity) {
  time_t now = time(NULL);
  struct tm utc;
  gmtime_r(&now, &utc);
  strftime(out, capacity, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

/* Fills the cache to the depth, warms up, and takes the samples. Steps write over what an earlier
 * repetition cached after the depth. */
static iso_status measure(iso_bench *bench, iso_bench_result *result) {
  const iso_bench_test *test = &result->test;
  stamp_time(result->test_time, sizeof result->test_time);
  for (int32_t i = 0; i < test->n_sequences; i++)
    ISO_TRY(iso_bench_prompt(bench, i, 0, test->n_depth));
  iso_bench_test warm_up = *test;
  warm_up.n_gen = test->n_gen > 0;
  ISO_TRY(run_test(bench, &warm_up));
  for (int32_t i = 0; i < result->n_samples; i++) {
    uint64_t start = iso_bench_now();
    ISO_TRY(run_test(bench, test));
    result->samples_ns[i] = iso_bench_now() - start;
  }
  return ISO_OK;
}

static iso_status run_tests(iso_bench *bench, const iso_bench_test *tests, int n_tests) {
  iso_bench_facts facts;
  iso_bench_find_facts(bench, &facts);
  iso_bench_result result = {.n_samples = (int32_t)bench->options->repetitions};
  result.samples_ns = calloc((size_t)result.n_samples, sizeof *result.samples_ns);
  if (!result.samples_ns)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %d samples", result.n_samples);
  iso_status status = ISO_OK;
  iso_bench_print_header(bench);
  for (int i = 0; i < n_tests && status == ISO_OK; i++) {
    result.test = tests[i];
    status = measure(bench, &result);
    if (status == ISO_OK)
      status = iso_bench_print_result(bench, &facts, &result);
  }
  free(result.samples_ns);
  return status;
}

/* The report on kernels takes one step of each kind: the first -p, cut to a batch, and decoding
 * after the depth. */
static iso_status run_kernels(iso_bench *bench, const iso_bench_test *tests, int n_tests) {
  const iso_bench_test *prompt = NULL, *decode = NULL;
  for (int i = n_tests - 1; i >= 0; i--) {
    if (tests[i].n_prompt > 0)
      prompt = &tests[i];
    else
      decode = &tests[i];
  }
  return iso_bench_kernels(bench, decode, prompt);
}

/* ---- The command ---------------------------------------------------------------------------- */

static iso_status prepare(iso_bench *bench, const iso_bench_test *tests, int n_tests) {
  int64_t context = 1, sequences = 1;
  for (int i = 0; i < n_tests; i++) {
    int64_t length = (int64_t)tests[i].n_depth + tests[i].n_prompt + tests[i].n_gen;
    context = length > context ? length : context;
    sequences = tests[i].n_sequences > sequences ? tests[i].n_sequences : sequences;
  }
  if (bench->options->context > 0 && bench->options->context < context)
    return iso_fail(
        ISO_ERROR_INVALID_ARGUMENT,
        "the tests want a context of %lld tokens, -c says %lld; without -c they have it",
        (long long)context, (long long)bench->options->context);
  if (bench->options->context > context)
    context = bench->options->context;
  if (context > INT32_MAX)
    return iso_fail(ISO_ERROR_LIMIT, "%lld tokens of context are more than 2^31",
                    (long long)context);
  bench->n_batch = bench->options->batch_size ? (int32_t)bench->options->batch_size : DEFAULT_BATCH;
  iso_runtime_options base = {.context = (int32_t)context,
                              .max_tokens = bench->n_batch,
                              .max_sequences = (int32_t)sequences};
  ISO_TRY(iso_tool_need_one_adapter(bench->options));
  ISO_TRY(iso_tool_create_runtime(bench->model, bench->options, &base, &bench->runtime));
  const iso_runtime_options *in_force = iso_runtime_get_options(bench->runtime);
  bench->pages_per_sequence = in_force->n_pages / (int32_t)sequences;
  bench->pages = calloc((size_t)in_force->n_pages, sizeof *bench->pages);
  bench->tokens = calloc((size_t)in_force->max_tokens, sizeof *bench->tokens);
  bench->batch = calloc((size_t)sequences, sizeof *bench->batch);
  bench->drawn_rows = calloc((size_t)sequences, sizeof *bench->drawn_rows);
  if (!bench->pages || !bench->tokens || !bench->batch || !bench->drawn_rows)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a batch");
  for (int32_t i = 0; i < in_force->n_pages; i++)
    bench->pages[i] = i;
  for (int32_t i = 0; i < sequences; i++)
    bench->drawn_rows[i] = i;
  return ISO_OK;
}

iso_status iso_command_bench(iso_options *options, int *out_exit) {
  (void)out_exit;
  iso_bench_test tests[2 * MAX_LENGTHS];
  int n_tests;
  ISO_TRY(list_tests(options, tests, &n_tests));
  iso_model *model;
  ISO_TRY(iso_tool_open_model(options, true, &model));
  iso_bench bench = {.options = options,
                     .model = model,
                     .seed = options->seed_given ? (uint64_t)options->seed : 1};
  iso_tool_catch_end();
  iso_status status = prepare(&bench, tests, n_tests);
  if (status == ISO_OK)
    status =
        options->kernels ? run_kernels(&bench, tests, n_tests) : run_tests(&bench, tests, n_tests);
  if (status == ISO_OK && options->json)
    iso_json_output_end();
  free(bench.pages);
  free(bench.tokens);
  free(bench.batch);
  free(bench.drawn_rows);
  iso_runtime_destroy(bench.runtime);
  iso_model_close(model);
  return status;
}
