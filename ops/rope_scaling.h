/* Rotary frequencies: the table that the `rope` op reads, with every scaling method worked in.
 *
 * The unscaled frequency of pair i is theta^(-2 i / rotary_dim) radians a position. Methods and
 * their defaults are those of Hugging Face transformers, which models are published for. */
#ifndef ISOMER_OPS_ROPE_SCALING_H
#define ISOMER_OPS_ROPE_SCALING_H

#include <isomer/model.h>

/* Computes rotary_dim / 2 frequencies and the magnitude that multiplies rotated elements.
 *
 * `context_length` is the longest sequence that will be run. DYNAMIC_NTK grows theta for it, where
 * original_context is the length that the model was trained for; LONGROPE takes the long factors
 * when it exceeds original_context and the short ones otherwise. Both are fixed for a whole
 * sequence, since cached keys cannot be rotated again. Other methods ignore it.
 *
 * beta_fast and beta_slow of 0 mean 32 and 1. ISO_ERROR_INVALID_ARGUMENT names the field that
 * cannot be. Pure and thread safe. */
ISO_MUST_CHECK iso_status iso_rope_frequencies(const iso_rope_config *config,
                                               int32_t context_length, float *out_frequencies,
                                               float *out_magnitude);

#endif
