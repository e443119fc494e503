/* sample: one token a row, by the definitions of ops/sampling.h. A block takes a row. Scores are
 * doubles, as in the reference.
 *
 * Nearly always a short list holds every token that can be drawn: with top-k, those that reach the
 * k-th largest of the threads' own maxima; with min-p, those that reach it; with top-p alone, those
 * near the likeliest. It is sorted in shared memory, and all filters are prefixes of it. Where the
 * list is too long or too short, filters find their threshold among all tokens by digits of the
 * score, the highest first: a histogram of one digit says which bucket the threshold is in. */
#include "backends/simt/simt.cuh"

namespace {

enum {
  THREADS = 1024,
  SUBGROUPS = THREADS / SIMT_SUBGROUP,
  N_PARAMETERS = 8,
  DIGIT_BITS = 8,
  BUCKETS = 1 << DIGIT_BITS,
  MOST_LISTED = 2048
};
/* Gumbel noise lies between -2.9 and 22.9: scores this far below the largest are never drawn. */
constexpr double REACH = 25.9;
/* With top-p alone, the list goes this far below the largest score. */
constexpr double NEAR = 12;
constexpr float FLOAT_MAX = 3.402823466e+38f, FLOAT_MIN = 1.175494351e-38f;

struct operands {
  const float *logits, *parameters;
  const int32_t *state, *history;
  const uint32_t *allowed; /* NULL: all */
  int32_t *y;
  double *scores;   /* [R, V]: -infinity when out */
  uint32_t *counts; /* [R, V]: occurrences in the output part of the history, and IN_HISTORY */
  int32_t n_logits, n_history, n_words;
};
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

/* ---- Randomness ------------------------------------------------------------------------------ */

__device__ void philox(uint64_t key, uint32_t x0, uint32_t x1, uint32_t out[4]) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32), x2 = 0, x3 = 0;
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)0xD2511F53u * x0, b = (uint64_t)0xCD9E8D57u * x2;
    x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
    x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
    x1 = (uint32_t)b;
    x3 = (uint32_t)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = x0, out[1] = x1, out[2] = x2, out[3] = x3;
}

__device__ double gumbel(uint64_t seed, uint32_t draw, int32_t token) {
  uint32_t words[4];
  philox(seed, (uint32_t)token / 4, draw, words);
  int which = token % 4;
  uint32_t word = which == 0 ? words[0] : which == 1 ? words[1] : which == 2 ? words[2] : words[3];
  float v = (float)(word >> 8) * 0x1p-24f + ((float)(word & 255) + 0.5f) * 0x1p-32f;
  v = fminf(v, 1 - 0x1p-24f);
  return -log(-log1p(-(double)v));
}

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

/* The k-th largest of the threads' values, 1 <= k <= THREADS. */
__device__ double kth_of_threads(shared_memory *shared, double value, int k) {
  __syncthreads();
  shared->scores[threadIdx.x] = value;
  shared->listed[threadIdx.x] = (int32_t)threadIdx.x;
  sort_list(shared, THREADS);
  double kth = shared->scores[k - 1];
  __syncthreads();
  return kth;
}

/* What a row's tokens are drawn by: the value before the temperature, -infinity when out. */
struct row_values {
  const float *logits;
  const double *penalised; /* NULL: logits as they are */
  const uint32_t *allowed;

  __device__ double operator[](int token) const {
    if (penalised)
      return penalised[token];
    float logit = logits[token];
    bool out = (allowed && !(allowed[token / 32] >> (token % 32) & 1)) || !(logit > -INFINITY);
    return out ? -INFINITY : (double)logit;
  }
};

/* Lists the tokens whose value is at least `bound`, sorted, scores divided by the temperature;
 * false when there are too many. */
__device__ bool make_list(const row_values &values, int n, double bound, double temperature,
                          shared_memory *shared) {
  __syncthreads();
  if (threadIdx.x == 0)
    shared->n_listed = 0;
  __syncthreads();
  for (int token = (int)threadIdx.x; token < n; token += THREADS) {
    double value = values[token];
    if (!(value >= bound) || value == -INFINITY)
      continue;
    uint32_t place = atomicAdd(&shared->n_listed, 1u);
    if (place < MOST_LISTED) {
      shared->scores[place] = value / temperature;
      shared->listed[place] = token;
    }
  }
  __syncthreads();
  uint32_t count = shared->n_listed;
  if (count > MOST_LISTED)
    return false;
  int padded = SIMT_SUBGROUP;
  while (padded < (int)count)
    padded *= 2;
  for (int i = (int)count + (int)threadIdx.x; i < padded; i += THREADS) {
    shared->scores[i] = -INFINITY;
    shared->listed[i] = INT32_MAX;
  }
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

/* Counts the history's tokens; false when one is no token. */
__device__ bool count_history(const operands &o, int64_t row, uint32_t *counts, int output_start,
                              shared_memory *shared) {
  for (int i = (int)threadIdx.x; i < o.n_logits; i += THREADS)
    counts[i] = 0;
  if (threadIdx.x == 0)
    shared->invalid = 0;
  __syncthreads();
  for (int i = (int)threadIdx.x; i < o.n_history; i += THREADS) {
    int32_t token = o.history[row * o.n_history + i];
    if (token == -1)
      continue;
    if (token < 0 || token >= o.n_logits) {
      shared->invalid = 1;
      continue;
    }
    atomicOr(&counts[token], IN_HISTORY);
    if (i >= output_start)
      atomicAdd(&counts[token], 1u);
  }
  __syncthreads();
  return !shared->invalid;
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

struct drawing {
  int32_t seed_low, seed_high, draw;
  double temperature, largest; /* the largest score, divided by the temperature */
  double k;                    /* of top-k; 0: off */
  double top_p, min_p;

  __device__ double lowest() const { return min_p > 0 ? largest + log(min_p) : -INFINITY; }
  __device__ double noise(int32_t token) const {
    return gumbel((uint32_t)seed_low | (uint64_t)(uint32_t)seed_high << 32, (uint32_t)draw, token);
  }
};

/* The weights of all tokens together. */
__device__ double weigh_all(const operands &o, const row_values &values, const drawing &d,
                            shared_memory *shared) {
  double total = 0;
  for (int token = (int)threadIdx.x; token < o.n_logits; token += THREADS) {
    double value = values[token];
    if (value > -INFINITY)
      total += exp(value / d.temperature - d.largest);
  }
  return simt_block_reduce(total, shared->reduced, simt_sum());
}

/* -1 where no short list will do. `mine` is the best token of this thread. */
__device__ int32_t draw_from_list(const operands &o, const row_values &values, const drawing &d,
                                  scored best, scored mine, shared_memory *shared) {
  double bound = best.score - REACH * d.temperature;
  if (d.k > 0 && d.k <= THREADS)
    bound = kth_of_threads(shared, mine.token < 0 ? -INFINITY : mine.score, (int)d.k);
  else if (d.k > 0)
    return -1;
  else if (d.min_p > 0) /* a little more, since rounding differs from that of lowest() */
    bound = best.score + (log(d.min_p) - 1e-6) * d.temperature - 1e-9 * fabs(best.score);
  else if (d.top_p < 1)
    bound = best.score - NEAR * d.temperature;
  if (!make_list(values, o.n_logits, bound, d.temperature, shared))
    return -1;
  int count = (int)shared->n_listed;
  for (int i = (int)threadIdx.x; i < count; i += THREADS)
    shared->listed_weights[i] = exp(shared->scores[i] - d.largest);
  double total = d.top_p < 1 && d.k == 0 ? weigh_all(o, values, d, shared) : -1;
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

__device__ int32_t draw_from_all(const operands &o, const row_values &values, const drawing &d,
                                 double *scores, shared_memory *shared) {
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
    least = find_threshold(o, scores, least, true, d.largest, limit, shared);
  }
  double lowest = fmax(d.lowest(), d.largest - REACH);
  scored drawn = {0, -1};
  for (int token = (int)threadIdx.x; token < o.n_logits; token += THREADS)
    if (key_of(scores[token]) >= least && scores[token] >= lowest)
      drawn = better(drawn, scored{scores[token] + d.noise(token), token});
  return block_best(drawn, shared).token;
}

__device__ int32_t sample_row(const operands &o, int64_t row, shared_memory *shared) {
  const float *p = o.parameters + row * N_PARAMETERS;
  const int32_t *state = o.state + row * 4;
  double *scores = o.scores + row * o.n_logits;
  uint32_t *counts = o.counts + row * o.n_logits;
  if (!are_valid(p))
    return -1;
  bool has_penalties = p[ISO_SAMPLE_REPETITION_PENALTY] != 1 ||
                       p[ISO_SAMPLE_PRESENCE_PENALTY] != 0 || p[ISO_SAMPLE_FREQUENCY_PENALTY] != 0;
  if (has_penalties && !count_history(o, row, counts, state[3], shared))
    return -1;

  double temperature = p[ISO_SAMPLE_TEMPERATURE];
  row_values values = {o.logits + row * o.n_logits, nullptr,
                       o.allowed ? o.allowed + row * o.n_words : nullptr};
  scored mine = {0, -1};
  double n_mine = 0;
  for (int token = (int)threadIdx.x; token < o.n_logits; token += THREADS) {
    double value = values[token];
    if (has_penalties) {
      if (value > -INFINITY)
        value = penalised(p, value, counts[token]);
      scores[token] = value;
    }
    if (value == -INFINITY)
      continue;
    mine = better(mine, scored{value, token});
    n_mine += 1;
  }
  scored best = block_best(mine, shared);
  if (best.token < 0 || temperature == 0 || best.score == INFINITY)
    return best.token;
  if (has_penalties)
    values.penalised = scores;
  double n_candidates = simt_block_reduce(n_mine, shared->reduced, simt_sum());
  double k = floor((double)p[ISO_SAMPLE_TOP_K]);
  drawing d = {state[0],
               state[1],
               state[2],
               temperature,
               best.score / temperature,
               k >= 1 && k < n_candidates ? k : 0.0,
               p[ISO_SAMPLE_TOP_P],
               p[ISO_SAMPLE_MIN_P]};
  int32_t token = draw_from_list(o, values, d, best, mine, shared);
  return token >= 0 ? token : draw_from_all(o, values, d, scores, shared);
}

__global__ void __launch_bounds__(THREADS) sample(operands o) {
  simt_begin();
  __shared__ shared_memory shared;
  int32_t token = sample_row(o, blockIdx.x, &shared);
  if (threadIdx.x == 0)
    o.y[blockIdx.x] = token;
}

uint64_t workspace(const iso_device *, const iso_op_arguments *arguments) {
  const iso_tensor &logits = arguments->inputs[0];
  return (uint64_t)logits.dims[0] * (uint64_t)logits.dims[1] * (sizeof(double) + sizeof(uint32_t));
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor *inputs = arguments->inputs;
  int64_t n_rows = inputs[0].dims[0];
  operands o = {};
  o.logits = (const float *)simt_address(inputs[0]);
  o.parameters = (const float *)simt_address(inputs[1]);
  o.state = (const int32_t *)simt_address(inputs[2]);
  o.history = (const int32_t *)simt_address(inputs[3]);
  o.allowed = (const uint32_t *)simt_address(inputs[4]);
  o.y = (int32_t *)simt_address(arguments->outputs[0]);
  o.n_logits = (int32_t)inputs[0].dims[1];
  o.n_history = (int32_t)inputs[3].dims[1];
  o.n_words = o.allowed ? (int32_t)inputs[4].dims[1] : 0;
  o.scores = (double *)simt_workspace(arguments);
  o.counts = (uint32_t *)(o.scores + n_rows * o.n_logits);
  if (n_rows == 0)
    return ISO_OK;
  return simt_launch_early(queue, "sample", sample, dim3((unsigned)n_rows), dim3(THREADS), 0, o);
}

const iso_kernel records[] = {{.size = sizeof(iso_kernel),
                               .op = ISO_OP_SAMPLE,
                               .name = "sample.simt",
                               .schemes = SIMT_ALL,
                               .activations = SIMT_FLOATS,
                               .layout = ISO_LAYOUT_PLAIN,
                               .rank = 0,
                               .workspace = workspace,
                               .launch = launch}};

} /* namespace */

SIMT_EXPORT_KERNELS(sample, records)
