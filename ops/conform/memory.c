/* Memory, copies, fills and the timeline of a device, at sizes and offsets that are not round. */
#include "core/backend_call.h"
#include "core/device.h"
#include "ops/conform/conform.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_BYTES = 70001 };

/* Byte i of pattern number `which`. */
static uint8_t pattern(uint64_t i, uint32_t which) {
  return (uint8_t)((i * 0x9E3779B97F4A7C15 >> 40) + which * 37);
}

static void fill_pattern(uint8_t *bytes, uint64_t n, uint32_t which) {
  for (uint64_t i = 0; i < n; i++)
    bytes[i] = pattern(i, which);
}

/* Compares a device buffer with what the host thinks is in it. */
static iso_status expect(iso_open_device *device, iso_buffer *buffer, const uint8_t *wanted,
                         const char *after) {
  uint8_t *bytes = malloc(SMALL_BYTES);
  if (!bytes)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory to check memory");
  iso_status status = iso_device_download(device, buffer, 0, bytes, SMALL_BYTES);
  for (uint64_t i = 0; i < SMALL_BYTES && status == ISO_OK; i++)
    if (bytes[i] != wanted[i])
      status = iso_fail(ISO_ERROR_DEVICE, "after %s byte %" PRIu64 " is %u, wanted %u", after, i,
                        bytes[i], wanted[i]);
  free(bytes);
  return status;
}

static const struct {
  uint64_t target, source, bytes;
} regions[] = {
    {0, 0, 1},     {1, 3, 5},          {4095, 1, 4097}, {63, 64, 65}, {SMALL_BYTES - 1, 0, 1},
    {7, 9, 60001}, {0, 0, SMALL_BYTES}};

enum { N_REGIONS = sizeof regions / sizeof regions[0] };

/* `one` and `two` hold the patterns 1 and 2 on the host; `buffers` are on the device. */
static iso_status check_regions(iso_open_device *device, iso_buffer *const *buffers, uint8_t *one,
                                uint8_t *two) {
  ISO_TRY(iso_device_upload(device, buffers[0], 0, one, SMALL_BYTES));
  ISO_TRY(iso_device_upload(device, buffers[1], 0, two, SMALL_BYTES));
  ISO_TRY(expect(device, buffers[0], one, "an upload"));
  for (uint32_t i = 0; i < N_REGIONS; i++) {
    uint64_t target = regions[i].target, source = regions[i].source, bytes = regions[i].bytes;
    ISO_TRY(iso_device_copy(device, buffers[0], target, buffers[1], source, bytes));
    ISO_TRY(iso_device_drain(device));
    memcpy(one + target, two + source, (size_t)bytes);
    ISO_TRY(expect(device, buffers[0], one, "a copy"));
    ISO_TRY(iso_device_fill(device, buffers[0], target, bytes, (uint8_t)(200 + i)));
    ISO_TRY(iso_device_drain(device));
    memset(one + target, (int)(200 + i), (size_t)bytes);
    ISO_TRY(expect(device, buffers[0], one, "a fill"));
    fill_pattern(one + target, bytes, i);
    ISO_TRY(iso_device_upload(device, buffers[0], target, one + target, bytes));
    ISO_TRY(expect(device, buffers[0], one, "an upload into the middle"));
  }
  return expect(device, buffers[1], two, "being read");
}

/* Two copies in a row, the second of what the first brought: the queue keeps order. */
static iso_status check_order(iso_open_device *device, iso_buffer *const *buffers, uint8_t *one,
                              const uint8_t *two) {
  for (int i = 0; i < 20; i++) {
    ISO_TRY(iso_device_copy(device, buffers[2], 0, buffers[1], 0, SMALL_BYTES));
    ISO_TRY(iso_device_copy(device, buffers[0], 0, buffers[2], 0, SMALL_BYTES));
    ISO_TRY(iso_device_fill(device, buffers[2], 0, SMALL_BYTES, 0));
  }
  ISO_TRY(iso_device_drain(device));
  memcpy(one, two, SMALL_BYTES);
  return expect(device, buffers[0], one, "copies in a row");
}

static iso_status check_timeline(iso_open_device *device) {
  uint64_t last = 0, value;
  for (int i = 0; i < 10; i++) {
    ISO_TRY(iso_device_signal(device, &value));
    if (value <= last)
      return iso_fail(ISO_ERROR_DEVICE, "the timeline goes from %" PRIu64 " to %" PRIu64, last,
                      value);
    last = value;
  }
  ISO_TRY(iso_device_wait(device, last, UINT64_MAX));
  return iso_device_wait(device, last - 3, UINT64_MAX); /* already reached */
}

/* More than any device has: refused with a sentence, and the device goes on. */
static iso_status check_refusal(iso_open_device *device) {
  iso_buffer *buffer;
  uint64_t bytes = UINT64_C(1) << 60;
  iso_status status = iso_device_alloc(device, ISO_MEMORY_DEVICE, bytes, &buffer);
  if (status == ISO_ERROR_OUT_OF_MEMORY)
    return ISO_OK;
  if (status == ISO_OK)
    device->memory.free(device->device, buffer);
  return iso_fail(ISO_ERROR_DEVICE, "asked for %" PRIu64 " bytes, the device says \"%s\"", bytes,
                  status == ISO_OK ? "ok" : iso_status_message());
}

static iso_status check_small(iso_open_device *device, iso_buffer **buffers, uint8_t *one,
                              uint8_t *two) {
  static const iso_memory_kind kinds[] = {ISO_MEMORY_DEVICE, ISO_MEMORY_DEVICE, ISO_MEMORY_STAGING};
  for (int i = 0; i < 3; i++)
    ISO_TRY(iso_device_alloc(device, kinds[i], SMALL_BYTES, &buffers[i]));
  void *address = NULL;
  ISO_TRY(iso_device_address(device, buffers[2], &address));
  if ((uintptr_t)address % device->info.alignment_bytes != 0)
    return iso_fail(ISO_ERROR_DEVICE, "a mapped buffer starts at %p, not at a multiple of %u",
                    address, device->info.alignment_bytes);
  fill_pattern(one, SMALL_BYTES, 1);
  fill_pattern(two, SMALL_BYTES, 2);
  ISO_TRY(check_regions(device, buffers, one, two));
  ISO_TRY(check_order(device, buffers, one, two));
  ISO_TRY(check_timeline(device));
  return check_refusal(device);
}

/* Offsets beyond 2^32 must not wrap: each place holds a pattern of its own. */
static iso_status check_places(iso_open_device *device, iso_buffer *buffer) {
  static const uint64_t places[] = {0, (UINT64_C(1) << 31) - 50, (UINT64_C(1) << 32) - 99};
  enum { N_PLACES = sizeof places / sizeof places[0], BYTES = 100 };
  uint8_t wanted[BYTES], got[BYTES];
  for (uint32_t i = 0; i < N_PLACES; i++) {
    fill_pattern(wanted, BYTES, i);
    ISO_TRY(iso_device_upload(device, buffer, places[i], wanted, BYTES));
  }
  for (uint32_t i = 0; i < N_PLACES; i++) {
    fill_pattern(wanted, BYTES, i);
    ISO_TRY(iso_device_download(device, buffer, places[i], got, BYTES));
    if (memcmp(got, wanted, BYTES) != 0)
      return iso_fail(ISO_ERROR_DEVICE, "bytes at offset %" PRIu64 " of a large buffer changed",
                      places[i]);
  }
  /* A copy and a fill that end at the last byte, past 2^32. */
  ISO_TRY(iso_device_copy(device, buffer, places[2], buffer, 0, BYTES));
  ISO_TRY(iso_device_fill(device, buffer, UINT64_C(1) << 32, 1, 77));
  ISO_TRY(iso_device_drain(device));
  fill_pattern(wanted, BYTES, 0);
  wanted[BYTES - 1] = 77;
  ISO_TRY(iso_device_download(device, buffer, places[2], got, BYTES));
  if (memcmp(got, wanted, BYTES) != 0)
    return iso_fail(ISO_ERROR_DEVICE, "a copy or fill past offset 2^32 went elsewhere");
  return ISO_OK;
}

iso_status iso_conform_large_memory(iso_open_device *device) {
  const uint64_t bytes = (UINT64_C(1) << 32) + 1;
  iso_buffer *buffer;
  ISO_TRY(iso_device_alloc(device, ISO_MEMORY_DEVICE, bytes, &buffer));
  iso_status status = check_places(device, buffer);
  if (status != ISO_OK)
    iso_device_revive(device);
  device->memory.free(device->device, buffer);
  return status;
}

iso_status iso_conform_memory(iso_open_device *device) {
  iso_buffer *buffers[3] = {0};
  uint8_t *one = malloc(SMALL_BYTES), *two = malloc(SMALL_BYTES);
  iso_status status = one && two ? check_small(device, buffers, one, two)
                                 : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory");
  free(one);
  free(two);
  if (status != ISO_OK)
    iso_device_revive(device);
  for (int i = 0; i < 3; i++)
    if (buffers[i])
      device->memory.free(device->device, buffers[i]);
  return status;
}
