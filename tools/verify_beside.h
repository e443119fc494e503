/* What a device computes for sequences beside each other, against what it computes for each of
 * them alone: steps as serving runs them, prompts in pieces beside sequences that decode. Nothing
 * looks into these steps, so ops are fused, recorded and run beside each other: faults of that do
 * not show op by op. */
#ifndef ISOMER_TOOLS_VERIFY_BESIDE_H
#define ISOMER_TOOLS_VERIFY_BESIDE_H

#include "tools/verify_compare.h"

enum { ISO_VERIFY_MOST_SEQUENCES = 128 };

/* Runs it all with the types that the device serves with where `options` name none, and fills
 * result->beside. `result` has the device's ops by themselves: the tolerance of a row of logits is
 * that of verify_compare.h, with the device as its own judge. */
ISO_MUST_CHECK iso_status iso_verify_run_beside(const iso_model *model, const iso_options *options,
                                                const char *device, const iso_verify_prompt *prompt,
                                                iso_verify_result *result);

#endif
