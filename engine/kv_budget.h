/* How many pages the key-value cache gets. */
#ifndef ISOMER_ENGINE_KV_BUDGET_H
#define ISOMER_ENGINE_KV_BUDGET_H

#include <isomer/runtime.h>

#include "engine/device_list.h"

typedef struct iso_kv_budget {
  uint64_t bytes; /* of the pool over all devices; 0: by `share` */
  float share;    /* of the memory that weights leave free; 0: 0.9, of a CPU's memory 0.25 */
} iso_kv_budget;

/* Bytes of one page over all layers. The options are those in force: their kv_type is known. */
ISO_MUST_CHECK iso_status iso_kv_page_bytes(const iso_model *model,
                                            const iso_runtime_options *options,
                                            uint64_t *out_bytes);
/* Pages within the budget, at most options->n_pages. OUT_OF_MEMORY, with what is needed, free and
 * would fit, when they do not hold one full context. Weights are counted as their files have them;
 * the executor checks exactly what it is about to allocate. */
ISO_MUST_CHECK iso_status iso_kv_budget_pages(const iso_kv_budget *budget, const iso_model *model,
                                              const iso_runtime_options *options,
                                              const iso_device_list *devices, int32_t *out_pages);

#endif
