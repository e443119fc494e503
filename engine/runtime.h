/* Inside of a runtime: what the engine needs beyond isomer/runtime.h. */
#ifndef ISOMER_ENGINE_RUNTIME_H
#define ISOMER_ENGINE_RUNTIME_H

#include <isomer/engine.h>

#include "engine/device_list.h"
#include "engine/kv_budget.h"

/* Rows of a step that suit any device, where nobody says another number. */
enum { ISO_DEFAULT_STEP_ROWS = 512 };

/* iso_runtime_create() with a pool of as many pages as the budget allows; options->n_pages is what
 * it may be at most, 0 for max_sequences full contexts. `budget` may be NULL. Steps draw tokens
 * wherever the device has a kernel for that, also where the host could look at the logits. */
ISO_MUST_CHECK iso_status iso_runtime_create_within(const iso_model *model,
                                                    const iso_runtime_options *options,
                                                    const iso_kv_budget *budget,
                                                    iso_runtime **out_runtime);

/* iso_runtime_step() in two parts: a step whose results stay where they are, and the copies of
 * them to the host that somebody wants. */
ISO_MUST_CHECK iso_status iso_runtime_run(iso_runtime *runtime, const iso_batch_sequence *sequences,
                                          int32_t n_sequences);
/* iso_runtime_run() in two parts. Where iso_runtime_overlaps(), a step may be submitted while the
 * one before is under way; steps are waited for in order. Logits and hidden states are to be had of
 * a step only while no later one has been submitted, but for the rows that
 * iso_runtime_keep_logits() asked for. `drawn_rows` (NULL: none): where entry i is not negative,
 * the first token of sequence i is the one that the step submitted before draws behind that logit
 * row; what `tokens` says is not read by the device. */
bool iso_runtime_overlaps(const iso_runtime *runtime);
ISO_MUST_CHECK iso_status iso_runtime_submit(iso_runtime *runtime,
                                             const iso_batch_sequence *sequences,
                                             const int32_t *drawn_rows, int32_t n_sequences);
/* Has the step submitted last bring these logit rows, in ascending order, to the host;
 * iso_runtime_logits() has them from the moment when it has been waited for until the next wait. */
ISO_MUST_CHECK iso_status iso_runtime_keep_logits(iso_runtime *runtime, const int32_t *rows,
                                                  int32_t n_rows);
ISO_MUST_CHECK iso_status iso_runtime_wait(iso_runtime *runtime);
/* Whether iso_runtime_wait() would return at once. */
bool iso_runtime_is_done(iso_runtime *runtime);
ISO_MUST_CHECK iso_status iso_runtime_fetch_logits(iso_runtime *runtime);
ISO_MUST_CHECK iso_status iso_runtime_fetch_hidden(iso_runtime *runtime);
/* The final hidden state, after the last norm, of token row `row` of the step, which has those of
 * its sequences one after another: hidden_size floats, valid until the next step. NULL before
 * iso_runtime_fetch_hidden(). */
const float *iso_runtime_hidden(const iso_runtime *runtime, int32_t row);

/* Whether steps draw a token of every logit row on the device, so that the rows can stay there. */
bool iso_runtime_samples(const iso_runtime *runtime);
/* How the token of logit row `row` is drawn from the next step on; greedily until then. Penalties
 * must be off. `parameters` are ISO_SAMPLE_PARAMETER_COUNT, by iso_sample_parameter. */
void iso_runtime_set_sampling(iso_runtime *runtime, int32_t row, const float *parameters,
                              uint64_t seed, uint32_t draw);
/* The token of logit row `row` of the step waited for last; -1 when the row has no finite logit, or
 * steps draw none. */
int32_t iso_runtime_token(const iso_runtime *runtime, int32_t row);

const iso_device_list *iso_runtime_devices(const iso_runtime *runtime);

#endif
