/* Inside of a runtime: what the engine needs beyond isomer/runtime.h. */
#ifndef ISOMER_ENGINE_RUNTIME_H
#define ISOMER_ENGINE_RUNTIME_H

#include <isomer/engine.h>

#include "engine/device_list.h"
#include "engine/kv_budget.h"

/* iso_runtime_create() with a pool of as many pages as the budget allows; options->n_pages is what
 * it may be at most, 0 for max_sequences full contexts. `budget` may be NULL. */
ISO_MUST_CHECK iso_status iso_runtime_create_within(const iso_model *model,
                                                    const iso_runtime_options *options,
                                                    const iso_kv_budget *budget,
                                                    iso_runtime **out_runtime);

/* iso_runtime_step() in two parts: a step whose results stay where they are, and the copies of
 * them to the host that somebody wants. */
ISO_MUST_CHECK iso_status iso_runtime_run(iso_runtime *runtime, const iso_batch_sequence *sequences,
                                          int32_t n_sequences);
ISO_MUST_CHECK iso_status iso_runtime_fetch_logits(iso_runtime *runtime);
ISO_MUST_CHECK iso_status iso_runtime_fetch_hidden(iso_runtime *runtime);
/* The final hidden state, after the last norm, behind logit row `row`: hidden_size floats, valid
 * until the next step. NULL before iso_runtime_fetch_hidden(). */
const float *iso_runtime_hidden(const iso_runtime *runtime, int32_t row);

const iso_device_list *iso_runtime_devices(const iso_runtime *runtime);

#endif
