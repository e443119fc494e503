/* What the tests of tile kernels share: a device whose tier amx runs emulated tiles, weights packed
 * for it, and a product of random rows. Included after the kernels. */
#ifndef ISOMER_TESTS_UNIT_TILE_CASE_H
#define ISOMER_TESTS_UNIT_TILE_CASE_H

#include "cpu_device.h"

#include <math.h>

static cpu_test_device cpu;
static bool can_run;

static int open_device(void **state) {
  (void)state;
  iso_cpu_machine machine;
  iso_cpu_machine_detect(&machine);
  can_run = (machine.features & ISO_CPU_HAS_AVX512_BF16) && cpu_test_open(&cpu, "avx512", 2);
  if (!can_run)
    print_message("no AVX-512 with BF16 here: the tile kernels are not run\n");
  else
    cpu.device->tier = ISO_CPU_TIER_AMX;
  return 0;
}

static int close_device(void **state) {
  (void)state;
  if (can_run)
    cpu_test_close(&cpu);
  return 0;
}

static const iso_kernel *find_record(const char *name) {
  uint32_t count;
  const iso_kernel *kernels = iso_cpu_kernels(&count);
  for (uint32_t i = 0; i < count; i++)
    if (strcmp(kernels[i].name, name) == 0)
      return &kernels[i];
  fail_msg("no record %s", name);
  return NULL;
}

static iso_buffer *make_buffer(uint64_t bytes) {
  iso_buffer *buffer;
  assert_int_equal(cpu.backend->memory->alloc(cpu.device, ISO_MEMORY_DEVICE, bytes + 64, &buffer),
                   ISO_OK);
  memset(buffer->data, 0xff, bytes + 64);
  return buffer;
}

static float random_value(void) {
  static uint32_t word = 7;
  float sum = 0;
  for (int i = 0; i < 4; i++) {
    word = word * 1664525 + 1013904223;
    sum += (float)(int32_t)word * 0x1p-31f;
  }
  return sum;
}

/* A weight of [n, k], or [experts, n, k], packed; its values beside it. */
static iso_buffer *make_weight(iso_scheme scheme, uint32_t n_dims, const int64_t *dims,
                               float *out_values) {
  int64_t k = dims[n_dims - 1], rows = dims[0] * (n_dims == 3 ? dims[1] : 1);
  iso_host_weight weight = {.size = sizeof weight, .scheme = scheme, .n_dims = n_dims};
  memcpy(weight.dims, dims, n_dims * sizeof *dims);
  uint64_t row_bytes, bytes;
  assert_int_equal(iso_scheme_row_bytes(scheme, k, &row_bytes), ISO_OK);
  weight.bytes = (uint64_t)rows * row_bytes;
  uint8_t *data = malloc(weight.bytes);
  for (int64_t i = 0; i < rows; i++) {
    float *row = out_values + i * k;
    for (int64_t j = 0; j < k; j++)
      row[j] = random_value() * 0.05f;
    iso_scheme_encode_row(scheme, row, NULL, data + (uint64_t)i * row_bytes, k);
    iso_scheme_decode_row(scheme, data + (uint64_t)i * row_bytes, row, k);
  }
  weight.data = data;
  assert_int_equal(iso_packed_bytes(cpu.device, &weight, &bytes), ISO_OK);
  iso_buffer *packed = make_buffer(bytes);
  assert_int_equal(iso_packed_pack(cpu.queue, &weight, packed, 0), ISO_OK);
  free(data);
  return packed;
}

static double largest(const float *values, int64_t count) {
  double most = 0;
  for (int64_t i = 0; i < count; i++)
    most = fmax(most, fabs((double)values[i]));
  return most;
}

static void run(const iso_kernel *kernel, iso_op_arguments *arguments) {
  const char *detail = "";
  assert_int_equal(kernel->check(cpu.device, arguments, &detail), ISO_ACCEPTED);
  arguments->workspace_bytes = kernel->workspace(cpu.device, arguments);
  arguments->workspace = make_buffer(arguments->workspace_bytes);
  assert_int_equal(kernel->launch(cpu.queue, arguments), ISO_OK);
  for (int i = 0; i < 64; i++)
    assert_int_equal(arguments->workspace->data[arguments->workspace_bytes + (uint64_t)i], 0xff);
  cpu.backend->memory->free(cpu.device, arguments->workspace);
}

/* The variance of what rounding adds to the term x w, given the largest of each side in the row. */
typedef double (*rounding_of)(iso_scheme scheme, double x, double w, double most_x, double most_w);

/* The products of one row, against those in double: errors are evenly spread. */
static void check_row(iso_scheme scheme, const float *y, const float *x, const float *weights,
                      int64_t n, int64_t k, rounding_of rounding) {
  double most_x = largest(x, k);
  for (int64_t j = 0; j < n; j++) {
    const float *w = weights + j * k;
    double most_w = largest(w, k), sum = 0, squares = 0, terms = 0;
    for (int64_t i = 0; i < k; i++) {
      double term = (double)x[i] * (double)w[i];
      sum += term;
      terms += fabs(term);
      squares += rounding(scheme, (double)x[i], (double)w[i], most_x, most_w);
    }
    double allowed = 6 * sqrt(squares) + 4e-7 * terms;
    if (!(fabs((double)y[j] - sum) <= allowed))
      fail_msg("%s: feature %d is %g, not %g (%g allowed)", iso_scheme_get_info(scheme)->name,
               (int)j, (double)y[j], sum, allowed);
  }
}

/* A matmul of plain rows in `activation` and packed weights. */
static iso_op_arguments matmul_of(const iso_kernel *kernel, iso_scheme activation, iso_buffer *x,
                                  iso_buffer *weight, iso_scheme scheme, iso_buffer *y,
                                  const int64_t shape[3]) {
  int64_t m = shape[0], n = shape[1], k = shape[2], bytes = activation == ISO_SCHEME_F32 ? 4 : 2;
  iso_op_arguments arguments = {
      .size = sizeof arguments, .op = ISO_OP_MATMUL, .n_inputs = 3, .n_outputs = 1};
  arguments.inputs[0] = (iso_tensor){.buffer = x,
                                     .scheme = activation,
                                     .n_dims = 2,
                                     .dims = {m, k},
                                     .strides = {k * bytes, bytes}};
  arguments.inputs[1] = (iso_tensor){
      .buffer = weight, .scheme = scheme, .layout = kernel->layout, .n_dims = 2, .dims = {n, k}};
  arguments.outputs[0] = (iso_tensor){.buffer = y,
                                      .scheme = activation,
                                      .n_dims = 2,
                                      .dims = {m, n},
                                      .strides = {n * bytes, bytes}};
  return arguments;
}

static void check_matmul(const char *record, uint32_t operand_bits, iso_scheme scheme, int64_t m,
                         int64_t n, int64_t k, rounding_of rounding) {
  const iso_kernel *kernel = find_record(record);
  float *weights = malloc((size_t)(n * k) * sizeof(float));
  iso_buffer *packed = make_weight(scheme, 2, (const int64_t[]){n, k}, weights);
  iso_buffer *x = make_buffer((uint64_t)(m * k) * 4), *y = make_buffer((uint64_t)(m * n) * 4);
  float *x_values = (float *)(void *)x->data, *y_values = (float *)(void *)y->data;
  for (int64_t i = 0; i < m * k; i++)
    x_values[i] = random_value();
  iso_matmul_attributes attributes = {sizeof attributes, operand_bits, 256};
  iso_op_arguments arguments =
      matmul_of(kernel, ISO_SCHEME_F32, x, packed, scheme, y, (const int64_t[]){m, n, k});
  arguments.attributes = &attributes;
  run(kernel, &arguments);
  for (int64_t i = 0; i < m; i++)
    check_row(scheme, y_values + i * n, x_values + i * k, weights, n, k, rounding);
  for (int i = 0; i < 64; i++)
    assert_int_equal(y->data[m * n * 4 + i], 0xff);
  iso_buffer *buffers[] = {packed, x, y};
  for (int i = 0; i < 3; i++)
    cpu.backend->memory->free(cpu.device, buffers[i]);
  free(weights);
}

/* Rows of bf16 give what the same numbers in f32 give, rounded. */
static void check_bf16_rows(const char *record, uint32_t operand_bits, iso_scheme scheme, int64_t m,
                            int64_t n, int64_t k) {
  const iso_kernel *kernel = find_record(record);
  float *weights = malloc((size_t)(n * k) * sizeof(float));
  iso_buffer *packed = make_weight(scheme, 2, (const int64_t[]){n, k}, weights), *x[2], *y[2];
  iso_matmul_attributes attributes = {sizeof attributes, operand_bits, 256};
  for (int i = 0; i < 2; i++) {
    x[i] = make_buffer((uint64_t)(m * k) * (i ? 2 : 4));
    y[i] = make_buffer((uint64_t)(m * n) * (i ? 2 : 4));
  }
  for (int64_t i = 0; i < m * k; i++) {
    float value = random_value();
    iso_scheme_encode_row(ISO_SCHEME_BF16, &value, NULL, x[1]->data + 2 * i, 1);
    iso_scheme_decode_row(ISO_SCHEME_BF16, x[1]->data + 2 * i, (float *)(void *)x[0]->data + i, 1);
  }
  for (int i = 0; i < 2; i++) {
    iso_op_arguments arguments = matmul_of(kernel, i ? ISO_SCHEME_BF16 : ISO_SCHEME_F32, x[i],
                                           packed, scheme, y[i], (const int64_t[]){m, n, k});
    arguments.attributes = &attributes;
    run(kernel, &arguments);
  }
  for (int64_t i = 0; i < m * n; i++) {
    uint16_t rounded;
    iso_scheme_encode_row(ISO_SCHEME_BF16, (float *)(void *)y[0]->data + i, NULL, &rounded, 1);
    assert_memory_equal(&rounded, y[1]->data + 2 * i, 2);
  }
  for (int i = 0; i < 64; i++)
    assert_int_equal(y[1]->data[m * n * 2 + i], 0xff);
  for (int i = 0; i < 2; i++) {
    cpu.backend->memory->free(cpu.device, x[i]);
    cpu.backend->memory->free(cpu.device, y[i]);
  }
  cpu.backend->memory->free(cpu.device, packed);
  free(weights);
}

#endif
