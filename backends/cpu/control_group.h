/* Limits that control groups set this process: in a container, or as a service. */
#ifndef ISOMER_BACKENDS_CPU_CONTROL_GROUP_H
#define ISOMER_BACKENDS_CPU_CONTROL_GROUP_H

#include <stdint.h>

/* CPUs' worth of time granted, rounded up; UINT32_MAX without a limit. */
uint32_t iso_cpu_group_cpus(void);

/* Bytes of memory granted, and how many of them are not in use; UINT64_MAX without a limit. */
uint64_t iso_cpu_group_memory(void);
uint64_t iso_cpu_group_memory_free(void);

#endif
