/* Host memory as device memory. */
#ifndef ISOMER_BACKENDS_CPU_MEMORY_H
#define ISOMER_BACKENDS_CPU_MEMORY_H

#include <isomer/backend.h>

extern const iso_memory_table iso_cpu_memory_table;

/* Frees what a device keeps of memory; after its buffers are gone. */
void iso_cpu_memory_close(iso_device *device);

/* Bytes of memory this process may use: the machine's, or its control group's limit. */
uint64_t iso_cpu_memory_total(void);
/* Bytes that could be allocated now without pushing the system or the control group over. */
uint64_t iso_cpu_memory_free(void);

#endif
