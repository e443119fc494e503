/* A backend for tests of the executor: the reference's ops behind memory that may not be mappable
 * and a queue that runs nothing until it is waited for, so that a missing wait or copy shows as a
 * wrong result. Any call can be made to fail. Two of them, "left" and "right", so that copies
 * between backends happen too; the right one lacks the slot for imports. */
#ifndef ISOMER_TESTS_FAKE_BACKEND_H
#define ISOMER_TESTS_FAKE_BACKEND_H

#include <isomer/reference.h>
#include <stdlib.h>
#include <string.h>

typedef struct fake_config {
  bool mappable; /* device memory */
  bool deferred; /* the queue */
  bool imports;
  bool peers;          /* the queue copies from the other device */
  bool packs;          /* matmul and embedding like a layout of their own better */
  bool breaks_packing; /* fails behind what it has enqueued */
  bool is_cpu;
  uint64_t missing;      /* bit i: device 0 refuses op i */
  uint64_t unrecordable; /* bit i: launches of op i fail while they are recorded */
  uint64_t memory_bytes; /* of each device */
} fake_config;

enum { FAKE_DEVICES = 2, FAKE_ALIGNMENT = 32, FAKE_LAYOUT = 3, FAKE_HEADER = 16 };

static fake_config fake_configs[2];
/* Calls that can fail, so far, and the one that does (0: none). */
static int fake_calls, fake_fail_at;
/* Objects alive. */
static int fake_live;
static int fake_packing; /* not yet run */
static int fake_packed, fake_imported, fake_launched;
/* Recordings made and replayed; of the left backend alone, the right one cannot. */
static int fake_recorded, fake_replayed;

struct iso_device {
  const fake_config *config;
  uint32_t index;
  uint64_t used_bytes;
};

struct iso_buffer {
  uint8_t *data;
  uint64_t bytes, counted;
  bool mappable, imported;
  const iso_device *device;
};

typedef struct fake_command {
  enum { FAKE_RUN, FAKE_COPY, FAKE_FILL, FAKE_PACK, FAKE_SIGNAL, FAKE_WAIT } kind;
  iso_op_arguments arguments;
  iso_buffer *target, *source;
  uint64_t target_offset, source_offset, bytes, value;
  uint8_t fill;
  const uint8_t *host;
  iso_queue *other;
} fake_command;

struct iso_queue {
  iso_device *device;
  fake_command *commands;
  size_t count, capacity;
  uint64_t signalled, reached;
  iso_status poison;
  struct fake_recording *recording; /* between record_begin and record_end */
};

typedef struct fake_recording {
  fake_command *commands;
  size_t count;
} fake_recording;

static bool fake_fault(void) { return ++fake_calls == fake_fail_at; }
#define FAKE_MAY_FAIL(what)                                                                        \
  do {                                                                                             \
    if (fake_fault())                                                                              \
      return iso_fail(ISO_ERROR_DEVICE, "injected fault in %s", what);                             \
  } while (0)

/* ---- Device and memory -------------------------------------------------------------------- */

static iso_device_info fake_describe(const fake_config *config) {
  return (iso_device_info){.size = sizeof(iso_device_info),
                           .kind = config->is_cpu ? ISO_DEVICE_CPU : ISO_DEVICE_ACCELERATOR,
                           .name = "Fake",
                           .memory_bytes = config->memory_bytes,
                           .largest_allocation_bytes = config->memory_bytes,
                           .alignment_bytes = FAKE_ALIGNMENT,
                           .features = (config->mappable ? ISO_FEATURE_HOST_MEMORY : 0) |
                                       (config->peers ? ISO_FEATURE_PEER_COPY : 0)};
}

static iso_status fake_enumerate(int which, uint32_t capacity, iso_device_info *out_infos,
                                 uint32_t *out_count) {
  FAKE_MAY_FAIL("enumerate");
  for (uint32_t i = 0; i < capacity && i < FAKE_DEVICES; i++)
    out_infos[i] = fake_describe(&fake_configs[which]);
  *out_count = FAKE_DEVICES;
  return ISO_OK;
}

static iso_status fake_open(int which, uint32_t index, iso_device **out_device) {
  FAKE_MAY_FAIL("open");
  *out_device = calloc(1, sizeof **out_device);
  (*out_device)->config = &fake_configs[which];
  (*out_device)->index = index;
  fake_live++;
  return ISO_OK;
}

static iso_status fake_info(const iso_device *device, iso_device_info *out_info) {
  FAKE_MAY_FAIL("info");
  *out_info = fake_describe(device->config);
  return ISO_OK;
}

static void fake_close(iso_device *device) {
  fake_live--;
  free(device);
}

static iso_status fake_alloc(iso_device *device, iso_memory_kind kind, uint64_t bytes,
                             iso_buffer **out_buffer) {
  FAKE_MAY_FAIL("alloc");
  uint64_t counted = kind == ISO_MEMORY_DEVICE ? bytes : 0; /* staging is the host's */
  if (counted > device->config->memory_bytes - device->used_bytes)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "%llu bytes asked, %llu free",
                    (unsigned long long)bytes,
                    (unsigned long long)(device->config->memory_bytes - device->used_bytes));
  iso_buffer *buffer = calloc(1, sizeof *buffer);
  buffer->data = aligned_alloc(FAKE_ALIGNMENT, (bytes + 31) / 32 * 32);
  buffer->bytes = bytes;
  buffer->counted = counted;
  buffer->device = device;
  buffer->mappable = kind == ISO_MEMORY_STAGING || device->config->mappable;
  memset(buffer->data, 0xff, bytes); /* NaN */
  device->used_bytes += counted;
  fake_live++;
  *out_buffer = buffer;
  return ISO_OK;
}

static void fake_free(iso_device *device, iso_buffer *buffer) {
  if (!buffer->imported) {
    device->used_bytes -= buffer->counted;
    free(buffer->data);
  }
  free(buffer);
  fake_live--;
}

static iso_status fake_map(iso_device *device, iso_buffer *buffer, void **out_address) {
  (void)device;
  FAKE_MAY_FAIL("map");
  if (!buffer->mappable)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "not mappable");
  *out_address = buffer->data;
  return ISO_OK;
}

static iso_status fake_import(iso_device *device, const void *address, uint64_t bytes,
                              iso_buffer **out_buffer) {
  FAKE_MAY_FAIL("import");
  if (!device->config->imports)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "does not import");
  iso_buffer *buffer = calloc(1, sizeof *buffer);
  *buffer = (iso_buffer){
      .data = (uint8_t *)(uintptr_t)address, .bytes = bytes, .imported = true, .device = device};
  fake_live++;
  fake_imported++;
  *out_buffer = buffer;
  return ISO_OK;
}

static iso_status fake_bytes_free(iso_device *device, uint64_t *out_bytes) {
  FAKE_MAY_FAIL("bytes_free");
  *out_bytes = device->config->memory_bytes - device->used_bytes;
  return ISO_OK;
}

/* ---- Ops ----------------------------------------------------------------------------------- */

/* Address of an operand, all of whose bytes must lie in its buffer at an aligned offset. */
static iso_status fake_address(const iso_tensor *tensor, void **out_address) {
  *out_address = NULL;
  if (tensor->n_dims == 0)
    return ISO_OK;
  const iso_scheme_info *scheme = iso_scheme_get_info(tensor->scheme);
  uint64_t end = 0;
  bool empty = false;
  for (uint32_t i = 0; i < tensor->n_dims; i++) {
    bool last = i + 1 == tensor->n_dims;
    int64_t n = last ? tensor->dims[i] / scheme->block_elements : tensor->dims[i];
    empty |= n == 0;
    end += last ? (uint64_t)(n * scheme->block_bytes) : (uint64_t)((n - 1) * tensor->strides[i]);
  }
  if (empty)
    return ISO_OK;
  if (!tensor->buffer || tensor->offset > tensor->buffer->bytes ||
      end > tensor->buffer->bytes - tensor->offset)
    return iso_fail(ISO_ERROR_INTERNAL, "an operand leaves its buffer");
  *out_address = tensor->buffer->data + tensor->offset;
  return ISO_OK;
}

static iso_status fake_execute(const iso_op_arguments *given) {
  iso_op_arguments arguments = *given;
  void *inputs[ISO_MAX_INPUTS], *outputs[ISO_MAX_OUTPUTS], *unpacked = NULL;
  for (uint32_t i = 0; i < arguments.n_inputs; i++) {
    iso_tensor *input = &arguments.inputs[i];
    if (input->layout == FAKE_LAYOUT && input->n_dims) {
      uint64_t bytes = input->buffer->bytes - FAKE_HEADER;
      inputs[i] = unpacked = malloc(bytes);
      for (uint64_t b = 0; b < bytes; b++)
        ((uint8_t *)unpacked)[b] = input->buffer->data[FAKE_HEADER + b] ^ 0x5a;
      input->layout = ISO_LAYOUT_PLAIN;
    } else {
      ISO_TRY(fake_address(input, &inputs[i]));
    }
  }
  for (uint32_t i = 0; i < arguments.n_outputs; i++)
    ISO_TRY(fake_address(&arguments.outputs[i], &outputs[i]));
  if (arguments.workspace)
    memset(arguments.workspace->data + arguments.workspace_offset, 0xee, arguments.workspace_bytes);
  fake_launched++;
  iso_status status = iso_reference_run(&arguments, (const void *const *)inputs, outputs);
  free(unpacked);
  return status;
}

/* ---- Queue --------------------------------------------------------------------------------- */

static iso_status fake_run_until(iso_queue *queue, uint64_t value);

static iso_status fake_do(iso_queue *queue, const fake_command *c) {
  switch (c->kind) {
  case FAKE_RUN:
    return fake_execute(&c->arguments);
  case FAKE_COPY:
    if (c->bytes > c->target->bytes - c->target_offset ||
        c->bytes > c->source->bytes - c->source_offset)
      return iso_fail(ISO_ERROR_INTERNAL, "a copy leaves its buffers");
    memcpy(c->target->data + c->target_offset, c->source->data + c->source_offset, c->bytes);
    return ISO_OK;
  case FAKE_FILL:
    memset(c->target->data + c->target_offset, c->fill, c->bytes);
    return ISO_OK;
  case FAKE_PACK:
    fake_packing--;
    for (uint64_t b = 0; b < c->bytes; b++)
      c->target->data[c->target_offset + FAKE_HEADER + b] = c->host[b] ^ 0x5a;
    return ISO_OK;
  case FAKE_SIGNAL:
    queue->reached = c->value;
    return ISO_OK;
  case FAKE_WAIT:
    return fake_run_until(c->other, c->value);
  }
  return ISO_OK;
}

/* Runs what was kept, up to a value of the timeline. */
static iso_status fake_run_until(iso_queue *queue, uint64_t value) {
  size_t done = 0;
  while (done < queue->count && queue->reached < value && queue->poison == ISO_OK)
    queue->poison = fake_do(queue, &queue->commands[done++]);
  if (done > 0)
    memmove(queue->commands, queue->commands + done,
            (queue->count - done) * sizeof *queue->commands);
  queue->count -= done;
  return queue->poison;
}

static iso_status fake_enqueue(iso_queue *queue, const fake_command *command) {
  fake_recording *recording = queue->recording;
  if (recording) {
    if (command->kind == FAKE_SIGNAL || command->kind == FAKE_WAIT)
      return iso_fail(ISO_ERROR_INTERNAL, "a timeline cannot be recorded");
    recording->commands =
        realloc(recording->commands, (recording->count + 1) * sizeof *recording->commands);
    recording->commands[recording->count++] = *command;
    return ISO_OK;
  }
  if (!queue->device->config->deferred)
    return fake_do(queue, command);
  if (queue->count == queue->capacity) {
    queue->capacity = queue->capacity * 2 + 64;
    queue->commands = realloc(queue->commands, queue->capacity * sizeof *queue->commands);
  }
  queue->commands[queue->count++] = *command;
  return ISO_OK;
}

static iso_status fake_queue_create(iso_device *device, iso_queue **out_queue) {
  FAKE_MAY_FAIL("queue create");
  *out_queue = calloc(1, sizeof **out_queue);
  (*out_queue)->device = device;
  fake_live++;
  return ISO_OK;
}

static void fake_queue_destroy(iso_queue *queue) {
  free(queue->commands);
  free(queue);
  fake_live--;
}

static iso_status fake_copy(iso_queue *queue, iso_buffer *target, uint64_t target_offset,
                            iso_buffer *source, uint64_t source_offset, uint64_t bytes) {
  FAKE_MAY_FAIL("copy");
  if (target->device != queue->device ||
      (source->device != queue->device && !queue->device->config->peers))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "a buffer of another device");
  fake_command c = {.kind = FAKE_COPY,
                    .target = target,
                    .target_offset = target_offset,
                    .source = source,
                    .source_offset = source_offset,
                    .bytes = bytes};
  return fake_enqueue(queue, &c);
}

static iso_status fake_fill(iso_queue *queue, iso_buffer *target, uint64_t offset, uint64_t bytes,
                            uint8_t value) {
  FAKE_MAY_FAIL("fill");
  fake_command c = {
      .kind = FAKE_FILL, .target = target, .target_offset = offset, .bytes = bytes, .fill = value};
  return fake_enqueue(queue, &c);
}

static iso_status fake_signal(iso_queue *queue, uint64_t *out_value) {
  FAKE_MAY_FAIL("signal");
  fake_command c = {.kind = FAKE_SIGNAL, .value = ++queue->signalled};
  *out_value = c.value;
  return fake_enqueue(queue, &c);
}

static iso_status fake_host_wait(iso_queue *queue, uint64_t value, uint64_t timeout_us) {
  (void)timeout_us;
  FAKE_MAY_FAIL("host_wait");
  return fake_run_until(queue, value);
}

static iso_status fake_wait(iso_queue *queue, iso_queue *other, uint64_t value) {
  FAKE_MAY_FAIL("wait");
  fake_command c = {.kind = FAKE_WAIT, .other = other, .value = value};
  return fake_enqueue(queue, &c);
}

static iso_status fake_record_begin(iso_queue *queue) {
  FAKE_MAY_FAIL("record_begin");
  queue->recording = calloc(1, sizeof *queue->recording);
  fake_live++;
  return ISO_OK;
}

static void fake_recording_destroy(iso_queue *queue, void *recording) {
  (void)queue;
  free(((fake_recording *)recording)->commands);
  free(recording);
  fake_live--;
}

static iso_status fake_record_end(iso_queue *queue, void **out_recording) {
  fake_recording *recording = queue->recording;
  queue->recording = NULL;
  if (fake_fault()) {
    fake_recording_destroy(queue, recording);
    return iso_fail(ISO_ERROR_DEVICE, "injected fault in record_end");
  }
  *out_recording = recording;
  fake_recorded++;
  return ISO_OK;
}

static iso_status fake_replay(iso_queue *queue, void *given) {
  FAKE_MAY_FAIL("replay");
  fake_recording *recording = given;
  fake_replayed++;
  for (size_t i = 0; i < recording->count; i++)
    ISO_TRY(fake_enqueue(queue, &recording->commands[i]));
  return ISO_OK;
}

/* ---- Kernels ------------------------------------------------------------------------------- */

static iso_status fake_launch(iso_queue *queue, const iso_op_arguments *arguments) {
  FAKE_MAY_FAIL("launch");
  if (queue->recording && queue->device->config->unrecordable >> arguments->op & 1)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "not while recording");
  fake_command c = {.kind = FAKE_RUN, .arguments = *arguments};
  return fake_enqueue(queue, &c);
}

static iso_refusal fake_check(const iso_device *device, const iso_op_arguments *arguments,
                              const char **out_detail) {
  if (device->index == 0 && (device->config->missing >> arguments->op & 1)) {
    *out_detail = "made to";
    return ISO_REFUSED_DEVICE;
  }
  /* The core launches nothing that would write nothing. */
  return arguments->inputs[0].dims[0] && arguments->outputs[0].dims[0] ? ISO_ACCEPTED
                                                                       : ISO_REFUSED_SHAPE;
}

static iso_refusal fake_check_packed(const iso_device *device, const iso_op_arguments *arguments,
                                     const char **out_detail) {
  return device->config->packs ? fake_check(device, arguments, out_detail) : ISO_REFUSED_DEVICE;
}

static uint64_t fake_workspace(const iso_device *device, const iso_op_arguments *arguments) {
  (void)device;
  return (uint64_t)arguments->outputs[0].dims[0] * 24;
}

static iso_status fake_packed_bytes(const iso_device *device, const iso_host_weight *weight,
                                    uint64_t *out_bytes) {
  (void)device;
  FAKE_MAY_FAIL("packed_bytes");
  *out_bytes = weight->bytes + FAKE_HEADER;
  return ISO_OK;
}

static iso_status fake_pack(iso_queue *queue, const iso_host_weight *weight, iso_buffer *buffer,
                            uint64_t offset) {
  FAKE_MAY_FAIL("pack");
  fake_command c = {.kind = FAKE_PACK,
                    .target = buffer,
                    .target_offset = offset,
                    .host = weight->data,
                    .bytes = weight->bytes};
  fake_packed++;
  fake_packing++;
  ISO_TRY(fake_enqueue(queue, &c));
  return queue->device->config->breaks_packing ? iso_fail(ISO_ERROR_DEVICE, "packing broke off")
                                               : ISO_OK;
}

#define FAKE_PACKED(OP, the_name)                                                                  \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_##OP, .name = the_name, .schemes = ~UINT64_C(0),      \
    .activations = ~UINT64_C(0), .layout = FAKE_LAYOUT, .rank = 9, .check = fake_check_packed,     \
    .packed_bytes = fake_packed_bytes, .pack = fake_pack, .launch = fake_launch                    \
  }

static const iso_kernel fake_kernels[] = {
    FAKE_PACKED(MATMUL, "matmul.packed"),
    FAKE_PACKED(EMBEDDING, "embedding.packed"),
#define ISO_OP_BEGIN(op_name, OP_NAME, tolerance, summary)                                         \
  {.size = sizeof(iso_kernel),                                                                     \
   .op = ISO_OP_##OP_NAME,                                                                         \
   .name = #op_name ".fake",                                                                       \
   .schemes = ~UINT64_C(0),                                                                        \
   .activations = ~UINT64_C(0),                                                                    \
   .check = fake_check,                                                                            \
   .workspace = fake_workspace,                                                                    \
   .launch = fake_launch},
#include <isomer/ops.def>
};

/* ---- Tables -------------------------------------------------------------------------------- */

static iso_status fake_enumerate_left(uint32_t capacity, iso_device_info *out_infos,
                                      uint32_t *out_count, char *out_reason) {
  out_reason[0] = 0;
  return fake_enumerate(0, capacity, out_infos, out_count);
}
static iso_status fake_enumerate_right(uint32_t capacity, iso_device_info *out_infos,
                                       uint32_t *out_count, char *out_reason) {
  out_reason[0] = 0;
  return fake_enumerate(1, capacity, out_infos, out_count);
}
static iso_status fake_open_left(uint32_t index, const iso_device_options *options,
                                 iso_device **out_device) {
  (void)options;
  return fake_open(0, index, out_device);
}
static iso_status fake_open_right(uint32_t index, const iso_device_options *options,
                                  iso_device **out_device) {
  (void)options;
  return fake_open(1, index, out_device);
}

static const iso_driver_table fake_drivers[2] = {
    {sizeof(iso_driver_table), fake_enumerate_left, fake_open_left},
    {sizeof(iso_driver_table), fake_enumerate_right, fake_open_right}};
static const iso_device_table fake_device_table = {sizeof fake_device_table, fake_info, fake_close};
static const iso_memory_table fake_memory_tables[2] = {{.size = sizeof(iso_memory_table),
                                                        .alloc = fake_alloc,
                                                        .free = fake_free,
                                                        .map = fake_map,
                                                        .import = fake_import,
                                                        .bytes_free = fake_bytes_free},
                                                       {.size = sizeof(iso_memory_table),
                                                        .alloc = fake_alloc,
                                                        .free = fake_free,
                                                        .map = fake_map,
                                                        .bytes_free = fake_bytes_free}};
#define FAKE_QUEUE                                                                                 \
  .size = sizeof(iso_queue_table), .create = fake_queue_create, .destroy = fake_queue_destroy,     \
  .copy = fake_copy, .fill = fake_fill, .signal = fake_signal, .host_wait = fake_host_wait,        \
  .wait = fake_wait
static const iso_queue_table fake_queue_tables[2] = {
    {FAKE_QUEUE, .record_begin = fake_record_begin, .record_end = fake_record_end,
     .replay = fake_replay, .recording_destroy = fake_recording_destroy},
    {FAKE_QUEUE}};
#define FAKE_BACKEND(the_name, index)                                                              \
  {                                                                                                \
    .size = sizeof(iso_backend), .abi = ISO_ABI_VERSION, .name = the_name,                         \
    .driver = &fake_drivers[index], .device = &fake_device_table,                                  \
    .memory = &fake_memory_tables[index], .queue = &fake_queue_tables[index],                      \
    .kernels = fake_kernels, .kernel_count = sizeof fake_kernels / sizeof *fake_kernels,           \
    .kernel_stride = sizeof *fake_kernels                                                          \
  }
static const iso_backend fake_backends[2] = {FAKE_BACKEND("left", 0), FAKE_BACKEND("right", 1)};

#endif
