/* The plain product, for records that must fall back on it at launch: it takes all schemes, sizes,
 * strides and alignments, and needs no scratch. */
#ifndef ISOMER_SIMT_MATMUL_H
#define ISOMER_SIMT_MATMUL_H

#include <isomer/backend.h>

iso_status simt_matmul_plain(iso_queue *queue, const iso_op_arguments *arguments);

#endif
