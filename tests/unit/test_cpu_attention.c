/* paged_attention of the CPU backend against the reference, on every tier the machine has: ragged
 * batches of prefill and decode, all cache schemes and features, and what the two ways of
 * computing promise about batches and threads. */
#include "attention_case.h"

static void test_schemes(void **state) {
  (void)state;
  iso_paged_attention_attributes plain = {sizeof plain, 0, 1, 0, 0};
  for (size_t cache = 0; cache < N_CACHES; cache++)
    for (size_t from = 0; from < N_FLOATS; from++) {
      int64_t dim = CACHES[cache] == ISO_SCHEME_F8_G128 ? 128 : 64;
      const shape s = {9, 3, dim, dim, 16};
      attention_case(&MIXED, &s, &plain, FLOATS[from], CACHES[cache], FLOATS[(from + cache) % 3],
                     false);
      attention_case(&DECODE, &s, &plain, FLOATS[from], CACHES[cache], FLOATS[from], false);
      attention_case(&ONE_LONG, &s, &plain, FLOATS[from], CACHES[cache], FLOATS[from], true);
    }
}

static void test_shapes(void **state) {
  (void)state;
  iso_paged_attention_attributes plain = {sizeof plain, 0, 1, 0, 0};
  const shape shapes[] = {
      {4, 4, 64, 64, 16},  {8, 1, 32, 32, 8},    {4, 2, 80, 80, 16},  {2, 1, 128, 128, 32},
      {6, 2, 96, 64, 16},  {3, 3, 17, 5, 3},     {40, 1, 64, 64, 16}, {14, 2, 64, 64, 64},
      {1, 1, 256, 256, 1}, {16, 2, 128, 40, 16}, {5, 1, 1, 4, 4},
  };
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    attention_case(&MIXED, &shapes[i], &plain, ISO_SCHEME_F32, ISO_SCHEME_F32, ISO_SCHEME_F32,
                   false);
    attention_case(&DECODE, &shapes[i], &plain, ISO_SCHEME_F32, ISO_SCHEME_F16, ISO_SCHEME_F32,
                   false);
  }
}

static void test_features(void **state) {
  (void)state;
  const shape s = {6, 2, 64, 64, 16};
  const uint32_t windows[] = {0, 1, 7, 32, 64, 301, 4096};
  for (uint32_t causal = 0; causal < 2; causal++)
    for (size_t window = 0; window < sizeof windows / sizeof windows[0]; window++)
      for (int cap = 0; cap < 2; cap++)
        for (int alibi = 0; alibi < 2; alibi++) {
          iso_paged_attention_attributes attributes = {sizeof attributes, cap ? 0.3f : 0.0f, causal,
                                                       windows[window], cap ? 2.0f : 0.0f};
          attention_case(&MIXED, &s, &attributes, ISO_SCHEME_F32, ISO_SCHEME_F32, ISO_SCHEME_F32,
                         alibi);
          attention_case(&DECODE, &s, &attributes, ISO_SCHEME_F32, ISO_SCHEME_BF16, ISO_SCHEME_F32,
                         alibi);
        }
}

/* Sizes and features as they come: where chunks, pages and windows end should not matter. */
static void test_anything(void **state) {
  (void)state;
  for (int i = 0; i < 80; i++) {
    batch b = {.n_sequences = between(1, 4), .unused_rows = between(0, 2)};
    for (int64_t q = 0; q < b.n_sequences; q++) {
      b.rows[q] = (int32_t)(between(0, 2) ? between(0, 6) : between(7, 60));
      b.contexts[q] = b.rows[q] + (int32_t)between(0, between(0, 1) ? 900 : 60);
    }
    int64_t n_kv_heads = between(1, 3), dim = between(1, 4) == 1 ? between(2, 9) * 8 : 32;
    shape s = {n_kv_heads * between(1, 5), n_kv_heads, dim, between(1, 3) == 1 ? 40 : 32,
               between(1, 40)};
    bool odd = dim % 32 || s.value_dim % 32;
    iso_paged_attention_attributes attributes = {sizeof attributes, 0, cpu_random() % 4 != 0,
                                                 cpu_random() % 2 ? (uint32_t)between(1, 700) : 0,
                                                 cpu_random() % 3 ? 0.0f : 5.0f};
    attention_case(&b, &s, &attributes, FLOATS[cpu_random() % 3],
                   CACHES[cpu_random() % (odd ? N_CACHES - 2 : N_CACHES - 1)], ISO_SCHEME_F32,
                   cpu_random() % 3 == 0);
  }
}

/* Every code of E4M3 exactly as the format has it, NaN included: with a single position to see, an
 * output is the value itself. Few rows read the cache as it lies, many decode it first. */
static void test_e4m3_codes(void **state) {
  (void)state;
  iso_paged_attention_attributes plain = {sizeof plain, 0, 1, 0, 0};
  const shape s = {2, 2, 128, 256, 16};
  const batch one = {1, {1}, {1}, 0}, many = {1, {64}, {64}, 0};
  for (int i = 0; i < 2; i++) {
    cpu_case job;
    attention_begin(&job, i ? &many : &one, &s, &plain, ISO_SCHEME_F32, ISO_SCHEME_F8_G128,
                    ISO_SCHEME_F32, false);
    const iso_tensor *v = &job.arguments.inputs[2];
    for (uint8_t *row = job.inputs[2]; row < job.inputs[2] + job.input_bytes[2];
         row += v->strides[2])
      for (int code = 0; code < 256; code++) {
        float scale = code < 128 ? 0.3f : 7e30f;
        memcpy(row + code / 128 * 132, &scale, sizeof scale);
        row[code / 128 * 132 + 4 + code % 128] = (uint8_t)code;
      }
    job.tolerance = i ? 1e-6 : 1e-12;
    cpu_case_run(&job, &device);
    cpu_case_end(&job);
  }
}

/* Scores of several thousand: a softmax that is nearly one-hot, and nothing overflows. */
static void test_large_scores(void **state) {
  (void)state;
  iso_paged_attention_attributes attributes = {sizeof attributes, 1000.0f, 1, 0, 0};
  const shape s = {6, 2, 64, 64, 16};
  cpu_case job;
  attention_begin(&job, &MIXED, &s, &attributes, ISO_SCHEME_F32, ISO_SCHEME_F32, ISO_SCHEME_F32,
                  false);
  job.tolerance = 3e-2; /* exp of a score of 1e4 magnifies its rounding by as much */
  cpu_case_run(&job, &device);
  cpu_case_end(&job);
}

static void test_bad_indices(void **state) {
  (void)state;
  iso_paged_attention_attributes plain = {sizeof plain, 0, 1, 0, 0};
  const shape s = {6, 2, 64, 64, 16};
  cpu_case job;
  operands made = attention_begin(&job, &MIXED, &s, &plain, ISO_SCHEME_F32, ISO_SCHEME_F32,
                                  ISO_SCHEME_F32, false);
  struct {
    int32_t *place, value;
  } faults[] = {{&made.table[0], -1},    {&made.table[0], 1 << 20}, {&made.start[2], -1},
                {&made.start[2], 90},    {&made.length[0], -1},     {&made.length[0], 2},
                {&made.length[3], 1000}, {&made.context[2], 18},    {&made.context[2], 1 << 20},
                {&made.context[0], 0}};
  for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
    int32_t kept = *faults[i].place;
    *faults[i].place = faults[i].value;
    cpu_case_run(&job, &device);
    *faults[i].place = kept;
  }
  cpu_case_run(&job, &device);
  cpu_case_end(&job);
}

/* ---- Sameness ------------------------------------------------------------------------------- */

/* A device of the same tier with so many threads, and its best record for a case. */
static const iso_kernel *open_best(cpu_test_device *other, const cpu_case *job,
                                   uint32_t n_threads) {
  assert_true(cpu_test_open(other, iso_cpu_tier_name(device.device->tier), n_threads));
  const iso_kernel *best = NULL;
  for (uint32_t i = 0; i < other->backend->kernel_count; i++) {
    const iso_kernel *kernel = &other->backend->kernels[i];
    if (cpu_record_accepts(other, kernel, &job->arguments) && (!best || kernel->rank > best->rank))
      best = kernel;
  }
  assert_non_null(best);
  return best;
}

/* Runs the best record on a device of its own; the caller frees the answer. */
static float *answer_of(cpu_case *job, uint32_t n_threads) {
  cpu_test_device other;
  const iso_kernel *best = open_best(&other, job, n_threads);
  iso_op_arguments arguments = job->arguments;
  iso_buffer inputs[ISO_MAX_INPUTS] = {0}, workspace = {0};
  for (uint32_t i = 0; i < arguments.n_inputs; i++) {
    inputs[i].data = job->inputs[i];
    arguments.inputs[i].buffer = &inputs[i];
  }
  iso_buffer output = {.data = malloc(job->output_bytes[0])};
  arguments.outputs[0].buffer = &output;
  arguments.workspace_bytes = best->workspace(other.device, &job->arguments);
  workspace.data = aligned_alloc(64, (arguments.workspace_bytes + 63) / 64 * 64);
  arguments.workspace = &workspace;
  memset(output.data, POISON, job->output_bytes[0]);
  assert_int_equal(best->launch(other.queue, &arguments), ISO_OK);
  free(workspace.data);
  cpu_test_close(&other);
  return (float *)(void *)output.data;
}

/* Bit for bit the same for any number of threads, whether chunks are split or not. */
static void test_threads_do_not_matter(void **state) {
  (void)state;
  iso_paged_attention_attributes plain = {sizeof plain, 0, 1, 0, 0};
  const shape shapes[] = {{9, 3, 64, 64, 16}, {32, 1, 64, 64, 16}};
  const batch *batches[] = {&ONE_LONG, &DECODE, &MIXED};
  for (size_t i = 0; i < 6; i++) {
    cpu_case job;
    attention_begin(&job, batches[i % 3], &shapes[i / 3], &plain, ISO_SCHEME_F32, ISO_SCHEME_F16,
                    ISO_SCHEME_F32, false);
    float *alone = answer_of(&job, 1);
    for (uint32_t n_threads = 2; n_threads <= 7; n_threads++) {
      float *shared = answer_of(&job, n_threads);
      assert_memory_equal(alone, shared, job.output_bytes[0]);
      free(shared);
    }
    free(alone);
    cpu_case_end(&job);
  }
}

/* A row is bit for bit the same alone and in a batch, if the block table is as wide. */
static void test_batches_do_not_matter(void **state) {
  (void)state;
  iso_paged_attention_attributes plain = {sizeof plain, 0, 1, 0, 0};
  const shape s = {9, 3, 64, 64, 16};
  cpu_case job;
  operands made = attention_begin(&job, &MIXED, &s, &plain, ISO_SCHEME_F32, ISO_SCHEME_F32,
                                  ISO_SCHEME_F32, false);
  float *together = answer_of(&job, 3);
  int64_t row_floats = job.arguments.outputs[0].strides[0] / (int64_t)sizeof(float);
  int64_t head_floats = job.arguments.outputs[0].strides[1] / (int64_t)sizeof(float);
  for (int64_t only = 0; only < MIXED.n_sequences; only++) {
    for (int64_t i = 0; i < MIXED.n_sequences; i++)
      made.length[i] = i == only ? MIXED.rows[i] : 0;
    float *alone = answer_of(&job, 1);
    for (int64_t t = 0; t < MIXED.rows[only]; t++)
      for (int64_t h = 0; h < s.n_heads; h++) {
        int64_t place = (made.start[only] + t) * row_floats + h * head_floats;
        assert_memory_equal(alone + place, together + place, 64 * sizeof(float));
      }
    free(alone);
  }
  free(together);
  cpu_case_end(&job);
}

/* Many rows of one sequence are not split: however many threads there are, they ask for no more
 * partial results than one row does. */
static void test_workspace_of_one_sequence(void **state) {
  (void)state;
  iso_paged_attention_attributes plain = {sizeof plain, 0, 1, 0, 0};
  const shape s = {8, 2, 64, 64, 16};
  const batch many = {1, {512}, {3000}, 0};
  const batch *batches[] = {&ONE_LONG, &many};
  uint64_t bytes[2];
  for (int i = 0; i < 2; i++) {
    cpu_case job;
    cpu_test_device other;
    attention_begin(&job, batches[i], &s, &plain, ISO_SCHEME_F32, ISO_SCHEME_F16, ISO_SCHEME_F32,
                    false);
    bytes[i] = open_best(&other, &job, 7)->workspace(other.device, &job.arguments);
    cpu_test_close(&other);
    cpu_case_end(&job);
  }
  assert_in_range(bytes[1], bytes[0], bytes[0] + 64 * 1024);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_schemes),
      cmocka_unit_test(test_shapes),
      cmocka_unit_test(test_features),
      cmocka_unit_test(test_anything),
      cmocka_unit_test(test_e4m3_codes),
      cmocka_unit_test(test_large_scores),
      cmocka_unit_test(test_bad_indices),
      cmocka_unit_test(test_threads_do_not_matter),
      cmocka_unit_test(test_batches_do_not_matter),
      cmocka_unit_test(test_workspace_of_one_sequence),
  };
  return cpu_test_each_tier(&device, tests, sizeof tests / sizeof tests[0]);
}
