/* Ops on rows and elements of the CPU backend against the reference, on every tier the machine
 * has, for all float schemes, ragged sizes and rows with gaps. */
#include "cpu_case.h"

static cpu_test_device device;

static const iso_scheme FLOATS[] = {ISO_SCHEME_F32, ISO_SCHEME_F16, ISO_SCHEME_BF16};
static const int64_t WIDTHS[] = {1, 3, 4, 7, 16, 17, 31, 64, 100, 576};

#define ELEMENTWISE 4e-6
#define REDUCTION 2e-5

/* Calls `body` for every pair of float schemes and every width. */
#define FOR_SCHEMES_AND_WIDTHS(body)                                                               \
  for (size_t from_ = 0; from_ < 3; from_++)                                                       \
    for (size_t to_ = 0; to_ < 3; to_++)                                                           \
      for (size_t width_ = 0; width_ < sizeof WIDTHS / sizeof WIDTHS[0]; width_++)                 \
  body(FLOATS[from_], FLOATS[to_], WIDTHS[width_])

/* A case of one or two [3, 2, width] inputs and such an output. */
static void elementwise(iso_op op, const void *attributes, uint32_t n_inputs, iso_scheme from,
                        iso_scheme to, int64_t width, float range) {
  cpu_case job;
  int64_t dims[] = {3, 2, width};
  cpu_case_begin(&job, op, attributes, ELEMENTWISE);
  for (uint32_t i = 0; i < n_inputs; i++)
    cpu_case_floats(&job, from, 3, dims, i * 5, -range, range);
  cpu_case_output(&job, to, 3, dims, 3);
  cpu_case_run(&job, &device);
  cpu_case_end(&job);
}

static void activations(iso_scheme from, iso_scheme to, int64_t width) {
  for (uint32_t activation = 0; activation < ISO_ACTIVATION_COUNT; activation++) {
    iso_activate_attributes activate = {sizeof activate, activation};
    iso_glu_attributes glu = {sizeof glu, activation};
    elementwise(ISO_OP_ACTIVATE, &activate, 1, from, to, width, 8);
    elementwise(ISO_OP_GLU, &glu, 2, from, to, width, 3);
  }
}
static void test_activations(void **state) {
  (void)state;
  FOR_SCHEMES_AND_WIDTHS(activations);
}

static void adds(iso_scheme from, iso_scheme to, int64_t width) {
  iso_add_attributes add = {sizeof add};
  elementwise(ISO_OP_ADD, &add, 2, from, to, width, 10);
  cpu_case job;
  int64_t dims[] = {5, width};
  cpu_case_begin(&job, ISO_OP_ADD, &add, ELEMENTWISE);
  cpu_case_floats(&job, from, 2, dims, 1, -2, 2);
  cpu_case_floats(&job, to, 1, dims + 1, 0, -2, 2);
  cpu_case_output(&job, to, 2, dims, 0);
  cpu_case_run(&job, &device);
  cpu_case_end(&job);
}
static void test_add(void **state) {
  (void)state;
  FOR_SCHEMES_AND_WIDTHS(adds);
}

static void soft_caps(iso_scheme from, iso_scheme to, int64_t width) {
  iso_soft_cap_attributes capped = {sizeof capped, 0.5f, 30.0f}, plain = {sizeof plain, 0.25f, 0};
  elementwise(ISO_OP_SOFT_CAP, &capped, 1, from, to, width, 100);
  elementwise(ISO_OP_SOFT_CAP, &plain, 1, from, to, width, 100);
}
static void test_soft_cap(void **state) {
  (void)state;
  FOR_SCHEMES_AND_WIDTHS(soft_caps);
}

static void conversions(iso_scheme from, iso_scheme to, int64_t width) {
  iso_convert_attributes convert = {sizeof convert, to};
  cpu_case job;
  int64_t dims[] = {4, width};
  for (int scale = -30; scale <= 30; scale += 10) {
    cpu_case_begin(&job, ISO_OP_CONVERT, &convert, 0);
    uint32_t x = cpu_case_floats(&job, from, 2, dims, 0, -ldexpf(1, scale), ldexpf(1, scale));
    if (from == ISO_SCHEME_F32)
      ((float *)(void *)job.inputs[x])[0] = INFINITY;
    cpu_case_output(&job, to, 2, dims, 0);
    cpu_case_run(&job, &device);
    cpu_case_end(&job);
  }
}
/* Bit for bit, subnormal results and overflow to infinity included. */
static void test_convert(void **state) {
  (void)state;
  FOR_SCHEMES_AND_WIDTHS(conversions);
}

static void norms(iso_scheme from, iso_scheme to, int64_t width) {
  iso_rms_norm_attributes rms = {sizeof rms, 1e-6f, 1.0f};
  iso_layer_norm_attributes layer = {sizeof layer, 1e-5f};
  iso_softmax_attributes softmax = {sizeof softmax};
  int64_t dims[] = {2, 3, width};
  for (int op = 0; op < 4; op++) {
    cpu_case job;
    cpu_case_begin(&job,
                   op == 0   ? ISO_OP_RMS_NORM
                   : op == 1 ? ISO_OP_SOFTMAX
                             : ISO_OP_LAYER_NORM,
                   op == 0   ? (void *)&rms
                   : op == 1 ? (void *)&softmax
                             : (void *)&layer,
                   REDUCTION);
    cpu_case_floats(&job, from, 3, dims, 2, -20, 30);
    if (op != 1)
      cpu_case_floats(&job, ISO_SCHEME_F32, 1, dims + 2, 0, -1, 1);
    if (op == 2)
      cpu_case_floats(&job, ISO_SCHEME_F32, 1, dims + 2, 0, -1, 1);
    cpu_case_output(&job, to, 3, dims, 1);
    cpu_case_run(&job, &device);
    cpu_case_end(&job);
  }
}
static void test_norms(void **state) {
  (void)state;
  FOR_SCHEMES_AND_WIDTHS(norms);
}

static void combinations(iso_scheme from, iso_scheme to, int64_t width) {
  iso_combine_experts_attributes combine = {sizeof combine};
  int64_t dims[] = {3, 4, width}, weights[] = {3, 4}, out[] = {3, width};
  cpu_case job;
  cpu_case_begin(&job, ISO_OP_COMBINE_EXPERTS, &combine, REDUCTION);
  cpu_case_floats(&job, from, 3, dims, 2, -1, 1);
  cpu_case_floats(&job, ISO_SCHEME_F32, 2, weights, 0, 0, 1);
  cpu_case_output(&job, to, 2, out, 1);
  cpu_case_run(&job, &device);
  cpu_case_end(&job);
}
static void test_combine_experts(void **state) {
  (void)state;
  FOR_SCHEMES_AND_WIDTHS(combinations);
}

/* Sizes at which rows and columns are shared out over threads. */
static void test_large_rows(void **state) {
  (void)state;
  iso_add_attributes add = {sizeof add};
  iso_rms_norm_attributes rms = {sizeof rms, 1e-5f, 0};
  int64_t shapes[][2] = {{1, 200001}, {257, 576}, {40000, 3}};
  for (size_t i = 0; i < 3; i++) {
    cpu_case job;
    cpu_case_begin(&job, ISO_OP_ADD, &add, ELEMENTWISE);
    cpu_case_floats(&job, ISO_SCHEME_F32, 2, shapes[i], 0, -1, 1);
    cpu_case_floats(&job, ISO_SCHEME_BF16, 2, shapes[i], 0, -1, 1);
    cpu_case_output(&job, ISO_SCHEME_F32, 2, shapes[i], 0);
    cpu_case_run(&job, &device);
    cpu_case_end(&job);
    cpu_case_begin(&job, ISO_OP_RMS_NORM, &rms, REDUCTION);
    cpu_case_floats(&job, ISO_SCHEME_F32, 2, shapes[i], 0, -1, 1);
    cpu_case_floats(&job, ISO_SCHEME_F32, 1, shapes[i] + 1, 0, -1, 1);
    cpu_case_output(&job, ISO_SCHEME_F32, 2, shapes[i], 0);
    cpu_case_run(&job, &device);
    cpu_case_end(&job);
  }
}

static void test_empty(void **state) {
  (void)state;
  iso_add_attributes add = {sizeof add};
  int64_t dims[] = {0, 64};
  cpu_case job;
  cpu_case_begin(&job, ISO_OP_ADD, &add, ELEMENTWISE);
  cpu_case_floats(&job, ISO_SCHEME_F32, 2, dims, 0, -1, 1);
  cpu_case_floats(&job, ISO_SCHEME_F32, 2, dims, 0, -1, 1);
  cpu_case_output(&job, ISO_SCHEME_F32, 2, dims, 0);
  cpu_case_run(&job, &device);
  cpu_case_end(&job);
}

/* Values with many equals, NaN and infinities anywhere. */
static void test_argmax(void **state) {
  (void)state;
  iso_argmax_attributes argmax = {sizeof argmax};
  static const int64_t widths[] = {1, 2, 15, 511, 512, 513, 5000};
  for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++)
    for (int kind = 0; kind < 5; kind++) {
      int64_t dims[] = {9, widths[w]};
      cpu_case job;
      cpu_case_begin(&job, ISO_OP_ARGMAX, &argmax, 0);
      cpu_case_floats(&job, ISO_SCHEME_F32, 2, dims, 0, -5, 5);
      float *x = (float *)(void *)job.inputs[0];
      for (int64_t i = 0; i < dims[0] * dims[1]; i++) {
        if (kind >= 1)
          x[i] = rintf(x[i]);
        if (kind == 2 && cpu_random() % 3 == 0)
          x[i] = NAN;
        if (kind == 3)
          x[i] = cpu_random() % 2 ? NAN : -INFINITY;
        if (kind == 4)
          x[i] = i < dims[1] ? NAN : INFINITY;
      }
      cpu_case_output(&job, ISO_SCHEME_I32, 1, dims, 0);
      cpu_case_run(&job, &device);
      cpu_case_end(&job);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_activations), cmocka_unit_test(test_add),
      cmocka_unit_test(test_soft_cap),    cmocka_unit_test(test_convert),
      cmocka_unit_test(test_norms),       cmocka_unit_test(test_combine_experts),
      cmocka_unit_test(test_large_rows),  cmocka_unit_test(test_empty),
      cmocka_unit_test(test_argmax),
  };
  return cpu_test_each_tier(&device, tests, sizeof tests / sizeof tests[0]);
}
