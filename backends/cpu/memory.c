#include "backends/cpu/memory.h"

#include "backends/cpu/control_group.h"
#include "backends/cpu/cpu.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
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

uint64_t iso_cpu_memory_total(void) {
  uint64_t machine = read_meminfo("MemTotal:"), group = iso_cpu_group_memory();
  return group < machine ? group : machine;
}

/* What a limit of the process (ulimit -v, as batch systems set it) leaves. */
static uint64_t address_space_free(void) {
  struct rlimit limit;
  unsigned long long pages = 0;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return UINT64_MAX;
  FILE *file = fopen("/proc/self/statm", "re");
  bool is_read = file && fscanf(file, "%llu", &pages) == 1;
  if (file)
    fclose(file);
  uint64_t used = pages * (uint64_t)sysconf(_SC_PAGESIZE);
  return !is_read ? UINT64_MAX : limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

uint64_t iso_cpu_memory_free(void) {
  uint64_t available = read_meminfo("MemAvailable:");
  const uint64_t limits[] = {iso_cpu_group_memory_free(), address_space_free()};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
    available = limits[i] < available ? limits[i] : available;
  return available;
}

/* ---- Buffers -------------------------------------------------------------------------------- */

/* Weights and caches are streamed, and 4 KiB pages halve the speed of that: each begins with a
 * TLB miss and a cold prefetcher. So all memory lies in huge pages. Buffers that would not fill a
 * few of them are cut from slabs, one after the other; a slab is freed with its last buffer. */
#define HUGE_PAGE (UINT64_C(2) << 20)
#define SLAB_BYTES (UINT64_C(32) << 20)
/* Sanitizers see the ends of allocations only. */
#if defined(__SANITIZE_ADDRESS__)
#define SLAB_BUFFER_BYTES UINT64_C(0)
#else
#define SLAB_BUFFER_BYTES (SLAB_BYTES / 4)
#endif

struct iso_cpu_slab {
  uint8_t *data;
  uint64_t used;
  uint32_t n_buffers;
};

/* Where the threads run on several NUMA nodes, every thread reads every weight: pages are dealt
 * out in turn, so that all memory controllers serve all threads. On one node, as with threads
 * kept to it, the system's own rule holds: memory lies where it is first touched. */
static void spread_over_nodes(iso_device *device, void *data, uint64_t bytes) {
  uint64_t nodes = device->memory_nodes;
  if (!(nodes & (nodes - 1)))
    return;
  if (syscall(SYS_mbind, data, bytes, MPOL_INTERLEAVE, &nodes, 64ul + 1, 0ul) == 0)
    return;
  device->memory_nodes = 0;
  iso_cpu_host->log(ISO_LOG_NOTICE, "cpu: memory is not spread over the NUMA nodes: %s",
                    strerror(errno));
}

static void *huge_alloc(iso_device *device, uint64_t bytes) {
  void *data = NULL;
  uint64_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : ISO_CPU_ALIGNMENT;
  if (bytes > SIZE_MAX - HUGE_PAGE || posix_memalign(&data, alignment, bytes) != 0)
    return NULL;
  if (alignment == HUGE_PAGE) {
    madvise(data, bytes, MADV_HUGEPAGE);
    spread_over_nodes(device, data, bytes);
  }
  return data;
}

static void slab_release(iso_device *device, iso_cpu_slab *slab) {
  if (slab == device->slab) {
    slab->used = 0;
    return;
  }
  free(slab->data);
  free(slab);
}

/* Makes a slab the one to cut from; the last one is freed with its buffers. */
static bool slab_renew(iso_device *device) {
  iso_cpu_slab *slab = calloc(1, sizeof *slab), *last = device->slab;
  if (slab)
    slab->data = huge_alloc(device, SLAB_BYTES);
  if (!slab || !slab->data) {
    free(slab);
    return false;
  }
  device->slab = slab;
  if (last && last->n_buffers == 0)
    slab_release(device, last);
  return true;
}

static void slab_alloc(iso_device *device, iso_buffer *buffer) {
  uint64_t bytes = (buffer->bytes + ISO_CPU_ALIGNMENT - 1) / ISO_CPU_ALIGNMENT * ISO_CPU_ALIGNMENT;
  pthread_mutex_lock(&device->slab_lock);
  if ((device->slab && bytes <= SLAB_BYTES - device->slab->used) || slab_renew(device)) {
    buffer->slab = device->slab;
    buffer->data = buffer->slab->data + buffer->slab->used;
    buffer->slab->used += bytes;
    buffer->slab->n_buffers++;
  }
  pthread_mutex_unlock(&device->slab_lock);
}

void iso_cpu_memory_close(iso_device *device) {
  if (device->slab)
    free(device->slab->data);
  free(device->slab);
}

/* Linux grants memory it does not have and kills whoever touches it, so the sizes are compared
 * first. */
static iso_status memory_alloc(iso_device *device, iso_memory_kind kind, uint64_t bytes,
                               iso_buffer **out_buffer) {
  (void)kind;
  uint64_t available = iso_cpu_memory_free();
  iso_buffer *buffer = calloc(1, sizeof *buffer);
  if (buffer && bytes <= available) {
    buffer->bytes = bytes ? bytes : 1;
    if (buffer->bytes <= SLAB_BUFFER_BYTES)
      slab_alloc(device, buffer);
    if (!buffer->data) /* also where there is no room for another slab */
      buffer->data = huge_alloc(device, buffer->bytes);
  }
  if (!buffer || !buffer->data) {
    free(buffer);
    return iso_cpu_fail(ISO_ERROR_OUT_OF_MEMORY,
                        "a buffer of %llu bytes does not fit: %llu bytes of host memory are free",
                        (unsigned long long)bytes, (unsigned long long)available);
  }
  *out_buffer = buffer;
  return ISO_OK;
}

static void memory_free(iso_device *device, iso_buffer *buffer) {
  if (buffer && buffer->slab) {
    pthread_mutex_lock(&device->slab_lock);
    if (--buffer->slab->n_buffers == 0)
      slab_release(device, buffer->slab);
    pthread_mutex_unlock(&device->slab_lock);
  } else if (buffer && !buffer->imported) {
    free(buffer->data);
  }
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
