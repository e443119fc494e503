/* Drawing a token from logits: the definitions that the `sample` op has on every device.
 *
 * Order: allowed tokens, penalties, temperature, top-k, top-p, min-p, draw. docs/sampling.md says
 * why each is defined as it is.
 *
 *  allowed      Tokens whose bit is clear, and logits that are NaN or -infinity, are out.
 *  penalties    For a token that occurs anywhere in the history: a positive logit is divided by
 *               repetition_penalty, another multiplied by it. Then frequency_penalty times the
 *               number of its occurrences in the output part of the history, and
 *               presence_penalty if that number is not 0, are subtracted.
 *  temperature  Logits are divided by it. At 0 the largest logit is the answer, the lowest token
 *               among equals, and nothing below happens. A logit of +infinity does the same.
 *  top-k        A token stays if fewer than k tokens have a larger logit.
 *  top-p        With p the softmax over those left: a token stays if the tokens of larger p have
 *               less than top_p together. The likeliest always stay.
 *  min-p        A token stays if p >= min_p times the largest p.
 *  draw         The token of largest logit + g wins, g = -log(-log(1 - v)) being Gumbel noise of
 *               its own (which draws it with probability p). v comes from w, word token % 4 of
 *               Philox4x32-10 with the seed as key and {token / 4, draw, 0, 0} as counter:
 *               v = (w >> 8) 2^-24 + ((w & 255) + 0.5) 2^-32 in f32, at most 1 - 2^-24.
 *
 * So a row's token depends on nothing but the row, its seed and its draw number: not on the batch
 * it is in, the order of sums or the device, save where two scores agree to the last digits. */
#ifndef ISOMER_OPS_SAMPLING_H
#define ISOMER_OPS_SAMPLING_H

#include <isomer/ops.h>

enum { ISO_SAMPLE_PARAMETER_COUNT = ISO_SAMPLE_RESERVED + 1 };

/* One row of the op; everything is borrowed. */
typedef struct iso_sample_row {
  const float *logits;
  int64_t n_logits;
  const float *parameters; /* ISO_SAMPLE_PARAMETER_COUNT, by iso_sample_parameter */
  uint64_t seed;
  uint32_t draw;          /* counts the tokens drawn with this seed */
  const int32_t *history; /* tokens so far, -1 where unused */
  int64_t n_history;
  int64_t output_start;    /* history[output_start ...] is output, what is before is prompt */
  const uint32_t *allowed; /* bit t % 32 of word t / 32 allows token t; NULL: all */
} iso_sample_row;

/* Scratch for one logit: a penalised copy, a weight, an entry of a selection, and a share of what
 * is kept a block of logits. */
typedef struct iso_sample_candidate {
  float words[5];
} iso_sample_candidate;

/* Draws a token; -1 when no token is left to choose from. `candidates` is scratch, n_logits long.
 * Takes time linear in n_logits, on average; the logits are read about once for a greedy choice and
 * about twenty times with top-p, without a logarithm or exponential of the library for most. Fails
 * with ISO_ERROR_INVALID_ARGUMENT on a parameter out of its range or a history token that is not
 * one. Thread safe. */
ISO_MUST_CHECK iso_status iso_sample_token(const iso_sample_row *row,
                                           iso_sample_candidate *candidates, int32_t *out_token);

/* Four random words: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011). */
void iso_philox(uint64_t key, const uint32_t counter[4], uint32_t out_words[4]);

#endif
