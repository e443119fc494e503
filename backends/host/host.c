/* The host backend: every op on one thread of the host, by the reference of libisomer.
 *
 * It is slow and exact: conformance tests compare with it, devices that lack a kernel fall back
 * on it, and it is the template of new backends. All of a backend is here: what it says of itself,
 * memory, a queue, and kernel records. To start one, copy this folder, rename, and replace the
 * bodies; the CMakeLists.txt beside it builds the copy outside of the Isomer tree. */
#include <isomer/reference.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef HOST_BACKEND_NAME
#define HOST_BACKEND_NAME "host"
#endif

enum { ALIGNMENT = 64 };

struct iso_device {
  iso_device_info info;
};

struct iso_buffer {
  uint8_t *data;
  uint64_t bytes;
  bool imported; /* `data` belongs to the caller */
};

struct iso_queue {
  iso_device *device;
};

static const iso_host *host;

/* ---- Driver: what is there --------------------------------------------------------------------
 */

static iso_device_info describe(void) {
  iso_device_info info = {.size = sizeof info,
                          .kind = ISO_DEVICE_CPU,
                          .name = "Reference, one thread",
                          .id = HOST_BACKEND_NAME,
                          .alignment_bytes = ALIGNMENT,
                          .subgroup_width = 1,
                          .n_units = 1,
                          .features = ISO_FEATURE_HOST_MEMORY,
                          .copy_bytes_per_us = 10000.0f};
  snprintf(info.detail, sizeof info.detail, "libisomer %s", ISO_VERSION_STRING);
  info.memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  info.largest_allocation_bytes = info.memory_bytes;
  return info;
}

/* There always is one device. A driver that finds none says why in out_reason. */
static iso_status driver_enumerate(uint32_t capacity, iso_device_info *out_infos,
                                   uint32_t *out_count, char *out_reason) {
  out_reason[0] = 0;
  *out_count = 1;
  if (capacity > 0)
    out_infos[0] = describe();
  return ISO_OK;
}

static iso_status driver_open(uint32_t index, const iso_device_options *options,
                              iso_device **out_device) {
  (void)options;
  if (index != 0)
    return iso_backend_fail(host, ISO_ERROR_NOT_FOUND, "%s:%u: there is one device, %s:0",
                            HOST_BACKEND_NAME, index, HOST_BACKEND_NAME);
  iso_device *device = calloc(1, sizeof *device);
  if (!device)
    return iso_backend_fail(host, ISO_ERROR_OUT_OF_MEMORY, "a device needs %zu bytes",
                            sizeof *device);
  device->info = describe();
  *out_device = device;
  return ISO_OK;
}

static const iso_driver_table driver_table = {
    .size = sizeof driver_table, .enumerate = driver_enumerate, .open = driver_open};

/* ---- Device -----------------------------------------------------------------------------------
 */

static iso_status device_info(const iso_device *device, iso_device_info *out_info) {
  *out_info = device->info;
  return ISO_OK;
}

static void device_close(iso_device *device) { free(device); }

static const iso_device_table device_table = {
    .size = sizeof device_table, .info = device_info, .close = device_close};

/* ---- Memory ------------------------------------------------------------------------------------
 */

/* What caches would give back counts as free: the core refuses what does not fit in this. */
static iso_status memory_bytes_free(iso_device *device, uint64_t *out_bytes) {
  *out_bytes = device->info.memory_bytes;
  FILE *file = fopen("/proc/meminfo", "r");
  if (!file)
    return ISO_OK;
  char line[128];
  unsigned long long kib;
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
      *out_bytes = (uint64_t)kib << 10;
  fclose(file);
  return ISO_OK;
}

static iso_status memory_alloc(iso_device *device, iso_memory_kind kind, uint64_t bytes,
                               iso_buffer **out_buffer) {
  (void)kind;
  iso_buffer *buffer = calloc(1, sizeof *buffer);
  void *data = NULL;
  if (!buffer || bytes > device->info.memory_bytes ||
      posix_memalign(&data, ALIGNMENT, (size_t)bytes) != 0) {
    free(buffer);
    uint64_t available = 0;
    (void)memory_bytes_free(device, &available);
    return iso_backend_fail(host, ISO_ERROR_OUT_OF_MEMORY,
                            "a buffer of %llu bytes does not fit: %llu of %llu bytes are free",
                            (unsigned long long)bytes, (unsigned long long)available,
                            (unsigned long long)device->info.memory_bytes);
  }
  *buffer = (iso_buffer){.data = data, .bytes = bytes};
  *out_buffer = buffer;
  return ISO_OK;
}

static void memory_free(iso_device *device, iso_buffer *buffer) {
  (void)device;
  if (buffer && !buffer->imported)
    free(buffer->data);
  free(buffer);
}

static iso_status memory_map(iso_device *device, iso_buffer *buffer, void **out_address) {
  (void)device;
  *out_address = buffer->data;
  return ISO_OK;
}

static iso_status memory_import(iso_device *device, const void *address, uint64_t bytes,
                                iso_buffer **out_buffer) {
  (void)device;
  iso_buffer *buffer = calloc(1, sizeof *buffer);
  if (!buffer)
    return iso_backend_fail(host, ISO_ERROR_OUT_OF_MEMORY, "a buffer needs %zu bytes",
                            sizeof *buffer);
  *buffer = (iso_buffer){.data = (uint8_t *)(uintptr_t)address, .bytes = bytes, .imported = true};
  *out_buffer = buffer;
  return ISO_OK;
}

static const iso_memory_table memory_table = {.size = sizeof memory_table,
                                              .alloc = memory_alloc,
                                              .free = memory_free,
                                              .map = memory_map,
                                              .import = memory_import,
                                              .bytes_free = memory_bytes_free};

/* ---- Queue: everything is done when the call returns, so there is no timeline ------------------
 */

static iso_status queue_create(iso_device *device, iso_queue **out_queue) {
  iso_queue *queue = calloc(1, sizeof *queue);
  if (!queue)
    return iso_backend_fail(host, ISO_ERROR_OUT_OF_MEMORY, "a queue needs %zu bytes",
                            sizeof *queue);
  queue->device = device;
  *out_queue = queue;
  return ISO_OK;
}

static void queue_destroy(iso_queue *queue) { free(queue); }

static bool inside(const iso_buffer *buffer, uint64_t offset, uint64_t bytes) {
  return offset <= buffer->bytes && bytes <= buffer->bytes - offset;
}

static iso_status queue_copy(iso_queue *queue, iso_buffer *target, uint64_t target_offset,
                             iso_buffer *source, uint64_t source_offset, uint64_t bytes) {
  (void)queue;
  if (!inside(target, target_offset, bytes) || !inside(source, source_offset, bytes))
    return iso_backend_fail(host, ISO_ERROR_INVALID_ARGUMENT,
                            "a copy of %llu bytes leaves its buffers", (unsigned long long)bytes);
  memcpy(target->data + target_offset, source->data + source_offset, (size_t)bytes);
  return ISO_OK;
}

static iso_status queue_fill(iso_queue *queue, iso_buffer *target, uint64_t offset, uint64_t bytes,
                             uint8_t value) {
  (void)queue;
  if (!inside(target, offset, bytes))
    return iso_backend_fail(host, ISO_ERROR_INVALID_ARGUMENT,
                            "a fill of %llu bytes leaves its buffer", (unsigned long long)bytes);
  memset(target->data + offset, value, (size_t)bytes);
  return ISO_OK;
}

static const iso_queue_table queue_table = {.size = sizeof queue_table,
                                            .create = queue_create,
                                            .destroy = queue_destroy,
                                            .copy = queue_copy,
                                            .fill = queue_fill};

/* ---- Kernels
 * ------------------------------------------------------------------------------------- */

static void *address_of(const iso_tensor *tensor) {
  return tensor->n_dims > 0 && tensor->buffer ? tensor->buffer->data + tensor->offset : NULL;
}

/* One function serves every op. A backend with kernels of its own has one a record, which reads
 * its op's attributes as iso_<op>_attributes. */
static iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  (void)queue;
  const void *inputs[ISO_MAX_INPUTS] = {0};
  void *outputs[ISO_MAX_OUTPUTS] = {0};
  for (uint32_t i = 0; i < arguments->n_inputs && i < ISO_MAX_INPUTS; i++)
    inputs[i] = address_of(&arguments->inputs[i]);
  for (uint32_t i = 0; i < arguments->n_outputs && i < ISO_MAX_OUTPUTS; i++)
    outputs[i] = address_of(&arguments->outputs[i]);
  iso_status status = iso_reference_run(arguments, inputs, outputs);
  /* The sentence moves from libisomer to the host, which may be another copy of it. */
  return status == ISO_OK ? ISO_OK : iso_backend_fail(host, status, "%s", iso_status_message());
}

/* Support follows from these records: every op, every scheme, plain layout, no refusals. */
static const iso_kernel kernels[] = {
#define ISO_OP_BEGIN(op_name, OP_NAME, tolerance, summary)                                         \
  {.size = sizeof(iso_kernel),                                                                     \
   .op = ISO_OP_##OP_NAME,                                                                         \
   .name = #op_name ".reference",                                                                  \
   .schemes = ~(iso_scheme_mask)0,                                                                 \
   .activations = ~(iso_scheme_mask)0,                                                             \
   .layout = ISO_LAYOUT_PLAIN,                                                                     \
   .launch = launch},
#include <isomer/ops.def>
};

static const iso_backend backend = {.size = sizeof backend,
                                    .abi = ISO_ABI_VERSION,
                                    .name = HOST_BACKEND_NAME,
                                    .driver = &driver_table,
                                    .device = &device_table,
                                    .memory = &memory_table,
                                    .queue = &queue_table,
                                    .kernels = kernels,
                                    .kernel_count = sizeof kernels / sizeof kernels[0],
                                    .kernel_stride = sizeof kernels[0]};

/* The entry: under the name of the ABI in a library of its own, under its own name linked in. */
#ifdef HOST_BACKEND_LIBRARY
#define iso_host_backend_query iso_backend_query
ISO_BACKEND_EXPORT
#endif
const iso_backend *iso_host_backend_query(uint32_t host_abi, const iso_host *given_host);

const iso_backend *iso_host_backend_query(uint32_t host_abi, const iso_host *given_host) {
  if (host_abi >> 16 != ISO_ABI_MAJOR) {
    given_host->fail(ISO_ERROR_UNSUPPORTED, __FILE__, __LINE__,
                     HOST_BACKEND_NAME " speaks ABI %u, the host %u", ISO_ABI_MAJOR,
                     host_abi >> 16);
    return NULL;
  }
  if (host != given_host) /* devices of an earlier call read it */
    host = given_host;
  return &backend;
}
