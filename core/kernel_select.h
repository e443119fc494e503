/* Walking kernel records: the one place that decides whether a record takes an op. */
#ifndef ISOMER_CORE_KERNEL_SELECT_H
#define ISOMER_CORE_KERNEL_SELECT_H

#include <isomer/plan.h>

/* Index of the op's WEIGHT operand, or -1. */
int32_t iso_op_weight_operand(iso_op op);

/* Whether a record takes these arguments. Its layout is taken as given: the caller sees to it
 * that the weight lies, or will lie, in it. *out_detail is set to the record's sentence, or NULL.
 * Pure and thread safe. */
iso_refusal iso_kernel_check(const iso_device *device, const iso_kernel *kernel,
                             const iso_op_arguments *arguments, const char **out_detail);

/* "no kernel", "scheme", ...: what was refused. */
const char *iso_refusal_name(iso_refusal refusal);

/* Writes "cuda:0: matmul.q4_0 refuses the shape: K is not a multiple of 64" for a refusal of
 * `kernel` (NULL for NO_KERNEL). */
void iso_refusal_describe(const char *device, iso_op op, const iso_kernel *kernel,
                          iso_refusal refusal, const char *detail, char *out_reason,
                          size_t capacity);

#endif
