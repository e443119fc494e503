/* Conformance must catch what it is for: kernels with one fault each, run on the host backend's
 * memory. The same kernels with roundings that storage types allow must pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "core/backend_load.h"
#include "core/log.h"
#include "core/registry.h"
#include "ops/conform/conform.h"
#include <isomer/reference.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const iso_backend *iso_host_backend_query(uint32_t host_abi, const iso_host *host);

/* ---- A device with one kernel
 * -------------------------------------------------------------------- */

static const iso_memory_table *memory; /* of the host backend, which ignores the device here */
static iso_op_arguments recorded;
static bool recording, replay_works = true;

static uint8_t *address(const iso_tensor *tensor) {
  void *base = NULL;
  if (tensor->n_dims == 0 || memory->map(NULL, tensor->buffer, &base) != ISO_OK)
    return NULL;
  return (uint8_t *)base + tensor->offset;
}

static iso_status run_reference(const iso_op_arguments *arguments, const void *first_input) {
  const void *inputs[ISO_MAX_INPUTS] = {0};
  void *outputs[ISO_MAX_OUTPUTS] = {0};
  iso_op_arguments plain = *arguments;
  for (uint32_t i = 0; i < arguments->n_inputs; i++) {
    inputs[i] = address(&arguments->inputs[i]);
    plain.inputs[i].layout = ISO_LAYOUT_PLAIN;
  }
  for (uint32_t i = 0; i < arguments->n_outputs; i++)
    outputs[i] = address(&arguments->outputs[i]);
  if (first_input)
    inputs[0] = first_input;
  return iso_reference_run(&plain, inputs, outputs);
}

static int64_t elements(const iso_tensor *tensor) {
  int64_t n = 1;
  for (uint32_t d = 0; d < tensor->n_dims; d++)
    n *= tensor->dims[d];
  return n;
}

static float *floats(const iso_tensor *tensor) { return (float *)(void *)address(tensor); }
static int32_t *integers(const iso_tensor *tensor) { return (int32_t *)(void *)address(tensor); }

/* ---- Faults: each runs the op rightly and then does its damage
 * ------------------------------------- */

static void none(const iso_op_arguments *a) { (void)a; }
static void last_element_off(const iso_op_arguments *a) {
  floats(&a->outputs[0])[elements(&a->outputs[0]) - 1] *= 1.01f;
}
static void last_row_missing(const iso_op_arguments *a) {
  memset(address(&a->outputs[0]) + (a->outputs[0].dims[0] - 1) * a->outputs[0].strides[0], 0xFF,
         (size_t)a->outputs[0].strides[0]);
}
static void writes_past_the_end(const iso_op_arguments *a) {
  floats(&a->outputs[0])[elements(&a->outputs[0])] = 0;
}
static void writes_before_the_start(const iso_op_arguments *a) { floats(&a->outputs[0])[-1] = 0; }
static void writes_into_a_gap(const iso_op_arguments *a) {
  address(&a->outputs[0])[a->outputs[0].strides[0] - 1] = 0;
}
static void writes_into_an_input(const iso_op_arguments *a) { floats(&a->inputs[0])[0] += 1; }
static void writes_past_the_workspace(const iso_op_arguments *a) {
  iso_tensor scratch = {.buffer = a->workspace, .offset = a->workspace_offset, .n_dims = 1};
  address(&scratch)[a->workspace_bytes] = 0;
}
static void slightly_large(const iso_op_arguments *a) {
  for (int64_t i = 0; i < elements(&a->outputs[0]); i++)
    floats(&a->outputs[0])[i] *= 1 + 0x1p-10f;
}
static void reads_unseen_rows(const iso_op_arguments *a) {
  const float *values = floats(&a->inputs[2]);
  float sum = 0;
  for (int64_t i = 0; i < elements(&a->inputs[2]); i++)
    sum += 0 * values[i];
  floats(&a->outputs[0])[0] += sum;
}
static void prefers_the_last_of_equals(const iso_op_arguments *a) {
  int64_t n = a->inputs[0].dims[1];
  for (int64_t r = 0; r < a->inputs[0].dims[0]; r++)
    for (int64_t i = 0; i < n; i++)
      if (floats(&a->inputs[0])[r * n + i] ==
          floats(&a->inputs[0])[r * n + integers(&a->outputs[0])[r]])
        integers(&a->outputs[0])[r] = (int32_t)i;
}
static void stores_skipped_tokens(const iso_op_arguments *a) {
  for (int64_t t = 0; t < a->inputs[2].dims[0]; t++)
    if (integers(&a->inputs[2])[t] < 0)
      floats(&a->outputs[0])[0] = 12345;
}

/* ---- Roundings of the activations, allowed or not
 * ---------------------------------------------------- */

static void to_bf16(float *row, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    row[i] = iso_bf16_to_f32(iso_bf16_from_f32(row[i]));
}
static void to_f16(float *row, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    row[i] = iso_f16_to_f32(iso_f16_from_f32(row[i]));
}
static void to_codes(float *row, int64_t n, int64_t group, float top) {
  for (int64_t start = 0; start < n; start += group) {
    float largest = 0;
    for (int64_t i = start; i < start + group; i++)
      largest = fmaxf(largest, fabsf(row[i]));
    for (int64_t i = start; i < start + group && largest > 0; i++)
      row[i] = roundf(row[i] / largest * top) * largest / top;
  }
}
static void to_8_bits(float *row, int64_t n) { to_codes(row, n, 32, 127); }
static void to_8_bits_coarsely(float *row, int64_t n) { to_codes(row, n, 256, 127); }
static void to_7_bits_coarsely(float *row, int64_t n) { to_codes(row, n, 256, 63); }
static void to_4_bits(float *row, int64_t n) { to_codes(row, n, 32, 7); }

/* What the kernel does; set by each test. */
static void (*damage)(const iso_op_arguments *arguments);
static void (*rounding)(float *row, int64_t n);

static iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  (void)queue;
  if (recording) {
    recorded = *arguments;
    return ISO_OK;
  }
  float *x = NULL;
  if (rounding && elements(&arguments->inputs[0]) > 0) {
    const iso_tensor *tensor = &arguments->inputs[0];
    int64_t n = elements(tensor), columns = tensor->dims[tensor->n_dims - 1];
    x = malloc((size_t)n * sizeof *x);
    memcpy(x, address(tensor), (size_t)n * sizeof *x);
    for (int64_t start = 0; start < n; start += columns)
      rounding(x + start, columns);
  }
  iso_status status = run_reference(arguments, x);
  free(x);
  if (status == ISO_OK && elements(&arguments->outputs[0]) > 0)
    damage(arguments);
  return status;
}

static iso_status record_begin(iso_queue *queue) {
  (void)queue;
  recording = true;
  return ISO_OK;
}
static iso_status record_end(iso_queue *queue, void **out_recording) {
  (void)queue;
  recording = false;
  *out_recording = &recorded;
  return ISO_OK;
}
static iso_status replay(iso_queue *queue, void *recorded_arguments) {
  return replay_works ? launch(queue, recorded_arguments) : ISO_OK;
}
static void recording_destroy(iso_queue *queue, void *recorded_arguments) {
  (void)queue, (void)recorded_arguments;
}

/* ---- A timeline: a fault poisons it, and what is slow is not done at the first look -------------
 */

static bool has_timeline, is_slow, is_poisoned;
static int queues_made;

static iso_status create_queue(iso_device *device, iso_queue **out_queue) {
  queues_made++;
  is_poisoned = false;
  return iso_host_backend_query(ISO_ABI_VERSION, &iso_core_host)->queue->create(device, out_queue);
}
static iso_status signal_value(iso_queue *queue, uint64_t *out_value) {
  static uint64_t last;
  (void)queue;
  *out_value = ++last;
  return ISO_OK;
}
static iso_status host_wait(iso_queue *queue, uint64_t value, uint64_t timeout_us) {
  (void)queue, (void)value;
  if (is_poisoned)
    return iso_fail(ISO_ERROR_DEVICE, "an illegal address");
  return is_slow && timeout_us != UINT64_MAX ? iso_fail(ISO_ERROR_LIMIT, "at work") : ISO_OK;
}
static void faults_at_first(const iso_op_arguments *a) {
  (void)a;
  is_poisoned = queues_made == 1;
}

static uint64_t workspace(const iso_device *device, const iso_op_arguments *arguments) {
  (void)device, (void)arguments;
  return 1000;
}

/* A "packed" layout that is the plain one, and a pack() that may write too much. */
static int64_t pack_excess;
static iso_status packed_bytes(const iso_device *device, const iso_host_weight *weight,
                               uint64_t *out_bytes) {
  (void)device;
  *out_bytes = weight->bytes;
  return ISO_OK;
}
static iso_status pack(iso_queue *queue, const iso_host_weight *weight, iso_buffer *buffer,
                       uint64_t offset) {
  (void)queue;
  iso_tensor target = {.buffer = buffer, .offset = offset, .n_dims = 1};
  memcpy(address(&target), weight->data, weight->bytes);
  memset(address(&target) + weight->bytes, 0, (size_t)pack_excess);
  return ISO_OK;
}

/* ---- Running
 * ------------------------------------------------------------------------------------------ */

typedef struct outcome {
  iso_conform_summary summary;
  char detail[ISO_CASE_DETAIL]; /* of the first failure, or refusal */
} outcome;

static bool keep_first(void *context, const iso_conform_report *report) {
  outcome *out = context;
  if (report->result != ISO_CONFORM_PASS && !out->detail[0])
    snprintf(out->detail, sizeof out->detail, "%s", report->detail);
  return true;
}

/* `text` is a case, or the name of an op for all of its cases. */
static outcome conform(const char *text, uint32_t layout, bool can_record) {
  char name[64];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(text, " "), text);
  iso_kernel kernel = {.size = sizeof kernel,
                       .name = "faulty",
                       .schemes = ~(iso_scheme_mask)0,
                       .activations = ~(iso_scheme_mask)0,
                       .layout = layout,
                       .workspace = workspace,
                       .packed_bytes = layout ? packed_bytes : NULL,
                       .pack = layout ? pack : NULL,
                       .launch = launch};
  assert_true(iso_op_from_name(name, &kernel.op));
  iso_backend backend = *iso_host_backend_query(ISO_ABI_VERSION, &iso_core_host);
  iso_queue_table queue = *backend.queue;
  if (can_record) {
    queue.record_begin = record_begin;
    queue.record_end = record_end;
    queue.replay = replay;
    queue.recording_destroy = recording_destroy;
  }
  if (has_timeline) {
    queue.create = create_queue;
    queue.signal = signal_value;
    queue.host_wait = host_wait;
  }
  memory = backend.memory;
  backend.name = "faulty";
  backend.queue = &queue;
  backend.kernels = &kernel;
  backend.kernel_count = 1;
  iso_registry *registry;
  iso_open_device *device;
  assert_int_equal(iso_registry_create(&registry), ISO_OK);
  assert_int_equal(iso_registry_add(registry, &backend), ISO_OK);
  assert_int_equal(iso_device_open(registry, "faulty", NULL, &device), ISO_OK);
  bool is_case = strchr(text, ' ') != NULL;
  iso_conform_options options = {
      .text = is_case ? text : NULL, .op = is_case ? NULL : text, .seed = 3};
  outcome result = {0};
  if (iso_conform_run(device, &options, keep_first, &result, &result.summary) != ISO_OK)
    fail_msg("%s", iso_status_message());
  iso_device_close(device);
  iso_registry_destroy(registry);
  return result;
}

/* Runs a case; `message` is part of the failure wanted, NULL where it must pass. */
static void expect(const char *text, const char *message) {
  outcome result = conform(text, ISO_LAYOUT_PLAIN, false);
  if (!message && (result.summary.n_passed != 1 || result.detail[0]))
    fail_msg("%s: %s", text, result.detail);
  if (message && (result.summary.n_failed != 1 || !strstr(result.detail, message)))
    fail_msg("%s: wanted a failure with \"%s\", got \"%s\"", text, message, result.detail);
}

static void expect_damage(void (*function)(const iso_op_arguments *arguments), const char *text,
                          const char *message) {
  damage = function;
  expect(text, message);
  damage = none;
}

static void expect_rounding(void (*function)(float *row, int64_t n), const char *text,
                            const char *message) {
  rounding = function;
  expect(text, message);
  rounding = NULL;
}

static int reset(void **state) {
  (void)state;
  damage = none;
  rounding = NULL;
  pack_excess = 0;
  replay_works = true;
  has_timeline = is_slow = is_poisoned = false;
  queues_made = 0;
  return 0;
}

/* ---- Tests
 * ---------------------------------------------------------------------------------------------- */

static void test_wrong_values(void **state) {
  (void)state;
  expect("matmul *=3 N=5 K=64", NULL);
  expect_damage(last_element_off, "matmul *=3 N=5 K=64", "y[2, 4] is");
  expect_damage(last_element_off, "rms_norm *=3 D=5", "y[2, 4] is");
  expect_damage(last_element_off, "glu *=2x3 D=5", "y[1, 2, 4] is");
  expect_damage(last_row_missing, "matmul *=3 N=5 K=64", "y[2, 0] is -nan");
  expect_damage(slightly_large, "matmul *=3 N=5 K=64", "15 of 15 elements are off");
  expect_damage(slightly_large, "softmax *=3 D=50", "elements are off");
  expect_damage(slightly_large, "paged_attention T=9 H=2 G=1 D=16 E=16 P=9 S=4 Q=2 B=4",
                "elements are off");
  expect_damage(slightly_large, "convert *=3 D=5 x=bf16", "elements are off");
  expect_damage(slightly_large, "rope T=3 H=2 D=8 F=4", "elements are off");
  expect_damage(prefers_the_last_of_equals, "argmax R=9 V=100 fill=ties", "y[");
  expect_damage(stores_skipped_tokens, "kv_write T=5 G=1 D=32 E=8 P=3 S=4",
                "k_cache_out[0, 0, 0, 0] is 12345");
}

static void test_stray_writes(void **state) {
  (void)state;
  expect_damage(writes_past_the_end, "matmul *=3 N=5 K=64", "wrote past the end of y");
  expect_damage(writes_before_the_start, "matmul *=3 N=5 K=64", "wrote before the start of y");
  expect_damage(writes_into_a_gap, "matmul *=3 N=5 K=64 gap=4", "wrote between the rows of y");
  expect_damage(writes_into_an_input, "matmul *=3 N=5 K=64", "wrote into the input x");
  expect_damage(writes_past_the_workspace, "matmul *=3 N=5 K=64",
                "wrote past the end of the workspace");
}

static void test_unseen_rows(void **state) {
  (void)state;
  const char *text = "paged_attention T=9 H=2 G=1 D=16 E=16 P=9 S=4 Q=2 B=4";
  expect(text, NULL);
  expect_damage(reads_unseen_rows, text, "y[0, 0, 0] is -nan");
}

/* Activations may be rounded as the weights are stored, and no further. */
static void test_storage_roundings(void **state) {
  (void)state;
  static const char *const schemes[] = {"q8_0", "q4_0", "q4_k", "q6_k", "q2_k", "iq4_nl"};
  char text[ISO_CASE_TEXT];
  for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++)
    for (int rows = 1; rows <= 16; rows += 15)
      for (int k = 256; k <= 4096; k *= 4) {
        snprintf(text, sizeof text, "matmul *=%d N=64 K=%d weight=%s", rows, k, schemes[i]);
        expect_rounding(to_8_bits, text, NULL);
        expect_rounding(to_8_bits_coarsely, text, NULL);
        if (rows > 1) /* one row is too few to tell */
          expect_rounding(to_7_bits_coarsely, text, "y");
        expect_rounding(to_4_bits, text, "y[");
      }
  expect_rounding(to_bf16, "matmul *=7 N=64 K=512 weight=bf16", NULL);
  expect_rounding(to_bf16, "matmul *=7 N=64 K=512 weight=f32", "y[");
  expect_rounding(to_bf16, "matmul *=7 N=64 K=512 weight=f16", "y[");
  expect_rounding(to_8_bits, "matmul *=7 N=64 K=512 weight=f32", "y[");
  expect_rounding(to_8_bits, "matmul *=7 N=64 K=512 weight=f16", "y[");
  expect_rounding(to_8_bits, "matmul *=7 N=64 K=512 weight=q8_0 fill=outlier", NULL);
  expect_rounding(to_8_bits, "grouped_matmul T=7 C=2 J=1 E=4 N=64 K=512 weight=q8_0", NULL);
  expect_rounding(to_4_bits, "grouped_matmul T=7 C=2 J=1 E=4 N=64 K=512 weight=q8_0", "y[");
  expect_rounding(to_8_bits, "rms_norm *=3 D=64", "y[");
  expect_rounding(to_bf16, "paged_attention T=9 H=2 G=1 D=32 E=32 P=9 S=4 Q=2 B=4", "y[");
  expect_rounding(to_bf16,
                  "paged_attention T=40 H=4 G=2 D=64 E=64 P=30 S=16 Q=3 B=8 cache=bf16 fill=sharp",
                  "y[");
  expect_rounding(to_bf16,
                  "paged_attention T=40 H=4 G=2 D=64 E=64 P=30 S=16 Q=3 B=8 cache=f16 fill=sharp",
                  "y[");
  expect_rounding(to_f16,
                  "paged_attention T=40 H=4 G=2 D=64 E=64 P=30 S=16 Q=3 B=8 cache=f16 fill=sharp",
                  "y[");
  expect_rounding(to_8_bits,
                  "paged_attention T=9 H=2 G=1 D=32 E=32 P=9 S=4 Q=2 B=4 k_cache=q8_0 "
                  "v_cache=q8_0",
                  NULL);
  expect_rounding(to_4_bits,
                  "paged_attention T=9 H=2 G=1 D=32 E=32 P=9 S=4 Q=2 B=4 k_cache=q8_0 "
                  "v_cache=q8_0",
                  "y[");
}

static void test_packing(void **state) {
  (void)state;
  outcome result = conform("matmul *=3 N=5 K=64 weight=q8_0", 7, false);
  assert_int_equal(result.summary.n_passed, 1);
  pack_excess = 1;
  result = conform("matmul *=3 N=5 K=64 weight=q8_0", 7, false);
  assert_int_equal(result.summary.n_failed, 1);
  assert_non_null(strstr(result.detail, "packing wrote past the 340 bytes"));
}

static void test_recordings(void **state) {
  (void)state;
  outcome result = conform("kv_write T=5 G=1 D=32 E=8 P=3 S=4", ISO_LAYOUT_PLAIN, true);
  assert_int_equal(result.summary.n_passed, 1);
  replay_works = false;
  result = conform("matmul *=3 N=5 K=64", ISO_LAYOUT_PLAIN, true);
  assert_int_equal(result.summary.n_failed, 1);
  assert_non_null(strstr(result.detail, "as a recording: y[0, 0] is -nan"));
}

/* The fault of one case is not one of those behind it: they run on a new queue. */
static void test_poisoned_queue(void **state) {
  (void)state;
  has_timeline = true;
  damage = faults_at_first;
  outcome result = conform("gather_rows", ISO_LAYOUT_PLAIN, false);
  assert_int_equal(result.summary.n_failed, 1);
  assert_true(result.summary.n_passed > 10);
  assert_string_equal(result.detail, "an illegal address");
  assert_int_equal(queues_made, 2);
}

static void keep_line(void *context, iso_log_level level, const char *line) {
  assert_int_equal(level, ISO_LOG_WARNING);
  snprintf(context, ISO_CASE_DETAIL, "%s", line);
}

/* A kernel that does not end is named while it is waited for. */
static void test_slow_kernel(void **state) {
  (void)state;
  char line[ISO_CASE_DETAIL] = "";
  has_timeline = is_slow = true;
  iso_log_set_sink(keep_line, line);
  outcome result = conform("gather_rows T=3 D=5 R=2", ISO_LAYOUT_PLAIN, false);
  iso_log_set_sink(NULL, NULL);
  assert_int_equal(result.summary.n_passed, 1);
  assert_string_equal(line, "faulty has been at work for 15 s: gather_rows T=3 D=5 R=2");
}

static void test_texts(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"", "there is no op \"\""},
      {"matmull *=3", "there is no op \"matmull\""},
      {"matmul *=3 N=5", "matmul: no K= is given"},
      {"matmul N=5 K=5", "matmul: no *= is given"},
      {"matmul *=3 N=5 K=64 weight", "\"weight\" is not key=value"},
      {"matmul *=3 N=5 K=64 weight=q9", "weight=q9 means nothing"},
      {"matmul *=3 N=5 K=65 weight=q8_0", "a row of 65 elements is not whole q8_0 blocks"},
      {"matmul *=3 N=5 K=64 gap=3", "gap=3 means nothing"},
      {"matmul *=3x N=5 K=-1", "K=-1 means nothing"},
      {"matmul *=1x2x3x4 N=5 K=1", "*=1x2x3x4 means nothing"},
      {"rms_norm *=3 D=5 epsilon=soon", "epsilon=soon means nothing"},
      {"glu *=3 D=5 activation=1.5", "activation=1.5 means nothing"},
      {"glu *=3 D=5 fill=strange", "fill=strange means nothing"},
      {"matmul *=2000000000 N=2000000000 K=2000000000", "more than 2^63 bytes"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    iso_registry *registry;
    iso_open_device *device;
    assert_int_equal(iso_registry_create(&registry), ISO_OK);
    assert_int_equal(iso_device_open(registry, "host", NULL, &device), ISO_OK);
    iso_conform_options options = {.text = cases[i].text};
    iso_conform_summary summary;
    assert_int_not_equal(iso_conform_run(device, &options, NULL, NULL, &summary), ISO_OK);
    if (!strstr(iso_status_message(), cases[i].message))
      fail_msg("\"%s\": got \"%s\"", cases[i].text, iso_status_message());
    iso_device_close(device);
    iso_registry_destroy(registry);
  }
}

/* A case that no record takes is reported with the reason, once. */
static void test_unsupported(void **state) {
  (void)state;
  iso_backend backend = *iso_host_backend_query(ISO_ABI_VERSION, &iso_core_host);
  iso_registry *registry;
  iso_open_device *device;
  backend.name = "bare";
  backend.kernel_count = 0;
  assert_int_equal(iso_registry_create(&registry), ISO_OK);
  assert_int_equal(iso_registry_add(registry, &backend), ISO_OK);
  assert_int_equal(iso_device_open(registry, "bare", NULL, &device), ISO_OK);
  iso_conform_options options = {.text = "matmul *=3 N=5 K=64"};
  outcome result = {0};
  assert_int_equal(iso_conform_run(device, &options, keep_first, &result, &result.summary), ISO_OK);
  assert_int_equal(result.summary.n_unsupported, 1);
  assert_string_equal(result.detail, "bare has no kernel for matmul");
  iso_device_close(device);
  iso_registry_destroy(registry);
}

/* ---- Memory
 * ------------------------------------------------------------------------------------------ */

static const iso_queue_table *host_queue;

static iso_status copy_short(iso_queue *queue, iso_buffer *target, uint64_t target_offset,
                             iso_buffer *source, uint64_t source_offset, uint64_t bytes) {
  return host_queue->copy(queue, target, target_offset, source, source_offset,
                          bytes > 1000 ? bytes & ~(uint64_t)3 : bytes);
}
static iso_status fill_words(iso_queue *queue, iso_buffer *target, uint64_t offset, uint64_t bytes,
                             uint8_t value) {
  return host_queue->fill(queue, target, offset & ~(uint64_t)3, bytes, value);
}
static iso_status signal_stuck(iso_queue *queue, uint64_t *out_value) {
  (void)queue;
  *out_value = 5;
  return ISO_OK;
}
static iso_status wait_never(iso_queue *queue, uint64_t value, uint64_t timeout_us) {
  (void)queue, (void)value, (void)timeout_us;
  return ISO_OK;
}
static iso_status alloc_anything(iso_device *host_device, iso_memory_kind kind, uint64_t bytes,
                                 iso_buffer **out_buffer) {
  return memory->alloc(host_device, kind, bytes > SIZE_MAX / 64 ? 64 : bytes, out_buffer);
}

static void expect_memory_fault(iso_backend *backend, const char *message) {
  iso_registry *registry;
  iso_open_device *device;
  backend->name = "faulty";
  assert_int_equal(iso_registry_create(&registry), ISO_OK);
  assert_int_equal(iso_registry_add(registry, backend), ISO_OK);
  assert_int_equal(iso_device_open(registry, "faulty", NULL, &device), ISO_OK);
  assert_int_equal(iso_conform_memory(device), ISO_ERROR_DEVICE);
  if (!strstr(iso_status_message(), message))
    fail_msg("wanted \"%s\", got \"%s\"", message, iso_status_message());
  iso_device_close(device);
  iso_registry_destroy(registry);
}

static void test_memory_faults(void **state) {
  (void)state;
  iso_backend backend = *iso_host_backend_query(ISO_ABI_VERSION, &iso_core_host);
  host_queue = backend.queue;
  memory = backend.memory;
  iso_queue_table queue = *host_queue;
  iso_memory_table tables = *memory;
  backend.queue = &queue;
  backend.memory = &tables;
  queue.copy = copy_short;
  expect_memory_fault(&backend, "after a copy byte");
  queue = *host_queue;
  queue.fill = fill_words;
  expect_memory_fault(&backend, "after a fill byte");
  queue = *host_queue;
  queue.signal = signal_stuck;
  queue.host_wait = wait_never;
  expect_memory_fault(&backend, "the timeline goes from 5 to 5");
  queue = *host_queue;
  tables.alloc = alloc_anything;
  expect_memory_fault(&backend, "asked for 1152921504606846976 bytes, the device says \"ok\"");
}

static bool count_timed(void *context, const iso_conform_report *report) {
  *(int *)context += report->result == ISO_CONFORM_PASS && report->microseconds > 0 &&
                     report->gigabytes_per_s > 0 && report->gigaflops > 0;
  return false;
}

static void test_timing(void **state) {
  (void)state;
  iso_registry *registry;
  iso_open_device *device;
  assert_int_equal(iso_registry_create(&registry), ISO_OK);
  assert_int_equal(iso_device_open(registry, "host", NULL, &device), ISO_OK);
  iso_conform_options options = {.op = "rms_norm", .perf = true};
  iso_conform_summary summary;
  int timed = 0;
  assert_int_equal(iso_conform_run(device, &options, count_timed, &timed, &summary), ISO_OK);
  assert_int_equal(timed, 1); /* the sink stopped it */
  iso_device_close(device);
  iso_registry_destroy(registry);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_wrong_values, reset),
      cmocka_unit_test_setup(test_stray_writes, reset),
      cmocka_unit_test_setup(test_unseen_rows, reset),
      cmocka_unit_test_setup(test_storage_roundings, reset),
      cmocka_unit_test_setup(test_packing, reset),
      cmocka_unit_test_setup(test_recordings, reset),
      cmocka_unit_test_setup(test_poisoned_queue, reset),
      cmocka_unit_test_setup(test_slow_kernel, reset),
      cmocka_unit_test_setup(test_texts, reset),
      cmocka_unit_test_setup(test_unsupported, reset),
      cmocka_unit_test_setup(test_memory_faults, reset),
      cmocka_unit_test_setup(test_timing, reset),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
