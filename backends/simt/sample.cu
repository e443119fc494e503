/* sample: one token a row, by the definitions of ops/sampling.h. Scores are doubles, as in the
 * reference.
 *
 * Three kernels. The first two have a block a stretch of a row: `scan` applies penalties and finds
 * the largest values; `pick` then either draws among its stretch, where every token above a bound
 * that is known by now can be drawn, or adds its part to a short list of the row's likeliest
 * tokens: with top-k, those that reach the k-th largest of the maxima of small groups; with min-p,
 * those that reach it; with top-p alone, those near the likeliest. The last kernel has a block a
 * row. It takes the best draw, or sorts the list in shared memory, where all filters are prefixes.
 *
 * Where the list is too long or too short, that block goes over all tokens, and filters find their
 * threshold by digits of the score, the highest first: a histogram of one digit says which bucket
 * the threshold is in. Top-p tries a histogram of the distance to the likeliest before that. */
#include "backends/simt/sample_noise.cuh"
#include "backends/simt/simt.cuh"
#include <type_traits>

namespace {

enum {
  THREADS = 1024,
  SUBGROUPS = THREADS / SIMT_SUBGROUP,
  N_PARAMETERS = 8,
  DIGIT_BITS = 8,
  BUCKETS = 1 << DIGIT_BITS,
  MOST_LISTED = 2048,
  STRETCH = 4096,
  STRETCH_THREADS = 256,
  STRETCH_GROUPS = 64 /* of threads side by side, whose maxima bound top-k's list */
};
/* Gumbel noise lies between -2.9 and 22.9: scores this far below the largest are never drawn. */
constexpr double REACH = 25.9;
/* With top-p alone, the list goes this far below the largest score. */
constexpr double NEAR = 12;
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
  int32_t n_logits, n_history, n_words, n_stretches;
};
/* Occurrences in the output part of the history, and this. */
constexpr uint32_t IN_HISTORY = 1u << 31;

struct shared_memory {
  double scores[MOST_LISTED], listed_weights[MOST_LISTED]; /* the list, and what its tokens weigh */
  int32_t listed[MOST_LISTED];
  uint32_t n_listed;
  int32_t n_kept;
  double reduced[SUBGROUPS], weights[BUCKETS];
  int32_t tokens[SUBGROUPS];
  uint32_t counts[BUCKETS];
  double above; /* weight of what is above the bucket that was chosen */
  int32_t bucket;
  int32_t invalid;
};

/* ---- Parts of the block ---------------------------------------------------------------------- */

struct scored {
  double score;
  int32_t token; /* -1: none */
};
__device__ scored better(scored a, scored b) {
  if (b.token < 0)
    return a;
  if (a.token < 0)
    return b;
  return a.score > b.score || (a.score == b.score && a.token < b.token) ? a : b;
}
/* The largest score, the lowest token among equals. */
__device__ scored block_best(scored mine, shared_memory *shared) {
  for (int mask = SIMT_SUBGROUP / 2; mask > 0; mask /= 2)
    mine = better(mine,
                  scored{simt_shuffle_xor(mine.score, mask), simt_shuffle_xor(mine.token, mask)});
  __syncthreads();
  if (threadIdx.x % SIMT_SUBGROUP == 0) {
    shared->reduced[threadIdx.x / SIMT_SUBGROUP] = mine.score;
    shared->tokens[threadIdx.x / SIMT_SUBGROUP] = mine.token;
  }
  __syncthreads();
  mine = scored{0, -1};
  for (int i = 0; i < SUBGROUPS; i++)
    mine = better(mine, scored{shared->reduced[i], shared->tokens[i]});
  return mine;
}

/* Orders as the scores do; equal scores have equal keys, and those that are out 0. */
__device__ uint64_t key_of(double score) {
  if (score == -INFINITY)
    return 0;
  uint64_t bits = (uint64_t)__double_as_longlong(score + 0.0);
  return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

/* One token into the histogram. Whole subgroups call it; most share a bucket in the high digits,
 * which then costs one addition. */
__device__ void tally(shared_memory *shared, bool counts, int bucket, double weight) {
  int low = simt_subgroup_reduce(counts ? -bucket : -BUCKETS, simt_max());
  int high = simt_subgroup_reduce(counts ? bucket : -1, simt_max());
  if (high < 0)
    return;
  if (-low == high) {
    double sum = simt_subgroup_reduce(counts ? weight : 0.0, simt_sum());
    int n = simt_count(counts);
    if (threadIdx.x % SIMT_SUBGROUP == 0) {
      atomicAdd(&shared->counts[high], (uint32_t)n);
      atomicAdd(&shared->weights[high], sum);
    }
  } else if (counts) {
    atomicAdd(&shared->counts[bucket], 1u);
    atomicAdd(&shared->weights[bucket], weight);
  }
}

/* The key of the lowest token of those at `least` or above for which the tokens with larger scores
 * weigh less than `limit` together. Weights are 1, or exp(score - largest). */
__device__ uint64_t find_threshold(const operands &o, const double *scores, uint64_t least,
                                   bool by_probability, double largest, double limit,
                                   shared_memory *shared) {
  uint64_t prefix = 0;
  double kept = 0;
  for (int shift = 64 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
    for (int i = (int)threadIdx.x; i < BUCKETS; i += THREADS) {
      shared->counts[i] = 0;
      shared->weights[i] = 0;
    }
    __syncthreads();
    int rounds = (o.n_logits + THREADS - 1) / THREADS;
    for (int r = 0; r < rounds; r++) {
      int token = r * THREADS + (int)threadIdx.x;
      double score = token < o.n_logits ? scores[token] : -INFINITY;
      uint64_t key = key_of(score);
      bool counts = key >= least && key > 0 &&
                    (shift == 64 - DIGIT_BITS || key >> (shift + DIGIT_BITS) == prefix);
      double weight = !counts ? 0.0 : by_probability ? exp(score - largest) : 1.0;
      tally(shared, counts, (int)(key >> shift & (BUCKETS - 1)), weight);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      double above = kept;
      for (int b = BUCKETS - 1; b >= 0; b--) {
        if (shared->counts[b] == 0)
          continue;
        if (above >= limit)
          break;
        shared->bucket = b;
        shared->above = above;
        above += shared->weights[b];
      }
    }
    __syncthreads();
    prefix = prefix << DIGIT_BITS | (uint64_t)shared->bucket;
    kept = shared->above;
    __syncthreads();
  }
  return prefix;
}

/* ---- The list -------------------------------------------------------------------------------- */

/* Sorts entries 0 .. n - 1, n a power of two: larger scores first, then lower tokens. */
__device__ void sort_list(shared_memory *shared, int n) {
  for (int size = 2; size <= n; size *= 2)
    for (int distance = size / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (int i = (int)threadIdx.x; i < n; i += THREADS) {
        int other = i ^ distance;
        if (other < i)
          continue;
        double a = shared->scores[i], b = shared->scores[other];
        int32_t at = shared->listed[i], bt = shared->listed[other];
        bool in_order = a > b || (a == b && at < bt);
        if (in_order != ((i & size) == 0)) {
          shared->scores[i] = b, shared->scores[other] = a;
          shared->listed[i] = bt, shared->listed[other] = at;
        }
      }
    }
  __syncthreads();
}

/* What a row's tokens are drawn by: the value before the temperature, -infinity when out. */
struct row_values {
  const float *logits;
  const double *penalised; /* NULL: logits as they are */
  const uint32_t *allowed;

  __device__ double operator[](int token) const {
    return penalised ? penalised[token] : of(token, logits[token]);
  }
  __device__ double of(int token, float logit) const {
    bool out = (allowed && !(allowed[token / 32] >> (token % 32) & 1)) || !(logit > -INFINITY);
    return out ? -INFINITY : (double)logit;
  }
};

/* Takes the row's list, sorted, scores divided by the temperature; false when it was too long. */
__device__ bool take_list(const operands &o, int64_t row, double temperature,
                          shared_memory *shared) {
  uint32_t count = o.n_listed[row];
  if (count > MOST_LISTED)
    return false;
  int padded = SIMT_SUBGROUP;
  while (padded < (int)count)
    padded *= 2;
  for (int i = (int)threadIdx.x; i < padded; i += THREADS) {
    bool exists = i < (int)count;
    entry e = exists ? o.list[row * MOST_LISTED + i] : entry{-INFINITY, INT32_MAX};
    shared->scores[i] = exists ? e.value / temperature : -INFINITY;
    shared->listed[i] = e.token;
  }
  if (threadIdx.x == 0)
    shared->n_listed = count;
  sort_list(shared, padded);
  return true;
}

/* The number of entries that top-k and then top-p keep; -1 when the list ends before top-p is
 * satisfied. `total` is what all tokens weigh that top-p looks at, or negative: those of the list
 * that top-k keeps. One thread. */
__device__ int keep_of_list(const shared_memory *shared, int count, int k, double top_p,
                            double total) {
  int kept = count;
  if (k > 0 && k < count)
    for (kept = k; kept < count && shared->scores[kept] == shared->scores[k - 1];)
      kept++;
  if (top_p >= 1)
    return kept;
  if (total < 0) {
    total = 0;
    for (int i = 0; i < kept; i++)
      total += shared->listed_weights[i];
  }
  double limit = fmax(top_p * total, 2.2250738585072014e-308), above = 0;
  for (int i = 0; i < kept;) {
    if (above >= limit)
      return i;
    double score = shared->scores[i];
    for (; i < kept && shared->scores[i] == score; i++)
      above += shared->listed_weights[i];
  }
  return k > 0 || above >= limit ? kept : -1;
}

/* ---- The row --------------------------------------------------------------------------------- */

__device__ bool in_range(float value, float least, float most) {
  return value >= least && value <= most;
}
__device__ bool are_valid(const float *p) {
  return in_range(p[ISO_SAMPLE_TEMPERATURE], 0, FLOAT_MAX) &&
         in_range(p[ISO_SAMPLE_TOP_K], 0, FLOAT_MAX) && in_range(p[ISO_SAMPLE_TOP_P], 0, 1) &&
         in_range(p[ISO_SAMPLE_MIN_P], 0, 1) &&
         in_range(p[ISO_SAMPLE_REPETITION_PENALTY], FLOAT_MIN, FLOAT_MAX) &&
         in_range(p[ISO_SAMPLE_PRESENCE_PENALTY], -FLOAT_MAX, FLOAT_MAX) &&
         in_range(p[ISO_SAMPLE_FREQUENCY_PENALTY], -FLOAT_MAX, FLOAT_MAX) &&
         p[ISO_SAMPLE_RESERVED] == 0;
}

__device__ double penalised(const float *p, double logit, uint32_t count) {
  if (!(count & IN_HISTORY))
    return logit;
  double repetition = p[ISO_SAMPLE_REPETITION_PENALTY];
  uint32_t n = count & ~IN_HISTORY;
  logit = logit > 0 ? logit / repetition : logit * repetition;
  logit -= __dmul_rn((double)p[ISO_SAMPLE_FREQUENCY_PENALTY], (double)n);
  return n > 0 ? logit - p[ISO_SAMPLE_PRESENCE_PENALTY] : logit;
}

__device__ bool has_penalties(const float *p) {
  return p[ISO_SAMPLE_REPETITION_PENALTY] != 1 || p[ISO_SAMPLE_PRESENCE_PENALTY] != 0 ||
         p[ISO_SAMPLE_FREQUENCY_PENALTY] != 0;
}

__device__ row_values values_of(const operands &o, int64_t row) {
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

  __device__ double lowest() const { return min_p > 0 ? largest + log(min_p) : -INFINITY; }
  __device__ double noise(int32_t token) const {
    return simt_gumbel((uint32_t)seed_low | (uint64_t)(uint32_t)seed_high << 32, (uint32_t)draw,
                       token);
  }
  /* Whether every token's own score decides if it can be drawn. */
  __device__ bool is_direct() const { return k == 0 && top_p >= 1; }
};

/* Every thread of a block of whole subgroups gets it; token -1 where the row cannot be drawn. */
__device__ drawing drawing_of(const operands &o, int64_t row) {
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
  double k = floor((double)p[ISO_SAMPLE_TOP_K]);
  d.k = k >= 1 && k < n_candidates ? k : 0.0;
  return d;
}

/* ---- Stretches ------------------------------------------------------------------------------- */

/* Occurrences of the tokens from `first` on in the history, in shared memory; true when it holds
 * something that is no token. */
__device__ bool count_history(const operands &o, int64_t row, int first, uint32_t *counts) {
  __shared__ int32_t invalid;
  int output_start = o.state[row * 4 + 3];
  for (int i = (int)threadIdx.x; i < STRETCH; i += STRETCH_THREADS)
    counts[i] = 0;
  if (threadIdx.x == 0)
    invalid = 0;
  __syncthreads();
  for (int i = (int)threadIdx.x; i < o.n_history; i += STRETCH_THREADS) {
    int32_t token = o.history[row * o.n_history + i];
    if (token == -1)
      continue;
    if (token < 0 || token >= o.n_logits) {
      invalid = 1;
      continue;
    }
    if (token < first || token >= first + STRETCH)
      continue;
    atomicOr(&counts[token - first], IN_HISTORY);
    if (i >= output_start)
      atomicAdd(&counts[token - first], 1u);
  }
  __syncthreads();
  return invalid != 0;
}

struct stretch_shared {
  double scores[STRETCH_THREADS / SIMT_SUBGROUP];
  int32_t tokens[STRETCH_THREADS / SIMT_SUBGROUP];
};
/* The best of the block, for its first thread. */
__device__ scored stretch_best(scored mine, stretch_shared *shared) {
  for (int mask = SIMT_SUBGROUP / 2; mask > 0; mask /= 2)
    mine = better(mine,
                  scored{simt_shuffle_xor(mine.score, mask), simt_shuffle_xor(mine.token, mask)});
  if (threadIdx.x % SIMT_SUBGROUP == 0) {
    shared->scores[threadIdx.x / SIMT_SUBGROUP] = mine.score;
    shared->tokens[threadIdx.x / SIMT_SUBGROUP] = mine.token;
  }
  __syncthreads();
  for (int i = 0; i < STRETCH_THREADS / SIMT_SUBGROUP; i++)
    mine = better(mine, scored{shared->scores[i], shared->tokens[i]});
  return mine;
}

/* Grid: rows, stretches. */
__global__ void __launch_bounds__(STRETCH_THREADS) scan(operands o) {
  simt_begin();
  __shared__ uint32_t counts[STRETCH];
  __shared__ stretch_shared shared;
  __shared__ int32_t reduced[STRETCH_THREADS / SIMT_SUBGROUP];
  int64_t row = blockIdx.x;
  int first = (int)blockIdx.y * STRETCH;
  const float *p = o.parameters + row * N_PARAMETERS;
  if (blockIdx.y == 0 && threadIdx.x == 0)
    o.n_listed[row] = 0;
  if (!are_valid(p))
    return;
  bool changed = has_penalties(p), invalid = false;
  if (changed)
    invalid = count_history(o, row, first, counts);
  row_values values = values_of(o, row);
  float logits[STRETCH / STRETCH_THREADS]; /* all on their way at once */
#pragma unroll
  for (int k = 0; k < STRETCH / STRETCH_THREADS; k++) {
    int token = first + k * STRETCH_THREADS + (int)threadIdx.x;
    logits[k] = token < o.n_logits ? values.logits[token] : -INFINITY;
  }
  scored mine = {0, -1};
  int32_t n_mine = 0;
#pragma unroll
  for (int k = 0; k < STRETCH / STRETCH_THREADS; k++) {
    int i = k * STRETCH_THREADS + (int)threadIdx.x, token = first + i;
    if (token >= o.n_logits)
      break;
    double value = values.of(token, logits[k]);
    if (changed) {
      if (value > -INFINITY)
        value = penalised(p, value, counts[i]);
      o.scores[row * o.n_logits + token] = value;
    }
    if (value == -INFINITY)
      continue;
    mine = better(mine, scored{value, token});
    n_mine++;
  }
  constexpr int share = STRETCH_THREADS / STRETCH_GROUPS;
  double of_group = mine.token < 0 ? -INFINITY : mine.score;
  for (int mask = share / 2; mask > 0; mask /= 2)
    of_group = fmax(of_group, simt_shuffle_xor(of_group, mask));
  int64_t index = row * o.n_stretches + blockIdx.y;
  if (threadIdx.x % share == 0)
    o.maxima[index * STRETCH_GROUPS + threadIdx.x / share] = of_group;
  n_mine = simt_block_reduce(n_mine, reduced, simt_sum());
  scored best = stretch_best(mine, &shared);
  if (threadIdx.x == 0)
    o.stretches[index] = stretch{best.score, 0, 0, best.token, -1, n_mine, invalid};
}

/* At most the k-th largest of the row's maxima, and near it; -infinity when there are fewer. */
__device__ double bound_of_top_k(const operands &o, int64_t row, double k) {
  enum { LOWEST_BIT = 40 };
  int n = o.n_stretches * STRETCH_GROUPS;
  const double *maxima = o.maxima + row * n;
  uint64_t found = 0;
  for (int bit = 63; bit >= LOWEST_BIT; bit--) {
    uint64_t tried = found | UINT64_C(1) << bit;
    int count = 0;
    for (int i = 0; i < n; i += STRETCH_THREADS) {
      int at = i + (int)threadIdx.x;
      count += __syncthreads_count(at < n && key_of(maxima[at]) >= tried);
    }
    if (count >= k)
      found = tried;
    if (count == k)
      break;
  }
  if (found == 0)
    return -INFINITY;
  return __longlong_as_double((long long)(found >> 63 ? found ^ UINT64_C(1) << 63 : ~found));
}

/* Adds what reaches the bound to the row's list. */
__device__ void add_to_list(const operands &o, int64_t row, const row_values &values,
                            double bound) {
  __shared__ uint32_t n_found, place;
  int first = (int)blockIdx.y * STRETCH;
  if (threadIdx.x == 0)
    n_found = 0;
  __syncthreads();
  uint32_t mine = 0;
  auto each = [&](auto f) {
    for (int i = (int)threadIdx.x; i < STRETCH && first + i < o.n_logits; i += STRETCH_THREADS) {
      double value = values[first + i];
      if (value >= bound && value > -INFINITY)
        f(first + i, value);
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

/* Grid: rows, stretches. */
__global__ void __launch_bounds__(STRETCH_THREADS) pick(operands o) {
  simt_begin();
  __shared__ stretch_shared shared;
  __shared__ double reduced[STRETCH_THREADS / SIMT_SUBGROUP];
  int64_t row = blockIdx.x;
  int first = (int)blockIdx.y * STRETCH;
  drawing d = drawing_of(o, row);
  if (d.decided)
    return;
  row_values values = values_of(o, row);
  stretch *mine = o.stretches + row * o.n_stretches + blockIdx.y;
  if (d.is_direct()) {
    double lowest = fmax(d.lowest(), d.largest - REACH);
    scored drawn = {0, -1};
    for (int i = (int)threadIdx.x; i < STRETCH && first + i < o.n_logits; i += STRETCH_THREADS) {
      double score = values[first + i] / d.temperature;
      if (score > -INFINITY && score >= lowest)
        drawn = better(drawn, scored{score + d.noise(first + i), first + i});
    }
    drawn = stretch_best(drawn, &shared);
    if (threadIdx.x == 0)
      mine->drawn = drawn.score, mine->drawn_token = drawn.token;
    return;
  }
  double bound = d.best.score - NEAR * d.temperature;
  if (d.k > 0)
    bound = bound_of_top_k(o, row, d.k);
  else if (d.min_p > 0) /* a little more, since rounding differs from that of lowest() */
    bound = d.best.score + (log(d.min_p) - 1e-6) * d.temperature - 1e-9 * fabs(d.best.score);
  add_to_list(o, row, values, bound);
  if (d.k > 0)
    return;
  double weight = 0; /* top-p alone looks at all tokens */
  for (int i = (int)threadIdx.x; i < STRETCH && first + i < o.n_logits; i += STRETCH_THREADS) {
    double value = values[first + i];
    if (value > -INFINITY)
      weight += exp(value / d.temperature - d.largest);
  }
  weight = simt_block_reduce(weight, reduced, simt_sum());
  if (threadIdx.x == 0)
    mine->weight = weight;
}

/* ---- The row --------------------------------------------------------------------------------- */

/* The sum of what stretches say; in one order. */
__device__ double weigh_all(const operands &o, int64_t row) {
  double total = 0;
  for (int i = (int)threadIdx.x % SIMT_SUBGROUP; i < o.n_stretches; i += SIMT_SUBGROUP)
    total += o.stretches[row * o.n_stretches + i].weight;
  return simt_subgroup_reduce(total, simt_sum());
}

__device__ int32_t draw_from_stretches(const operands &o, int64_t row) {
  scored drawn = {0, -1};
  for (int i = 0; i < o.n_stretches; i++) {
    const stretch &s = o.stretches[row * o.n_stretches + i];
    drawn = better(drawn, scored{s.drawn, s.drawn_token});
  }
  return drawn.token;
}

/* -1 where no short list will do. */
__device__ int32_t draw_from_list(const operands &o, int64_t row, const drawing &d,
                                  shared_memory *shared) {
  if (!take_list(o, row, d.temperature, shared))
    return -1;
  int count = (int)shared->n_listed;
  for (int i = (int)threadIdx.x; i < count; i += THREADS)
    shared->listed_weights[i] = exp(shared->scores[i] - d.largest);
  double total = d.top_p < 1 && d.k == 0 ? weigh_all(o, row) : -1;
  __syncthreads();
  if (threadIdx.x == 0) {
    int kept = keep_of_list(shared, count, (int)d.k, d.top_p, total);
    /* What min-p leaves out is out, whatever top-p makes of it. */
    shared->n_kept = kept < 0 && d.min_p > 0 ? count : kept;
  }
  __syncthreads();
  int kept = shared->n_kept;
  if (kept < 0)
    return -1;
  scored drawn = {0, -1};
  for (int i = (int)threadIdx.x; i < kept; i += THREADS) {
    int32_t token = shared->listed[i];
    if (shared->scores[i] >= d.lowest())
      drawn = better(drawn, scored{shared->scores[i] + d.noise(token), token});
  }
  return block_best(drawn, shared).token;
}

/* The key of the lowest token that top-p keeps, found among the tokens of one bucket of distances
 * to the largest score; 0 where that bucket holds too many. */
__device__ uint64_t find_near_threshold(const operands &o, const double *scores, uint64_t least,
                                        double largest, double limit, shared_memory *shared) {
  double per_bucket = REACH / MOST_LISTED;
  double *weights = shared->listed_weights;
  for (int i = (int)threadIdx.x; i < MOST_LISTED; i += THREADS)
    weights[i] = 0;
  if (threadIdx.x == 0)
    shared->n_listed = 0;
  __syncthreads();
  auto bucket_of = [&](double score) {
    return (int)fmin((largest - score) / per_bucket, MOST_LISTED - 1.0);
  };
  for (int token = (int)threadIdx.x; token < o.n_logits; token += THREADS)
    if (key_of(scores[token]) >= least)
      atomicAdd(&weights[bucket_of(scores[token])], exp(scores[token] - largest));
  __syncthreads();
  if (threadIdx.x < SIMT_SUBGROUP) {
    constexpr int each = MOST_LISTED / SIMT_SUBGROUP;
    double sum = 0;
    for (int i = 0; i < each; i++)
      sum += weights[(int)threadIdx.x * each + i];
    shared->reduced[threadIdx.x] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    constexpr int each = MOST_LISTED / SIMT_SUBGROUP;
    double above = 0;
    int part = 0;
    while (part + 1 < SIMT_SUBGROUP && above + shared->reduced[part] < limit)
      above += shared->reduced[part++];
    int bucket = part * each;
    while (bucket + 1 < (part + 1) * each && above + weights[bucket] < limit)
      above += weights[bucket++];
    shared->bucket = bucket;
    shared->above = above;
  }
  __syncthreads();
  for (int token = (int)threadIdx.x; token < o.n_logits; token += THREADS)
    if (key_of(scores[token]) >= least && bucket_of(scores[token]) == shared->bucket) {
      uint32_t place = atomicAdd(&shared->n_listed, 1u);
      if (place < MOST_LISTED) {
        shared->scores[place] = scores[token];
        shared->listed[place] = token;
      }
    }
  __syncthreads();
  int count = (int)shared->n_listed, padded = SIMT_SUBGROUP;
  if (count == 0 || count > MOST_LISTED)
    return 0;
  while (padded < count)
    padded *= 2;
  for (int i = count + (int)threadIdx.x; i < padded; i += THREADS) {
    shared->scores[i] = -INFINITY;
    shared->listed[i] = INT32_MAX;
  }
  sort_list(shared, padded);
  if (threadIdx.x == 0) {
    double above = shared->above;
    int last = 0;
    for (int i = 0; i < count && above < limit;) {
      last = i;
      for (double score = shared->scores[i]; i < count && shared->scores[i] == score; i++)
        above += exp(score - largest);
    }
    shared->n_kept = last;
  }
  __syncthreads();
  return key_of(shared->scores[shared->n_kept]);
}

__device__ int32_t draw_from_all(const operands &o, int64_t row, const drawing &d,
                                 shared_memory *shared) {
  row_values values = values_of(o, row);
  double *scores = o.scores + row * o.n_logits;
  __syncthreads();
  for (int token = (int)threadIdx.x; token < o.n_logits; token += THREADS)
    scores[token] = values[token] / d.temperature;
  __syncthreads();
  uint64_t least = 1;
  if (d.k > 0)
    least = find_threshold(o, scores, least, false, d.largest, d.k, shared);
  if (d.top_p < 1) {
    double total = 0;
    for (int token = (int)threadIdx.x; token < o.n_logits; token += THREADS)
      if (key_of(scores[token]) >= least)
        total += exp(scores[token] - d.largest);
    total = simt_block_reduce(total, shared->reduced, simt_sum());
    double limit = fmax(d.top_p * total, 2.2250738585072014e-308);
    __syncthreads();
    uint64_t near = find_near_threshold(o, scores, least, d.largest, limit, shared);
    __syncthreads();
    least = near > 0 ? near : find_threshold(o, scores, least, true, d.largest, limit, shared);
  }
  double lowest = fmax(d.lowest(), d.largest - REACH);
  scored drawn = {0, -1};
  for (int token = (int)threadIdx.x; token < o.n_logits; token += THREADS)
    if (key_of(scores[token]) >= least && scores[token] >= lowest)
      drawn = better(drawn, scored{scores[token] + d.noise(token), token});
  return block_best(drawn, shared).token;
}

__global__ void __launch_bounds__(THREADS) draw(operands o) {
  simt_begin();
  __shared__ shared_memory shared;
  int64_t row = blockIdx.x;
  drawing d = drawing_of(o, row);
  int32_t token = d.best.token;
  if (!d.decided) {
    token = d.is_direct() ? draw_from_stretches(o, row) : draw_from_list(o, row, d, &shared);
    if (token < 0)
      token = draw_from_all(o, row, d, &shared);
  }
  if (threadIdx.x == 0)
    o.y[row] = token;
}

/* ---- Record ---------------------------------------------------------------------------------- */

/* Lays out the scratch; returns its size. */
uint64_t lay_out(const iso_op_arguments *arguments, uint8_t *scratch, operands *o) {
  const iso_tensor &logits = arguments->inputs[0];
  uint64_t n_rows = (uint64_t)logits.dims[0], at = 0;
  o->n_logits = (int32_t)logits.dims[1];
  o->n_stretches = (o->n_logits + STRETCH - 1) / STRETCH;
  auto take = [&](auto **array, uint64_t count) {
    *array = (std::remove_reference_t<decltype(*array)>)(scratch + at);
    at += (count * sizeof(**array) + 255) / 256 * 256;
  };
  take(&o->scores, n_rows * (uint64_t)o->n_logits);
  take(&o->stretches, n_rows * (uint64_t)o->n_stretches);
  take(&o->maxima, n_rows * (uint64_t)o->n_stretches * STRETCH_GROUPS);
  take(&o->list, n_rows * MOST_LISTED);
  take(&o->n_listed, n_rows);
  return at;
}

uint64_t workspace(const iso_device *, const iso_op_arguments *arguments) {
  operands o = {};
  return lay_out(arguments, nullptr, &o);
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor *inputs = arguments->inputs;
  operands o = {};
  (void)lay_out(arguments, simt_workspace(arguments), &o);
  o.logits = (const float *)simt_address(inputs[0]);
  o.parameters = (const float *)simt_address(inputs[1]);
  o.state = (const int32_t *)simt_address(inputs[2]);
  o.history = (const int32_t *)simt_address(inputs[3]);
  o.allowed = (const uint32_t *)simt_address(inputs[4]);
  o.y = (int32_t *)simt_address(arguments->outputs[0]);
  o.n_history = (int32_t)inputs[3].dims[1];
  o.n_words = o.allowed ? (int32_t)inputs[4].dims[1] : 0;
  dim3 rows((unsigned)inputs[0].dims[0]), stretches(rows.x, (unsigned)o.n_stretches);
  if (rows.x == 0)
    return ISO_OK;
  if (o.n_stretches > 65535)
    return simt_fail_size("sample");
  ISO_TRY(simt_launch_early(queue, "sample: scan", scan, stretches, dim3(STRETCH_THREADS), 0, o));
  ISO_TRY(simt_launch_early(queue, "sample: pick", pick, stretches, dim3(STRETCH_THREADS), 0, o));
  return simt_launch_early(queue, "sample: draw", draw, rows, dim3(THREADS), 0, o);
}

const iso_kernel records[] = {SIMT_SCRATCH_RECORD(SAMPLE, "sample.simt", workspace, launch)};

} /* namespace */

SIMT_EXPORT_KERNELS(sample, records)
