/* Every product record of the CPU, on every tier this machine has, against sums in double. */
#include "cpu_device.h"

#include "backends/cpu/matmul/product.h"
#include "quant/blocks.h"

#include <math.h>
#include <stdio.h>

#define MAX_ROWS 257
#define POISON 0xa5

static uint64_t random_state = 88172645463325252u;

static uint32_t random_word(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)(random_state >> 32);
}

static float random_value(void) {
  float sum = 0;
  for (int i = 0; i < 4; i++)
    sum += (float)(int32_t)random_word() * 0x1p-31f;
  return sum;
}

static iso_buffer *make_buffer(cpu_test_device *cpu, uint64_t bytes, int poison) {
  iso_buffer *buffer;
  assert_int_equal(cpu->backend->memory->alloc(cpu->device, ISO_MEMORY_DEVICE, bytes + 64, &buffer),
                   ISO_OK);
  memset(buffer->data, poison, bytes + 64);
  return buffer;
}

/* A product: weight, activations, bias, and what they come to. */
typedef struct product {
  iso_scheme scheme, activation_scheme;
  int64_t m, n, k;
  uint8_t *weight; /* n rows as the file has them */
  uint64_t row_bytes;
  float *weight_values;
  float *x; /* representable in activation_scheme */
  float *bias;
  double *y;               /* [m, n] */
  double *spread;          /* [m, n], the standard deviation that quantized activations may add */
  double *term_spread;     /* [m, n], root of the sum of the squares of the terms */
  double *weight_of_terms; /* [m, n], sum of the terms' magnitudes */
  double *tile_spread; /* [m, n], as spread, with both sides in 15 bits of their row's largest */
} product;

static void *allocate(int64_t count, size_t size) {
  void *memory = calloc((size_t)(count ? count : 1), size);
  assert_non_null(memory);
  return memory;
}

static double largest_of(const float *values, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++)
    largest = fmax(largest, fabs((double)values[i]));
  return largest;
}

/* Units are of rounding; low planes, which are left out, have 37 of them in the square mean. */
static double tile_variance(double x, double w, double x_unit, double w_unit) {
  return pow(0.3 * x_unit * w, 2) + pow(0.5 * w_unit * x, 2) + pow(37 * 37 * x_unit * w_unit, 2);
}

static void compute_reference(product *p) {
  double *w_units = allocate(p->n, sizeof(double));
  /* Bounds come from scales: they are at most twice the largest weight. */
  for (int64_t j = 0; j < p->n; j++)
    w_units[j] = 2 * largest_of(p->weight_values + j * p->k, p->k) / ISO_ACTIVATION_MAXIMUM;
  for (int64_t i = 0; i < p->m; i++) {
    const float *x = p->x + i * p->k;
    double x_unit = largest_of(x, p->k) / ISO_ACTIVATION_MAXIMUM;
    double *scales = allocate(p->k, sizeof(double));
    for (int64_t k = 0; k < p->k; k++) {
      double largest = 0;
      for (int64_t j = k / 32 * 32; j < p->k && j < k / 32 * 32 + 32; j++)
        largest = fmax(largest, fabs((double)x[j]));
      scales[k] = largest / ISO_ACTIVATION_MAXIMUM;
    }
    for (int64_t j = 0; j < p->n; j++) {
      const float *w = p->weight_values + j * p->k;
      double sum = 0, terms = 0, squares = 0, variance = 0, tile = 0;
      for (int64_t k = 0; k < p->k; k++) {
        double term = (double)x[k] * (double)w[k], step = (double)w[k] * scales[k];
        sum += term;
        terms += fabs(term);
        squares += term * term;
        variance += step * step / 12;
        tile += tile_variance((double)x[k], (double)w[k], x_unit, w_units[j]);
      }
      p->tile_spread[i * p->n + j] = sqrt(tile);
      p->y[i * p->n + j] = sum + (p->bias ? (double)p->bias[j] : 0);
      p->spread[i * p->n + j] = sqrt(variance);
      p->term_spread[i * p->n + j] = sqrt(squares);
      p->weight_of_terms[i * p->n + j] = terms + fabs(p->y[i * p->n + j]);
    }
    free(scales);
  }
  free(w_units);
}

static product make_product(iso_scheme scheme, iso_scheme activation_scheme, int64_t m, int64_t n,
                            int64_t k, bool with_bias) {
  product p = {.scheme = scheme, .activation_scheme = activation_scheme, .m = m, .n = n, .k = k};
  assert_int_equal(iso_scheme_row_bytes(scheme, k, &p.row_bytes), ISO_OK);
  p.weight = allocate(n, p.row_bytes);
  p.weight_values = allocate(n * k, sizeof(float));
  p.x = allocate(m * k, sizeof(float));
  p.y = allocate(m * n, sizeof(double));
  p.spread = allocate(m * n, sizeof(double));
  p.term_spread = allocate(m * n, sizeof(double));
  p.weight_of_terms = allocate(m * n, sizeof(double));
  p.tile_spread = allocate(m * n, sizeof(double));
  float *row = allocate(k, sizeof(float));
  for (int64_t j = 0; j < n; j++) {
    for (int64_t i = 0; i < k; i++)
      row[i] = random_value() * 0.05f;
    iso_scheme_encode_row(scheme, row, NULL, p.weight + (uint64_t)j * p.row_bytes, k);
    iso_scheme_decode_row(scheme, p.weight + (uint64_t)j * p.row_bytes, p.weight_values + j * k, k);
  }
  uint8_t *stored = allocate(k, sizeof(float));
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < k; j++)
      row[j] = random_value() * (random_word() % 64 ? 1.0f : 8.0f);
    iso_scheme_encode_row(activation_scheme, row, NULL, stored, k);
    iso_scheme_decode_row(activation_scheme, stored, p.x + i * k, k);
  }
  free(stored);
  free(row);
  if (with_bias) {
    p.bias = allocate(n, sizeof(float));
    for (int64_t j = 0; j < n; j++)
      p.bias[j] = random_value();
  }
  compute_reference(&p);
  return p;
}

static void free_product(product *p) {
  free(p->weight);
  free(p->weight_values);
  free(p->x);
  free(p->bias);
  free(p->y);
  free(p->spread);
  free(p->term_spread);
  free(p->weight_of_terms);
  free(p->tile_spread);
}

static iso_tensor tensor_of(iso_buffer *buffer, iso_scheme scheme, int64_t rows, int64_t columns,
                            int64_t row_stride) {
  const iso_scheme_info *info = iso_scheme_get_info(scheme);
  iso_tensor tensor = {.buffer = buffer, .scheme = scheme, .n_dims = 2};
  tensor.dims[0] = rows;
  tensor.dims[1] = columns;
  tensor.strides[0] = row_stride;
  tensor.strides[1] = info->block_bytes;
  return tensor;
}

static iso_buffer *pack(cpu_test_device *cpu, const iso_kernel *kernel, const product *p) {
  iso_host_weight weight = {.size = sizeof weight, .scheme = p->scheme, .n_dims = 2};
  weight.dims[0] = p->n;
  weight.dims[1] = p->k;
  weight.data = p->weight;
  weight.bytes = (uint64_t)p->n * p->row_bytes;
  if (!kernel->pack) {
    iso_buffer *plain = make_buffer(cpu, weight.bytes, 0);
    memcpy(plain->data, p->weight, weight.bytes);
    return plain;
  }
  uint64_t bytes;
  assert_int_equal(kernel->packed_bytes(cpu->device, &weight, &bytes), ISO_OK);
  iso_buffer *packed = make_buffer(cpu, bytes, POISON);
  assert_int_equal(kernel->pack(cpu->queue, &weight, packed, 0), ISO_OK);
  for (int i = 0; i < 64; i++)
    assert_int_equal(packed->data[bytes + (uint64_t)i], POISON);
  return packed;
}

/* Bits to which records round operands, where that is asked for; or 0. */
static uint32_t operand_bits(const iso_kernel *kernel) {
  return strstr(kernel->name, "8.") ? 8 : strstr(kernel->name, "tile16.") ? 16 : 0;
}

/* Runs the first `m` rows through a record; returns [m, n] f32, or NULL where the record refuses
 * so few. Outputs and scratch start poisoned, rows of y lie apart, and what lies between them must
 * stay as it was. */
static float *run_record(cpu_test_device *cpu, const iso_kernel *kernel, const product *p,
                         iso_buffer *weight, int64_t m) {
  uint32_t x_bytes = iso_scheme_get_info(p->activation_scheme)->block_bytes;
  int64_t x_stride = (p->k + 3) * x_bytes, y_stride = (p->n + 5) * x_bytes;
  iso_op_arguments arguments = {.size = sizeof arguments, .op = ISO_OP_MATMUL};
  iso_matmul_attributes attributes;
  iso_op_default_attributes(ISO_OP_MATMUL, &attributes);
  attributes.operand_bits = operand_bits(kernel);
  arguments.attributes = &attributes;
  arguments.n_inputs = 3;
  arguments.n_outputs = 1;
  iso_buffer *x = make_buffer(cpu, (uint64_t)(m * x_stride), 0xff);
  for (int64_t i = 0; i < m; i++)
    iso_scheme_encode_row(p->activation_scheme, p->x + i * p->k, NULL, x->data + i * x_stride,
                          p->k);
  iso_buffer *y = make_buffer(cpu, (uint64_t)(m * y_stride), POISON);
  arguments.inputs[0] = tensor_of(x, p->activation_scheme, m, p->k, x_stride);
  arguments.inputs[1] = tensor_of(weight, p->scheme, p->n, p->k, (int64_t)p->row_bytes);
  arguments.inputs[1].layout = kernel->layout;
  iso_buffer *bias = NULL;
  if (p->bias) {
    bias = make_buffer(cpu, (uint64_t)p->n * sizeof(float), 0);
    memcpy(bias->data, p->bias, (size_t)p->n * sizeof(float));
    arguments.inputs[2] = tensor_of(bias, ISO_SCHEME_F32, 1, p->n, 0);
  }
  arguments.outputs[0] = tensor_of(y, p->activation_scheme, m, p->n, y_stride);
  iso_buffer *workspace = NULL;
  arguments.workspace_bytes = kernel->workspace(cpu->device, &arguments);
  workspace = make_buffer(cpu, arguments.workspace_bytes, 0xff);
  arguments.workspace = workspace;
  const char *detail = "";
  bool accepted = !kernel->check || kernel->check(cpu->device, &arguments, &detail) == ISO_ACCEPTED;
  assert_true(accepted || (strstr(kernel->name, "amx") && (m < 32 || p->k % 64 != 0)));
  cpu->device->asks_ahead = random_word() & 1; /* must not show */
  if (accepted)
    assert_int_equal(kernel->launch(cpu->queue, &arguments), ISO_OK);
  for (int i = 0; i < 64; i++)
    assert_int_equal(workspace->data[arguments.workspace_bytes + (uint64_t)i], 0xff);
  float *result = allocate(m * p->n, sizeof(float));
  for (int64_t i = 0; i < m; i++) {
    iso_scheme_decode_row(p->activation_scheme, y->data + i * y_stride, result + i * p->n, p->n);
    for (int64_t j = p->n * x_bytes; j < y_stride; j++)
      assert_int_equal(y->data[i * y_stride + j], POISON);
  }
  cpu->backend->memory->free(cpu->device, workspace);
  cpu->backend->memory->free(cpu->device, x);
  cpu->backend->memory->free(cpu->device, y);
  if (bias)
    cpu->backend->memory->free(cpu->device, bias);
  if (!accepted) {
    free(result);
    return NULL;
  }
  return result;
}

/* Relative error of one rounding to a float scheme. */
static double unit_of(iso_scheme scheme) {
  return scheme == ISO_SCHEME_F16 ? 0x1p-11 : scheme == ISO_SCHEME_BF16 ? 0x1p-8 : 0x1p-24;
}

static void compare(const iso_kernel *kernel, const product *p, const float *result, int64_t m) {
  bool quantized = strstr(kernel->name, "integer") != NULL;
  bool tile = strstr(kernel->name, "tile") != NULL, is_bf16 = p->scheme == ISO_SCHEME_BF16;
  uint32_t bits = operand_bits(kernel);
  double wider = bits == 8 ? 1 << ISO_PLANE_BITS : 1;
  for (int64_t i = 0; i < m * p->n; i++) {
    /* Activations as two bf16: 2^-16 of a term is left out at most, evenly spread; 2^-8 as one, as
     * which weights are rounded too. */
    double tile_spread = bits == 16 ? 0x1p-8 * p->term_spread[i]
                         : is_bf16  ? 0x1p-16 * p->term_spread[i]
                                    : wider * p->tile_spread[i];
    double allowed = 4e-7 * p->weight_of_terms[i] + (quantized ? 6.5 * wider * p->spread[i] : 0) +
                     (tile ? 6.5 * tile_spread : 0) +
                     1.01 * unit_of(p->activation_scheme) * fabs(p->y[i]);
    double error = fabs((double)result[i] - p->y[i]);
    if (!(error <= allowed)) {
      print_message("%s %s m %d n %d k %d: row %d feature %d is %g, not %g (error %g > %g)\n",
                    kernel->name, iso_scheme_get_info(p->scheme)->name, (int)m, (int)p->n,
                    (int)p->k, (int)(i / p->n), (int)(i % p->n), (double)result[i], p->y[i], error,
                    allowed);
      fail();
    }
  }
}

typedef void (*record_test)(cpu_test_device *cpu, const iso_kernel *kernel, void *context);

/* One device a tier; those of tiers this machine lacks are named once and left out. */
static const char *const TIERS[ISO_CPU_TIER_COUNT] = {"baseline", "avx2", "avx512", "amx"};
static cpu_test_device devices[ISO_CPU_TIER_COUNT];
static bool present[ISO_CPU_TIER_COUNT];

static int open_devices(void **state) {
  (void)state;
  for (int tier = 0; tier < ISO_CPU_TIER_COUNT; tier++)
    present[tier] = cpu_test_open(&devices[tier], TIERS[tier], 2);
  return 0;
}

static int close_devices(void **state) {
  (void)state;
  for (int tier = 0; tier < ISO_CPU_TIER_COUNT; tier++)
    if (present[tier])
      cpu_test_close(&devices[tier]);
  return 0;
}

/* Calls `test` with each of our own matmul records that takes the scheme, on a device of the
 * record's own tier. oneDNN's takes many rows only, another only bf16; the conformance grid has
 * them. */
static void for_each_record(iso_scheme scheme, record_test test, void *context) {
  uint32_t count, run = 0;
  const iso_kernel *kernels = iso_cpu_kernels(&count);
  for (uint32_t i = 0; i < count; i++) {
    int tier = kernels[i].rank / 100;
    bool takes_f32 = kernels[i].activations & ISO_SCHEME_BIT(ISO_SCHEME_F32);
    if (kernels[i].op != ISO_OP_MATMUL || !(kernels[i].schemes & ISO_SCHEME_BIT(scheme)) ||
        !takes_f32 || !present[tier] || strstr(kernels[i].name, "onednn"))
      continue;
    test(&devices[tier], &kernels[i], context);
    run++;
  }
  assert_true(run > 0);
}

/* Every batch size gives the right rows, and the same bits for a row in every batch. */
static void test_batches(cpu_test_device *cpu, const iso_kernel *kernel, void *context) {
  static const int64_t BATCHES[] = {1,  2,  3,  4,  5,  6,  7,   8,   9,
                                    12, 13, 15, 16, 17, 47, 255, 256, 257};
  const product *p = context;
  iso_buffer *weight = pack(cpu, kernel, p);
  float *whole = run_record(cpu, kernel, p, weight, p->m);
  if (whole)
    compare(kernel, p, whole, p->m);
  for (size_t i = 0; i < sizeof BATCHES / sizeof BATCHES[0]; i++) {
    float *part = BATCHES[i] < p->m ? run_record(cpu, kernel, p, weight, BATCHES[i]) : NULL;
    if (!part)
      continue;
    assert_memory_equal(part, whole, (size_t)(BATCHES[i] * p->n) * sizeof(float));
    free(part);
  }
  free(whole);
  cpu->backend->memory->free(cpu->device, weight);
}

static void check_scheme(iso_scheme scheme) {
  int64_t block = iso_scheme_get_info(scheme)->block_elements;
  const struct {
    int64_t m, n, k;
    iso_scheme activations;
    bool bias;
  } cases[] = {
      {MAX_ROWS, 579, 3 * 256, ISO_SCHEME_F32, true},
      {17, 1,
       block >= 128  ? 256
       : block == 32 ? 32
                     : 1,
       ISO_SCHEME_F32, false},
      {6, 15,
       block >= 128  ? 1536
       : block == 32 ? 1056
                     : 1051,
       ISO_SCHEME_F16, true},
      {9, 17,
       block >= 128  ? 512
       : block == 32 ? 96
                     : 103,
       ISO_SCHEME_BF16, false},
      {5, 48, 2560, ISO_SCHEME_F32, false},
      {MAX_ROWS, 20, 256, ISO_SCHEME_F32, true}, /* so few columns that F32 is packed narrow */
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    product p = make_product(scheme, cases[i].activations, cases[i].m, cases[i].n, cases[i].k,
                             cases[i].bias);
    for_each_record(scheme, test_batches, &p);
    free_product(&p);
  }
}

#define ISO_SCHEME(NAME, name, gguf_type, block_elements, block_bytes, kind)                       \
  static void name##_is_right_in_every_batch(void **state) {                                       \
    (void)state;                                                                                   \
    check_scheme(ISO_SCHEME_##NAME);                                                               \
  }
#include <isomer/schemes.def>
#undef ISO_SCHEME

/* Where the halves of a block are. */
static const struct {
  iso_scheme scheme;
  int halves[2];
} EXTREMES[] = {
    {ISO_SCHEME_Q8_0, {0, -1}},  {ISO_SCHEME_Q4_0, {0, -1}},   {ISO_SCHEME_Q4_1, {0, 2}},
    {ISO_SCHEME_Q5_0, {0, -1}},  {ISO_SCHEME_Q5_1, {0, 2}},    {ISO_SCHEME_IQ4_NL, {0, -1}},
    {ISO_SCHEME_Q2_K, {80, 82}}, {ISO_SCHEME_Q3_K, {108, -1}}, {ISO_SCHEME_Q4_K, {0, 2}},
    {ISO_SCHEME_Q5_K, {0, 2}},   {ISO_SCHEME_Q6_K, {208, -1}},
};

/* Codes at their limits times activations at theirs, as int8 without rounding: nothing may
 * saturate. */
static void extreme_codes_are_exact(void **state) {
  (void)state;
  for (size_t e = 0; e < sizeof EXTREMES / sizeof EXTREMES[0]; e++)
    for (int kind = 0; kind < 4; kind++) {
      iso_scheme scheme = EXTREMES[e].scheme;
      product p = make_product(scheme, ISO_SCHEME_F32, 6, 33, 512, false);
      uint32_t block_bytes = iso_scheme_get_info(scheme)->block_bytes;
      for (uint64_t i = 0; i < (uint64_t)p.n * p.row_bytes; i++) {
        const uint8_t bytes[4] = {0xff, 0x00, 0x80, 0x7f};
        p.weight[i] = kind == 3 ? (uint8_t)random_word() : bytes[(kind + i / p.row_bytes) % 4];
        for (int h = 0; h < 2; h++)
          if (EXTREMES[e].halves[h] >= 0 &&
              i % block_bytes == (uint64_t)EXTREMES[e].halves[h] + 1) {
            p.weight[i - 1] = 0x00; /* 1.0 */
            p.weight[i] = 0x3c;
          }
      }
      for (int64_t j = 0; j < p.n; j++)
        iso_scheme_decode_row(scheme, p.weight + (uint64_t)j * p.row_bytes,
                              p.weight_values + j * p.k, p.k);
      for (int64_t i = 0; i < p.m * p.k; i++)
        p.x[i] = i / p.k == 0 ? 127 : i / p.k == 1 ? -127 : random_word() % 2 ? 127 : -127;
      compute_reference(&p);
      memset(p.spread, 0, (size_t)(p.m * p.n) * sizeof(double));
      for_each_record(scheme, test_batches, &p);
      free_product(&p);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define ISO_SCHEME(NAME, name, gguf_type, block_elements, block_bytes, kind)                       \
  cmocka_unit_test(name##_is_right_in_every_batch),
#include <isomer/schemes.def>
#undef ISO_SCHEME
      cmocka_unit_test(extreme_codes_are_exact),
  };
  return cmocka_run_group_tests(tests, open_devices, close_devices);
}
