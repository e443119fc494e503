/* The packed layout gives back every value, whole and through `embedding`. */
#include "cpu_device.h"

#include "backends/cpu/matmul/packed.h"
#include "backends/cpu/matmul/vector_baseline.h"

#include <math.h>

static cpu_test_device cpu;

static int open_device(void **state) {
  (void)state;
  return cpu_test_open(&cpu, "baseline", 2) ? 0 : -1;
}

static int close_device(void **state) {
  (void)state;
  cpu_test_close(&cpu);
  return 0;
}

static const iso_kernel *find_record(const char *name) {
  uint32_t count;
  const iso_kernel *kernels = iso_cpu_kernels(&count);
  for (uint32_t i = 0; i < count; i++)
    if (strcmp(kernels[i].name, name) == 0)
      return &kernels[i];
  fail();
  return NULL;
}

static uint8_t *random_bytes(uint64_t count) {
  static uint32_t state = 12345;
  uint8_t *bytes = malloc(count);
  assert_non_null(bytes);
  for (uint64_t i = 0; i < count; i++) {
    state = state * 1664525 + 1013904223;
    bytes[i] = (uint8_t)(state >> 24);
  }
  return bytes;
}

/* Random bytes, so that every code, scale and bit occurs. */
static iso_host_weight make_weight(iso_scheme scheme, int64_t experts, int64_t rows,
                                   int64_t elements, uint64_t *out_row_bytes) {
  iso_host_weight weight = {.size = sizeof weight, .scheme = scheme, .n_dims = experts ? 3 : 2};
  int64_t *dim = weight.dims;
  if (experts)
    *dim++ = experts;
  dim[0] = rows;
  dim[1] = elements;
  assert_int_equal(iso_scheme_row_bytes(scheme, elements, out_row_bytes), ISO_OK);
  weight.bytes = (uint64_t)((experts ? experts : 1) * rows) * *out_row_bytes;
  weight.data = random_bytes(weight.bytes);
  return weight;
}

static iso_buffer *pack(const iso_host_weight *weight) {
  uint64_t bytes;
  iso_buffer *buffer;
  assert_int_equal(iso_packed_bytes(cpu.device, weight, &bytes), ISO_OK);
  assert_int_equal(cpu.backend->memory->alloc(cpu.device, ISO_MEMORY_DEVICE, bytes + 64, &buffer),
                   ISO_OK);
  memset(buffer->data, 0xa5, bytes + 64);
  assert_int_equal(iso_packed_pack(cpu.queue, weight, buffer, 64), ISO_OK);
  return buffer;
}

static bool is_packed(iso_scheme scheme) {
  iso_packed_shape shape;
  return iso_packed_shape_of(scheme, 16, 256, &shape);
}

static void rows_come_back_bit_for_bit(void **state) {
  (void)state;
  for (iso_scheme scheme = 0; scheme < ISO_SCHEME_COUNT; scheme++) {
    int64_t block = iso_scheme_get_info(scheme)->block_elements;
    const int64_t rows[] = {1, 15, 16, 17, 50}, elements[] = {block, 3 * block, 67 * block};
    for (int r = 0; r < 5 && is_packed(scheme); r++)
      for (int e = 0; e < 3; e++)
        for (int64_t experts = 0; experts < 4; experts += 3) {
          uint64_t row_bytes;
          iso_host_weight weight = make_weight(scheme, experts, rows[r], elements[e], &row_bytes);
          iso_buffer *buffer = pack(&weight);
          iso_packed_shape shape;
          assert_true(iso_packed_shape_of(scheme, rows[r], elements[e], &shape));
          uint64_t matrix_bytes = (uint64_t)shape.groups * shape.group_bytes;
          float *expected = malloc((size_t)elements[e] * sizeof(float));
          float *actual = malloc((size_t)elements[e] * sizeof(float));
          for (int64_t i = 0; i < (experts ? experts : 1) * rows[r]; i++) {
            memset(actual, 0xff, (size_t)elements[e] * sizeof(float));
            iso_scheme_decode_row(scheme, (const uint8_t *)weight.data + (uint64_t)i * row_bytes,
                                  expected, elements[e]);
            iso_packed_decode_row(&shape,
                                  buffer->data + 64 + (uint64_t)(i / rows[r]) * matrix_bytes,
                                  i % rows[r], actual);
            assert_memory_equal(actual, expected, (size_t)elements[e] * sizeof(float));
          }
          free(expected);
          free(actual);
          cpu.backend->memory->free(cpu.device, buffer);
          free((void *)(uintptr_t)weight.data);
        }
  }
}

static void packing_costs_little_memory(void **state) {
  (void)state;
  for (iso_scheme scheme = 0; scheme < ISO_SCHEME_COUNT; scheme++)
    for (int64_t rows = 16; rows <= 4096 && is_packed(scheme); rows *= 256) {
      /* Floats are filled up to 64 rows, but F32, of which adapters are. */
      bool is_filled = iso_scheme_get_info(scheme)->block_elements == 1 && rows < 64;
      if (is_filled && scheme != ISO_SCHEME_F32)
        continue;
      iso_host_weight weight = {
          .size = sizeof weight, .scheme = scheme, .n_dims = 2, .dims = {rows, 4096}};
      uint64_t row_bytes, bytes, least;
      assert_int_equal(iso_scheme_row_bytes(scheme, 4096, &row_bytes), ISO_OK);
      assert_int_equal(iso_packed_bytes(cpu.device, &weight, &bytes), ISO_OK);
      least = (uint64_t)rows * row_bytes;
      assert_in_range(bytes, least, least * 104 / 100);
    }
}

static void what_cannot_be_packed_is_refused(void **state) {
  (void)state;
  uint64_t bytes;
  iso_host_weight weight = {.size = sizeof weight, .scheme = ISO_SCHEME_Q8_0, .n_dims = 2};
  weight.dims[0] = 16;
  weight.dims[1] = 33;
  assert_int_equal(iso_packed_bytes(cpu.device, &weight, &bytes), ISO_ERROR_UNSUPPORTED);
  weight.dims[1] = 32;
  weight.n_dims = 1;
  assert_int_equal(iso_packed_bytes(cpu.device, &weight, &bytes), ISO_ERROR_UNSUPPORTED);
  weight.n_dims = 2;
  weight.scheme = ISO_SCHEME_I32;
  assert_int_equal(iso_packed_bytes(cpu.device, &weight, &bytes), ISO_ERROR_UNSUPPORTED);
  weight.scheme = ISO_SCHEME_Q4_K;
  weight.n_dims = 3;
  weight.dims[0] = weight.dims[1] = ISO_MAX_DIM;
  weight.dims[2] = ISO_MAX_DIM;
  assert_int_equal(iso_packed_bytes(cpu.device, &weight, &bytes), ISO_ERROR_LIMIT);

  uint64_t row_bytes;
  iso_host_weight small = make_weight(ISO_SCHEME_Q4_0, 0, 32, 64, &row_bytes);
  iso_buffer *buffer;
  assert_int_equal(iso_packed_bytes(cpu.device, &small, &bytes), ISO_OK);
  assert_int_equal(cpu.backend->memory->alloc(cpu.device, ISO_MEMORY_DEVICE, bytes, &buffer),
                   ISO_OK);
  assert_int_equal(iso_packed_pack(cpu.queue, &small, buffer, 64), ISO_ERROR_INVALID_ARGUMENT);
  small.bytes--;
  assert_int_equal(iso_packed_pack(cpu.queue, &small, buffer, 0), ISO_ERROR_INVALID_ARGUMENT);
  cpu.backend->memory->free(cpu.device, buffer);
  free((void *)(uintptr_t)small.data);
}

static void embedding_reads_a_packed_table(void **state) {
  (void)state;
  const iso_kernel *kernel = find_record("embedding.packed");
  static const int32_t IDS[] = {0, 18, 15, -1, 3, 19}; /* two are of no row */
  const iso_scheme outputs[] = {ISO_SCHEME_F32, ISO_SCHEME_F16, ISO_SCHEME_BF16};
  for (int o = 0; o < 3; o++) {
    uint64_t row_bytes;
    iso_host_weight weight = make_weight(ISO_SCHEME_Q6_K, 0, 19, 512, &row_bytes);
    for (uint64_t i = 209; i < weight.bytes; i += 210)
      ((uint8_t *)(uintptr_t)weight.data)[i] &= 0x0f; /* scales that half can hold */
    iso_embedding_attributes attributes = {.size = sizeof attributes, .scale = 0.75f};
    iso_op_arguments arguments = {.size = sizeof arguments,
                                  .op = ISO_OP_EMBEDDING,
                                  .n_inputs = 2,
                                  .n_outputs = 1,
                                  .attributes = &attributes};
    iso_buffer *buffers[4] = {NULL, pack(&weight), NULL, NULL};
    uint32_t element = iso_scheme_get_info(outputs[o])->block_bytes;
    const uint64_t bytes[4] = {sizeof IDS, 0, 6 * 512 * 4, 0};
    for (int i = 0; i < 3; i += 2)
      assert_int_equal(
          cpu.backend->memory->alloc(cpu.device, ISO_MEMORY_DEVICE, bytes[i], &buffers[i]), ISO_OK);
    memcpy(buffers[0]->data, IDS, sizeof IDS);
    memset(buffers[2]->data, 0xff, bytes[2]);
    arguments.inputs[0] = (iso_tensor){
        .buffer = buffers[0], .scheme = ISO_SCHEME_I32, .n_dims = 1, .dims = {6}, .strides = {4}};
    arguments.inputs[1] = (iso_tensor){.buffer = buffers[1],
                                       .offset = 64,
                                       .scheme = weight.scheme,
                                       .layout = kernel->layout,
                                       .n_dims = 2,
                                       .dims = {19, 512}};
    arguments.outputs[0] = (iso_tensor){.buffer = buffers[2],
                                        .scheme = outputs[o],
                                        .n_dims = 2,
                                        .dims = {6, 512},
                                        .strides = {512 * element, element}};
    arguments.workspace_bytes = kernel->workspace(cpu.device, &arguments);
    assert_int_equal(cpu.backend->memory->alloc(cpu.device, ISO_MEMORY_DEVICE,
                                                arguments.workspace_bytes, &buffers[3]),
                     ISO_OK);
    arguments.workspace = buffers[3];
    assert_int_equal(kernel->launch(cpu.queue, &arguments), ISO_OK);
    for (int row = 0; row < 6; row++) {
      float expected[512];
      uint8_t encoded[512 * 4];
      bool inside = IDS[row] >= 0 && IDS[row] < 19;
      iso_scheme_decode_row(weight.scheme,
                            (const uint8_t *)weight.data +
                                (inside ? (uint64_t)IDS[row] * row_bytes : 0),
                            expected, 512);
      for (int i = 0; i < 512; i++)
        expected[i] = inside ? expected[i] * 0.75f : NAN;
      iso_scheme_encode_row(outputs[o], expected, NULL, encoded, 512);
      assert_memory_equal(buffers[2]->data + (uint64_t)row * 512 * element, encoded, 512 * element);
    }
    for (int i = 0; i < 4; i++)
      cpu.backend->memory->free(cpu.device, buffers[i]);
    free((void *)(uintptr_t)weight.data);
  }
}

/* Every half beside every kind of neighbour: a group that holds a special one goes another way. */
static void halves_are_exact(void **state) {
  (void)state;
  static const uint16_t neighbours[] = {0x3c00, 0xbc00, 0x0000, 0x83ff, 0x0400, 0x7bff, 0xfc00};
  for (size_t n = 0; n < sizeof neighbours / sizeof *neighbours; n++)
    for (int bits = 0; bits < 1 << 16; bits++) {
      uint16_t halves[8];
      float found[8];
      vecf both[2];
      for (int i = 0; i < 8; i++)
        halves[i] = i == bits % 8 ? (uint16_t)bits : neighbours[n];
      vecf_load_halves(halves, halves + 4, both);
      vecf_store(found, both[0]);
      vecf_store(found + 4, both[1]);
      for (int i = 0; i < 8; i++) {
        float right = iso_half_to_float(halves[i]);
        if (isnan(right) ? !isnan(found[i]) : memcmp(&found[i], &right, sizeof right) != 0)
          fail_msg("%04x beside %04x became %a", halves[i], neighbours[n], (double)found[i]);
      }
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(halves_are_exact),
      cmocka_unit_test(rows_come_back_bit_for_bit),
      cmocka_unit_test(packing_costs_little_memory),
      cmocka_unit_test(what_cannot_be_packed_is_refused),
      cmocka_unit_test(embedding_reads_a_packed_table),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
