/* Which CPUs the CPU backend runs on: lists of them, threads pinned to them, NUMA nodes. */
#include "cpu_device.h"

#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* The CPUs that this process may use, of which the tests need the first and perhaps another. */
static uint32_t n_allowed;
static uint16_t allowed[ISO_CPU_MAX_THREADS];

static int find_allowed(void **state) {
  (void)state;
  cpu_set_t set;
  iso_cpu_backend_query(ISO_ABI_VERSION, &cpu_test_host);
  assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &set))
      allowed[n_allowed++] = (uint16_t)cpu;
  return n_allowed == 0;
}

static int allow_all(void **state) {
  (void)state;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (uint32_t i = 0; i < n_allowed; i++)
    CPU_SET(allowed[i], &set);
  return sched_setaffinity(0, sizeof set, &set);
}

static void lists_are_read_in_order(void **state) {
  (void)state;
  iso_cpu_list list;
  char text[64];
  for (uint32_t i = 0; i < n_allowed; i++) {
    uint16_t first = allowed[n_allowed - 1 - i];
    snprintf(text, sizeof text, i ? "%u-%u,%u" : "%u-%u", first, first, allowed[0]);
    iso_status status = iso_cpu_list_read(text, &list);
    if (first == allowed[0] && i) {
      assert_int_equal(status, ISO_ERROR_INVALID_ARGUMENT);
      assert_non_null(strstr(iso_status_message(), "named twice"));
      continue;
    }
    assert_int_equal(status, ISO_OK);
    assert_int_equal(list.count, i ? 2 : 1);
    assert_int_equal(list.cpus[0], first);
  }
}

static void bad_lists_are_refused(void **state) {
  (void)state;
  iso_cpu_list list;
  static const char *const BAD[] = {"",
                                    "x",
                                    "0-",
                                    "-1",
                                    "0,",
                                    ",0",
                                    "1-0",
                                    "0 1",
                                    "0--1",
                                    "0\n",
                                    "8192",
                                    "0-8191",
                                    "99999999999999999999"};
  for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
    assert_int_equal(iso_cpu_list_read(BAD[i], &list), ISO_ERROR_INVALID_ARGUMENT);
  char text[16];
  uint32_t absent = allowed[n_allowed - 1] + 1u;
  snprintf(text, sizeof text, "%u", absent);
  assert_int_equal(iso_cpu_list_read(text, &list), ISO_ERROR_INVALID_ARGUMENT);
  snprintf(text, sizeof text, "CPU %u", absent);
  assert_non_null(strstr(iso_status_message(), text));
}

static void open_on(const char *affinity, uint32_t n_threads, cpu_test_device *out_device,
                    iso_status expected) {
  iso_device_options options = {sizeof options, n_threads, affinity};
  out_device->backend = iso_cpu_backend_query(ISO_ABI_VERSION, &cpu_test_host);
  assert_int_equal(out_device->backend->driver->open(0, &options, &out_device->device), expected);
}

typedef struct places {
  uint32_t counts[ISO_CPU_MAX_THREADS]; /* CPUs that each thread may use */
  uint16_t last[ISO_CPU_MAX_THREADS];
} places;

static void look_around(void *context, uint32_t thread, uint32_t n_threads) {
  (void)n_threads;
  places *seen = context;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0)
    return;
  seen->counts[thread] = (uint32_t)CPU_COUNT(&set);
  for (uint16_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &set))
      seen->last[thread] = cpu;
}

static void threads_stay_on_their_cpus(void **state) {
  (void)state;
  cpu_test_device device;
  static places seen;
  char text[32];
  snprintf(text, sizeof text, "%u", allowed[0]);
  open_on(text, 0, &device, ISO_OK);
  assert_int_equal(iso_cpu_pool_size(device.device->pool), 1);
  iso_cpu_parallel(device.device->pool, 1, look_around, &seen);
  assert_int_equal(seen.counts[0], 1);
  assert_int_equal(seen.last[0], allowed[0]);
  device.backend->device->close(device.device);
  assert_int_equal(allow_all(NULL), 0);
  if (n_allowed < 2)
    return;
  snprintf(text, sizeof text, "%u,%u", allowed[1], allowed[0]);
  open_on(text, 0, &device, ISO_OK);
  assert_int_equal(iso_cpu_pool_size(device.device->pool), 2);
  iso_cpu_parallel(device.device->pool, 2, look_around, &seen);
  assert_int_equal(seen.counts[0], 2);
  assert_int_equal(seen.counts[1], 1);
  assert_int_equal(seen.last[1], allowed[0]);
  device.backend->device->close(device.device);
  assert_int_equal(allow_all(NULL), 0);
}

static void more_threads_than_named_cpus_are_refused(void **state) {
  (void)state;
  cpu_test_device device;
  char text[16];
  snprintf(text, sizeof text, "%u", allowed[0]);
  open_on(text, 2, &device, ISO_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(iso_status_message(), "pinned"));
  assert_int_equal(allow_all(NULL), 0);
}

/* An older host's options end before the list. */
static void short_options_have_no_list(void **state) {
  (void)state;
  cpu_test_device device;
  iso_device_options options = {offsetof(iso_device_options, cpu_affinity), 1, "nonsense"};
  device.backend = iso_cpu_backend_query(ISO_ABI_VERSION, &cpu_test_host);
  assert_int_equal(device.backend->driver->open(0, &options, &device.device), ISO_OK);
  device.backend->device->close(device.device);
}

static void write_node(const char *root, uint32_t node, const char *cpus) {
  char path[256];
  snprintf(path, sizeof path, "%s/devices/system/node/node%u", root, node);
  assert_int_equal(mkdir(path, 0700), 0);
  strcat(path, "/cpulist");
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file, "%s\n", cpus);
  assert_int_equal(fclose(file), 0);
}

static void nodes_with_cpus_of_ours_count(void **state) {
  (void)state;
  char root[] = "/tmp/isomer-topology-XXXXXX", path[256], cpus[64];
  assert_non_null(mkdtemp(root));
  static const char *const FOLDERS[] = {"devices", "devices/system", "devices/system/node"};
  for (int i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "%s/%s", root, FOLDERS[i]);
    assert_int_equal(mkdir(path, 0700), 0);
  }
  assert_true(iso_cpu_memory_nodes(root) == 0);
  snprintf(cpus, sizeof cpus, "%u", allowed[0]);
  write_node(root, 0, cpus);
  snprintf(cpus, sizeof cpus, "%u-%u,8000-8010", allowed[n_allowed - 1] + 1u,
           allowed[n_allowed - 1] + 9u);
  write_node(root, 1, cpus);
  write_node(root, 2, ""); /* memory without CPUs */
  snprintf(cpus, sizeof cpus, "8000,%u-%u", allowed[n_allowed - 1], allowed[n_allowed - 1] + 3u);
  write_node(root, 63, cpus);
  assert_true(iso_cpu_memory_nodes(root) == (1 | UINT64_C(1) << 63));
  snprintf(path, sizeof path, "rm -r %s", root);
  assert_int_equal(system(path), 0);
}

/* The system refuses a node that is not there; memory must come all the same. */
static void memory_comes_without_its_nodes(void **state) {
  (void)state;
  cpu_test_device device;
  iso_buffer *buffer;
  open_on(NULL, 1, &device, ISO_OK);
  device.device->memory_nodes = UINT64_C(3) << 62;
  const iso_memory_table *memory = device.backend->memory;
  assert_int_equal(memory->alloc(device.device, ISO_MEMORY_DEVICE, 48 << 20, &buffer), ISO_OK);
  buffer->data[(48 << 20) - 1] = 1;
  assert_true(device.device->memory_nodes == 0);
  memory->free(device.device, buffer);
  device.backend->device->close(device.device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lists_are_read_in_order),
      cmocka_unit_test(bad_lists_are_refused),
      cmocka_unit_test(threads_stay_on_their_cpus),
      cmocka_unit_test(more_threads_than_named_cpus_are_refused),
      cmocka_unit_test(short_options_have_no_list),
      cmocka_unit_test(nodes_with_cpus_of_ours_count),
      cmocka_unit_test(memory_comes_without_its_nodes),
  };
  return cmocka_run_group_tests(tests, find_allowed, NULL);
}
