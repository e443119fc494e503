/* grouped_matmul on packed weights gives each row what matmul gives it with its expert's matrix,
 * bit for bit. */
#include "cpu_device.h"

#include "backends/cpu/matmul/packed.h"

#include <stdio.h>

static const char *const TIERS[] = {"baseline", "avx2", "avx512"};
static cpu_test_device devices[3];
static bool present[3];

static int open_devices(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++)
    present[i] = cpu_test_open(&devices[i], TIERS[i], 2);
  return 0;
}

static int close_devices(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++)
    if (present[i])
      cpu_test_close(&devices[i]);
  return 0;
}

static uint32_t random_state = 1;

static uint32_t random_word(void) {
  random_state = random_state * 1664525 + 1013904223;
  return random_state >> 8;
}

static const iso_kernel *find_record(const char *op, iso_scheme scheme, const char *tier) {
  char name[64];
  snprintf(name, sizeof name, "%s.%s.%s", op,
           iso_scheme_get_info(scheme)->kind == ISO_SCHEME_KIND_BLOCK ? "integer" : "float", tier);
  uint32_t count;
  const iso_kernel *kernels = iso_cpu_kernels(&count);
  for (uint32_t i = 0; i < count; i++)
    if (strcmp(kernels[i].name, name) == 0)
      return &kernels[i];
  fail_msg("no record %s", name);
  return NULL;
}

static iso_buffer *make_buffer(cpu_test_device *cpu, uint64_t bytes) {
  iso_buffer *buffer;
  assert_int_equal(cpu->backend->memory->alloc(cpu->device, ISO_MEMORY_DEVICE, bytes + 64, &buffer),
                   ISO_OK);
  memset(buffer->data, 0xff, bytes + 64);
  return buffer;
}

static iso_tensor tensor_of(iso_buffer *buffer, iso_scheme scheme, uint32_t n_dims,
                            const int64_t *dims) {
  iso_tensor tensor = {.buffer = buffer, .scheme = scheme, .n_dims = n_dims};
  int64_t stride = iso_scheme_get_info(scheme)->block_bytes;
  for (uint32_t i = n_dims; i-- > 0; stride *= tensor.dims[i] + (i + 1 == n_dims ? 2 : 0)) {
    tensor.dims[i] = dims[i];
    tensor.strides[i] = stride;
  }
  return tensor;
}

static void run(cpu_test_device *cpu, const iso_kernel *kernel, iso_op_arguments *arguments) {
  arguments->workspace_bytes = kernel->workspace(cpu->device, arguments);
  iso_buffer *workspace = make_buffer(cpu, arguments->workspace_bytes);
  arguments->workspace = workspace;
  cpu->device->asks_ahead = !cpu->device->asks_ahead; /* must not show */
  assert_int_equal(kernel->launch(cpu->queue, arguments), ISO_OK);
  for (int i = 0; i < 64; i++)
    assert_int_equal(workspace->data[arguments->workspace_bytes + (uint64_t)i], 0xff);
  cpu->backend->memory->free(cpu->device, workspace);
}

typedef struct grouped_case {
  int64_t tokens, choices, experts, n, k;
  bool own_rows; /* x has a row for each choice */
  bool skewed;   /* most rows go to one expert */
} grouped_case;

static void check_case(cpu_test_device *cpu, const char *tier, iso_scheme scheme,
                       const grouped_case *c) {
  const iso_kernel *grouped = find_record("grouped_matmul", scheme, tier);
  const iso_kernel *single = find_record("matmul", scheme, tier);
  uint64_t row_bytes, packed_bytes;
  assert_int_equal(iso_scheme_row_bytes(scheme, c->k, &row_bytes), ISO_OK);
  iso_host_weight weight = {.size = sizeof weight, .scheme = scheme, .n_dims = 3};
  weight.dims[0] = c->experts;
  weight.dims[1] = c->n;
  weight.dims[2] = c->k;
  weight.bytes = (uint64_t)(c->experts * c->n) * row_bytes;
  uint8_t *rows = malloc(weight.bytes);
  float *values = malloc((size_t)c->k * sizeof(float));
  for (int64_t i = 0; i < c->experts * c->n; i++) {
    for (int64_t k = 0; k < c->k; k++)
      values[k] = (float)((int32_t)random_word() % 2001 - 1000) / 1000;
    iso_scheme_encode_row(scheme, values, NULL, rows + (uint64_t)i * row_bytes, c->k);
  }
  weight.data = rows;
  assert_int_equal(grouped->packed_bytes(cpu->device, &weight, &packed_bytes), ISO_OK);
  iso_buffer *packed = make_buffer(cpu, packed_bytes);
  assert_int_equal(grouped->pack(cpu->queue, &weight, packed, 0), ISO_OK);

  int64_t inner = c->own_rows ? c->choices : 1, n_rows = c->tokens * c->choices;
  iso_buffer *x = make_buffer(cpu, (uint64_t)(c->tokens * inner * (c->k + 2)) * 4);
  for (int64_t i = 0; i < c->tokens * inner * (c->k + 2); i++)
    ((float *)(void *)x->data)[i] = (float)((int32_t)random_word() % 2001 - 1000) / 500;
  iso_buffer *experts = make_buffer(cpu, (uint64_t)n_rows * 4);
  for (int64_t i = 0; i < n_rows; i++)
    ((int32_t *)(void *)experts->data)[i] =
        (int32_t)(c->skewed && random_word() % 8 ? c->experts - 1
                                                 : random_word() % (uint32_t)c->experts);
  iso_buffer *y = make_buffer(cpu, (uint64_t)(n_rows * (c->n + 2)) * 4);
  iso_buffer *expected = make_buffer(cpu, (uint64_t)c->n * 4);

  iso_grouped_matmul_attributes attributes = {.size = sizeof attributes};
  iso_op_arguments arguments = {.size = sizeof arguments, .op = ISO_OP_GROUPED_MATMUL};
  arguments.attributes = &attributes;
  arguments.n_inputs = 3;
  arguments.n_outputs = 1;
  arguments.inputs[0] = tensor_of(x, ISO_SCHEME_F32, 3, (const int64_t[]){c->tokens, inner, c->k});
  arguments.inputs[1] = tensor_of(packed, scheme, 3, weight.dims);
  arguments.inputs[2] = (iso_tensor){.buffer = experts,
                                     .scheme = ISO_SCHEME_I32,
                                     .n_dims = 2,
                                     .dims = {c->tokens, c->choices},
                                     .strides = {c->choices * 4, 4}};
  arguments.outputs[0] =
      tensor_of(y, ISO_SCHEME_F32, 3, (const int64_t[]){c->tokens, c->choices, c->n});
  run(cpu, grouped, &arguments);

  uint64_t matrix_bytes = packed_bytes / (uint64_t)c->experts;
  for (int64_t i = 0; i < n_rows; i++) {
    int64_t x_row = c->own_rows ? i : i / c->choices;
    iso_matmul_attributes none = {.size = sizeof none};
    iso_op_arguments one = {.size = sizeof one, .op = ISO_OP_MATMUL, .attributes = &none};
    one.n_inputs = 3;
    one.n_outputs = 1;
    one.inputs[0] = tensor_of(x, ISO_SCHEME_F32, 2, (const int64_t[]){1, c->k});
    one.inputs[0].offset = (uint64_t)(x_row * (c->k + 2)) * 4;
    one.inputs[1] = tensor_of(packed, scheme, 2, weight.dims + 1);
    one.inputs[1].offset = (uint64_t)((int32_t *)(void *)experts->data)[i] * matrix_bytes;
    one.outputs[0] = tensor_of(expected, ISO_SCHEME_F32, 2, (const int64_t[]){1, c->n});
    run(cpu, single, &one);
    const uint8_t *row = y->data + (uint64_t)(i * (c->n + 2)) * 4;
    assert_memory_equal(row, expected->data, (size_t)c->n * 4);
    for (int j = 0; j < 8; j++)
      assert_int_equal(row[c->n * 4 + j], 0xff);
  }

  ((int32_t *)(void *)experts->data)[n_rows - 1] = (int32_t)c->experts;
  arguments.workspace_bytes = grouped->workspace(cpu->device, &arguments);
  arguments.workspace = make_buffer(cpu, arguments.workspace_bytes);
  assert_int_equal(grouped->launch(cpu->queue, &arguments), ISO_ERROR_INVALID_ARGUMENT);
  iso_buffer *buffers[] = {packed, x, experts, y, expected, arguments.workspace};
  for (int i = 0; i < 6; i++)
    cpu->backend->memory->free(cpu->device, buffers[i]);
  free(values);
  free(rows);
}

static void rows_meet_their_experts(void **state) {
  (void)state;
  static const iso_scheme SCHEMES[] = {ISO_SCHEME_Q8_0, ISO_SCHEME_Q4_1, ISO_SCHEME_Q4_K,
                                       ISO_SCHEME_Q6_K, ISO_SCHEME_BF16, ISO_SCHEME_F32};
  static const grouped_case CASES[] = {
      {1, 2, 4, 48, 256, false, false},  {1, 8, 8, 33, 1024, true, false},
      {3, 2, 8, 80, 512, false, false},  {40, 2, 4, 17, 768, true, false},
      {150, 1, 2, 64, 256, false, true}, {64, 4, 5, 96, 256, false, true},
      {5, 3, 64, 16, 256, true, false},
  };
  for (size_t c = 0; c < sizeof CASES / sizeof CASES[0]; c++)
    for (size_t s = 0; s < sizeof SCHEMES / sizeof SCHEMES[0]; s++)
      for (int i = 0; i < 3; i++)
        if (present[i])
          check_case(&devices[i], TIERS[i], SCHEMES[s], &CASES[c]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_meet_their_experts)};
  return cmocka_run_group_tests(tests, open_devices, close_devices);
}
