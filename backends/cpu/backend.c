/* The five tables of the CPU backend. */
#include "backends/cpu/cpu.h"
#include "backends/cpu/memory.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const iso_host *iso_cpu_host;

/* ---- Driver and device ---------------------------------------------------------------------- */

static uint32_t feature_bits(uint32_t features) {
  uint32_t bits = ISO_FEATURE_HOST_MEMORY;
  if (features & ISO_CPU_HAS_F16C)
    bits |= ISO_FEATURE_FP16;
  if (features & (ISO_CPU_HAS_AVX512_BF16 | ISO_CPU_HAS_AMX_BF16))
    bits |= ISO_FEATURE_BF16;
  if (features & ISO_CPU_HAS_AVX512_VNNI)
    bits |= ISO_FEATURE_INT8_DOT;
  if (features & ISO_CPU_HAS_AMX_TILE)
    bits |= ISO_FEATURE_MATRIX_UNIT;
  return bits;
}

/* Detects the machine, chooses the tier and describes the device, all but its threads. */
static iso_status describe(iso_device *out_device, bool *out_notice) {
  iso_cpu_machine machine;
  iso_cpu_tier highest;
  iso_device_info *info = &out_device->info;
  iso_cpu_machine_detect(&machine);
  *info = (iso_device_info){.size = sizeof *info, .kind = ISO_DEVICE_CPU, .id = "cpu"};
  ISO_TRY(iso_cpu_tier_choose(&machine, NULL, &highest, info->detail, out_notice));
  ISO_TRY(iso_cpu_tier_choose(&machine, getenv("ISOMER_CPU_ISA"), &out_device->tier, info->detail,
                              out_notice));
  out_device->is_lowered = out_device->tier < highest;
  out_device->cpu_features = iso_cpu_tier_features(&machine, out_device->tier);
  out_device->asks_ahead = machine.asks_ahead;
  /* A Zen 3 gains by it and a Zen 4, where AVX2 is a choice, loses: README.md. */
  out_device->asks_for_codes =
      out_device->tier == ISO_CPU_TIER_AVX2 && !(machine.features & ISO_CPU_HAS_AVX512F);
  snprintf(info->name, sizeof info->name, "%s (%s)", machine.brand,
           iso_cpu_tier_name(out_device->tier));
  info->memory_bytes = iso_cpu_memory_total();
  info->largest_allocation_bytes = info->memory_bytes;
  info->alignment_bytes = ISO_CPU_ALIGNMENT;
  info->subgroup_width = 1;
  info->features = feature_bits(out_device->cpu_features);
  info->copy_bytes_per_us = 10000.0f;
  return ISO_OK;
}

static iso_status driver_enumerate(uint32_t capacity, iso_device_info *out_infos,
                                   uint32_t *out_count, char *out_reason) {
  iso_device device = {0};
  uint32_t n_cpus;
  bool notice;
  out_reason[0] = '\0';
  ISO_TRY(describe(&device, &notice));
  device.info.n_units = iso_cpu_default_threads(&n_cpus);
  if (capacity)
    out_infos[0] = device.info;
  *out_count = 1;
  return ISO_OK;
}

/* A pool, a thread a CPU of `affinity` when that is given. */
static iso_status start_threads(uint32_t n_threads, const char *affinity, iso_cpu_pool **out_pool) {
  iso_cpu_list list;
  if (!affinity)
    return iso_cpu_pool_create(n_threads, out_pool);
  ISO_TRY(iso_cpu_list_read(affinity, &list));
  ISO_TRY(iso_cpu_list_keep_to(&list));
  ISO_TRY(iso_cpu_pool_create(n_threads ? n_threads : list.count, out_pool));
  iso_status status = iso_cpu_pool_pin(*out_pool, &list);
  if (status != ISO_OK)
    iso_cpu_pool_destroy(*out_pool);
  return status;
}

static iso_status driver_open(uint32_t index, const iso_device_options *options,
                              iso_device **out_device) {
  if (index != 0)
    return iso_cpu_fail(ISO_ERROR_NOT_FOUND, "cpu:%u: there is one CPU device, cpu:0", index);
  uint32_t n_threads = options ? options->n_threads : 0;
  const char *affinity = NULL;
  if (options && options->size > offsetof(iso_device_options, cpu_affinity))
    affinity = options->cpu_affinity;
  iso_device *device = calloc(1, sizeof *device);
  if (!device)
    return iso_cpu_fail(ISO_ERROR_OUT_OF_MEMORY, "the CPU device needs %zu bytes", sizeof *device);
  bool notice;
  iso_status status = describe(device, &notice);
  if (status == ISO_OK)
    status = start_threads(n_threads, affinity, &device->pool);
  if (status != ISO_OK) {
    free(device);
    return status;
  }
  pthread_mutex_init(&device->slab_lock, NULL);
  device->info.n_units = iso_cpu_pool_size(device->pool);
  device->memory_nodes = iso_cpu_memory_nodes("/sys");
  iso_cpu_host->log(notice ? ISO_LOG_NOTICE : ISO_LOG_DEBUG,
                    "cpu: %s, %s, %u threads%s%s, %d NUMA nodes", device->info.name,
                    device->info.detail, device->info.n_units, affinity ? " on CPUs " : "",
                    affinity ? affinity : "", __builtin_popcountll(device->memory_nodes));
  *out_device = device;
  return ISO_OK;
}

static iso_status device_info(const iso_device *device, iso_device_info *out_info) {
  *out_info = device->info;
  return ISO_OK;
}

static void device_close(iso_device *device) {
  iso_cpu_pool_destroy(device->pool);
  iso_cpu_memory_close(device);
  pthread_mutex_destroy(&device->slab_lock);
  free(device);
}

/* ---- Queue ---------------------------------------------------------------------------------- */

static iso_status queue_create(iso_device *device, iso_queue **out_queue) {
  iso_queue *queue = calloc(1, sizeof *queue);
  if (!queue)
    return iso_cpu_fail(ISO_ERROR_OUT_OF_MEMORY, "a CPU queue needs %zu bytes", sizeof *queue);
  queue->device = device;
  *out_queue = queue;
  return ISO_OK;
}

static void queue_destroy(iso_queue *queue) { free(queue); }

static iso_status queue_copy(iso_queue *queue, iso_buffer *target, uint64_t target_offset,
                             iso_buffer *source, uint64_t source_offset, uint64_t bytes) {
  (void)queue;
  memcpy(target->data + target_offset, source->data + source_offset, bytes);
  return ISO_OK;
}

static iso_status queue_fill(iso_queue *queue, iso_buffer *target, uint64_t offset, uint64_t bytes,
                             uint8_t value) {
  (void)queue;
  memset(target->data + offset, value, bytes);
  return ISO_OK;
}

/* ---- Tables --------------------------------------------------------------------------------- */

static const iso_driver_table driver_table = {sizeof driver_table, driver_enumerate, driver_open};
static const iso_device_table device_table = {sizeof device_table, device_info, device_close};
static const iso_queue_table queue_table = {
    .size = sizeof queue_table,
    .create = queue_create,
    .destroy = queue_destroy,
    .copy = queue_copy,
    .fill = queue_fill,
};

const iso_backend *iso_cpu_backend_query(uint32_t host_abi, const iso_host *host) {
  static iso_backend backend;
  if (host_abi >> 16 != ISO_ABI_MAJOR) {
    iso_backend_fail(host, ISO_ERROR_UNSUPPORTED, "cpu speaks backend ABI %u.%u, the host %u.%u",
                     ISO_ABI_MAJOR, ISO_ABI_MINOR, host_abi >> 16, host_abi & 0xffff);
    return NULL;
  }
  if (iso_cpu_host != host) /* devices of an earlier call read it */
    iso_cpu_host = host;
  backend = (iso_backend){.size = sizeof backend,
                          .abi = ISO_ABI_VERSION,
                          .name = "cpu",
                          .driver = &driver_table,
                          .device = &device_table,
                          .memory = &iso_cpu_memory_table,
                          .queue = &queue_table,
                          .kernel_stride = sizeof(iso_kernel)};
  backend.kernels = iso_cpu_kernels(&backend.kernel_count);
  return &backend;
}
