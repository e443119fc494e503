/* Which CPUs this process may use, and how they and their memory hang together. */
#ifndef ISOMER_BACKENDS_CPU_TOPOLOGY_H
#define ISOMER_BACKENDS_CPU_TOPOLOGY_H

#include <isomer/status.h>

#include <stdint.h>

#define ISO_CPU_MAX_THREADS 1024u
/* CPU numbers are below this. */
#define ISO_CPU_MAX_CPUS 8192u

/* CPUs by number, in the order in which they were named. */
typedef struct iso_cpu_list {
  uint32_t count;
  uint16_t cpus[ISO_CPU_MAX_THREADS];
} iso_cpu_list;

/* Threads to use when nobody says: one a physical core that this thread may run on, within the
 * CPU quota of its control group and those above it. At least 1. `out_n_cpus` counts the logical
 * CPUs it may use. */
uint32_t iso_cpu_default_threads(uint32_t *out_n_cpus);

/* Reads "0-3,8". Refused: anything else, a CPU named twice or more than ISO_CPU_MAX_THREADS, and
 * a CPU that this process may not use. */
ISO_MUST_CHECK iso_status iso_cpu_list_read(const char *text, iso_cpu_list *out_list);

/* Keeps the calling thread, and those it starts later, to the CPUs of a list. */
ISO_MUST_CHECK iso_status iso_cpu_list_keep_to(const iso_cpu_list *list);

/* NUMA nodes that have a CPU on which the calling thread may run, a bit a node, of the first 64;
 * 0 where the system does not say. `system_root` is "/sys" outside of tests. */
uint64_t iso_cpu_memory_nodes(const char *system_root);

#endif
