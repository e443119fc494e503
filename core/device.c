#include "core/backend_call.h"
#include "core/device.h"
#include "core/log.h"
#include "core/registry.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of one hop between host and a device whose memory cannot be mapped, and how many hops may
 * be on their way: while the device fetches one piece, the host fills the next. */
#define PIECE_BYTES (UINT64_C(4) << 20)
enum { PIECES = 3 };

/* Operands lie apart by this much, however small they are. */
#define ISO_MOST_ALIGNMENT (1u << 20)

typedef struct device_object {
  iso_open_device open; /* first: the public pointer is the object */
  struct device_object *next;
  iso_buffer *staging; /* NULL until first used */
  void *staging_address;
} device_object;

/* ---- Handles ----------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device_object *open_devices;

static void track(device_object *object) {
  pthread_mutex_lock(&lock);
  object->next = open_devices;
  open_devices = object;
  pthread_mutex_unlock(&lock);
}

static void untrack(device_object *object) {
  pthread_mutex_lock(&lock);
  for (device_object **at = &open_devices; *at; at = &(*at)->next)
    if (*at == object) {
      *at = object->next;
      break;
    }
  pthread_mutex_unlock(&lock);
}

/* The open device with this device handle or this queue; both must be unique while open. */
static iso_open_device *find(const iso_device *device, const iso_queue *queue) {
  pthread_mutex_lock(&lock);
  device_object *object = open_devices;
  while (object && !(device && object->open.device == device) &&
         !(queue && object->open.queue == queue))
    object = object->next;
  pthread_mutex_unlock(&lock);
  return object ? &object->open : NULL;
}

iso_status iso_device_info_of(const iso_device *device, iso_device_info *out_info) {
  const iso_open_device *open = find(device, NULL);
  if (!open)
    return iso_fail(ISO_ERROR_INTERNAL, "a device that is not open");
  *out_info = open->info;
  return ISO_OK;
}

iso_status iso_device_wait_for_queue(iso_queue *queue, uint64_t value) {
  iso_open_device *open = find(NULL, queue);
  if (!open)
    return iso_fail(ISO_ERROR_INTERNAL, "a queue of a device that is not open");
  return iso_device_wait(open, value, UINT64_MAX);
}

/* ---- Opening ----------------------------------------------------------------------------- */

iso_status iso_device_spec_parse(const char *spec, char out_name[32], uint32_t *out_index) {
  const char *colon = strchr(spec, ':');
  size_t length = colon ? (size_t)(colon - spec) : strlen(spec);
  const char *digits = colon ? colon + 1 : "0";
  size_t n_digits = strspn(digits, "0123456789");
  if (length == 0 || length >= 32 || n_digits == 0 || n_digits > 6 || digits[n_digits] != 0)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "\"%.80s\" is not a device: write a backend's name, or name:index as in cuda:0",
                    spec);
  memcpy(out_name, spec, length);
  out_name[length] = 0;
  *out_index = (uint32_t)strtoul(digits, NULL, 10);
  return ISO_OK;
}

/* Says why a device is not there, before the driver is asked to open it. One that is software is
 * only taken when its index is given: nobody wants it by mistake. */
static iso_status check_present(const iso_loaded_backend *backend, uint32_t index, bool is_given) {
  iso_device_info *infos;
  uint32_t count;
  char reason[256];
  ISO_TRY(iso_backend_enumerate(backend, &infos, &count, reason));
  bool is_software = !is_given && index < count && infos[index].features & ISO_FEATURE_SOFTWARE;
  char device[sizeof infos->name] = "";
  if (is_software)
    snprintf(device, sizeof device, "%s", infos[index].name);
  free(infos);
  const char *name = backend->backend.name;
  if (is_software)
    return iso_fail(ISO_ERROR_NOT_FOUND,
                    "%s has no device but a software one, %s; write %s:%u if that is wanted", name,
                    device, name, index);
  if (count == 0)
    return iso_fail(ISO_ERROR_NOT_FOUND, "%s has no device: %s", name,
                    *reason ? reason : "none was found");
  if (index >= count)
    return iso_fail(ISO_ERROR_NOT_FOUND, "%s:%u is not there; %s has %u device%s, %s:0%s", name,
                    index, name, count, count == 1 ? "" : "s", name, count == 1 ? "" : " and on");
  return ISO_OK;
}

/* Reads the facts into room enough for a newer backend's struct. */
static iso_status read_info(iso_open_device *open) {
  union {
    iso_device_info info;
    char room[ISO_ABI_ROOM];
  } raw = {.info = {.size = sizeof raw.info}};
  ISO_TRY(ISO_BACKEND_CALL(open->spec, "device.info",
                           open->device_table.info(open->device, &raw.info)));
  iso_abi_copy_info(&open->info, &raw);
  uint32_t alignment = open->info.alignment_bytes ? open->info.alignment_bytes : 1;
  if (alignment & (alignment - 1) || alignment > ISO_MOST_ALIGNMENT)
    return iso_fail(ISO_ERROR_DEVICE, "an alignment of %u bytes is not a power of two up to %u",
                    alignment, ISO_MOST_ALIGNMENT);
  open->info.alignment_bytes = alignment;
  return ISO_OK;
}

static iso_status open_device(const iso_loaded_backend *backend, uint32_t index,
                              const iso_device_options *options, iso_open_device *open) {
  iso_device_options defaults = {.size = sizeof defaults};
  open->backend = &backend->backend;
  open->driver = backend->driver;
  open->device_table = backend->device;
  open->memory = backend->memory;
  open->queue_table = backend->queue;
  open->kernels = backend->kernels;
  open->kernel_count = backend->backend.kernel_count;
  open->can_record = backend->can_record;
  ISO_TRY(ISO_BACKEND_CALL(open->spec, "driver.open",
                           open->driver.open(index, options ? options : &defaults, &open->device)));
  ISO_TRY(iso_backend_given(open->spec, "driver.open", open->device));
  ISO_TRY(read_info(open));
  ISO_TRY(ISO_BACKEND_CALL(open->spec, "queue.create",
                           open->queue_table.create(open->device, &open->queue)));
  return iso_backend_given(open->spec, "queue.create", open->queue);
}

iso_status iso_device_open(iso_registry *registry, const char *spec,
                           const iso_device_options *options, iso_open_device **out_device) {
  char name[32];
  uint32_t index = 0;
  const iso_loaded_backend *backend = NULL;
  ISO_TRY(iso_device_spec_parse(spec, name, &index));
  ISO_TRY(iso_registry_find(registry, name, &backend));
  ISO_TRY(check_present(backend, index, strchr(spec, ':') != NULL));
  device_object *object = calloc(1, sizeof *object);
  if (!object)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a device");
  snprintf(object->open.spec, sizeof object->open.spec, "%s", spec);
  iso_status status = open_device(backend, index, options, &object->open);
  track(object);
  if (status != ISO_OK) {
    iso_device_close(&object->open);
    return iso_fail_context(status, "%s does not start", spec);
  }
  iso_log(ISO_LOG_DEBUG, "%s is %s (%s)", spec, object->open.info.name, object->open.info.detail);
  *out_device = &object->open;
  return ISO_OK;
}

void iso_device_close(iso_open_device *device) {
  if (!device)
    return;
  device_object *object = (device_object *)device;
  untrack(object);
  if (object->staging)
    device->memory.free(device->device, object->staging);
  if (device->queue)
    device->queue_table.destroy(device->queue);
  if (device->device)
    device->device_table.close(device->device);
  free(object);
}

/* ---- Moving bytes ------------------------------------------------------------------------ */

iso_status iso_device_drain(iso_open_device *device) {
  uint64_t value;
  ISO_TRY(iso_device_signal(device, &value));
  return iso_device_wait(device, value, UINT64_MAX);
}

iso_status iso_device_settle(iso_open_device *device, iso_status status) {
  if (status == ISO_OK)
    return iso_device_drain(device);
  char message[1024];
  snprintf(message, sizeof message, "%s", iso_status_message());
  if (iso_device_drain(device) != ISO_OK)
    iso_log(ISO_LOG_DEBUG, "%s, after a failure: %s", device->spec, iso_status_message());
  return iso_fail(status, "%s", message);
}

void iso_device_revive(iso_open_device *device) {
  if (iso_device_drain(device) == ISO_OK)
    return;
  iso_queue *fresh = NULL, *spent = device->queue;
  iso_status status = ISO_BACKEND_CALL(device->spec, "queue.create",
                                       device->queue_table.create(device->device, &fresh));
  if (status == ISO_OK)
    status = iso_backend_given(device->spec, "queue.create", fresh);
  if (status != ISO_OK) {
    iso_log(ISO_LOG_DEBUG, "%s, after a fault: %s", device->spec, iso_status_message());
    return;
  }
  pthread_mutex_lock(&lock);
  device->queue = fresh;
  pthread_mutex_unlock(&lock);
  device->queue_table.destroy(spent);
}

void *iso_device_map(iso_open_device *device, iso_buffer *buffer) {
  void *address;
  if (!(device->info.features & ISO_FEATURE_HOST_MEMORY) ||
      iso_device_address(device, buffer, &address) != ISO_OK)
    return NULL;
  return address;
}

static iso_status make_staging(device_object *object) {
  if (object->staging)
    return ISO_OK;
  iso_open_device *open = &object->open;
  iso_buffer *buffer;
  ISO_TRY(
      iso_fail_context(iso_device_alloc(open, ISO_MEMORY_STAGING, PIECES * PIECE_BYTES, &buffer),
                       "%s for copies to and from the host", open->spec));
  iso_status status = iso_device_address(open, buffer, &object->staging_address);
  if (status != ISO_OK) {
    open->memory.free(open->device, buffer);
    return status;
  }
  object->staging = buffer;
  return ISO_OK;
}

iso_status iso_device_need_staging(iso_open_device *device) {
  bool mappable = device->info.features & ISO_FEATURE_HOST_MEMORY;
  return mappable ? ISO_OK : make_staging((device_object *)device);
}

/* One piece of a transfer and its place in the staging buffer, which they take in turn. */
typedef struct transfer {
  device_object *object;
  iso_buffer *buffer; /* of the device */
  uint64_t offset;
  uint64_t bytes;
} transfer;

static uint64_t piece_bytes(const transfer *t, uint64_t index) {
  uint64_t left = t->bytes - index * PIECE_BYTES;
  return left < PIECE_BYTES ? left : PIECE_BYTES;
}

static uint64_t piece_place(uint64_t index) { return index % PIECES * PIECE_BYTES; }

/* Enqueues the copy of a piece, to or from the device, and a signal behind it. */
static iso_status enqueue_piece(const transfer *t, uint64_t index, bool upload,
                                uint64_t *out_value) {
  iso_open_device *open = &t->object->open;
  uint64_t at = t->offset + index * PIECE_BYTES, place = piece_place(index);
  iso_buffer *staging = t->object->staging;
  ISO_TRY(upload ? iso_device_copy(open, t->buffer, at, staging, place, piece_bytes(t, index))
                 : iso_device_copy(open, staging, place, t->buffer, at, piece_bytes(t, index)));
  return iso_device_signal(open, out_value);
}

static iso_status wait_for_piece(const transfer *t, uint64_t value) {
  return iso_device_wait(&t->object->open, value, UINT64_MAX);
}

static iso_status upload_pieces(const transfer *t, const char *source) {
  uint64_t n = (t->bytes + PIECE_BYTES - 1) / PIECE_BYTES, values[PIECES] = {0};
  for (uint64_t i = 0; i < n; i++) {
    if (i >= PIECES)
      ISO_TRY(wait_for_piece(t, values[i % PIECES]));
    memcpy((char *)t->object->staging_address + piece_place(i), source + i * PIECE_BYTES,
           piece_bytes(t, i));
    ISO_TRY(enqueue_piece(t, i, true, &values[i % PIECES]));
  }
  return iso_device_drain(&t->object->open);
}

static iso_status download_pieces(const transfer *t, char *target) {
  uint64_t n = (t->bytes + PIECE_BYTES - 1) / PIECE_BYTES, values[PIECES] = {0};
  for (uint64_t i = 0; i < n + PIECES - 1; i++) {
    if (i < n)
      ISO_TRY(enqueue_piece(t, i, false, &values[i % PIECES]));
    if (i < PIECES - 1)
      continue;
    uint64_t done = i - (PIECES - 1);
    ISO_TRY(wait_for_piece(t, values[done % PIECES]));
    memcpy(target + done * PIECE_BYTES,
           (const char *)t->object->staging_address + piece_place(done), piece_bytes(t, done));
  }
  return ISO_OK;
}

/* The next transfer writes to the same staging memory, also after a failure of this one. */
static iso_status end_transfer(const transfer *t, iso_status status) {
  return status == ISO_OK ? ISO_OK : iso_device_settle(&t->object->open, status);
}

static iso_status upload_staged(const transfer *t, const char *source) {
  ISO_TRY(make_staging(t->object));
  return end_transfer(t, upload_pieces(t, source));
}

static iso_status download_staged(const transfer *t, char *target) {
  ISO_TRY(make_staging(t->object));
  return end_transfer(t, download_pieces(t, target));
}

iso_status iso_device_upload(iso_open_device *device, iso_buffer *target, uint64_t offset,
                             const void *source, uint64_t bytes) {
  if (bytes == 0)
    return ISO_OK;
  char *mapped = iso_device_map(device, target);
  if (!mapped)
    return upload_staged(&(transfer){(device_object *)device, target, offset, bytes}, source);
  ISO_TRY(iso_device_drain(device));
  memcpy(mapped + offset, source, bytes);
  return ISO_OK;
}

iso_status iso_device_download(iso_open_device *device, iso_buffer *source, uint64_t offset,
                               void *target, uint64_t bytes) {
  if (bytes == 0)
    return ISO_OK;
  const char *mapped = iso_device_map(device, source);
  if (!mapped)
    return download_staged(&(transfer){(device_object *)device, source, offset, bytes}, target);
  ISO_TRY(iso_device_drain(device));
  memcpy(target, mapped + offset, bytes);
  return ISO_OK;
}
