/* `embedding` from a table in the packed layout. */
#ifndef ISOMER_BACKENDS_CPU_MATMUL_EMBEDDING_H
#define ISOMER_BACKENDS_CPU_MATMUL_EMBEDDING_H

#include <isomer/backend.h>

/* workspace() and launch() of `embedding`. */
uint64_t iso_packed_embedding_workspace(const iso_device *device,
                                        const iso_op_arguments *arguments);
iso_status iso_packed_embedding_launch(iso_queue *queue, const iso_op_arguments *arguments);

#endif
