/* Backends of other versions and with parts missing: run where they fit, else refused with what
 * is wrong. The libraries are made in tests/plugins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <isomer/plan.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/log.h"
#include "core/registry.h"

#define PLUGINS TEST_BINARY_DIR "/test_plugins"

static iso_registry *new_registry(void) {
  iso_registry *registry;
  assert_int_equal(iso_registry_create(&registry), ISO_OK);
  return registry;
}

static iso_status load_misfit(iso_registry *registry, const char *misfit) {
  assert_int_equal(setenv("ISOMER_MISFIT", misfit, 1), 0);
  return iso_registry_load(registry, PLUGINS "/libisomer-misfit.so");
}

static void assert_says(const char *words) {
  if (!strstr(iso_status_message(), words))
    fail_msg("\"%s\" does not say \"%s\"", iso_status_message(), words);
}

/* Adds two rows on a device. */
static iso_status add_rows(iso_open_device *device, float out_sums[6]) {
  iso_graph *g;
  assert_int_equal(iso_graph_create(&g), ISO_OK);
  iso_shape shape = {2, {iso_dim_symbol(ISO_SYMBOL_TOKENS, 4), iso_dim_constant(3)}};
  iso_value a = iso_graph_input(g, "a", ISO_SCHEME_F32, shape);
  iso_value b = iso_graph_input(g, "b", ISO_SCHEME_F32, shape);
  iso_value y = iso_graph_apply(g, ISO_OP_ADD, NULL, ISO_SCHEME_F32, 2, a, b);
  iso_graph_output(g, y, "y");
  assert_int_equal(iso_graph_finish(g), ISO_OK);
  iso_plan_device plan_device = {device->spec, device->kernels, device->kernel_count,
                                 device->device, device->info.alignment_bytes};
  iso_plan_options options = {.n_devices = 1, .devices = &plan_device, .fallback = -1};
  iso_plan *plan;
  assert_int_equal(iso_plan_create(g, &options, &plan), ISO_OK);
  iso_weight_provider none = {0};
  iso_executor *executor = NULL;
  iso_status status = iso_executor_create(plan, &device, &none, NULL, &executor);
  for (int i = 0; i < 6 && status == ISO_OK; i++) {
    ((float *)iso_executor_input(executor, a))[i] = (float)i;
    ((float *)iso_executor_input(executor, b))[i] = 10.0f;
  }
  iso_bindings two = {{0, 2, 0, 0}};
  if (status == ISO_OK)
    status = iso_executor_run(executor, &two);
  if (status == ISO_OK)
    status = iso_executor_read(executor, y, out_sums, 6 * sizeof *out_sums);
  iso_executor_destroy(executor);
  iso_plan_destroy(plan);
  iso_graph_destroy(g);
  return status;
}

/* Opens the misfit's device and adds two rows with it. */
static void assert_adds(iso_registry *registry) {
  iso_open_device *device;
  float sums[6];
  if (iso_device_open(registry, "misfit:1", NULL, &device) != ISO_OK ||
      add_rows(device, sums) != ISO_OK)
    fail_msg("%s", iso_status_message());
  for (int i = 0; i < 6; i++)
    assert_true(sums[i] == (float)i + 10.0f);
  uint64_t bytes;
  assert_int_equal(device->memory.bytes_free(device->device, &bytes), ISO_OK);
  assert_true(bytes == 1 << 19 || bytes == 1 << 20);
  uint64_t value;
  assert_int_equal(device->queue_table.signal(device->queue, &value), ISO_OK);
  assert_int_equal(device->queue_table.wait(device->queue, device->queue, value), ISO_OK);
  iso_device_close(device);
}

static void assert_works(const char *misfit) {
  iso_registry *registry = new_registry();
  if (load_misfit(registry, misfit) != ISO_OK)
    fail_msg("%s: %s", misfit, iso_status_message());
  assert_adds(registry);
  iso_registry_destroy(registry);
}

static void assert_refused(const char *misfit, const char *words) {
  iso_registry *registry = new_registry();
  assert_int_not_equal(load_misfit(registry, misfit), ISO_OK);
  assert_says(words);
  assert_says("libisomer-misfit.so");
  iso_registry_destroy(registry);
}

static void test_whole(void **state) {
  (void)state;
  assert_works("none");
  iso_registry *registry = new_registry();
  assert_int_equal(load_misfit(registry, "none"), ISO_OK);
  iso_open_device *device;
  assert_int_equal(iso_device_open(registry, "misfit", NULL, &device), ISO_OK);
  assert_true(device->can_record);
  assert_int_equal(device->kernel_count, 2); /* the third is of an op that nobody knows */
  assert_int_equal(device->kernels[1].rank, 2);
  iso_device_close(device);
  /* One of a name is enough. */
  assert_int_not_equal(load_misfit(registry, "none"), ISO_OK);
  assert_says("there already is a backend misfit");
  iso_registry_destroy(registry);
}

static void test_newer(void **state) {
  (void)state;
  assert_works("newer");
  iso_registry *registry = new_registry();
  assert_int_equal(load_misfit(registry, "newer"), ISO_OK);
  iso_device_listing *listings;
  uint32_t count, found = 0;
  assert_int_equal(iso_registry_list(registry, &listings, &count), ISO_OK);
  for (uint32_t i = 0; i < count; i++)
    if (strcmp(listings[i].backend, "misfit") == 0) {
      char id[16], spec[16];
      snprintf(id, sizeof id, "misfit-%u", found);
      snprintf(spec, sizeof spec, "misfit:%u", found++);
      assert_string_equal(listings[i].info.id, id);
      assert_string_equal(listings[i].spec, spec);
      assert_string_equal(listings[i].info.name, "Misfit");
      assert_int_equal(listings[i].info.size, sizeof(iso_device_info));
    }
  assert_int_equal(found, 2);
  free(listings);
  iso_registry_destroy(registry);
}

static void test_older(void **state) {
  (void)state;
  assert_works("older");
  iso_registry *registry = new_registry();
  assert_int_equal(load_misfit(registry, "older"), ISO_OK);
  const iso_loaded_backend *backend;
  assert_int_equal(iso_registry_find(registry, "misfit", &backend), ISO_OK);
  assert_false(backend->can_record);
  assert_null(backend->backend.query_extension);
  iso_registry_destroy(registry);
}

static void test_other_major(void **state) {
  (void)state;
  assert_refused("major", "speaks ABI 2.0, this Isomer 1.0");
}

static void test_optional_slots(void **state) {
  (void)state;
  static const char *const optional[] = {
      "memory.import",           "memory.bytes_free", "queue.wait",
      "queue.record_begin",      "queue.record_end",  "queue.replay",
      "queue.recording_destroy", "timeline"};
  for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
    assert_works(optional[i]);
  assert_refused("queue.signal", "queue.signal is missing");
  assert_refused("queue.host_wait", "queue.host_wait is missing");
}

static void test_required_slots(void **state) {
  (void)state;
  static const char *const slots[] = {"driver.enumerate", "driver.open",  "device.info",
                                      "device.close",     "memory.alloc", "memory.free",
                                      "memory.map",       "queue.create", "queue.destroy",
                                      "queue.copy",       "queue.fill"};
  char words[64];
  for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
    snprintf(words, sizeof words, "%s is required and missing", slots[i]);
    assert_refused(slots[i], words);
  }
  static const char *const tables[] = {"driver", "device", "memory", "queue"};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    snprintf(words, sizeof words, "the %s table is missing", tables[i]);
    assert_refused(tables[i], words);
  }
  assert_refused("kernels", "3 kernels with a stride of");
  assert_refused("stride", "3 kernels with a stride of 0 bytes");
  assert_refused("kernel.name", "kernel 2 has no name");
  assert_refused("kernel.launch", "kernel add.misfit: launch is required");
  assert_refused("kernel.pack", "kernel add.misfit: pack is missing");
  assert_refused("kernel.packed_bytes", "kernel add.misfit: packed_bytes is missing");
  assert_refused("kernel.plain", "kernel add.misfit packs into layout 0");
  assert_refused("kernel.layout",
                 "kernel add.misfit wants its weight in layout 5, which no record of its op packs");
  assert_refused("kernel.size", "kernel_stride is the size of the record");
  assert_refused("name", "name must be");
}

/* A slot that breaks its promise is named, and nothing else's sentence shown for it. */
static void test_careless_slots(void **state) {
  (void)state;
  static const char *const slots[] = {
      "driver.enumerate", "driver.open", "device.info",  "memory.alloc",    "memory.bytes_free",
      "queue.create",     "memory.map",  "queue.signal", "queue.host_wait", "launch"};
  static const struct {
    const char *way, *words;
    const char *only; /* the slots that give something, NULL: any */
  } ways[] = {
      {"mute", "failed with status 8 (device error), and the backend gives no reason", NULL},
      {"odd", "failed with status 99 (unknown), and the backend gives no reason", NULL},
      {"empty", "says that it went well, and gave nothing",
       "driver.open memory.alloc queue.create memory.map"}};
  for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
      if (ways[w].only && !strstr(ways[w].only, slots[i]))
        continue;
      char misfit[64], words[160];
      snprintf(misfit, sizeof misfit, "%s.%s", ways[w].way, slots[i]);
      snprintf(words, sizeof words, "misfit%s: %s %s", i ? ":1" : "",
               strcmp(slots[i], "launch") == 0 ? "add.misfit" : slots[i], ways[w].words);
      iso_registry *registry = new_registry();
      assert_int_equal(load_misfit(registry, misfit), ISO_OK);
      (void)iso_fail(ISO_ERROR_IO, "an older failure");
      iso_open_device *device = NULL;
      float sums[6];
      iso_status status = iso_device_open(registry, "misfit:1", NULL, &device);
      if (status == ISO_OK)
        status = add_rows(device, sums);
      assert_int_equal(status, ISO_ERROR_DEVICE);
      assert_says(words);
      iso_device_close(device);
      iso_registry_destroy(registry);
    }
}

/* Operands of 2 GiB each would follow from it. */
static void test_alignment(void **state) {
  (void)state;
  iso_registry *registry = new_registry();
  assert_int_equal(load_misfit(registry, "align"), ISO_OK);
  iso_open_device *device;
  assert_int_equal(iso_device_open(registry, "misfit:1", NULL, &device), ISO_ERROR_DEVICE);
  assert_says("misfit:1 does not start: an alignment of 2147483648 bytes is not a power of two up "
              "to 1048576");
  iso_registry_destroy(registry);
}

/* Texts without an end are given one. */
static void test_full_texts(void **state) {
  (void)state;
  iso_registry *registry = new_registry();
  assert_int_equal(load_misfit(registry, "brim"), ISO_OK);
  iso_open_device *device;
  assert_int_equal(iso_device_open(registry, "misfit:1", NULL, &device), ISO_OK);
  assert_int_equal(strlen(device->info.name), sizeof device->info.name - 1);
  assert_int_equal(strlen(device->info.id), sizeof device->info.id - 1);
  assert_int_equal(strlen(device->info.detail), sizeof device->info.detail - 1);
  iso_device_close(device);
  iso_device_listing *listings;
  uint32_t count;
  assert_int_equal(iso_registry_list(registry, &listings, &count), ISO_OK);
  for (uint32_t i = 0; i < count; i++)
    assert_true(strlen(listings[i].info.name) < sizeof listings[i].info.name);
  free(listings);
  iso_registry_destroy(registry);
}

static void test_refusing_backends(void **state) {
  (void)state;
  assert_refused("refuse", "this chip is not for you");
  assert_refused("silent", "gives no reason");
  iso_registry *registry = new_registry();
  assert_int_not_equal(iso_registry_load(registry, PLUGINS "/libisomer-nothing.so"), ISO_OK);
  assert_says("libisomer-nothing.so: not an Isomer backend");
  assert_int_equal(iso_registry_load(registry, PLUGINS "/libisomer-missing.so"),
                   ISO_ERROR_NOT_FOUND);
  assert_says("libisomer-missing.so");
  assert_int_equal(iso_registry_load(registry, TEST_SOURCE_DIR "/CMakeLists.txt"),
                   ISO_ERROR_NOT_FOUND);
  iso_registry_destroy(registry);
}

/* A device that was asked for and is not there is an error that says why. */
/* A file name without a folder is a path, too. */
static void test_plain_file_name(void **state) {
  (void)state;
  char before[4096];
  assert_non_null(getcwd(before, sizeof before));
  assert_int_equal(chdir(PLUGINS), 0);
  iso_registry *registry = new_registry();
  assert_int_equal(setenv("ISOMER_MISFIT", "none", 1), 0);
  iso_status status = iso_registry_load(registry, "libisomer-misfit.so");
  assert_int_equal(chdir(before), 0);
  assert_int_equal(status, ISO_OK);
  iso_registry_destroy(registry);
}

/* Counts the registries whose backends are not whole. */
static void *make_registries(void *context) {
  uint32_t *n_bad = context;
  for (int i = 0; i < 300; i++) {
    iso_registry *registry = NULL;
    const iso_loaded_backend *cpu, *misfit;
    bool is_good = iso_registry_create(&registry) == ISO_OK &&
                   iso_registry_load(registry, PLUGINS "/libisomer-misfit.so") == ISO_OK &&
                   iso_registry_find(registry, "cpu", &cpu) == ISO_OK &&
                   iso_registry_find(registry, "misfit", &misfit) == ISO_OK &&
                   cpu->backend.kernel_count > 20 && misfit->backend.kernel_count == 2;
    *n_bad += !is_good;
    iso_registry_destroy(registry);
  }
  return NULL;
}

/* Models are opened by several threads at once, and a backend's entry fills static tables. */
static void test_many_threads(void **state) {
  (void)state;
  enum { N = 4 };
  pthread_t threads[N];
  uint32_t n_bad[N] = {0};
  assert_int_equal(setenv("ISOMER_MISFIT", "none", 1), 0);
  for (int i = 0; i < N; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, make_registries, &n_bad[i]), 0);
  for (int i = 0; i < N; i++)
    assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i < N; i++)
    assert_int_equal(n_bad[i], 0);
}

static void test_absent_devices(void **state) {
  (void)state;
  iso_registry *registry = new_registry();
  iso_open_device *device = NULL;
  assert_int_equal(iso_device_open(registry, "warp", NULL, &device), ISO_ERROR_NOT_FOUND);
  assert_says("there is no backend \"warp\"; known are: cpu, host");
  static const char *const bad[] = {"",       ":0",     "cpu:",         "cpu:x",
                                    "cpu:0x", "cpu:-1", "cpu:12345678", "cpu:0:0"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_int_equal(iso_device_open(registry, bad[i], NULL, &device), ISO_ERROR_INVALID_ARGUMENT);
  assert_int_equal(iso_device_open(registry, "host:1", NULL, &device), ISO_ERROR_NOT_FOUND);
  assert_says("host:1 is not there; host has 1 device");

  assert_int_equal(load_misfit(registry, "absent"), ISO_OK);
  assert_int_equal(iso_device_open(registry, "misfit", NULL, &device), ISO_ERROR_NOT_FOUND);
  assert_says("misfit has no device: the driver library is missing");
  iso_device_listing *listings;
  uint32_t count;
  assert_int_equal(iso_registry_list(registry, &listings, &count), ISO_OK);
  assert_string_equal(listings[count - 1].backend, "misfit");
  assert_string_equal(listings[count - 1].spec, "");
  assert_string_equal(listings[count - 1].reason, "the driver library is missing");
  free(listings);
  iso_registry_destroy(registry);

  registry = new_registry();
  assert_int_equal(load_misfit(registry, "broken"), ISO_OK);
  assert_int_equal(iso_device_open(registry, "misfit", NULL, &device), ISO_ERROR_DEVICE);
  assert_says("misfit does not start: the device is on fire");
  assert_null(device);
  iso_registry_destroy(registry);
}

typedef struct log_capture {
  iso_log_level level;
  char line[1024];
  int count;
} log_capture;

static void capture(void *context, iso_log_level level, const char *line) {
  log_capture *c = context;
  c->level = level;
  c->count++;
  snprintf(c->line, sizeof c->line, "%s", line);
}

/* Libraries found in ISOMER_BACKEND_PATH; one that is refused says so when it is asked for. */
static void test_search_path(void **state) {
  (void)state;
  log_capture log = {0};
  iso_log_set_sink(capture, &log);
  assert_int_equal(setenv("ISOMER_BACKEND_PATH", "/nowhere:" PLUGINS, 1), 0);
  assert_int_equal(setenv("ISOMER_MISFIT", "none", 1), 0);
  iso_registry *registry = new_registry();
  assert_adds(registry);
  assert_int_equal(log.count, 2); /* the folder that is not there, and then "nothing" */
  assert_int_equal(log.level, ISO_LOG_WARNING);
  assert_non_null(strstr(log.line, "libisomer-nothing.so: not an Isomer backend"));
  iso_registry_destroy(registry);

  assert_int_equal(setenv("ISOMER_MISFIT", "major", 1), 0);
  registry = new_registry();
  iso_open_device *device;
  assert_int_equal(iso_device_open(registry, "misfit", NULL, &device), ISO_ERROR_UNSUPPORTED);
  assert_says("misfit cannot be used: ");
  assert_says("speaks ABI 2.0, this Isomer 1.0");
  iso_device_listing *listings;
  uint32_t count;
  assert_int_equal(iso_registry_list(registry, &listings, &count), ISO_OK);
  bool listed = false;
  for (uint32_t i = 0; i < count; i++)
    listed |= strcmp(listings[i].backend, "misfit") == 0 && strstr(listings[i].reason, "ABI 2.0");
  assert_true(listed);
  free(listings);
  /* One that fits, loaded by path, takes its place. */
  assert_int_equal(load_misfit(registry, "none"), ISO_OK);
  assert_adds(registry);
  iso_registry_destroy(registry);

  /* One that is named goes before one that is found. */
  int before = log.count;
  assert_int_equal(setenv("ISOMER_MISFIT", "none", 1), 0);
  assert_int_equal(setenv("ISOMER_BACKEND_PATH", PLUGINS, 1), 0);
  assert_int_equal(iso_registry_create_with(PLUGINS "/libisomer-misfit.so", &registry), ISO_OK);
  assert_int_equal(log.count, before + 1); /* "nothing" alone */
  assert_adds(registry);
  iso_registry_destroy(registry);
  assert_int_not_equal(iso_registry_create_with(PLUGINS "/libisomer-nothing.so", &registry),
                       ISO_OK);
  unsetenv("ISOMER_BACKEND_PATH");
  iso_log_set_sink(NULL, NULL);
}

static void test_template_plugin(void **state) {
  (void)state;
  iso_registry *registry = new_registry();
  if (iso_registry_load(registry, TEST_BINARY_DIR "/plugins/libisomer-template.so") != ISO_OK)
    fail_msg("%s", iso_status_message());
  iso_open_device *device;
  assert_int_equal(iso_device_open(registry, "template:0", NULL, &device), ISO_OK);
  assert_string_equal(device->spec, "template:0");
  assert_int_equal(device->kernel_count, ISO_OP_COUNT);
  iso_device_close(device);
  iso_registry_destroy(registry);
}

/* Every linked-in backend opens, and bytes go there and come back, whatever the offset. */
static void test_linked_in(void **state) {
  (void)state;
  iso_registry *registry = new_registry();
  iso_device_listing *listings;
  uint32_t count;
  assert_int_equal(iso_registry_list(registry, &listings, &count), ISO_OK);
  assert_int_equal(count, 2);
  for (uint32_t i = 0; i < count; i++) {
    iso_open_device *device;
    assert_int_equal(iso_device_open(registry, listings[i].spec, NULL, &device), ISO_OK);
    assert_string_equal(device->info.name, listings[i].info.name);
    iso_buffer *buffer;
    assert_int_equal(device->memory.alloc(device->device, ISO_MEMORY_DEVICE, 100, &buffer), ISO_OK);
    assert_int_equal(iso_device_upload(device, buffer, 3, "isomer", 6), ISO_OK);
    char back[6];
    assert_int_equal(iso_device_download(device, buffer, 3, back, 6), ISO_OK);
    assert_memory_equal(back, "isomer", 6);
    assert_int_equal(iso_device_upload(device, buffer, 0, NULL, 0), ISO_OK);
    device->memory.free(device->device, buffer);
    iso_device_close(device);
  }
  free(listings);
  iso_registry_destroy(registry);
}

/* A buffer of 4 GiB and more: written across 2^32 and past it, read back whole. Only the pages
 * touched take memory. */
static void test_past_four_gib(void **state) {
  (void)state;
  const uint64_t four = UINT64_C(1) << 32, bytes = four + (UINT64_C(64) << 20);
  iso_registry *registry = new_registry();
  static const char *const specs[] = {"cpu", "host"};
  for (int i = 0; i < 2; i++) {
    iso_open_device *device;
    assert_int_equal(iso_device_open(registry, specs[i], NULL, &device), ISO_OK);
    iso_buffer *buffer;
    iso_status status = device->memory.alloc(device->device, ISO_MEMORY_DEVICE, bytes, &buffer);
    if (status != ISO_OK)
      fail_msg("%s", iso_status_message());
    const uint64_t offsets[] = {0, four - 5, four + 4097, bytes - 10};
    char text[16], back[10];
    for (int k = 0; k < 4; k++) {
      snprintf(text, sizeof text, "piece %04d", k);
      assert_int_equal(iso_device_upload(device, buffer, offsets[k], text, 10), ISO_OK);
    }
    iso_queue *queue = device->queue;
    assert_int_equal(device->queue_table.copy(queue, buffer, four + 100000, buffer, four - 5, 10),
                     ISO_OK);
    assert_int_equal(device->queue_table.fill(queue, buffer, four + 200000, 10, 'z'), ISO_OK);
    for (int k = 0; k < 4; k++) {
      snprintf(text, sizeof text, "piece %04d", k);
      assert_int_equal(iso_device_download(device, buffer, offsets[k], back, 10), ISO_OK);
      assert_memory_equal(back, text, 10);
    }
    assert_int_equal(iso_device_download(device, buffer, four + 100000, back, 10), ISO_OK);
    assert_memory_equal(back, "piece 0001", 10);
    assert_int_equal(iso_device_download(device, buffer, four + 200000, back, 10), ISO_OK);
    assert_memory_equal(back, "zzzzzzzzzz", 10);
    device->memory.free(device->device, buffer);
    /* More than any machine has: refused, with the size. */
    assert_int_equal(
        device->memory.alloc(device->device, ISO_MEMORY_DEVICE, UINT64_C(1) << 50, &buffer),
        ISO_ERROR_OUT_OF_MEMORY);
    assert_says("1125899906842624");
    iso_device_close(device);
  }
  iso_registry_destroy(registry);
}

static void test_log_levels(void **state) {
  (void)state;
  log_capture log = {0};
  iso_log_set_sink(capture, &log);
  iso_log(ISO_LOG_DEBUG, "not shown");
  assert_int_equal(log.count, 0);
  iso_log(ISO_LOG_NOTICE, "shown %d", 1);
  assert_string_equal(log.line, "shown 1");
  iso_log_set_level(-1);
  iso_log(ISO_LOG_ERROR, "not shown");
  assert_int_equal(log.count, 1);
  iso_log_set_level(ISO_LOG_DEBUG);
  iso_log(ISO_LOG_DEBUG, "shown");
  assert_int_equal(log.count, 2);
  iso_log_set_level(ISO_LOG_NOTICE);
  iso_log_set_sink(NULL, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_whole),           cmocka_unit_test(test_newer),
      cmocka_unit_test(test_older),           cmocka_unit_test(test_other_major),
      cmocka_unit_test(test_optional_slots),  cmocka_unit_test(test_required_slots),
      cmocka_unit_test(test_careless_slots),  cmocka_unit_test(test_alignment),
      cmocka_unit_test(test_full_texts),      cmocka_unit_test(test_refusing_backends),
      cmocka_unit_test(test_plain_file_name), cmocka_unit_test(test_many_threads),
      cmocka_unit_test(test_absent_devices),  cmocka_unit_test(test_search_path),
      cmocka_unit_test(test_template_plugin), cmocka_unit_test(test_linked_in),
      cmocka_unit_test(test_past_four_gib),   cmocka_unit_test(test_log_levels),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
