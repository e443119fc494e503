/* The host backend, linked in and as a library of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <isomer/device.h>
#include <isomer/plan.h>
#include <stdlib.h>
#include <string.h>

#define TEMPLATE TEST_BINARY_DIR "/plugins/libisomer-template.so"

static iso_open_device *open_device(iso_registry **out_registry, const char *spec) {
  iso_open_device *device = NULL;
  assert_int_equal(iso_registry_create(out_registry), ISO_OK);
  if (iso_registry_load(*out_registry, TEMPLATE) != ISO_OK ||
      iso_device_open(*out_registry, spec, NULL, &device) != ISO_OK)
    fail_msg("%s: %s", spec, iso_status_message());
  return device;
}

/* Gathers rows 2 and 0 (or `bad`) of a 3 x 2 tensor. */
static iso_status gather(iso_open_device *device, int32_t bad, float out_y[4]) {
  static const float x[6] = {1, 2, 3, 4, 5, 6};
  int32_t rows[2] = {2, bad};
  iso_buffer *buffer;
  iso_gather_rows_attributes attributes = {sizeof attributes};
  ISO_TRY(device->memory.alloc(device->device, ISO_MEMORY_DEVICE, 256, &buffer));
  iso_op_arguments arguments = {
      .size = sizeof arguments,
      .op = ISO_OP_GATHER_ROWS,
      .n_inputs = 2,
      .n_outputs = 1,
      .inputs = {{.buffer = buffer, .n_dims = 2, .dims = {3, 2}, .strides = {8, 4}},
                 {.buffer = buffer,
                  .offset = 64,
                  .scheme = ISO_SCHEME_I32,
                  .n_dims = 1,
                  .dims = {2},
                  .strides = {4}}},
      .outputs =
          {{.buffer = buffer, .offset = 128, .n_dims = 2, .dims = {2, 2}, .strides = {8, 4}}},
      .attributes = &attributes};
  iso_plan_device facts = {.name = device->spec,
                           .kernels = device->kernels,
                           .kernel_count = device->kernel_count,
                           .device = device->device};
  iso_refusal refusal;
  char reason[160];
  const iso_kernel *kernel =
      iso_kernel_select(&facts, &arguments, ISO_LAYOUT_ANY, &refusal, reason, sizeof reason);
  assert_non_null(kernel);
  iso_status status = iso_device_upload(device, buffer, 0, x, sizeof x);
  if (status == ISO_OK)
    status = iso_device_upload(device, buffer, 64, rows, sizeof rows);
  if (status == ISO_OK)
    status = kernel->launch(device->queue, &arguments);
  if (status == ISO_OK)
    status = iso_device_download(device, buffer, 128, out_y, 4 * sizeof out_y[0]);
  device->memory.free(device->device, buffer);
  return status;
}

static void test_runs_an_op(void **state) {
  const char *spec = *state;
  iso_registry *registry;
  iso_open_device *device = open_device(&registry, spec);
  assert_string_equal(device->backend->name, spec);
  assert_int_equal(device->kernel_count, ISO_OP_COUNT);
  float y[4] = {0};
  if (gather(device, 0, y) != ISO_OK)
    fail_msg("%s", iso_status_message());
  assert_true(y[0] == 5 && y[1] == 6 && y[2] == 1 && y[3] == 2);
  assert_int_equal(gather(device, 7, y), ISO_ERROR_INVALID_ARGUMENT);
  assert_string_equal(iso_status_message(), "gather_rows: rows[1] is 7, must be 0 to 2");
  iso_device_close(device);
  iso_registry_destroy(registry);
}

static void test_memory(void **state) {
  iso_registry *registry;
  iso_open_device *device = open_device(&registry, *state);
  iso_memory_table *memory = &device->memory;
  iso_buffer *buffer, *other;
  assert_int_equal(memory->alloc(device->device, ISO_MEMORY_DEVICE, UINT64_C(1) << 62, &buffer),
                   ISO_ERROR_OUT_OF_MEMORY);
  assert_non_null(strstr(iso_status_message(), "4611686018427387904 bytes does not fit"));
  void *address;
  assert_int_equal(memory->alloc(device->device, ISO_MEMORY_DEVICE, 100, &buffer), ISO_OK);
  assert_int_equal(memory->map(device->device, buffer, &address), ISO_OK);
  assert_int_equal((uintptr_t)address % device->info.alignment_bytes, 0);
  iso_queue_table *queue = &device->queue_table;
  assert_int_equal(queue->fill(device->queue, buffer, 0, 100, 7), ISO_OK);
  assert_int_equal(queue->fill(device->queue, buffer, 1, 100, 7), ISO_ERROR_INVALID_ARGUMENT);
  char bytes[100] = {1};
  assert_int_equal(memory->import(device->device, bytes, sizeof bytes, &other), ISO_OK);
  assert_int_equal(queue->copy(device->queue, buffer, 50, other, 0, 50), ISO_OK);
  assert_int_equal(queue->copy(device->queue, buffer, 50, other, 0, 51),
                   ISO_ERROR_INVALID_ARGUMENT);
  assert_int_equal(((char *)address)[49], 7);
  assert_int_equal(((char *)address)[50], 1);
  assert_int_equal(((char *)address)[51], 0);
  memory->free(device->device, other);
  memory->free(device->device, buffer);
  uint64_t bytes_free;
  assert_int_equal(memory->bytes_free(device->device, &bytes_free), ISO_OK);
  assert_true(bytes_free > 0 && bytes_free <= device->info.memory_bytes);
  iso_device_close(device);
  assert_int_equal(iso_device_open(registry, "host:1", NULL, &device), ISO_ERROR_NOT_FOUND);
  iso_registry_destroy(registry);
}

int main(void) {
  static char linked[] = "host", library[] = "template";
  const struct CMUnitTest tests[] = {
      {"linked in: op", test_runs_an_op, NULL, NULL, linked},
      {"linked in: memory", test_memory, NULL, NULL, linked},
      {"library: op", test_runs_an_op, NULL, NULL, library},
      {"library: memory", test_memory, NULL, NULL, library},
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
