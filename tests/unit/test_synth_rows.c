/* Random rows of `isomer synth`: scale, variety and determinism. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/synth_rows.c"

enum { COLUMNS = 1024, ROWS = 64 };

static void make_row(const iso_synth_segments *segments, uint64_t key, int64_t n_rows, int64_t row,
                     float *out_values) {
  uint64_t bytes;
  assert_int_equal(iso_scheme_row_bytes(segments->scheme, segments->columns, &bytes), ISO_OK);
  /* A byte more than the row, to see that it stays. */
  uint8_t *encoded = malloc(bytes + 1);
  assert_non_null(encoded);
  encoded[bytes] = 0xA5;
  iso_synth_fill_row(segments, key, n_rows, row, encoded);
  assert_int_equal(encoded[bytes], 0xA5);
  iso_scheme_decode_row(segments->scheme, encoded, out_values, segments->columns);
  free(encoded);
}

static void rows_have_unit_length(void **state) {
  (void)state;
  for (int scheme = 0; scheme < ISO_SCHEME_COUNT; scheme++) {
    if (iso_scheme_get_info((iso_scheme)scheme)->kind == ISO_SCHEME_KIND_PLAIN_INT)
      continue;
    iso_synth_segments segments;
    assert_int_equal(iso_synth_segments_create(1, (iso_scheme)scheme, COLUMNS, &segments), ISO_OK);
    double sum = 0, squares = 0;
    for (int row = 0; row < ROWS; row++) {
      float values[COLUMNS];
      make_row(&segments, 5, 1 << 20, row, values);
      for (int i = 0; i < COLUMNS; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
      }
    }
    /* Variance 1 / COLUMNS; two bits a weight lose some of it. */
    assert_true(fabs(squares / ROWS - 1) < (scheme == ISO_SCHEME_Q2_K ? 0.15 : 0.05));
    assert_true(fabs(sum / ROWS) < 0.5);
    iso_synth_segments_free(&segments);
  }
}

static void no_two_rows_are_alike(void **state) {
  (void)state;
  /* Rows of a matrix so small that each segment is taken once, and of a large one. */
  const struct {
    int64_t columns, n_rows;
    iso_scheme scheme;
  } cases[] = {{256, 512, ISO_SCHEME_Q4_K}, {256, 1000, ISO_SCHEME_Q8_0}, {64, 2048, ISO_SCHEME_F32},
               {4096, 1000, ISO_SCHEME_Q6_K}, {576, 1000, ISO_SCHEME_Q4_0}};
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
    iso_synth_segments segments;
    assert_int_equal(iso_synth_segments_create(1, cases[c].scheme, cases[c].columns, &segments),
                     ISO_OK);
    uint64_t bytes;
    assert_int_equal(iso_scheme_row_bytes(cases[c].scheme, cases[c].columns, &bytes), ISO_OK);
    uint8_t *rows = malloc((size_t)cases[c].n_rows * bytes);
    assert_non_null(rows);
    for (int64_t row = 0; row < cases[c].n_rows; row++)
      iso_synth_fill_row(&segments, iso_synth_key(3, "blk.0.attn_q.weight"), cases[c].n_rows, row,
                         rows + (uint64_t)row * bytes);
    for (int64_t a = 0; a < cases[c].n_rows; a++)
      for (int64_t b = 0; b < a; b++)
        assert_int_not_equal(memcmp(rows + (uint64_t)a * bytes, rows + (uint64_t)b * bytes, bytes),
                             0);
    free(rows);
    iso_synth_segments_free(&segments);
  }
}

static void a_row_depends_on_key_and_index_alone(void **state) {
  (void)state;
  iso_synth_segments segments;
  assert_int_equal(iso_synth_segments_create(9, ISO_SCHEME_F32, COLUMNS, &segments), ISO_OK);
  float first[COLUMNS], again[COLUMNS], other_key[COLUMNS], other_row[COLUMNS];
  make_row(&segments, 7, 4096, 12, first);
  make_row(&segments, 8, 4096, 12, other_key);
  make_row(&segments, 7, 4096, 13, other_row);
  make_row(&segments, 7, 4096, 12, again);
  assert_memory_equal(first, again, sizeof first);
  assert_memory_not_equal(first, other_key, sizeof first);
  assert_memory_not_equal(first, other_row, sizeof first);
  iso_synth_segments_free(&segments);
}

/* A row that ends within a segment. */
static void rows_need_not_be_whole_segments(void **state) {
  (void)state;
  iso_synth_segments segments;
  assert_int_equal(iso_synth_segments_create(1, ISO_SCHEME_BF16, 65, &segments), ISO_OK);
  float values[65];
  make_row(&segments, 1, 1 << 20, 3, values);
  assert_true(values[64] != 0);
  iso_synth_segments_free(&segments);
}

static void vectors_are_exact_in_every_float(void **state) {
  (void)state;
  float values[500];
  iso_synth_fill_vector(iso_synth_key(1, "output_norm.weight"), 1, 500, values);
  for (int i = 0; i < 500; i++) {
    assert_true(values[i] >= 0.75f && values[i] <= 1.25f);
    assert_true(iso_f16_to_f32(iso_f16_from_f32(values[i])) == values[i]);
    assert_true(iso_bf16_to_f32(iso_bf16_from_f32(values[i])) == values[i]);
    float offset = values[i] - 1;
    assert_true(iso_bf16_to_f32(iso_bf16_from_f32(offset)) == offset);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_have_unit_length),
      cmocka_unit_test(no_two_rows_are_alike),
      cmocka_unit_test(a_row_depends_on_key_and_index_alone),
      cmocka_unit_test(rows_need_not_be_whole_segments),
      cmocka_unit_test(vectors_are_exact_in_every_float),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
