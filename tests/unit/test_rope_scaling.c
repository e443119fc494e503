/* Rotary frequencies against those that transformers computes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "core/json.h"
#include "ops/rope_scaling.h"
#include <math.h>
#include <string.h>

enum { MOST_PAIRS = 64 };

static float number(const cJSON *object, const char *key) {
  double value = 0;
  assert_int_equal(iso_json_get_optional_float(object, key, -1e9, 1e9, &value), ISO_OK);
  return (float)value;
}

/* NULL when the key is absent. */
static const float *numbers(const cJSON *object, const char *key, float *out) {
  const cJSON *array = NULL, *item;
  assert_int_equal(iso_json_get_optional_array(object, key, &array), ISO_OK);
  int n = 0;
  cJSON_ArrayForEach(item, array) out[n++] = (float)item->valuedouble;
  return array ? out : NULL;
}

static void test_golden(void **state) {
  (void)state;
  cJSON *root;
  if (iso_json_read_file(TEST_SOURCE_DIR "/tests/golden/ops/rope_scaling.json", 1 << 20, 16,
                         &root) != ISO_OK)
    fail_msg("%s", iso_status_message());
  const cJSON *cases, *entry;
  assert_int_equal(iso_json_get_array(root, "cases", &cases), ISO_OK);
  assert_true(cJSON_GetArraySize(cases) >= 12);
  cJSON_ArrayForEach(entry, cases) {
    const cJSON *c;
    const char *name;
    assert_int_equal(iso_json_get_object(entry, "config", &c), ISO_OK);
    assert_int_equal(iso_json_get_string(entry, "name", &name), ISO_OK);
    float shorter[MOST_PAIRS], longer[MOST_PAIRS], wanted[MOST_PAIRS], got[MOST_PAIRS], magnitude;
    iso_rope_config config = {
        .scaling = (iso_rope_scaling)number(c, "scaling"),
        .rotary_dim = (int32_t)number(c, "rotary_dim"),
        .theta = number(c, "theta"),
        .factor = number(c, "factor"),
        .low_frequency_factor = number(c, "low_frequency_factor"),
        .high_frequency_factor = number(c, "high_frequency_factor"),
        .beta_fast = number(c, "beta_fast"),
        .beta_slow = number(c, "beta_slow"),
        .attention_factor = number(c, "attention_factor"),
        .mscale = number(c, "mscale"),
        .mscale_all_dim = number(c, "mscale_all_dim"),
        .original_context = (int32_t)number(c, "original_context"),
        .short_factors = numbers(c, "short_factors", shorter),
        .long_factors = numbers(c, "long_factors", longer),
    };
    if (iso_rope_frequencies(&config, (int32_t)number(c, "context"), got, &magnitude) != ISO_OK)
      fail_msg("%s: %s", name, iso_status_message());
    assert_non_null(numbers(entry, "frequencies", wanted));
    for (int i = 0; i < config.rotary_dim / 2; i++)
      if (!(fabsf(got[i] - wanted[i]) <= 3e-6f * wanted[i]))
        fail_msg("%s: frequency %d is %.9g, wanted %.9g", name, i, (double)got[i],
                 (double)wanted[i]);
    if (!(fabsf(magnitude - number(entry, "magnitude")) < 1e-6f))
      fail_msg("%s: magnitude is %.9g", name, (double)magnitude);
  }
  cJSON_Delete(root);
}

static void test_bad_fields(void **state) {
  (void)state;
  static const float zero[4];
  static const struct {
    iso_rope_config config;
    const char *message;
  } cases[] = {
      {{.rotary_dim = 7, .theta = 1e4f}, "7 elements cannot rotate in pairs"},
      {{.rotary_dim = 0, .theta = 1e4f}, "0 elements"},
      {{.rotary_dim = 8, .theta = 0}, "theta is 0"},
      {{.rotary_dim = 8, .theta = NAN}, "theta is"},
      {{.rotary_dim = 8, .theta = 1e4f, .attention_factor = -1}, "attention factor is -1"},
      {{.rotary_dim = 8, .theta = 1e4f, .scaling = (iso_rope_scaling)9}, "unknown rope scaling 9"},
      {{.rotary_dim = 8, .theta = 1e4f, .scaling = ISO_ROPE_SCALING_LINEAR}, "linear: factor"},
      {{.rotary_dim = 8, .theta = 1e4f, .scaling = ISO_ROPE_SCALING_DYNAMIC_NTK, .factor = 2},
       "trained context"},
      {{.rotary_dim = 8,
        .theta = 1e4f,
        .scaling = ISO_ROPE_SCALING_LLAMA3,
        .factor = 8,
        .low_frequency_factor = 4,
        .high_frequency_factor = 4,
        .original_context = 8192},
       "low below high"},
      {{.rotary_dim = 8, .theta = 1e4f, .scaling = ISO_ROPE_SCALING_YARN, .factor = 8},
       "yarn: the original context"},
      {{.rotary_dim = 8,
        .theta = 1e4f,
        .scaling = ISO_ROPE_SCALING_LONGROPE,
        .factor = 8,
        .original_context = 64},
       "longrope: the factors of the pairs are missing"},
      {{.rotary_dim = 8,
        .theta = 1e4f,
        .scaling = ISO_ROPE_SCALING_LONGROPE,
        .factor = 8,
        .original_context = 64,
        .short_factors = zero},
       "must be positive"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    float table[4], magnitude;
    assert_int_equal(iso_rope_frequencies(&cases[i].config, 1, table, &magnitude),
                     ISO_ERROR_INVALID_ARGUMENT);
    if (!strstr(iso_status_message(), cases[i].message))
      fail_msg("case %zu: \"%s\"", i, iso_status_message());
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden),
      cmocka_unit_test(test_bad_fields),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
