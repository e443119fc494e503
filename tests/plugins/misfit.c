/* A backend of one op, `add` in f32, that fits the host badly in a way that the environment
 * variable ISOMER_MISFIT names:
 *
 *   newer          ABI 1.9: every struct is larger, and one kernel is for an op nobody knows
 *   older          every struct ends with its last required slot
 *   major          ABI 2.0
 *   refuse         returns NULL with a sentence
 *   silent         returns NULL without one
 *   absent         no device, with a reason
 *   broken         a device that does not open
 *   name           a name that cannot be one
 *   table.slot     without that slot ("queue.wait"), or without that table ("queue")
 *   kernel.slot    a kernel without that slot
 *   kernel.plain   a kernel that packs weights into the plain layout
 *   kernel.layout  a kernel of a layout that nobody packs
 *   kernel.size    kernels that are larger than the stride of their array
 *   align          an alignment of 2 GiB
 *   brim           texts that fill their place, without an end
 *   mute.slot      that slot ("table.slot", or "launch") fails without a sentence
 *   odd.slot       and with a status that is none
 *   empty.slot     that slot says that it went well, and gives nothing */
#include <isomer/backend.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct iso_device {
  int opened;
};
struct iso_buffer {
  char *data;
};
struct iso_queue {
  uint64_t signalled;
};

static const iso_host *host;

static bool is_misfit(const char *word) {
  const char *misfit = getenv("ISOMER_MISFIT");
  return misfit && strcmp(misfit, word) == 0;
}

static bool falls_short(const char *slot, iso_status *out_status) {
  static const struct {
    const char *way;
    iso_status status;
  } ways[] = {{"mute", ISO_ERROR_DEVICE}, {"odd", (iso_status)99}, {"empty", ISO_OK}};
  char word[64];
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    snprintf(word, sizeof word, "%s.%s", ways[i].way, slot);
    *out_status = ways[i].status;
    if (is_misfit(word))
      return true;
  }
  return false;
}

/* Leaves the slot before it has done anything. */
#define MAY_FALL_SHORT(slot)                                                                       \
  do {                                                                                             \
    iso_status short_status_;                                                                      \
    if (falls_short(slot, &short_status_))                                                         \
      return short_status_;                                                                        \
  } while (0)

/* ---- What newer versions look like: more at the end of every struct ------------------------ */

enum { EXTRA = 24 };
typedef struct newer_info {
  iso_device_info known;
  char extra[EXTRA];
} newer_info;
typedef struct newer_kernel {
  iso_kernel known;
  void *extra[3];
} newer_kernel;
static struct {
  iso_driver_table known;
  void *extra[3];
} driver;
static struct {
  iso_device_table known;
  void *extra[3];
} device_table;
static struct {
  iso_memory_table known;
  void *extra[3];
} memory;
static struct {
  iso_queue_table known;
  void *extra[3];
} queue_table;
static struct {
  iso_backend known;
  void *extra[3];
} backend;
static newer_kernel kernels[3];

/* ---- Driver and device --------------------------------------------------------------------- */

static void describe(void *out_info, uint32_t index) {
  newer_info info = {.known = {.size = is_misfit("newer") ? sizeof info : sizeof info.known,
                               .kind = ISO_DEVICE_ACCELERATOR,
                               .name = "Misfit",
                               .id = "misfit-0",
                               .memory_bytes = 1 << 20,
                               .largest_allocation_bytes = 1 << 20,
                               .alignment_bytes = 16,
                               .features = ISO_FEATURE_HOST_MEMORY}};
  info.known.id[7] = (char)('0' + index);
  if (is_misfit("align"))
    info.known.alignment_bytes = 1u << 31;
  if (is_misfit("brim")) {
    memset(info.known.name, 'n', sizeof info.known.name);
    memset(info.known.id, 'i', sizeof info.known.id);
    memset(info.known.detail, 'd', sizeof info.known.detail);
  }
  memset(info.extra, 0xaa, sizeof info.extra);
  memcpy(out_info, &info, info.known.size);
}

static iso_status enumerate(uint32_t capacity, iso_device_info *out_infos, uint32_t *out_count,
                            char *out_reason) {
  MAY_FALL_SHORT("driver.enumerate");
  strcpy(out_reason, is_misfit("absent") ? "the driver library is missing" : "");
  *out_count = is_misfit("absent") ? 0 : 2;
  size_t stride = is_misfit("newer") ? sizeof(newer_info) : sizeof(iso_device_info);
  for (uint32_t i = 0; i < capacity && i < *out_count; i++)
    describe((char *)out_infos + i * stride, i);
  return ISO_OK;
}

static iso_status open_device(uint32_t index, const iso_device_options *options,
                              iso_device **out_device) {
  (void)index, (void)options;
  MAY_FALL_SHORT("driver.open");
  if (is_misfit("broken"))
    return iso_backend_fail(host, ISO_ERROR_DEVICE, "the device is on fire");
  *out_device = calloc(1, sizeof **out_device);
  return *out_device ? ISO_OK : ISO_ERROR_OUT_OF_MEMORY;
}

static iso_status info_of(const iso_device *device, iso_device_info *out_info) {
  (void)device;
  MAY_FALL_SHORT("device.info");
  describe(out_info, 0);
  return ISO_OK;
}

static void close_device(iso_device *device) { free(device); }

/* ---- Memory -------------------------------------------------------------------------------- */

static iso_status allocate(iso_device *device, iso_memory_kind kind, uint64_t bytes,
                           iso_buffer **out_buffer) {
  (void)device, (void)kind;
  MAY_FALL_SHORT("memory.alloc");
  iso_buffer *buffer = calloc(1, sizeof *buffer);
  char *data = calloc(1, bytes);
  if (!buffer || !data) {
    free(buffer);
    free(data);
    return iso_backend_fail(host, ISO_ERROR_OUT_OF_MEMORY, "no memory");
  }
  buffer->data = data;
  *out_buffer = buffer;
  return ISO_OK;
}

static void release(iso_device *device, iso_buffer *buffer) {
  (void)device;
  free(buffer->data);
  free(buffer);
}

static iso_status map(iso_device *device, iso_buffer *buffer, void **out_address) {
  (void)device;
  MAY_FALL_SHORT("memory.map");
  *out_address = buffer->data;
  return ISO_OK;
}

static iso_status import(iso_device *device, const void *address, uint64_t bytes,
                         iso_buffer **out_buffer) {
  (void)device, (void)address, (void)bytes, (void)out_buffer;
  return iso_backend_fail(host, ISO_ERROR_UNSUPPORTED, "no imports");
}

static iso_status bytes_free(iso_device *device, uint64_t *out_bytes) {
  (void)device;
  MAY_FALL_SHORT("memory.bytes_free");
  *out_bytes = 1 << 19;
  return ISO_OK;
}

/* ---- Queue --------------------------------------------------------------------------------- */

static iso_status create_queue(iso_device *device, iso_queue **out_queue) {
  (void)device;
  MAY_FALL_SHORT("queue.create");
  *out_queue = calloc(1, sizeof **out_queue);
  return *out_queue ? ISO_OK : ISO_ERROR_OUT_OF_MEMORY;
}

static void destroy_queue(iso_queue *queue) { free(queue); }

static iso_status copy(iso_queue *queue, iso_buffer *target, uint64_t target_offset,
                       iso_buffer *source, uint64_t source_offset, uint64_t bytes) {
  (void)queue;
  memcpy(target->data + target_offset, source->data + source_offset, bytes);
  return ISO_OK;
}

static iso_status fill(iso_queue *queue, iso_buffer *target, uint64_t offset, uint64_t bytes,
                       uint8_t value) {
  (void)queue;
  memset(target->data + offset, value, bytes);
  return ISO_OK;
}

static iso_status signal_value(iso_queue *queue, uint64_t *out_value) {
  MAY_FALL_SHORT("queue.signal");
  *out_value = ++queue->signalled;
  return ISO_OK;
}

static iso_status host_wait(iso_queue *queue, uint64_t value, uint64_t timeout_us) {
  (void)timeout_us;
  MAY_FALL_SHORT("queue.host_wait");
  return value <= queue->signalled
             ? ISO_OK
             : iso_backend_fail(host, ISO_ERROR_INTERNAL, "a wait for what nobody signalled");
}

static iso_status wait_for(iso_queue *queue, iso_queue *other, uint64_t value) {
  (void)queue;
  return host_wait(other, value, 0);
}

static iso_status record_begin(iso_queue *queue) {
  (void)queue;
  return ISO_OK;
}
static iso_status record_end(iso_queue *queue, void **out_recording) {
  (void)queue;
  *out_recording = NULL;
  return ISO_OK;
}
static iso_status replay(iso_queue *queue, void *recording) {
  (void)queue, (void)recording;
  return ISO_OK;
}
static void recording_destroy(iso_queue *queue, void *recording) { (void)queue, (void)recording; }

/* ---- Kernel -------------------------------------------------------------------------------- */

static iso_status launch_add(iso_queue *queue, const iso_op_arguments *arguments) {
  (void)queue;
  MAY_FALL_SHORT("launch");
  const iso_tensor *a = &arguments->inputs[0], *b = &arguments->inputs[1],
                   *y = &arguments->outputs[0];
  for (int64_t i = 0; i < y->dims[0] * y->dims[1]; i++)
    ((float *)(void *)(y->buffer->data + y->offset))[i] =
        ((const float *)(const void *)(a->buffer->data + a->offset))[i] +
        ((const float *)(const void *)(b->buffer->data + b->offset))[i];
  return ISO_OK;
}

static iso_status packed_bytes(const iso_device *device, const iso_host_weight *weight,
                               uint64_t *out_bytes) {
  (void)device;
  *out_bytes = weight->bytes;
  return ISO_OK;
}

static iso_status pack(iso_queue *queue, const iso_host_weight *weight, iso_buffer *buffer,
                       uint64_t offset) {
  (void)queue;
  memcpy(buffer->data + offset, weight->data, weight->bytes);
  return ISO_OK;
}

/* ---- Entry --------------------------------------------------------------------------------- */

#define LAST(table, slot) (uint32_t)(offsetof(table, slot) + sizeof(((table *)0)->slot))

static void fill_tables(void) {
  bool newer = is_misfit("newer"), older = is_misfit("older");
  driver.known = (iso_driver_table){sizeof driver.known, enumerate, open_device};
  device_table.known = (iso_device_table){sizeof device_table.known, info_of, close_device};
  memory.known =
      (iso_memory_table){sizeof memory.known, allocate, release, map, import, bytes_free};
  queue_table.known = (iso_queue_table){sizeof queue_table.known,
                                        create_queue,
                                        destroy_queue,
                                        copy,
                                        fill,
                                        signal_value,
                                        host_wait,
                                        wait_for,
                                        record_begin,
                                        record_end,
                                        replay,
                                        recording_destroy};
  for (int i = 0; i < 3; i++)
    kernels[i].known = (iso_kernel){.size = newer ? sizeof kernels[i] : sizeof kernels[i].known,
                                    .op = ISO_OP_ADD,
                                    .name = "add.misfit",
                                    .schemes = ~UINT64_C(0),
                                    .activations = ISO_SCHEME_BIT(ISO_SCHEME_F32),
                                    .rank = i,
                                    .launch = launch_add};
  if (is_misfit("kernel.pack") || is_misfit("kernel.packed_bytes") || is_misfit("kernel.plain")) {
    kernels[2].known.packed_bytes = packed_bytes;
    kernels[2].known.pack = pack;
  }
  if (is_misfit("kernel.layout"))
    kernels[2].known.layout = 5;
  kernels[1].known.op = (iso_op)(ISO_OP_COUNT + 7 * newer);
  backend.known = (iso_backend){.size = sizeof backend.known,
                                .abi = ISO_ABI_VERSION,
                                .name = "misfit",
                                .driver = &driver.known,
                                .device = &device_table.known,
                                .memory = &memory.known,
                                .queue = &queue_table.known,
                                .kernels = &kernels[0].known,
                                .kernel_count = 3,
                                .kernel_stride = sizeof kernels[0]};
  if (newer) {
    backend.known.abi += 9;
    backend.known.size = sizeof backend;
    driver.known.size = sizeof driver;
    device_table.known.size = sizeof device_table;
    memory.known.size = sizeof memory;
    queue_table.known.size = sizeof queue_table;
    /* What an older host must not look at. */
    memset(backend.extra, 0xaa, sizeof backend.extra);
    memset(driver.extra, 0xaa, sizeof driver.extra);
    memset(device_table.extra, 0xaa, sizeof device_table.extra);
    memset(memory.extra, 0xaa, sizeof memory.extra);
    memset(queue_table.extra, 0xaa, sizeof queue_table.extra);
    for (int i = 0; i < 3; i++)
      memset(kernels[i].extra, 0xaa, sizeof kernels[i].extra);
  }
  if (older) {
    backend.known.size = LAST(iso_backend, kernel_stride);
    memory.known.size = LAST(iso_memory_table, map);
    queue_table.known.size = LAST(iso_queue_table, fill);
    /* What lies behind an older struct is not part of it. */
    memset(&backend.known.query_extension, 0xaa, sizeof backend.known.query_extension);
    memset(&memory.known.import, 0xaa, sizeof memory.known.import);
    memset(&queue_table.known.signal, 0xaa, sizeof queue_table.known.signal);
    memset(&queue_table.known.wait, 0xaa, sizeof queue_table.known.wait);
  }
  if (is_misfit("major"))
    backend.known.abi = (ISO_ABI_MAJOR + 1) << 16;
  if (is_misfit("name"))
    backend.known.name = "Mis:fit";
  if (is_misfit("kernel.size"))
    backend.known.kernel_stride = sizeof(iso_kernel) - 8;
}

/* Takes away what ISOMER_MISFIT names. */
static void drop_slot(void) {
#define DROP(text, place)                                                                          \
  if (is_misfit(text))                                                                             \
  memset(&place, 0, sizeof place)
  DROP("driver", backend.known.driver);
  DROP("device", backend.known.device);
  DROP("memory", backend.known.memory);
  DROP("queue", backend.known.queue);
  DROP("kernels", backend.known.kernels);
  DROP("stride", backend.known.kernel_stride);
  DROP("driver.enumerate", driver.known.enumerate);
  DROP("driver.open", driver.known.open);
  DROP("device.info", device_table.known.info);
  DROP("device.close", device_table.known.close);
  DROP("memory.alloc", memory.known.alloc);
  DROP("memory.free", memory.known.free);
  DROP("memory.map", memory.known.map);
  DROP("memory.import", memory.known.import);
  DROP("memory.bytes_free", memory.known.bytes_free);
  DROP("queue.create", queue_table.known.create);
  DROP("queue.destroy", queue_table.known.destroy);
  DROP("queue.copy", queue_table.known.copy);
  DROP("queue.fill", queue_table.known.fill);
  DROP("queue.signal", queue_table.known.signal);
  DROP("queue.host_wait", queue_table.known.host_wait);
  DROP("queue.wait", queue_table.known.wait);
  DROP("queue.record_begin", queue_table.known.record_begin);
  DROP("queue.record_end", queue_table.known.record_end);
  DROP("queue.replay", queue_table.known.replay);
  DROP("queue.recording_destroy", queue_table.known.recording_destroy);
  DROP("kernel.name", kernels[2].known.name);
  DROP("kernel.launch", kernels[2].known.launch);
  DROP("kernel.pack", kernels[2].known.pack);
  DROP("kernel.packed_bytes", kernels[2].known.packed_bytes);
#undef DROP
  if (is_misfit("timeline")) { /* a synchronous queue */
    queue_table.known.signal = NULL;
    queue_table.known.host_wait = NULL;
  }
}

ISO_BACKEND_EXPORT const iso_backend *iso_backend_query(uint32_t host_abi,
                                                        const iso_host *given_host);

ISO_BACKEND_EXPORT const iso_backend *iso_backend_query(uint32_t host_abi,
                                                        const iso_host *given_host) {
  (void)host_abi;
  host = given_host;
  if (is_misfit("silent"))
    return NULL;
  if (is_misfit("refuse")) {
    iso_backend_fail(host, ISO_ERROR_UNSUPPORTED, "this chip is not for you");
    return NULL;
  }
  fill_tables();
  drop_slot();
  return &backend.known;
}
