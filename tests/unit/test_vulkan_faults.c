/* The Vulkan plug-in on a driver that fails: at any call, with an error and nothing left behind;
 * and drivers that lack something, or offer several devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#if __has_include(<vulkan/vulkan_core.h>)
#include "ops/conform/conform.h"
#include "tests/plugins/fake_vulkan.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const plugin = TEST_BINARY_DIR "/libisomer-vulkan.so";
static fake_vulkan *fake;
static fake_vulkan_reset_function reset;
static char folder[] = "/tmp/isomer-faults-XXXXXX";

/* Sanitizer builds leave it out. */
static bool can_run(void) { return access(plugin, R_OK) == 0; }

/* The plug-in asks for libvulkan.so.1, which then is this one. */
static int load_fake(void **state) {
  (void)state;
  if (!can_run())
    return 0;
  void *library = dlopen(TEST_BINARY_DIR "/fake_vulkan/libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library || !mkdtemp(folder))
    return 1;
  setenv("XDG_CACHE_HOME", folder, 1);
  fake_vulkan_function get;
  void *symbol = dlsym(library, "fake_vulkan_get");
  memcpy(&get, &symbol, sizeof get);
  symbol = dlsym(library, "fake_vulkan_reset");
  memcpy(&reset, &symbol, sizeof reset);
  fake = get();
  return 0;
}

static int reset_fake(void **state) {
  (void)state;
  if (can_run())
    reset();
  return 0;
}

#define NEED_PLUGIN()                                                                              \
  if (!can_run()) {                                                                                \
    print_message("the Vulkan plug-in was not built\n");                                           \
    skip();                                                                                        \
  }

static void expect_clean(void) {
  if (fake->n_wrong)
    fail_msg("%s (call %u) fails: %s", fake->failed, fake->fail_at, fake->wrong);
  if (fake->n_alive)
    fail_msg("%s (call %u) fails: %u objects are left", fake->failed, fake->fail_at, fake->n_alive);
}

/* ---- Faults ------------------------------------------------------------------------------------
 */

enum { BYTES = 100000 };

static bool ignore(void *context, const iso_conform_report *report) {
  (void)context, (void)report;
  return true;
}

static iso_status run_case(iso_open_device *device, const char *text) {
  iso_conform_options options = {.text = text, .seed = 1};
  iso_conform_summary summary;
  return iso_conform_run(device, &options, ignore, NULL, &summary);
}

/* Copies, fills, a recording that is replayed. */
static iso_status move(iso_open_device *device, iso_buffer *far, iso_buffer *near) {
  const iso_queue_table *queue = &device->queue_table;
  uint64_t value;
  void *recording;
  ISO_TRY(queue->fill(device->queue, far, 3, BYTES - 3, 7));
  ISO_TRY(queue->record_begin(device->queue));
  iso_status status = queue->copy(device->queue, near, 0, far, 0, BYTES);
  iso_status ended = queue->record_end(device->queue, &recording);
  if (ended != ISO_OK)
    return ended;
  for (int i = 0; i < 2 && status == ISO_OK; i++)
    status = queue->replay(device->queue, recording);
  if (status == ISO_OK)
    status = queue->signal(device->queue, &value);
  if (status == ISO_OK)
    status = queue->host_wait(device->queue, value, UINT64_MAX);
  queue->recording_destroy(device->queue, recording);
  return status;
}

static void drain(iso_open_device *device) {
  uint64_t value;
  if (device->queue_table.signal(device->queue, &value) == ISO_OK)
    (void)!device->queue_table.host_wait(device->queue, value, UINT64_MAX);
}

static iso_status use(iso_open_device *device) {
  iso_buffer *far = NULL, *near = NULL;
  iso_status status = device->memory.alloc(device->device, ISO_MEMORY_DEVICE, BYTES, &far);
  if (status == ISO_OK)
    status = device->memory.alloc(device->device, ISO_MEMORY_STAGING, BYTES, &near);
  if (status == ISO_OK)
    status = move(device, far, near);
  drain(device); /* whatever has been enqueued may still use them */
  device->memory.free(device->device, far);
  device->memory.free(device->device, near);
  ISO_TRY(status);
  /* One row and many, packed weights, a workspace. */
  static const char *const cases[] = {"matmul *=1 N=33 K=512 weight=q8_0",
                                      "matmul *=17 N=8 K=64 weight=q4_0",
                                      "paged_attention T=6 H=2 G=1 D=32 E=32 P=4 S=16 Q=2 B=2",
                                      "sample R=2 V=100 W=4 M=1 allowed=none"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ISO_TRY(run_case(device, cases[i]));
  return ISO_OK;
}

static iso_status run_all(void) {
  iso_registry *registry;
  iso_open_device *device;
  iso_status status = iso_registry_create(&registry);
  if (status != ISO_OK)
    return status;
  status = iso_registry_load(registry, plugin);
  if (status == ISO_OK)
    status = iso_device_open(registry, "vulkan:0", NULL, &device);
  if (status == ISO_OK) {
    status = use(device);
    iso_device_close(device);
  }
  iso_registry_destroy(registry);
  return status;
}

static void fail_every_call(size_t n_faults) {
  static const VkResult faults[] = {VK_ERROR_OUT_OF_DEVICE_MEMORY, VK_ERROR_DEVICE_LOST,
                                    VK_ERROR_TOO_MANY_OBJECTS};
  assert_int_equal(run_all(), ISO_OK);
  expect_clean();
  uint32_t n_calls = fake->n_calls;
  assert_true(n_calls > 100);
  for (size_t i = 0; i < n_faults; i++)
    for (uint32_t at = 1; at <= n_calls; at++)
      for (int is_lasting = 0; is_lasting < 2; is_lasting++) {
        reset();
        fake->fail_at = at;
        fake->fault = faults[i];
        fake->is_lasting = is_lasting;
        iso_status status = run_all();
        if (status != ISO_OK)
          assert_true(strlen(iso_status_message()) > 0);
        expect_clean();
      }
}

static void test_every_call_fails(void **state) {
  (void)state;
  NEED_PLUGIN()
  fail_every_call(3);
  reset();
  setenv("ISOMER_VULKAN_TIER", "fp16", 1); /* activations as halves in scratch */
  fail_every_call(1);
  unsetenv("ISOMER_VULKAN_TIER");
}

/* ---- Drivers that lack something ----------------------------------------------------------------
 */

static void expect_refused(const char *words) {
  iso_registry *registry;
  iso_open_device *device;
  assert_int_equal(iso_registry_create(&registry), ISO_OK);
  assert_int_equal(iso_registry_load(registry, plugin), ISO_OK);
  assert_int_not_equal(iso_device_open(registry, "vulkan:0", NULL, &device), ISO_OK);
  if (!strstr(iso_status_message(), words))
    fail_msg("\"%s\" does not say \"%s\"", iso_status_message(), words);
  iso_registry_destroy(registry);
  expect_clean();
}

static void test_functions_absent(void **state) {
  (void)state;
  NEED_PLUGIN()
  static const char *const names[] = {
#define VULKAN_GLOBAL(name) #name,
#define VULKAN_INSTANCE(name) #name,
#define VULKAN_DEVICE(name) #name,
#include "backends/vulkan/functions.def"
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    reset();
    fake->hidden = names[i];
    /* Nobody can destroy what the function for that is absent of. */
    if (strcmp(names[i], "vkDestroyInstance") == 0 || strcmp(names[i], "vkDestroyDevice") == 0)
      continue;
    expect_refused(strcmp(names[i], "vkEnumerateInstanceVersion") == 0 ? "1.2 is needed"
                                                                       : names[i]);
  }
}

static void test_features_absent(void **state) {
  (void)state;
  NEED_PLUGIN()
  const struct {
    VkBool32 *feature;
    const char *words;
  } features[] = {
      {&fake->features.shaderInt64, "shaderInt64"},
      {&fake->features11.storageBuffer16BitAccess, "storageBuffer16BitAccess"},
      {&fake->features12.storageBuffer8BitAccess, "storageBuffer8BitAccess"},
      {&fake->features12.bufferDeviceAddress, "bufferDeviceAddress"},
      {&fake->features12.timelineSemaphore, "timelineSemaphore"},
  };
  for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
    reset();
    *features[i].feature = VK_FALSE;
    expect_refused(features[i].words);
  }
  reset();
  fake->properties11.subgroupSupportedOperations = VK_SUBGROUP_FEATURE_BASIC_BIT;
  expect_refused("subgroup arithmetic");
  reset();
  fake->properties11.subgroupSize = 2;
  expect_refused("no subgroups of 4");
  reset();
  fake->properties.limits.maxComputeWorkGroupInvocations = 128;
  expect_refused("workgroups of 256");
  reset();
  fake->properties.limits.maxComputeWorkGroupSize[0] = 128;
  expect_refused("workgroups of 256");
  reset();
  fake->properties.limits.maxComputeSharedMemorySize = 16384;
  expect_refused("32 KiB of shared memory");
  reset();
  fake->properties.apiVersion = VK_API_VERSION_1_1;
  expect_refused("1.2 is needed");
  reset();
  fake->n_devices = 0;
  expect_refused("no Vulkan driver offers a device");
}

/* A tier that is forced and not there, and a driver that says a lot about itself. */
static void test_tiers(void **state) {
  (void)state;
  NEED_PLUGIN()
  static const char *const names[] = {"dot", "matrix", "matrix2", "fp16"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    reset();
    memset(fake->properties12.driverInfo, 'x', VK_MAX_DRIVER_INFO_SIZE - 1);
    fake->features12.shaderFloat16 = VK_FALSE;
    setenv("ISOMER_VULKAN_TIER", names[i], 1);
    expect_refused("Fake has tier plain: no ");
  }
  unsetenv("ISOMER_VULKAN_TIER");
}

/* Devices that choose a width are told which; others are left alone. */
static void test_widths(void **state) {
  (void)state;
  NEED_PLUGIN()
  assert_int_equal(run_all(), ISO_OK);
  assert_int_equal(fake->n_of_width, 0);
  reset();
  fake->width_properties.minSubgroupSize = 8;
  assert_int_equal(run_all(), ISO_OK);
  assert_true(fake->n_of_width > 2);
  assert_int_equal(fake->width, 32);
  expect_clean();
  reset();
  fake->width_properties.minSubgroupSize = 8;
  fake->width_features.subgroupSizeControl = VK_FALSE;
  assert_int_equal(run_all(), ISO_OK);
  assert_int_equal(fake->n_of_width, 0);
  expect_clean();
}

/* ---- Devices that are slow, hang or are lost ----------------------------------------------------
 */

typedef struct rig {
  iso_registry *registry;
  iso_open_device *device;
  iso_buffer *far, *near;
} rig;

static void rig_open(rig *self) {
  *self = (rig){0};
  assert_int_equal(iso_registry_create(&self->registry), ISO_OK);
  assert_int_equal(iso_registry_load(self->registry, plugin), ISO_OK);
  assert_int_equal(iso_device_open(self->registry, "vulkan:0", NULL, &self->device), ISO_OK);
  const iso_memory_table *memory = &self->device->memory;
  iso_device *device = self->device->device;
  assert_int_equal(memory->alloc(device, ISO_MEMORY_DEVICE, BYTES, &self->far), ISO_OK);
  assert_int_equal(memory->alloc(device, ISO_MEMORY_STAGING, BYTES, &self->near), ISO_OK);
}

static void rig_close(rig *self) {
  self->device->memory.free(self->device->device, self->far);
  self->device->memory.free(self->device->device, self->near);
  iso_device_close(self->device);
  iso_registry_destroy(self->registry);
  if (fake->n_wrong)
    fail_msg("%s", fake->wrong);
}

static iso_status rig_fill(rig *self) {
  return self->device->queue_table.fill(self->device->queue, self->far, 0, BYTES, 7);
}

static iso_status rig_copy(rig *self) {
  return self->device->queue_table.copy(self->device->queue, self->near, 0, self->far, 0, BYTES);
}

static iso_status rig_signal(rig *self, uint64_t *out_value) {
  return self->device->queue_table.signal(self->device->queue, out_value);
}

static iso_status rig_wait(rig *self, uint64_t value, uint64_t timeout_us) {
  return self->device->queue_table.host_wait(self->device->queue, value, timeout_us);
}

static void expect_words(const char *const *words) {
  for (; *words; words++)
    if (!strstr(iso_status_message(), *words))
      fail_msg("\"%s\" does not say \"%s\"", iso_status_message(), *words);
}

#define EXPECT_WORDS(...) expect_words((const char *const[]){__VA_ARGS__, NULL})

/* The submission that does not end is named, and what it may still use is left alone. */
static void hang(bool is_software) {
  uint64_t filled, copied, again;
  rig on;
  reset();
  if (is_software)
    fake->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_CPU;
  rig_open(&on);
  uint32_t n_alive = fake->n_alive;
  fake->hang_at = 2;
  assert_int_equal(rig_fill(&on), ISO_OK);
  assert_int_equal(rig_signal(&on, &filled), ISO_OK);
  assert_int_equal(rig_copy(&on), ISO_OK);
  assert_int_equal(rig_signal(&on, &copied), ISO_OK);
  assert_int_equal(rig_wait(&on, filled, UINT64_MAX), ISO_OK);
  assert_int_equal(rig_wait(&on, copied, 2000000), ISO_ERROR_LIMIT);
  assert_int_equal(fake->n_timeouts, 2);
  assert_int_equal(rig_wait(&on, copied, UINT64_MAX), ISO_ERROR_DEVICE);
  EXPECT_WORDS("hangs in copy", "300 s", "end this process");
  assert_in_range(fake->n_timeouts, 300, 310);
  uint32_t n_timeouts = fake->n_timeouts;
  assert_int_equal(rig_signal(&on, &again), ISO_ERROR_DEVICE);
  EXPECT_WORDS("hangs in copy");
  rig_close(&on);
  assert_int_equal(fake->n_timeouts, n_timeouts);
  assert_int_equal(fake->n_alive, n_alive);
}

static void test_a_device_hangs(void **state) {
  (void)state;
  NEED_PLUGIN()
  for (int is_software = 0; is_software < 2; is_software++)
    hang(is_software);
}

/* Enqueuing waits, too: for a command buffer to be free. */
static void test_no_command_buffer_comes_free(void **state) {
  (void)state;
  NEED_PLUGIN()
  rig on;
  rig_open(&on);
  fake->hang_at = 1;
  iso_status status = ISO_OK;
  int n = 0;
  while (n < 5000 && (status = rig_fill(&on)) == ISO_OK)
    n++;
  assert_int_equal(status, ISO_ERROR_DEVICE);
  EXPECT_WORDS("hangs in one of", "from fill to fill", "ISOMER_VULKAN_SYNC");
  rig_close(&on);
}

/* Five submissions of 250 s each; and one of 3,000 s, by a processor that works at it. */
static void test_a_device_is_slow(void **state) {
  (void)state;
  NEED_PLUGIN()
  for (int is_software = 0; is_software < 2; is_software++) {
    uint64_t value = 0;
    rig on;
    reset();
    if (is_software)
      fake->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_CPU;
    rig_open(&on);
    for (int i = 0; i < (is_software ? 1 : 5); i++) {
      assert_int_equal(rig_fill(&on), ISO_OK);
      assert_int_equal(rig_signal(&on, &value), ISO_OK);
    }
    fake->waits_each = is_software ? 3000 : 250;
    fake->work_every = is_software ? 250 : 0;
    assert_int_equal(rig_wait(&on, value, UINT64_MAX), ISO_OK);
    assert_true(fake->n_timeouts >= 1000);
    rig_close(&on);
    expect_clean();
  }
}

/* Another queue's work takes the device's time: whoever waits behind it sees that it goes on. */
static void test_another_queue_is_slow(void **state) {
  (void)state;
  NEED_PLUGIN()
  uint64_t value, other_value = 0;
  iso_queue *other;
  rig on;
  rig_open(&on);
  const iso_queue_table *table = &on.device->queue_table;
  assert_int_equal(table->create(on.device->device, &other), ISO_OK);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(table->fill(other, on.far, 0, BYTES, 1), ISO_OK);
    assert_int_equal(table->signal(other, &other_value), ISO_OK);
  }
  assert_int_equal(table->wait(on.device->queue, other, other_value), ISO_OK);
  assert_int_equal(rig_signal(&on, &value), ISO_OK);
  fake->waits_each = 250;
  assert_int_equal(rig_wait(&on, value, UINT64_MAX), ISO_OK);
  assert_true(fake->n_timeouts >= 1000);
  table->destroy(other);
  rig_close(&on);
  expect_clean();
}

/* What was under way when the device was lost is named, by whoever learns of it. */
static void test_a_device_is_lost(void **state) {
  (void)state;
  NEED_PLUGIN()
  for (int is_submitting = 0; is_submitting < 2; is_submitting++) {
    uint64_t value;
    rig on;
    reset();
    rig_open(&on);
    fake->lose_at = 2;
    assert_int_equal(rig_fill(&on), ISO_OK);
    assert_int_equal(rig_signal(&on, &value), ISO_OK);
    assert_int_equal(rig_wait(&on, value, UINT64_MAX), ISO_OK);
    assert_int_equal(rig_copy(&on), ISO_OK);
    assert_int_equal(rig_signal(&on, &value), ISO_OK);
    if (is_submitting) {
      assert_int_equal(rig_fill(&on), ISO_OK);
      assert_int_equal(rig_signal(&on, &value), ISO_ERROR_DEVICE);
    } else {
      assert_int_equal(rig_wait(&on, value, UINT64_MAX), ISO_ERROR_DEVICE);
    }
    EXPECT_WORDS("failed in copy", "the device is lost", "opened anew");
    assert_int_equal(rig_wait(&on, value, UINT64_MAX), ISO_ERROR_DEVICE);
    EXPECT_WORDS("failed in copy");
    rig_close(&on);
    expect_clean();
  }
}

static bool keep_failure(void *detail, const iso_conform_report *report) {
  if (report->result == ISO_CONFORM_FAIL)
    snprintf(detail, ISO_CASE_DETAIL, "%s", report->detail);
  return true;
}

/* Where commands run one by one, the one that is under way is named, a dispatch by its shader. */
static void test_a_dispatch_is_named(void **state) {
  (void)state;
  NEED_PLUGIN()
  const iso_conform_options options = {.text = "matmul *=17 N=8 K=64 weight=q4_0", .seed = 1};
  bool is_named = false, is_lost = true;
  setenv("ISOMER_VULKAN_SYNC", "1", 1);
  for (uint32_t at = 1; at < 50 && is_lost; at++) {
    char detail[ISO_CASE_DETAIL] = "";
    iso_conform_summary summary;
    rig on;
    reset();
    rig_open(&on);
    fake->lose_at = at;
    iso_status status = iso_conform_run(on.device, &options, keep_failure, detail, &summary);
    const char *said = status == ISO_OK ? detail : iso_status_message();
    is_lost = fake->n_submits == at;
    if (is_lost && strstr(said, "one of"))
      fail_msg("\"%s\" names more than one", said);
    is_named = is_named || strstr(said, "failed in matmul");
    rig_close(&on);
    expect_clean();
  }
  unsetenv("ISOMER_VULKAN_SYNC");
  assert_false(is_lost);
  assert_true(is_named);
}

/* Nobody waits for what nobody submits. */
static void test_a_value_that_never_comes(void **state) {
  (void)state;
  NEED_PLUGIN()
  iso_queue *other;
  rig on;
  rig_open(&on);
  const iso_queue_table *table = &on.device->queue_table;
  assert_int_equal(table->create(on.device->device, &other), ISO_OK);
  assert_int_equal(rig_wait(&on, 5, UINT64_MAX), ISO_ERROR_INVALID_ARGUMENT);
  assert_int_equal(table->wait(other, on.device->queue, 5), ISO_ERROR_INVALID_ARGUMENT);
  table->destroy(other);
  rig_close(&on);
  expect_clean();
}

/* A buffer has limits of its own, whatever may be allocated. */
static void test_the_largest_buffer(void **state) {
  (void)state;
  NEED_PLUGIN()
  for (int is_new = 0; is_new < 2; is_new++) {
    iso_buffer *buffer = NULL;
    rig on;
    reset();
    fake->sizes.maxBufferSize = 1000007;
    fake->properties.apiVersion = is_new ? VK_API_VERSION_1_3 : VK_API_VERSION_1_2;
    rig_open(&on);
    uint64_t most = is_new ? 1000000 : 1 << 30;
    assert_int_equal(on.device->info.largest_allocation_bytes, most);
    iso_device *device = on.device->device;
    assert_int_equal(on.device->memory.alloc(device, ISO_MEMORY_STAGING, most + 1, &buffer),
                     ISO_ERROR_OUT_OF_MEMORY);
    EXPECT_WORDS("one allocation has at most", is_new ? "1000000" : "1073741824");
    assert_int_equal(on.device->memory.alloc(device, ISO_MEMORY_STAGING, 999999, &buffer), ISO_OK);
    on.device->memory.free(device, buffer);
    rig_close(&on);
    expect_clean();
  }
}

/* What a queue keeps for itself is no longer free when a model's memory is planned. */
static void test_memory_of_a_queue(void **state) {
  (void)state;
  NEED_PLUGIN()
  uint64_t free_bytes[2];
  for (int fuses = 0; fuses < 2; fuses++) {
    rig on;
    reset();
    setenv("ISOMER_FUSION", fuses ? "1" : "0", 1);
    rig_open(&on);
    assert_int_equal(on.device->memory.bytes_free(on.device->device, &free_bytes[fuses]), ISO_OK);
    rig_close(&on);
    expect_clean();
  }
  unsetenv("ISOMER_FUSION");
  assert_int_equal(free_bytes[0], (1 << 30) - BYTES);
  assert_in_range(free_bytes[0] - free_bytes[1], 2 << 20, 3 << 20);
}

/* ---- Several devices ----------------------------------------------------------------------------
 */

/* Handles and addresses of one VkDevice mean nothing to another: the core copies between them. */
static void test_buffers_of_another_device(void **state) {
  (void)state;
  NEED_PLUGIN()
  fake->n_devices = 2;
  iso_registry *registry;
  iso_open_device *devices[2];
  iso_buffer *buffers[2];
  assert_int_equal(iso_registry_create(&registry), ISO_OK);
  assert_int_equal(iso_registry_load(registry, plugin), ISO_OK);
  for (int d = 0; d < 2; d++) {
    const char *spec = d ? "vulkan:1" : "vulkan:0";
    assert_int_equal(iso_device_open(registry, spec, NULL, &devices[d]), ISO_OK);
    assert_false(devices[d]->info.features & ISO_FEATURE_PEER_COPY);
    assert_int_equal(
        devices[d]->memory.alloc(devices[d]->device, ISO_MEMORY_DEVICE, BYTES, &buffers[d]),
        ISO_OK);
  }
  for (int d = 0; d < 2; d++)
    assert_int_equal(
        devices[d]->queue_table.copy(devices[d]->queue, buffers[0], 0, buffers[1], 0, BYTES),
        ISO_ERROR_INVALID_ARGUMENT);
  for (int d = 0; d < 2; d++) {
    devices[d]->memory.free(devices[d]->device, buffers[d]);
    iso_device_close(devices[d]);
  }
  iso_registry_destroy(registry);
  expect_clean();
}

static void test_no_such_device(void **state) {
  (void)state;
  NEED_PLUGIN()
  iso_registry *registry;
  iso_open_device *device;
  assert_int_equal(iso_registry_create(&registry), ISO_OK);
  assert_int_equal(iso_registry_load(registry, plugin), ISO_OK);
  assert_int_equal(iso_device_open(registry, "vulkan:1", NULL, &device), ISO_ERROR_NOT_FOUND);
  iso_registry_destroy(registry);
  expect_clean();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_every_call_fails, reset_fake),
      cmocka_unit_test_setup(test_functions_absent, reset_fake),
      cmocka_unit_test_setup(test_features_absent, reset_fake),
      cmocka_unit_test_setup(test_tiers, reset_fake),
      cmocka_unit_test_setup(test_widths, reset_fake),
      cmocka_unit_test_setup(test_a_device_hangs, reset_fake),
      cmocka_unit_test_setup(test_no_command_buffer_comes_free, reset_fake),
      cmocka_unit_test_setup(test_a_device_is_slow, reset_fake),
      cmocka_unit_test_setup(test_another_queue_is_slow, reset_fake),
      cmocka_unit_test_setup(test_a_device_is_lost, reset_fake),
      cmocka_unit_test_setup(test_a_dispatch_is_named, reset_fake),
      cmocka_unit_test_setup(test_a_value_that_never_comes, reset_fake),
      cmocka_unit_test_setup(test_the_largest_buffer, reset_fake),
      cmocka_unit_test_setup(test_memory_of_a_queue, reset_fake),
      cmocka_unit_test_setup(test_buffers_of_another_device, reset_fake),
      cmocka_unit_test_setup(test_no_such_device, reset_fake),
  };
  return cmocka_run_group_tests(tests, load_fake, NULL);
}
#else
#include "without_vulkan.h"
#endif
