/* Storage schemes: golden vectors, round trips within the error that the bits allow, and inputs
 * that no weight file should hold but some do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <float.h>
#include <isomer/quant.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A row: 16 super-blocks. */
enum { ROW = 4096, MAX_ROW_BYTES = ROW * 4 };

static uint64_t random_state;

static uint64_t random_bits(void) { /* splitmix64 */
  uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static double random_uniform(void) { return ((double)(random_bits() >> 11) + 0.5) * 0x1p-53; }

static float random_normal(void) {
  return (float)(sqrt(-2 * log(random_uniform())) * cos(2 * acos(-1) * random_uniform()));
}

static void fill_normal(float *values, int count, float deviation) {
  for (int i = 0; i < count; i++)
    values[i] = random_normal() * deviation;
}

/* Reads tests/golden/quant/<name>.<kind> into a buffer that the caller frees. */
static void *read_golden(const char *name, const char *kind, size_t *out_bytes) {
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/golden/quant/%s.%s", TEST_SOURCE_DIR, name, kind);
  FILE *file = fopen(path, "rb");
  if (!file)
    fail_msg("cannot open %s", path);
  char *data = malloc(MAX_ROW_BYTES);
  assert_non_null(data);
  *out_bytes = fread(data, 1, MAX_ROW_BYTES, file);
  fclose(file);
  assert_in_range(*out_bytes, 1, MAX_ROW_BYTES - 1);
  return data;
}

static uint64_t row_bytes(iso_scheme scheme, int64_t elements) {
  uint64_t bytes = 0;
  assert_int_equal(iso_scheme_row_bytes(scheme, elements, &bytes), ISO_OK);
  return bytes;
}

static void test_facts(void **state) {
  (void)state;
  for (int i = 0; i < ISO_SCHEME_COUNT; i++) {
    const iso_scheme_info *info = iso_scheme_get_info((iso_scheme)i);
    iso_scheme found = ISO_SCHEME_COUNT;
    assert_true(iso_scheme_from_name(info->name, &found));
    assert_int_equal(found, i);
    if (info->gguf_type >= 0) {
      assert_true(iso_scheme_from_gguf((uint32_t)info->gguf_type, &found));
      assert_int_equal(found, i);
    }
    assert_int_equal(row_bytes((iso_scheme)i, 3 * (int64_t)info->block_elements),
                     3 * info->block_bytes);
  }
  iso_scheme found;
  assert_true(iso_scheme_from_name("Q4_K", &found));
  assert_int_equal(found, ISO_SCHEME_Q4_K);
  assert_false(iso_scheme_from_name("q4", &found));
  assert_false(iso_scheme_from_name("", &found));
  assert_false(iso_scheme_from_gguf(UINT32_MAX, &found));
  assert_null(iso_scheme_get_info(ISO_SCHEME_COUNT));
  assert_null(iso_scheme_get_info((iso_scheme)-1));
}

static void test_row_bytes_refuses(void **state) {
  (void)state;
  uint64_t bytes;
  assert_int_equal(iso_scheme_row_bytes(ISO_SCHEME_Q4_K, 255, &bytes), ISO_ERROR_INVALID_ARGUMENT);
  assert_int_equal(iso_scheme_row_bytes(ISO_SCHEME_F32, -4, &bytes), ISO_ERROR_INVALID_ARGUMENT);
  assert_int_equal(iso_scheme_row_bytes(ISO_SCHEME_COUNT, 256, &bytes), ISO_ERROR_INVALID_ARGUMENT);
  assert_int_equal(iso_scheme_row_bytes(ISO_SCHEME_F32, INT64_MAX, &bytes), ISO_ERROR_LIMIT);
}

/* Bit for bit what an independent implementation of the format decodes. */
static void test_decode_golden(void **state) {
  (void)state;
  for (int i = 0; i < ISO_SCHEME_COUNT; i++) {
    const iso_scheme_info *info = iso_scheme_get_info((iso_scheme)i);
    size_t block_bytes, value_bytes;
    void *blocks = read_golden(info->name, "blocks", &block_bytes);
    float *expected = read_golden(info->name, "values", &value_bytes);
    int64_t elements = (int64_t)(value_bytes / sizeof(float));
    assert_int_equal(row_bytes((iso_scheme)i, elements), block_bytes);
    float values[ROW];
    iso_scheme_decode_row((iso_scheme)i, blocks, values, elements);
    for (int64_t j = 0; j < elements; j++)
      if (memcmp(&values[j], &expected[j], sizeof(float)) != 0 &&
          !(isnan(values[j]) && isnan(expected[j])))
        fail_msg("%s[%lld] is %.9g, not %.9g", info->name, (long long)j, (double)values[j],
                 (double)expected[j]);
    free(blocks);
    free(expected);
  }
}

/* Bit for bit what the format's reference encoders give, where such exist. */
static void test_encode_golden(void **state) {
  (void)state;
  static const iso_scheme schemes[] = {ISO_SCHEME_F16,  ISO_SCHEME_BF16, ISO_SCHEME_Q8_0,
                                       ISO_SCHEME_Q4_0, ISO_SCHEME_Q4_1, ISO_SCHEME_Q5_0,
                                       ISO_SCHEME_Q5_1};
  size_t input_bytes, expected_bytes;
  float *inputs = read_golden("inputs", "values", &input_bytes);
  int64_t elements = (int64_t)(input_bytes / sizeof(float));
  for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
    uint8_t row[MAX_ROW_BYTES];
    void *expected = read_golden(iso_scheme_get_info(schemes[i])->name, "encoded", &expected_bytes);
    iso_scheme_encode_row(schemes[i], inputs, NULL, row, elements);
    assert_int_equal(row_bytes(schemes[i], elements), expected_bytes);
    assert_memory_equal(row, expected, expected_bytes);
    free(expected);
  }
  free(inputs);
}

/* Largest error of one plain element. */
static float plain_bound(iso_scheme scheme, float value) {
  float magnitude = fabsf(value);
  switch ((int)scheme) {
  case ISO_SCHEME_F32:
    return 0;
  case ISO_SCHEME_F16: /* half a unit in the last of 11 bits, or half a subnormal step */
    return fmaxf(magnitude * 0x1p-11f, 0x1p-25f);
  case ISO_SCHEME_BF16:
    return magnitude * 0x1p-8f;
  default: /* integers */
    return 0.5f;
  }
}

/* Root of the mean squared error of a uniform code with `bits` bits over the range of x, were
 * every error the largest possible, half a step. An encoder that searches its scales may err more
 * than that on one element, but not over a block. Schemes with signed codes have a step of the
 * largest magnitude by 2^(bits - 1). */
static double block_bound(const float *x, uint32_t count, int bits) {
  float peak = 0;
  for (uint32_t i = 0; i < count; i++)
    peak = fmaxf(peak, fabsf(x[i]));
  return 0.5 * peak / (double)(1 << (bits - 1));
}

static void check_round_trip(iso_scheme scheme, const float *x, const float *importance) {
  static uint8_t row[MAX_ROW_BYTES];
  static float y[ROW];
  const iso_scheme_info *info = iso_scheme_get_info(scheme);
  iso_scheme_encode_row(scheme, x, importance, row, ROW);
  iso_scheme_decode_row(scheme, row, y, ROW);
  if (info->kind != ISO_SCHEME_KIND_BLOCK) {
    for (int i = 0; i < ROW; i++)
      if (!(fabsf(y[i] - x[i]) <= plain_bound(scheme, x[i])))
        fail_msg("%s: %.9g became %.9g", info->name, (double)x[i], (double)y[i]);
    return;
  }
  /* The first digit of a block scheme's name is its bits a code. */
  int bits = info->name[strcspn(info->name, "123456789")] - '0';
  assert_in_range(bits, 1, 8);
  if (scheme == ISO_SCHEME_F8_G128)
    bits = 5; /* a code errs by 2^-4 of itself at most, and the peak by no more */
  for (uint32_t b = 0; b < ROW; b += info->block_elements) {
    double sum = 0;
    for (uint32_t i = b; i < b + info->block_elements; i++)
      sum += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
    double error = sqrt(sum / info->block_elements);
    double bound = block_bound(x + b, info->block_elements, bits);
    if (!(error <= bound))
      fail_msg("%s, block at %u: error %g is above %g", info->name, b, error, bound);
  }
}

static void test_round_trip(void **state) {
  (void)state;
  static const float deviations[] = {1e-3f, 0.02f, 1, 20};
  static float x[ROW];
  for (int i = 0; i < ISO_SCHEME_COUNT; i++)
    for (size_t d = 0; d < sizeof deviations / sizeof *deviations; d++) {
      fill_normal(x, ROW, deviations[d]);
      check_round_trip((iso_scheme)i, x, NULL);
    }
}

/* Relative error on normal data, as the encoders reached it when this was written, rounded up; the
 * format's reference encoders reach 0.297, 0.151, 0.0714, 0.0361, 0.0178 and 0.0762. The data is
 * the same on every run: the searches may become better, not worse. */
static void test_searched_scales_stay_good(void **state) {
  (void)state;
  static const struct {
    iso_scheme scheme;
    double bound;
  } cases[] = {{ISO_SCHEME_Q2_K, 0.2629}, {ISO_SCHEME_Q3_K, 0.1432}, {ISO_SCHEME_Q4_K, 0.0698},
               {ISO_SCHEME_Q5_K, 0.0345}, {ISO_SCHEME_Q6_K, 0.0166}, {ISO_SCHEME_IQ4_NL, 0.0732}};
  enum { ROWS = 16 };
  static float x[ROWS][ROW], y[ROW];
  static uint8_t row[MAX_ROW_BYTES];
  uint64_t seeded_state = random_state;
  random_state = 1;
  fill_normal(x[0], ROWS * ROW, 1);
  random_state = seeded_state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    double error = 0, square = 0;
    for (int r = 0; r < ROWS; r++) {
      iso_scheme_encode_row(cases[c].scheme, x[r], NULL, row, ROW);
      iso_scheme_decode_row(cases[c].scheme, row, y, ROW);
      for (int i = 0; i < ROW; i++) {
        error += ((double)y[i] - x[r][i]) * ((double)y[i] - x[r][i]);
        square += (double)x[r][i] * x[r][i];
      }
    }
    if (!(sqrt(error / square) <= cases[c].bound))
      fail_msg("%s: relative error %.5f is above %.5f", iso_scheme_get_info(cases[c].scheme)->name,
               sqrt(error / square), cases[c].bound);
  }
}

static double weighted_error(iso_scheme scheme, const float *x, const float *used,
                             const float *weights) {
  static uint8_t row[MAX_ROW_BYTES];
  static float y[ROW];
  iso_scheme_encode_row(scheme, x, used, row, ROW);
  iso_scheme_decode_row(scheme, row, y, ROW);
  double sum = 0;
  for (int i = 0; i < ROW; i++)
    sum += (double)weights[i] * ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
  return sum;
}

static void test_importance_lessens_the_weighted_error(void **state) {
  (void)state;
  static float x[ROW], importance[ROW];
  fill_normal(x, ROW, 0.02f);
  for (int i = 0; i < ROW; i++)
    importance[i] = expf(2 * random_normal());
  for (int i = 0; i < ISO_SCHEME_COUNT; i++) {
    iso_scheme scheme = (iso_scheme)i;
    if (iso_scheme_get_info(scheme)->kind != ISO_SCHEME_KIND_BLOCK)
      continue;
    double plain = weighted_error(scheme, x, NULL, importance);
    double weighted = weighted_error(scheme, x, importance, importance);
    if (!(weighted < plain))
      fail_msg("%s: %g with importances, %g without", iso_scheme_get_info(scheme)->name, weighted,
               plain);
  }
}

/* The scale of importances means nothing, and useless ones still give a sound encoding. */
static void test_odd_importances(void **state) {
  (void)state;
  static float x[ROW], importance[ROW];
  static uint8_t row[MAX_ROW_BYTES], scaled_row[MAX_ROW_BYTES];
  fill_normal(x, ROW, 0.02f);
  for (int i = 0; i < ISO_SCHEME_COUNT; i++) {
    iso_scheme scheme = (iso_scheme)i;
    if (iso_scheme_get_info(scheme)->kind != ISO_SCHEME_KIND_BLOCK)
      continue;
    for (int j = 0; j < ROW; j++)
      importance[j] = (float)random_uniform();
    iso_scheme_encode_row(scheme, x, importance, row, ROW);
    for (int j = 0; j < ROW; j++)
      importance[j] *= 0x1p100f;
    iso_scheme_encode_row(scheme, x, importance, scaled_row, ROW);
    assert_memory_equal(row, scaled_row, row_bytes(scheme, ROW));
    static const float useless[] = {0, 1, -1, FLT_MAX, FLT_MIN, INFINITY, NAN};
    for (size_t u = 0; u < sizeof useless / sizeof *useless; u++) {
      for (int j = 0; j < ROW; j++)
        importance[j] = useless[u];
      check_round_trip(scheme, x, importance);
    }
    /* All the weight on few elements: those come out better. */
    for (int j = 0; j < ROW; j++)
      importance[j] = j % 32 == 7 ? 1 : 1e-12f;
    double error = weighted_error(scheme, x, importance, importance);
    assert_true(error <= 0.5 * weighted_error(scheme, x, NULL, importance));
  }
}

/* Encodes x into two rows, as given and with odd values replaced by what quant.h says they count
 * as; both must be the same bytes and decode to finite values. */
static void check_replacement(iso_scheme scheme, const float *given, const float *meant) {
  static uint8_t row[MAX_ROW_BYTES], expected[MAX_ROW_BYTES];
  static float y[ROW];
  iso_scheme_encode_row(scheme, given, NULL, row, ROW);
  iso_scheme_encode_row(scheme, meant, NULL, expected, ROW);
  assert_memory_equal(row, expected, row_bytes(scheme, ROW));
  iso_scheme_decode_row(scheme, row, y, ROW);
  for (int i = 0; i < ROW; i++)
    assert_true(isfinite(y[i]));
}

static void test_nan_and_infinity(void **state) {
  (void)state;
  static float given[ROW], meant[ROW], y[ROW];
  static uint8_t row[MAX_ROW_BYTES];
  for (int i = 0; i < ISO_SCHEME_COUNT; i++) {
    iso_scheme scheme = (iso_scheme)i;
    if (iso_scheme_get_info(scheme)->kind == ISO_SCHEME_KIND_PLAIN_FLOAT)
      continue;
    fill_normal(given, ROW, 3);
    memcpy(meant, given, sizeof given);
    for (int j = 5; j < ROW; j += 61) {
      given[j] = NAN;
      meant[j] = 0;
    }
    check_replacement(scheme, given, meant);
    for (int j = 5; j < ROW; j += 61) {
      given[j] = j % 2 ? INFINITY : -INFINITY;
      meant[j] = j % 2 ? FLT_MAX : -FLT_MAX;
    }
    check_replacement(scheme, given, meant);
    iso_scheme_encode_row(scheme, given, NULL, row, ROW);
    iso_scheme_decode_row(scheme, row, y, ROW);
    for (int j = 5; j < ROW; j += 61)
      assert_true((j % 2 ? y[j] : -y[j]) >= (scheme == ISO_SCHEME_I8 ? 127.0f : 60000.0f));
  }
  static const iso_scheme plain[] = {ISO_SCHEME_F32, ISO_SCHEME_F16, ISO_SCHEME_BF16};
  const float odd[] = {NAN, INFINITY, -INFINITY};
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
    iso_scheme_encode_row(plain[i], odd, NULL, row, 3);
    iso_scheme_decode_row(plain[i], row, y, 3);
    assert_true(isnan(y[0]) && y[1] == INFINITY && y[2] == -INFINITY);
  }
}

static void test_integers_round_and_saturate(void **state) {
  (void)state;
  static const float given[] = {0.5f, 1.5f, -2.5f, 127.4f, 127.6f, -128.4f, 3e9f, -3e9f, NAN, 7};
  static const float as_i8[] = {0, 2, -2, 127, 127, -128, 127, -128, 0, 7};
  static const float as_i32[] = {0, 2, -2, 127, 128, -128, 0x1p31f, -0x1p31f, 0, 7};
  uint8_t row[sizeof given];
  float y[10];
  iso_scheme_encode_row(ISO_SCHEME_I8, given, NULL, row, 10);
  iso_scheme_decode_row(ISO_SCHEME_I8, row, y, 10);
  assert_memory_equal(y, as_i8, sizeof y);
  iso_scheme_encode_row(ISO_SCHEME_I32, given, NULL, row, 10);
  iso_scheme_decode_row(ISO_SCHEME_I32, row, y, 10);
  assert_memory_equal(y, as_i32, sizeof y);
}

static void test_extreme_blocks(void **state) {
  (void)state;
  static const float constants[] = {0,       -0.0f,  1,       -1,     FLT_MAX, -FLT_MAX,
                                    FLT_MIN, 1e-45f, -1e-45f, 1e-30f, 1e-20f,  6e-8f,
                                    -6e-8f,  65504,  -65504,  8e6f,   -8e6f};
  static float x[ROW], y[ROW];
  static uint8_t row[MAX_ROW_BYTES];
  for (int i = 0; i < ISO_SCHEME_COUNT; i++)
    for (size_t c = 0; c < sizeof constants / sizeof *constants; c++)
      for (int pattern = 0; pattern < 3; pattern++) {
        if (iso_scheme_get_info((iso_scheme)i)->kind != ISO_SCHEME_KIND_BLOCK)
          continue;
        for (int j = 0; j < ROW; j++)
          x[j] = pattern == 0                 ? constants[c]
                 : pattern == 1 && j % 2 == 0 ? -constants[c]
                 : pattern == 2 && j % 37     ? random_normal()
                                              : constants[c];
        iso_scheme_encode_row((iso_scheme)i, x, NULL, row, ROW);
        iso_scheme_decode_row((iso_scheme)i, row, y, ROW);
        for (int j = 0; j < ROW; j++) {
          assert_true(isfinite(y[j]));
          if (pattern == 0)
            assert_true(fabsf(y[j]) <= fabsf(x[j]) * 1.001f + 1e-6f);
          if (pattern == 0 && x[j] == 0)
            assert_true(y[j] == 0);
          if (pattern == 0 && fabsf(x[j]) >= 1 && fabsf(x[j]) <= 65504)
            assert_true(fabsf(y[j] - x[j]) <= fabsf(x[j]) * 0.02f);
        }
      }
}

/* Any bytes decode without a fault, and rows need no alignment on either side. */
static void test_any_bytes_anywhere(void **state) {
  (void)state;
  static uint8_t bytes[MAX_ROW_BYTES + 1], row[MAX_ROW_BYTES + 1];
  static float first[ROW], second[ROW];
  for (int i = 0; i < ISO_SCHEME_COUNT; i++) {
    iso_scheme scheme = (iso_scheme)i;
    uint64_t size = row_bytes(scheme, ROW);
    for (uint64_t j = 0; j < size; j++)
      bytes[j] = (uint8_t)random_bits();
    memcpy(row + 1, bytes, size);
    iso_scheme_decode_row(scheme, bytes, first, ROW);
    iso_scheme_decode_row(scheme, row + 1, second, ROW);
    assert_memory_equal(first, second, sizeof first);
    fill_normal(first, ROW, 1);
    row[0] = 0xa5;
    iso_scheme_encode_row(scheme, first, NULL, bytes, ROW);
    iso_scheme_encode_row(scheme, first, NULL, row + 1, ROW);
    assert_memory_equal(bytes, row + 1, size);
    assert_int_equal(row[0], 0xa5);
  }
}

int main(void) {
  const char *seed = getenv("ISO_TEST_SEED");
  random_state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
  printf("ISO_TEST_SEED=%llu\n", (unsigned long long)random_state);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_facts),
      cmocka_unit_test(test_row_bytes_refuses),
      cmocka_unit_test(test_decode_golden),
      cmocka_unit_test(test_encode_golden),
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_searched_scales_stay_good),
      cmocka_unit_test(test_importance_lessens_the_weighted_error),
      cmocka_unit_test(test_odd_importances),
      cmocka_unit_test(test_nan_and_infinity),
      cmocka_unit_test(test_integers_round_and_saturate),
      cmocka_unit_test(test_extreme_blocks),
      cmocka_unit_test(test_any_bytes_anywhere),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
