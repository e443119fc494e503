#include "ops/sampling.h"
#include <float.h>
#include <inttypes.h>
#include <math.h>

void iso_philox(uint64_t key, const uint32_t counter[4], uint32_t out_words[4]) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)0xD2511F53 * x0, b = (uint64_t)0xCD9E8D57 * x2;
    x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
    x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
    x1 = (uint32_t)b;
    x3 = (uint32_t)a;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  out_words[0] = x0;
  out_words[1] = x1;
  out_words[2] = x2;
  out_words[3] = x3;
}

/* Lies between -2.9 (v near 1) and 22.9 (v = 2^-33). */
static double gumbel(const iso_sample_row *row, int32_t token) {
  uint32_t counter[4] = {(uint32_t)token / 4, row->draw, 0, 0}, words[4];
  iso_philox(row->seed, counter, words);
  uint32_t word = words[token % 4];
  float v = (float)(word >> 8) * 0x1p-24f + ((float)(word & 255) + 0.5f) * 0x1p-32f;
  if (v > 1 - 0x1p-24f)
    v = 1 - 0x1p-24f;
  return -log(-log1p(-(double)v));
}

static const double LARGEST_GUMBEL = 22.9;

static iso_status check_parameters(const float *parameters) {
  static const struct {
    const char *name;
    double least, most;
  } ranges[ISO_SAMPLE_PARAMETER_COUNT] = {
      [ISO_SAMPLE_TEMPERATURE] = {"temperature", 0, FLT_MAX},
      [ISO_SAMPLE_TOP_K] = {"top_k", 0, FLT_MAX},
      [ISO_SAMPLE_TOP_P] = {"top_p", 0, 1},
      [ISO_SAMPLE_MIN_P] = {"min_p", 0, 1},
      [ISO_SAMPLE_REPETITION_PENALTY] = {"repetition_penalty", FLT_MIN, FLT_MAX},
      [ISO_SAMPLE_PRESENCE_PENALTY] = {"presence_penalty", -FLT_MAX, FLT_MAX},
      [ISO_SAMPLE_FREQUENCY_PENALTY] = {"frequency_penalty", -FLT_MAX, FLT_MAX},
      [ISO_SAMPLE_RESERVED] = {"the reserved parameter", 0, 0},
  };
  for (int i = 0; i < ISO_SAMPLE_PARAMETER_COUNT; i++)
    if (!(parameters[i] >= ranges[i].least && parameters[i] <= ranges[i].most))
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s is %g, must be %g to %g", ranges[i].name,
                      (double)parameters[i], ranges[i].least, ranges[i].most);
  return ISO_OK;
}

static bool has_penalties(const float *parameters) {
  return parameters[ISO_SAMPLE_REPETITION_PENALTY] != 1 ||
         parameters[ISO_SAMPLE_PRESENCE_PENALTY] != 0 ||
         parameters[ISO_SAMPLE_FREQUENCY_PENALTY] != 0;
}

static iso_status count_history(const iso_sample_row *row, iso_sample_candidate *candidates) {
  for (int64_t i = 0; i < row->n_history; i++) {
    int32_t token = row->history[i];
    if (token == -1)
      continue;
    if (token < 0 || token >= row->n_logits)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "history holds token %d, the vocabulary has %" PRId64, token, row->n_logits);
    candidates[token].in_history = true;
    candidates[token].n_output += i >= row->output_start;
  }
  return ISO_OK;
}

static double penalised(const float *parameters, const iso_sample_candidate *candidate) {
  double logit = candidate->score, repetition = parameters[ISO_SAMPLE_REPETITION_PENALTY];
  if (!candidate->in_history)
    return logit;
  logit = logit > 0 ? logit / repetition : logit * repetition;
  logit -= (double)parameters[ISO_SAMPLE_FREQUENCY_PENALTY] * candidate->n_output;
  return candidate->n_output > 0 ? logit - parameters[ISO_SAMPLE_PRESENCE_PENALTY] : logit;
}

/* Makes a candidate of every token that can be drawn; returns how many there are. */
static iso_status gather(const iso_sample_row *row, iso_sample_candidate *candidates,
                         int64_t *out_count) {
  for (int64_t token = 0; token < row->n_logits; token++)
    candidates[token] =
        (iso_sample_candidate){.score = row->logits[token], .token = (int32_t)token};
  if (has_penalties(row->parameters))
    ISO_TRY(count_history(row, candidates));
  int64_t count = 0;
  for (int64_t token = 0; token < row->n_logits; token++) {
    bool allowed = !row->allowed || (row->allowed[token / 32] >> (token % 32) & 1);
    if (!allowed || !(row->logits[token] > -INFINITY))
      continue;
    iso_sample_candidate candidate = candidates[token];
    candidate.score = penalised(row->parameters, &candidate);
    candidates[count++] = candidate;
  }
  *out_count = count;
  return ISO_OK;
}

/* The largest score, the lowest token among equals. */
static const iso_sample_candidate *likeliest(const iso_sample_candidate *candidates,
                                             int64_t count) {
  const iso_sample_candidate *best = candidates;
  for (int64_t i = 1; i < count; i++)
    if (candidates[i].score > best->score ||
        (candidates[i].score == best->score && candidates[i].token < best->token))
      best = &candidates[i];
  return best;
}

static void swap(iso_sample_candidate *a, iso_sample_candidate *b) {
  iso_sample_candidate saved = *a;
  *a = *b;
  *b = saved;
}

/* Keeps the candidates for which those of larger score weigh less than `limit` together, and
 * moves them to the front. Quickselect with three parts; `limit` is greater than 0. */
static int64_t keep_likeliest(iso_sample_candidate *candidates, int64_t count, double limit) {
  int64_t low = 0, high = count; /* those before `low` stay, those from `high` on go */
  double kept = 0;
  uint32_t random = 1;
  while (low < high && kept < limit) {
    random = random * 1664525u + 1013904223u;
    double pivot =
        candidates[low + (int64_t)((uint64_t)random * (uint64_t)(high - low) >> 32)].score;
    double above = 0, equal = 0;
    int64_t above_end = low, equal_end = low;
    for (int64_t i = low; i < high; i++) {
      if (candidates[i].score < pivot)
        continue;
      swap(&candidates[i], &candidates[equal_end]);
      if (candidates[equal_end].score == pivot) {
        equal += candidates[equal_end].weight;
      } else {
        above += candidates[equal_end].weight;
        swap(&candidates[equal_end], &candidates[above_end++]);
      }
      equal_end++;
    }
    if (kept + above >= limit) {
      high = above_end;
    } else {
      kept += above + equal;
      low = equal_end;
    }
  }
  return low;
}

static int64_t keep_top_k(iso_sample_candidate *candidates, int64_t count, double k) {
  if (k < 1 || k >= (double)count)
    return count;
  for (int64_t i = 0; i < count; i++)
    candidates[i].weight = 1;
  return keep_likeliest(candidates, count, floor(k));
}

static int64_t keep_top_p(iso_sample_candidate *candidates, int64_t count, double largest,
                          double top_p) {
  if (top_p >= 1)
    return count;
  double total = 0;
  for (int64_t i = 0; i < count; i++)
    total += candidates[i].weight = exp(candidates[i].score - largest);
  return keep_likeliest(candidates, count, fmax(top_p * total, DBL_MIN));
}

static int64_t keep_min_p(iso_sample_candidate *candidates, int64_t count, double largest,
                          double min_p) {
  if (min_p <= 0)
    return count;
  double least = largest + log(min_p);
  int64_t kept = 0;
  for (int64_t i = 0; i < count; i++)
    if (candidates[i].score >= least)
      swap(&candidates[i], &candidates[kept++]);
  return kept;
}

static int32_t draw(const iso_sample_row *row, const iso_sample_candidate *candidates,
                    int64_t count, int32_t first) {
  int32_t best_token = first;
  double best = -INFINITY;
  for (int64_t i = 0; i < count; i++)
    if (candidates[i].token == first)
      best = candidates[i].score + gumbel(row, first);
  for (int64_t i = 0; i < count; i++) {
    const iso_sample_candidate *candidate = &candidates[i];
    if (candidate->score + LARGEST_GUMBEL < best)
      continue;
    double score = candidate->score + gumbel(row, candidate->token);
    if (score > best || (score == best && candidate->token < best_token)) {
      best = score;
      best_token = candidate->token;
    }
  }
  return best_token;
}

iso_status iso_sample_token(const iso_sample_row *row, iso_sample_candidate *candidates,
                            int32_t *out_token) {
  const float *parameters = row->parameters;
  ISO_TRY(check_parameters(parameters));
  int64_t count;
  ISO_TRY(gather(row, candidates, &count));
  *out_token = -1;
  if (count == 0)
    return ISO_OK;
  iso_sample_candidate best = *likeliest(candidates, count);
  *out_token = best.token;
  double temperature = parameters[ISO_SAMPLE_TEMPERATURE];
  if (temperature == 0 || best.score == INFINITY)
    return ISO_OK;
  for (int64_t i = 0; i < count; i++)
    candidates[i].score /= temperature;
  double largest = best.score / temperature;
  count = keep_top_k(candidates, count, parameters[ISO_SAMPLE_TOP_K]);
  count = keep_top_p(candidates, count, largest, parameters[ISO_SAMPLE_TOP_P]);
  count = keep_min_p(candidates, count, largest, parameters[ISO_SAMPLE_MIN_P]);
  *out_token = draw(row, candidates, count, best.token);
  return ISO_OK;
}
