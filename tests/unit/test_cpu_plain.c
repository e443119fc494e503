/* Ops of the CPU backend that move rows, rotate, route and choose, against the reference, on
 * every tier the machine has. */
#include "cpu_case.h"

static cpu_test_device device;

static const iso_scheme FLOATS[] = {ISO_SCHEME_F32, ISO_SCHEME_F16, ISO_SCHEME_BF16};

#define ELEMENTWISE 4e-6
#define REDUCTION 2e-5

static bool is_encodable(iso_scheme scheme) {
  return scheme != ISO_SCHEME_I32 && scheme != ISO_SCHEME_I8;
}

static void test_embedding(void **state) {
  (void)state;
  for (iso_scheme scheme = 0; scheme < ISO_SCHEME_COUNT; scheme++)
    for (size_t to = 0; to < 3 && is_encodable(scheme); to++) {
      iso_embedding_attributes embedding = {sizeof embedding, to ? 24.0f : 1.0f};
      int64_t n_tokens = 7, table[] = {50, 1280}, out[] = {7, 1280};
      cpu_case job;
      cpu_case_begin(&job, ISO_OP_EMBEDDING, &embedding, ELEMENTWISE);
      int32_t *ids = cpu_case_indices(&job, 1, &n_tokens);
      for (int i = 0; i < 7; i++)
        ids[i] = (int32_t)(cpu_random() % 50);
      cpu_case_floats(&job, scheme, 2, table, 0, -1, 1);
      cpu_case_output(&job, FLOATS[to], 2, out, 4);
      cpu_case_run(&job, &device);
      ids[3] = to ? 50 : -1;
      cpu_case_run(&job, &device);
      cpu_case_end(&job);
    }
}

static void test_gather_rows(void **state) {
  (void)state;
  iso_gather_rows_attributes gather = {sizeof gather};
  for (size_t scheme = 0; scheme < 3; scheme++) {
    int64_t n_rows = 5, x[] = {9, 37}, out[] = {5, 37};
    cpu_case job;
    cpu_case_begin(&job, ISO_OP_GATHER_ROWS, &gather, 0);
    cpu_case_floats(&job, FLOATS[scheme], 2, x, 3, -1, 1);
    int32_t *rows = cpu_case_indices(&job, 1, &n_rows);
    for (int i = 0; i < 5; i++)
      rows[i] = (int32_t)(cpu_random() % 9);
    cpu_case_output(&job, FLOATS[scheme], 2, out, 1);
    cpu_case_run(&job, &device);
    rows[4] = 9;
    cpu_case_run(&job, &device);
    cpu_case_end(&job);
  }
}

static void test_quantize_rows(void **state) {
  (void)state;
  for (iso_scheme scheme = ISO_SCHEME_Q8_0; scheme < ISO_SCHEME_COUNT; scheme++)
    for (size_t from = 0; from < 3; from++) {
      iso_quantize_rows_attributes quantize = {sizeof quantize, scheme};
      int64_t dims[] = {2, 2, 1280};
      cpu_case job;
      cpu_case_begin(&job, ISO_OP_QUANTIZE_ROWS, &quantize, 0);
      cpu_case_floats(&job, FLOATS[from], 3, dims, 3, -1, 1);
      cpu_case_output(&job, scheme, 3, dims, 0);
      cpu_case_run(&job, &device);
      cpu_case_end(&job);
    }
}

static void test_route_top_k(void **state) {
  (void)state;
  for (size_t scheme = 0; scheme < 3; scheme++)
    for (uint32_t k = 1; k <= 8; k++)
      for (uint32_t normalize = 0; normalize < 2; normalize++) {
        iso_route_top_k_attributes route = {sizeof route, k, normalize, 2.5f};
        int64_t logits[] = {20, 8}, out[] = {20, k};
        cpu_case job;
        cpu_case_begin(&job, ISO_OP_ROUTE_TOP_K, &route, REDUCTION);
        /* Narrow range: in 16 bits many are equal. */
        cpu_case_floats(&job, FLOATS[scheme], 2, logits, 2, 1, 1.03f);
        cpu_case_output(&job, ISO_SCHEME_I32, 2, out, 0);
        cpu_case_output(&job, ISO_SCHEME_F32, 2, out, 0);
        cpu_case_run(&job, &device);
        cpu_case_end(&job);
      }
}

static void rope_case(size_t from, size_t to, int64_t head_dim, int64_t n_pairs,
                      uint32_t interleaved, int32_t far) {
  iso_rope_attributes rope = {sizeof rope, interleaved, interleaved ? 1.0f : 1.2f};
  int64_t x[] = {6, 3, head_dim}, n_tokens = 6;
  cpu_case job;
  cpu_case_begin(&job, ISO_OP_ROPE, &rope, ELEMENTWISE);
  cpu_case_floats(&job, FLOATS[from], 3, x, 4, -2, 2);
  int32_t *positions = cpu_case_indices(&job, 1, &n_tokens);
  for (int i = 0; i < 6; i++)
    positions[i] = (int32_t)(cpu_random() % (uint32_t)far);
  positions[5] = far;
  float *frequencies = (float *)(void *)cpu_case_indices(&job, 1, &n_pairs);
  job.arguments.inputs[2].scheme = ISO_SCHEME_F32;
  for (int64_t i = 0; i < n_pairs; i++)
    frequencies[i] = powf(10000, -(float)i / (float)n_pairs);
  cpu_case_output(&job, FLOATS[to], 3, x, 0);
  cpu_case_run(&job, &device);
  positions[0] = -1;
  cpu_case_run(&job, &device);
  cpu_case_end(&job);
}

static void test_rope(void **state) {
  (void)state;
  const struct {
    int64_t head_dim, n_pairs;
  } heads[] = {{64, 32}, {128, 64}, {2, 1}, {80, 16}, {20, 9}, {400, 190}};
  for (size_t from = 0; from < 3; from++)
    for (size_t to = 0; to < 3; to++)
      for (size_t head = 0; head < sizeof heads / sizeof heads[0]; head++)
        for (uint32_t interleaved = 0; interleaved < 2; interleaved++) {
          rope_case(from, to, heads[head].head_dim, heads[head].n_pairs, interleaved, 4096);
          rope_case(from, to, heads[head].head_dim, heads[head].n_pairs, interleaved, 1048575);
          rope_case(from, to, heads[head].head_dim, heads[head].n_pairs, interleaved, 2000000000);
        }
}

static void kv_write_case(iso_scheme from, iso_scheme cache, int64_t n_tokens) {
  iso_kv_write_attributes write = {sizeof write};
  bool wide = cache == ISO_SCHEME_F8_G128;
  int64_t k[] = {n_tokens, 3, wide ? 128 : 64}, v[] = {n_tokens, 3, wide ? 256 : 96};
  int64_t k_cache[] = {40, 3, 16, k[2]}, v_cache[] = {40, 3, 16, v[2]};
  cpu_case job;
  cpu_case_begin(&job, ISO_OP_KV_WRITE, &write, 0);
  cpu_case_floats(&job, from, 3, k, 4, -2, 2);
  cpu_case_floats(&job, from, 3, v, 0, -2, 2);
  int32_t *slots = cpu_case_indices(&job, 1, &n_tokens);
  for (int64_t i = 0; i < n_tokens; i++)
    slots[i] = i % 5 == 3 ? -1 : (int32_t)(i * 7 % 640);
  cpu_case_floats(&job, cache, 4, k_cache, 0, -1, 1);
  cpu_case_floats(&job, cache, 4, v_cache, 0, -1, 1);
  cpu_case_alias(&job, 3);
  cpu_case_alias(&job, 4);
  cpu_case_run(&job, &device);
  if (n_tokens) {
    slots[0] = 640;
    cpu_case_run(&job, &device);
    slots[0] = -2;
    cpu_case_run(&job, &device);
  }
  cpu_case_end(&job);
}

static void test_kv_write(void **state) {
  (void)state;
  const iso_scheme caches[] = {ISO_SCHEME_F32, ISO_SCHEME_F16, ISO_SCHEME_BF16, ISO_SCHEME_Q8_0,
                               ISO_SCHEME_F8_G128};
  for (size_t from = 0; from < 3; from++)
    for (size_t cache = 0; cache < sizeof caches / sizeof caches[0]; cache++) {
      kv_write_case(FLOATS[from], caches[cache], 0);
      kv_write_case(FLOATS[from], caches[cache], 1);
      kv_write_case(FLOATS[from], caches[cache], 90);
    }
}

static void grouped_case(iso_scheme weights, iso_scheme from, iso_scheme to, bool shared_row) {
  iso_grouped_matmul_attributes grouped = {sizeof grouped};
  int64_t x[] = {11, shared_row ? 1 : 2, 256}, weight[] = {5, 70, 256}, choice[] = {11, 2};
  int64_t out[] = {11, 2, 70};
  cpu_case job;
  cpu_case_begin(&job, ISO_OP_GROUPED_MATMUL, &grouped, REDUCTION);
  cpu_case_floats(&job, from, 3, x, 3, -1, 1);
  cpu_case_floats(&job, weights, 3, weight, 0, -1, 1);
  int32_t *experts = cpu_case_indices(&job, 2, choice);
  for (int i = 0; i < 22; i++)
    experts[i] = (int32_t)(cpu_random() % 4); /* one expert is never chosen */
  cpu_case_output(&job, to, 3, out, 2);
  cpu_case_run(&job, &device);
  experts[20] = 5;
  cpu_case_run(&job, &device);
  cpu_case_end(&job);
}

static void test_grouped_matmul(void **state) {
  (void)state;
  for (iso_scheme scheme = 0; scheme < ISO_SCHEME_COUNT; scheme++)
    for (size_t from = 0; from < 3 && is_encodable(scheme); from++)
      grouped_case(scheme, FLOATS[from], FLOATS[(from + scheme) % 3], scheme % 2);
}

static void sample_case(int kind, int64_t n_rows, int64_t vocabulary) {
  iso_sample_attributes sample = {sizeof sample};
  int64_t logits[] = {n_rows, vocabulary}, parameters[] = {n_rows, 8}, states[] = {n_rows, 4};
  int64_t history[] = {n_rows, 12}, allowed[] = {n_rows, (vocabulary + 31) / 32};
  cpu_case job;
  cpu_case_begin(&job, ISO_OP_SAMPLE, &sample, 0);
  cpu_case_floats(&job, ISO_SCHEME_F32, 2, logits, 0, -8, 8);
  float *p =
      (float *)(void *)job.inputs[cpu_case_floats(&job, ISO_SCHEME_F32, 2, parameters, 0, 0, 1)];
  for (int64_t r = 0; r < n_rows; r++, p += 8) {
    p[ISO_SAMPLE_TEMPERATURE] = r % 3 ? 0.8f : 0.0f;
    p[ISO_SAMPLE_TOP_K] = r % 2 ? 40.0f : 0.0f;
    p[ISO_SAMPLE_TOP_P] = kind ? 0.9f : 1.0f;
    p[ISO_SAMPLE_MIN_P] = kind == 2 ? 0.05f : 0.0f;
    p[ISO_SAMPLE_REPETITION_PENALTY] = kind ? 1.3f : 1.0f;
    p[ISO_SAMPLE_PRESENCE_PENALTY] = kind == 2 ? 0.3f : 0.0f;
    p[ISO_SAMPLE_FREQUENCY_PENALTY] = kind == 2 ? 0.1f : 0.0f;
    p[ISO_SAMPLE_RESERVED] = kind == 3 && r == 1 ? 1.0f : 0.0f; /* refused */
  }
  int32_t *columns = cpu_case_indices(&job, 2, states);
  for (int64_t i = 0; i < n_rows * 4; i++)
    columns[i] = i % 4 == 3 ? 5 : (int32_t)cpu_random();
  int32_t *tokens = cpu_case_indices(&job, 2, history);
  for (int64_t i = 0; i < n_rows * 12; i++)
    tokens[i] = (int32_t)(cpu_random() % (uint32_t)vocabulary);
  if (kind == 2) {
    int32_t *words = cpu_case_indices(&job, 2, allowed);
    for (int64_t i = 0; i < n_rows * allowed[1]; i++)
      words[i] = (int32_t)(cpu_random() ^ cpu_random() << 16);
  } else {
    cpu_case_absent(&job);
  }
  cpu_case_output(&job, ISO_SCHEME_I32, 1, &n_rows, 0);
  cpu_case_run(&job, &device);
  cpu_case_end(&job);
}

static void test_sample(void **state) {
  (void)state;
  for (int kind = 0; kind < 4; kind++) {
    sample_case(kind, 7, 1000);
    sample_case(kind, 2, 33);
    if (kind < 3)
      sample_case(kind, 0, 100);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_embedding),      cmocka_unit_test(test_gather_rows),
      cmocka_unit_test(test_quantize_rows),  cmocka_unit_test(test_route_top_k),
      cmocka_unit_test(test_rope),           cmocka_unit_test(test_kv_write),
      cmocka_unit_test(test_grouped_matmul), cmocka_unit_test(test_sample),
  };
  return cpu_test_each_tier(&device, tests, sizeof tests / sizeof tests[0]);
}
