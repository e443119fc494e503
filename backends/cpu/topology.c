#include "backends/cpu/topology.h"

#include "backends/cpu/control_group.h"
#include "backends/cpu/cpu.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Sets of CPUs --------------------------------------------------------------------------- */

typedef union cpu_numbers {
  cpu_set_t set; /* the first of those that follow */
  uint8_t bytes[ISO_CPU_MAX_CPUS / 8];
} cpu_numbers;

static bool has_cpu(const cpu_numbers *numbers, uint32_t cpu) {
  return CPU_ISSET_S(cpu, sizeof *numbers, &numbers->set);
}

static void add_cpu(cpu_numbers *numbers, uint32_t cpu) {
  CPU_SET_S(cpu, sizeof *numbers, &numbers->set);
}

/* CPUs that the calling thread may run on; false where the system does not say. */
static bool get_allowed(cpu_numbers *out_allowed) {
  memset(out_allowed, 0, sizeof *out_allowed);
  return sched_getaffinity(0, sizeof *out_allowed, &out_allowed->set) == 0;
}

static bool next_number(const char **text, uint32_t *out_number) {
  char *end;
  if (!isdigit((unsigned char)**text))
    return false;
  unsigned long number = strtoul(*text, &end, 10);
  *text = end;
  *out_number = (uint32_t)number;
  return number < ISO_CPU_MAX_CPUS;
}

/* Reads a number or a range and the comma that leads to another; false at anything else. */
static bool next_range(const char **text, uint32_t *out_first, uint32_t *out_last) {
  if (!next_number(text, out_first))
    return false;
  *out_last = *out_first;
  if (**text == '-') {
    ++*text;
    if (!next_number(text, out_last) || *out_last < *out_first)
      return false;
  }
  if (**text != ',')
    return !**text || **text == '\n';
  ++*text;
  return isdigit((unsigned char)**text);
}

/* ---- How many threads ----------------------------------------------------------------------- */

/* Lowest CPU that shares a core with `cpu`, or `cpu` itself where the system does not say. */
static uint32_t first_sibling(uint32_t cpu) {
  char path[96];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
  FILE *file = fopen(path, "re");
  uint32_t first = cpu;
  if (file) {
    if (fscanf(file, "%u", &first) != 1 || first >= ISO_CPU_MAX_CPUS)
      first = cpu;
    fclose(file);
  }
  return first;
}

uint32_t iso_cpu_default_threads(uint32_t *out_n_cpus) {
  uint32_t n_cpus = 0, n_cores = 0;
  cpu_numbers allowed, seen = {.bytes = {0}};
  bool known = get_allowed(&allowed);
  for (uint32_t cpu = 0; known && cpu < ISO_CPU_MAX_CPUS; cpu++) {
    if (!has_cpu(&allowed, cpu))
      continue;
    n_cpus++;
    uint32_t core = first_sibling(cpu);
    n_cores += !has_cpu(&seen, core);
    add_cpu(&seen, core);
  }
  if (!n_cpus) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    n_cpus = n_cores = online > 0 ? (uint32_t)online : 1;
  }
  uint32_t quota = iso_cpu_group_cpus(), threads = n_cores < quota ? n_cores : quota;
  *out_n_cpus = n_cpus;
  return threads < 1 ? 1 : threads < ISO_CPU_MAX_THREADS ? threads : ISO_CPU_MAX_THREADS;
}

/* ---- A list of CPUs to use ------------------------------------------------------------------ */

static iso_status append_cpu(const cpu_numbers *allowed, uint32_t cpu, iso_cpu_list *list) {
  if (!has_cpu(allowed, cpu))
    return iso_cpu_fail(ISO_ERROR_INVALID_ARGUMENT,
                        "CPU %u is not there or not among those that this process may use "
                        "(Cpus_allowed_list in /proc/self/status)",
                        cpu);
  for (uint32_t i = 0; i < list->count; i++)
    if (list->cpus[i] == cpu)
      return iso_cpu_fail(ISO_ERROR_INVALID_ARGUMENT, "CPU %u is named twice", cpu);
  if (list->count == ISO_CPU_MAX_THREADS)
    return iso_cpu_fail(ISO_ERROR_LIMIT, "more than %u CPUs", ISO_CPU_MAX_THREADS);
  list->cpus[list->count++] = (uint16_t)cpu;
  return ISO_OK;
}

iso_status iso_cpu_list_read(const char *text, iso_cpu_list *out_list) {
  cpu_numbers allowed;
  if (!get_allowed(&allowed))
    return iso_cpu_fail(ISO_ERROR_UNSUPPORTED, "this system does not say which CPUs may be used");
  out_list->count = 0;
  const char *at = text;
  do {
    uint32_t cpu, last;
    if (!next_range(&at, &cpu, &last) || *at == '\n')
      return iso_cpu_fail(ISO_ERROR_INVALID_ARGUMENT,
                          "\"%.60s\" is not a list of CPUs such as 0-3,8", text);
    for (; cpu <= last; cpu++)
      ISO_TRY(append_cpu(&allowed, cpu, out_list));
  } while (*at);
  return ISO_OK;
}

iso_status iso_cpu_list_keep_to(const iso_cpu_list *list) {
  cpu_numbers numbers = {.bytes = {0}};
  for (uint32_t i = 0; i < list->count; i++)
    add_cpu(&numbers, list->cpus[i]);
  if (sched_setaffinity(0, sizeof numbers, &numbers.set) != 0)
    return iso_cpu_fail(ISO_ERROR_UNSUPPORTED, "the system does not keep this thread to %u CPUs",
                        list->count);
  return ISO_OK;
}

/* ---- Memory --------------------------------------------------------------------------------- */

static bool node_is_used(const char *system_root, uint32_t node, const cpu_numbers *allowed) {
  char path[256], text[4096];
  snprintf(path, sizeof path, "%s/devices/system/node/node%u/cpulist", system_root, node);
  FILE *file = fopen(path, "re");
  bool read = file && fgets(text, sizeof text, file), used = false;
  if (file)
    fclose(file);
  const char *at = text;
  uint32_t cpu, last;
  while (read && *at && *at != '\n' && next_range(&at, &cpu, &last))
    for (; cpu <= last; cpu++)
      used = used || has_cpu(allowed, cpu);
  return used;
}

uint64_t iso_cpu_memory_nodes(const char *system_root) {
  cpu_numbers allowed;
  uint64_t nodes = 0;
  if (!get_allowed(&allowed))
    return 0;
  for (uint32_t node = 0; node < 64; node++)
    if (node_is_used(system_root, node, &allowed))
      nodes |= UINT64_C(1) << node;
  return nodes;
}
