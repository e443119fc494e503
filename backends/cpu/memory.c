#include "backends/cpu/memory.h"

#include "backends/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- How much there is ---------------------------------------------------------------------- */

/* Reads "name: <kibibytes> kB" from /proc/meminfo; 0 when absent. */
static uint64_t read_meminfo(const char *name) {
  FILE *file = fopen("/proc/meminfo", "re");
  char line[128];
  unsigned long long kibibytes = 0;
  size_t length = strlen(name);
  while (file && fgets(line, sizeof line, file))
    if (strncmp(line, name, length) == 0 && sscanf(line + length, " %llu", &kibibytes) == 1)
      break;
  if (file)
    fclose(file);
  return (uint64_t)kibibytes * 1024;
}

/* A number in a control-group file; UINT64_MAX when the file is absent or says "max". */
static uint64_t read_group_number(const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/sys/fs/cgroup/%s", name);
  FILE *file = fopen(path, "re");
  unsigned long long value;
  bool found = file && fscanf(file, "%llu", &value) == 1;
  if (file)
    fclose(file);
  return found ? value : UINT64_MAX;
}

uint64_t iso_cpu_memory_total(void) {
  uint64_t machine = read_meminfo("MemTotal:"), group = read_group_number("memory.max");
  return group < machine ? group : machine;
}

uint64_t iso_cpu_memory_free(void) {
  uint64_t available = read_meminfo("MemAvailable:");
  uint64_t limit = read_group_number("memory.max"), used = read_group_number("memory.current");
  if (limit == UINT64_MAX || used == UINT64_MAX)
    return available;
  uint64_t group = limit > used ? limit - used : 0;
  return group < available ? group : available;
}

/* ---- Buffers ----------------------------------------------------------------------------------
 */

#define HUGE_PAGE (UINT64_C(2) << 20)

/* Linux grants memory it does not have and kills whoever touches it, so the sizes are compared
 * first. Large buffers start on a huge page: weights are streamed, and 4 KiB pages would miss the
 * TLB once every 4 KiB. */
static iso_status memory_alloc(iso_device *device, iso_memory_kind kind, uint64_t bytes,
                               iso_buffer **out_buffer) {
  (void)device;
  (void)kind;
  uint64_t available = iso_cpu_memory_free();
  uint64_t alignment = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : ISO_CPU_ALIGNMENT;
  iso_buffer *buffer = calloc(1, sizeof *buffer);
  void *data = NULL;
  if (!buffer || bytes > available || bytes > SIZE_MAX - alignment ||
      posix_memalign(&data, alignment, bytes ? bytes : 1) != 0) {
    free(buffer);
    return iso_cpu_fail(ISO_ERROR_OUT_OF_MEMORY,
                        "a buffer of %llu bytes does not fit: %llu bytes of host memory are free",
                        (unsigned long long)bytes, (unsigned long long)available);
  }
  if (alignment == HUGE_PAGE)
    madvise(data, bytes, MADV_HUGEPAGE);
  buffer->data = data;
  buffer->bytes = bytes;
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
    return iso_cpu_fail(ISO_ERROR_OUT_OF_MEMORY, "a buffer needs %zu bytes", sizeof *buffer);
  *buffer = (iso_buffer){.data = (uint8_t *)(uintptr_t)address, .bytes = bytes, .imported = true};
  *out_buffer = buffer;
  return ISO_OK;
}

static iso_status memory_bytes_free(iso_device *device, uint64_t *out_bytes) {
  (void)device;
  *out_bytes = iso_cpu_memory_free();
  return ISO_OK;
}

const iso_memory_table iso_cpu_memory_table = {
    .size = sizeof iso_cpu_memory_table,
    .alloc = memory_alloc,
    .free = memory_free,
    .map = memory_map,
    .import = memory_import,
    .bytes_free = memory_bytes_free,
};
