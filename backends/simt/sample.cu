/* sample: one token a row, by the definitions of ops/sampling.h. A block takes a row. Filters that
 * keep the likeliest find their threshold by digits of the score, the highest first: a histogram of
 * one digit says which bucket the threshold is in. Scores are doubles, as in the reference. */
#include "backends/simt/simt.cuh"

namespace {

enum {
  THREADS = 1024,
  SUBGROUPS = THREADS / SIMT_SUBGROUP,
  N_PARAMETERS = 8,
  DIGIT_BITS = 8,
  BUCKETS = 1 << DIGIT_BITS
};
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
  double reduced[SUBGROUPS], weights[BUCKETS];
  int32_t tokens[SUBGROUPS];
  uint32_t counts[BUCKETS];
  double above; /* weight of what is above the bucket that was chosen */
  int32_t bucket;
  int32_t invalid;
};

/* ---- Randomness ------------------------------------------------------------------------------------ */

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

/* ---- Parts of the block ------------------------------------------------------------------------------ */

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
    mine = better(mine, scored{simt_shuffle_xor(mine.score, mask),
                               simt_shuffle_xor(mine.token, mask)});
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

/* ---- The row ------------------------------------------------------------------------------------------ */

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
  scored mine = {0, -1};
  double n_mine = 0;
  for (int token = (int)threadIdx.x; token < o.n_logits; token += THREADS) {
    float logit = o.logits[row * o.n_logits + token];
    bool allowed =
        !o.allowed || (o.allowed[row * o.n_words + token / 32] >> (token % 32) & 1);
    if (!allowed || !(logit > -INFINITY)) {
      scores[token] = -INFINITY;
      continue;
    }
    double score = has_penalties ? penalised(p, logit, counts[token]) : (double)logit;
    mine = better(mine, scored{score, token});
    n_mine += 1;
    scores[token] = temperature > 0 ? score / temperature : score;
  }
  scored best = block_best(mine, shared);
  if (best.token < 0 || temperature == 0 || best.score == INFINITY)
    return best.token;
  double n_candidates = simt_block_reduce(n_mine, shared->reduced, simt_sum());
  double largest = best.score / temperature;
  uint64_t least = 1;
  double k = floor((double)p[ISO_SAMPLE_TOP_K]);
  if (k >= 1 && k < n_candidates)
    least = find_threshold(o, scores, least, false, largest, k, shared);
  if (p[ISO_SAMPLE_TOP_P] < 1) {
    double total = 0;
    for (int token = (int)threadIdx.x; token < o.n_logits; token += THREADS)
      if (key_of(scores[token]) >= least)
        total += exp(scores[token] - largest);
    total = simt_block_reduce(total, shared->reduced, simt_sum());
    double limit = fmax((double)p[ISO_SAMPLE_TOP_P] * total, 2.2250738585072014e-308);
    least = find_threshold(o, scores, least, true, largest, limit, shared);
  }
  double lowest = p[ISO_SAMPLE_MIN_P] > 0 ? largest + log((double)p[ISO_SAMPLE_MIN_P]) : -INFINITY;
  uint64_t seed = (uint32_t)state[0] | (uint64_t)(uint32_t)state[1] << 32;
  mine = scored{0, -1};
  for (int token = (int)threadIdx.x; token < o.n_logits; token += THREADS)
    if (key_of(scores[token]) >= least && scores[token] >= lowest)
      mine = better(mine, scored{scores[token] + gumbel(seed, (uint32_t)state[2], token), token});
  return block_best(mine, shared).token;
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

const iso_kernel records[] = {{.size = sizeof(iso_kernel), .op = ISO_OP_SAMPLE,
                               .name = "sample.simt", .schemes = SIMT_ALL,
                               .activations = SIMT_FLOATS, .layout = ISO_LAYOUT_PLAIN, .rank = 0,
                               .workspace = workspace, .launch = launch}};

} /* namespace */

SIMT_EXPORT_KERNELS(sample, records)
