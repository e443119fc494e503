/* The product that takes every scheme on every CPU, in layout PLAIN. */
#ifndef ISOMER_BACKENDS_CPU_MATMUL_GENERIC_H
#define ISOMER_BACKENDS_CPU_MATMUL_GENERIC_H

#include <isomer/backend.h>

/* workspace() and launch() of `matmul`. */
uint64_t iso_generic_matmul_workspace(const iso_device *device, const iso_op_arguments *arguments);
iso_status iso_generic_matmul_launch(iso_queue *queue, const iso_op_arguments *arguments);

#endif
