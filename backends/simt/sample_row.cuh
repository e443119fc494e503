/* One row that tokens are sampled from: what is asked for it, how far its tokens are from the
 * likeliest, and the best draw among some of them. */
#ifndef ISOMER_SIMT_SAMPLE_ROW_H
#define ISOMER_SIMT_SAMPLE_ROW_H

#include "backends/simt/sample_noise.cuh"
#include "backends/simt/simt.cuh"

namespace simt_sample {

enum {
  THREADS = 1024,
  SUBGROUPS = THREADS / SIMT_SUBGROUP,
  N_PARAMETERS = 8,
  MOST_LISTED = 2048,
  STRETCH = 4096,
  STRETCH_THREADS = 256,
  STRETCH_GROUPS = 64, /* of threads side by side, whose maxima bound top-k's list */
  DISTANCES = THREADS  /* buckets of distances to the likeliest token, up to REACH */
};
/* Gumbel noise lies between -2.9 and 22.9: scores this far below the largest are never drawn. */
constexpr double REACH = 25.9;
constexpr float PER_DISTANCE = (float)(REACH / (int)DISTANCES);
/* Weights in the histogram: shares of that of the nearest token of the bucket. All tokens of a
 * stretch may be in one. */
constexpr float SHARES = 0xffffffffu / STRETCH;
constexpr double LEAST_LIMIT = 2.2250738585072014e-308;
constexpr float FLOAT_MAX = 3.402823466e+38f, FLOAT_MIN = 1.175494351e-38f;

/* What the first two kernels say of a stretch. */
struct stretch {
  double best;  /* the largest value, by its lowest token */
  double drawn; /* the largest score with noise */
  double weight;
  int32_t token, drawn_token; /* -1: none */
  int32_t n_candidates;
  int32_t invalid; /* the history holds something that is no token */
};
struct entry {
  double value;
  int32_t token;
};

struct scored {
  double score;
  int32_t token; /* -1: none */
};

struct operands {
  const float *logits, *parameters;
  const int32_t *state, *history;
  const uint32_t *allowed; /* NULL: all */
  int32_t *y;
  double *scores;     /* [R, V]: -infinity when out; written where needed */
  stretch *stretches; /* [R, n_stretches] */
  double *maxima;     /* [R, n_stretches, STRETCH_GROUPS] */
  entry *list;        /* [R, MOST_LISTED] */
  uint32_t *n_listed; /* [R] */
  /* Of rows with top-p of all tokens: */
  unsigned long long *weights; /* [R, DISTANCES] */
  scored *drawn;               /* [R, n_parts]: the best of those surely kept */
  uint32_t *n_done;            /* [R]: parts */
  int32_t n_logits, n_history, n_words, n_stretches;
  int32_t n_parts, part; /* whole stretches */
};
/* Occurrences in the output part of the history, and this. */
constexpr uint32_t IN_HISTORY = 1u << 31;

static __device__ scored better(scored a, scored b) {
  if (b.token < 0)
    return a;
  if (a.token < 0)
    return b;
  return a.score > b.score || (a.score == b.score && a.token < b.token) ? a : b;
}

/* What a row's tokens are drawn by: the value before the temperature, -infinity when out. */
struct row_values {
  const float *logits;
  const double *penalised; /* NULL: logits as they are */
  const uint32_t *allowed;

  __device__ double operator[](int token) const {
    return penalised ? penalised[token] : of(token, logits[token]);
  }
  __device__ bool is_in(int token, float logit) const {
    return logit > -INFINITY && (!allowed || (allowed[token / 32] >> (token % 32) & 1));
  }
  __device__ double of(int token, float logit) const {
    return is_in(token, logit) ? (double)logit : -INFINITY;
  }
};

static __device__ bool in_range(float value, float least, float most) {
  return value >= least && value <= most;
}
static __device__ bool are_valid(const float *p) {
  return in_range(p[ISO_SAMPLE_TEMPERATURE], 0, FLOAT_MAX) &&
         in_range(p[ISO_SAMPLE_TOP_K], 0, FLOAT_MAX) && in_range(p[ISO_SAMPLE_TOP_P], 0, 1) &&
         in_range(p[ISO_SAMPLE_MIN_P], 0, 1) &&
         in_range(p[ISO_SAMPLE_REPETITION_PENALTY], FLOAT_MIN, FLOAT_MAX) &&
         in_range(p[ISO_SAMPLE_PRESENCE_PENALTY], -FLOAT_MAX, FLOAT_MAX) &&
         in_range(p[ISO_SAMPLE_FREQUENCY_PENALTY], -FLOAT_MAX, FLOAT_MAX) &&
         p[ISO_SAMPLE_RESERVED] == 0;
}

static __device__ double penalised(const float *p, double logit, uint32_t count) {
  if (!(count & IN_HISTORY))
    return logit;
  double repetition = p[ISO_SAMPLE_REPETITION_PENALTY];
  uint32_t n = count & ~IN_HISTORY;
  logit = logit > 0 ? logit / repetition : logit * repetition;
  logit -= __dmul_rn((double)p[ISO_SAMPLE_FREQUENCY_PENALTY], (double)n);
  return n > 0 ? logit - p[ISO_SAMPLE_PRESENCE_PENALTY] : logit;
}

static __device__ bool has_penalties(const float *p) {
  return p[ISO_SAMPLE_REPETITION_PENALTY] != 1 || p[ISO_SAMPLE_PRESENCE_PENALTY] != 0 ||
         p[ISO_SAMPLE_FREQUENCY_PENALTY] != 0;
}

static __device__ row_values values_of(const operands &o, int64_t row) {
  bool changed = has_penalties(o.parameters + row * N_PARAMETERS);
  return {o.logits + row * o.n_logits, changed ? o.scores + row * o.n_logits : nullptr,
          o.allowed ? o.allowed + row * o.n_words : nullptr};
}

/* How a row is drawn, once all stretches were scanned. */
struct drawing {
  int32_t seed_low, seed_high, draw;
  scored best;                 /* before the temperature */
  bool decided;                /* best.token is the answer */
  double temperature, largest; /* the largest score, divided by the temperature */
  double k;                    /* of top-k; 0: off */
  double top_p, min_p;
  float inverse; /* of the temperature, where floats hold it */

  /* The lowest score that min-p and noise let be drawn. */
  __device__ double lowest() const {
    return largest + fmax(min_p > 0 ? log(min_p) : -INFINITY, -REACH);
  }
  /* How far a token's score is below the largest, to 2^-21 of that. */
  __device__ float distance(double value) const {
    return inverse < 1e30f ? (float)(best.score - value) * inverse
                           : (float)(largest - value / temperature);
  }
  /* Of tokens 4 i .. 4 i + 3. */
  __device__ void words(int32_t i, uint32_t (&out)[4]) const {
    simt_philox((uint32_t)seed_low | (uint64_t)(uint32_t)seed_high << 32, (uint32_t)i,
                (uint32_t)draw, out);
  }
  __device__ double noise(int32_t token) const {
    uint32_t of_four[4];
    words(token / 4, of_four);
    int which = token % 4;
    return simt_gumbel(which == 0   ? of_four[0]
                       : which == 1 ? of_four[1]
                       : which == 2 ? of_four[2]
                                    : of_four[3]);
  }
  /* Whether every token's own score decides if it can be drawn. */
  __device__ bool is_direct() const { return k == 0 && top_p >= 1; }
  /* Whether it takes what all tokens weigh. */
  __device__ bool weighs_all() const { return k == 0 && top_p < 1; }
};

/* Every thread of a block of whole subgroups gets it; token -1 where the row cannot be drawn. */
static __device__ drawing drawing_of(const operands &o, int64_t row) {
  const float *p = o.parameters + row * N_PARAMETERS;
  const int32_t *state = o.state + row * 4;
  drawing d = {state[0],
               state[1],
               state[2],
               {0, -1},
               true,
               p[ISO_SAMPLE_TEMPERATURE],
               0,
               0,
               p[ISO_SAMPLE_TOP_P],
               p[ISO_SAMPLE_MIN_P]};
  if (!are_valid(p))
    return d;
  double n_candidates = 0;
  int32_t invalid = 0;
  const stretch *stretches = o.stretches + row * o.n_stretches;
  for (int i = (int)threadIdx.x % SIMT_SUBGROUP; i < o.n_stretches; i += SIMT_SUBGROUP) {
    d.best = better(d.best, scored{stretches[i].best, stretches[i].token});
    n_candidates += stretches[i].n_candidates;
    invalid |= stretches[i].invalid;
  }
  for (int mask = SIMT_SUBGROUP / 2; mask > 0; mask /= 2)
    d.best = better(
        d.best, scored{simt_shuffle_xor(d.best.score, mask), simt_shuffle_xor(d.best.token, mask)});
  n_candidates = simt_subgroup_reduce(n_candidates, simt_sum());
  if (simt_subgroup_reduce(invalid, simt_max())) {
    d.best.token = -1;
    return d;
  }
  d.decided = d.best.token < 0 || d.temperature == 0 || d.best.score == INFINITY;
  d.largest = d.best.score / d.temperature;
  d.inverse = 1 / (float)d.temperature;
  double k = floor((double)p[ISO_SAMPLE_TOP_K]);
  /* All of few candidates are a list as well. */
  d.k = k < 1 || (k >= n_candidates && n_candidates > MOST_LISTED) ? 0.0 : fmin(k, n_candidates);
  return d;
}

/* What noise less distance, to a float's worth, must be apart for the larger one to be the larger
 * one. */
constexpr float DOUBT = 1e-3f;

/* The best draw of this thread among those tokens first .. end - 1 of a row, first a multiple of 4,
 * that takes(distance, token); the whole block calls it. Noise in double is made where floats leave
 * it open which token is the block's best. */
template <typename T>
static __device__ scored draw_among(const drawing &d, const row_values &values, int first, int end,
                                    T takes) {
  __shared__ float reduced[SUBGROUPS];
  double lowest = d.lowest();
  float farthest = (float)(d.largest - lowest);
  auto each = [&](auto f) {
    for (int token = first + 4 * (int)threadIdx.x; token < end; token += 4 * (int)blockDim.x) {
      float distances[4];
      bool any = false;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        double value = token + j < end ? values[token + j] : -INFINITY;
        float distance = d.distance(value);
        bool may_be = fabsf(distance - farthest) < DOUBT ? value / d.temperature >= lowest
                                                         : distance < farthest;
        distances[j] = may_be && takes(distance, token + j) ? distance : INFINITY;
        any |= distances[j] < INFINITY;
      }
      if (!any)
        continue;
      uint32_t words[4];
      d.words(token / 4, words);
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (distances[j] < INFINITY)
          f(token + j, simt_gumbel_nearly(words[j]) - distances[j]);
    }
  };
  float best = -INFINITY, second = -INFINITY;
  int32_t token_of_best = -1;
  each([&](int32_t token, float rough) {
    second = fmaxf(second, fminf(best, rough));
    if (rough > best)
      best = rough, token_of_best = token;
  });
  float reach = simt_block_reduce(best, reduced, simt_max()) - DOUBT;
  scored drawn = {0, -1};
  auto challenge = [&](int32_t token, float rough) {
    if (rough >= reach)
      drawn = better(drawn, scored{values[token] / d.temperature + d.noise(token), token});
  };
  if (second >= reach && second > -INFINITY)
    each(challenge);
  else if (token_of_best >= 0)
    challenge(token_of_best, best);
  return drawn;
}

/* Adds those tokens of first .. end - 1 that takes(value) to the row's list. The whole block calls
 * it. */
template <typename T>
static __device__ void add_to_list(const operands &o, int64_t row, const row_values &values,
                                   int first, int end, T takes) {
  __shared__ uint32_t n_found, place;
  if (threadIdx.x == 0)
    n_found = 0;
  __syncthreads();
  uint32_t mine = 0;
  auto each = [&](auto f) {
    for (int token = first + (int)threadIdx.x; token < end; token += (int)blockDim.x) {
      double value = values[token];
      if (value > -INFINITY && takes(value))
        f(token, value);
    }
  };
  each([&](int, double) { mine++; });
  uint32_t at = mine ? atomicAdd(&n_found, mine) : 0;
  __syncthreads();
  if (threadIdx.x == 0)
    place = n_found ? atomicAdd(&o.n_listed[row], n_found) : 0;
  __syncthreads();
  at += place;
  if (mine)
    each([&](int token, double value) {
      if (at < MOST_LISTED)
        o.list[row * MOST_LISTED + at] = entry{value, token};
      at++;
    });
}

/* The bucket of a distance; DISTANCES: beyond all. */
static __device__ int bucket_of(float distance) {
  return (int)fminf(distance * (1 / PER_DISTANCE), DISTANCES);
}

} /* namespace simt_sample */

#endif
