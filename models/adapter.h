/* Inside of adapters: what graphs and weight providers use of them. */
#ifndef ISOMER_MODELS_ADAPTER_H
#define ISOMER_MODELS_ADAPTER_H

#include "models/model.h"

/* Weights of an adapted matrix are named like it, with these ends: [1 + n_adapters, rank, in] and
 * [1 + n_adapters, out, rank], f32, the first of each all zeros for rows without an adapter. */
#define ISO_ADAPTER_DOWN ".lora_a"
#define ISO_ADAPTER_UP ".lora_b"

/* Whether all are of this model, and not too many. */
ISO_MUST_CHECK iso_status iso_adapters_check(const iso_adapter *const *adapters, int32_t n_adapters,
                                             const iso_model *model);
/* The common rank of the adapters that change the matrix of this name ("blk.3.attn_q.weight"), to
 * which lower ones are padded with zeros; 0 when none does. */
int64_t iso_adapters_rank(const iso_adapter *const *adapters, int32_t n_adapters, const char *name);

/* Bytes of all weights of the adapters. */
uint64_t iso_adapters_bytes(const iso_adapter *const *adapters, int32_t n_adapters);

/* The bytes of one of the two weights, by its full name; malloc'ed and the caller's in
 * *out_values, to which *out_weight points. *out_is is false when the name is of neither. */
ISO_MUST_CHECK iso_status iso_adapters_weight(const iso_adapter *const *adapters,
                                              int32_t n_adapters, const char *name,
                                              iso_host_weight *out_weight, float **out_values,
                                              bool *out_is);

#endif
