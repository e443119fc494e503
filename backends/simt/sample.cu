/* sample: one token a row, by the definitions of ops/sampling.h. Scores are doubles, as in the
 * reference; floats tell which tokens are worth a double.
 *
 * Three kernels. The first two have a block a stretch of a row: `scan` applies penalties and finds
 * the largest values; `pick` then draws among its stretch, where every token above a bound that is
 * known by now can be drawn; with top-k, it adds what reaches the k-th largest of the maxima of
 * small groups to a short list; with top-p of all tokens, it adds what they weigh to a histogram of
 * their distances to the likeliest. `draw` takes the best draw, or sorts the list in shared memory,
 * where all filters are prefixes. With top-p of all tokens several blocks go over parts of the row:
 * the histogram says which distance the threshold is at, and the last block to be done sorts the
 * tokens there.
 *
 * Where a list is too long, as where many logits are equal, one block goes over all tokens, and
 * finds thresholds by halving the range that they may be in. */
#include "backends/simt/sample_row.cuh"
#include <type_traits>

namespace {

using namespace simt_sample;

struct shared_memory {
  double scores[MOST_LISTED], listed_weights[MOST_LISTED]; /* the list, and what its tokens weigh */
  int32_t listed[MOST_LISTED];
  uint32_t n_listed;
  int32_t n_kept;
  double reduced[SUBGROUPS];
  uint64_t keys[SUBGROUPS];
  int32_t tokens[SUBGROUPS];
  double above; /* weight of what is above the bucket that was chosen */
  int32_t bucket;
  bool is_last;
};

/* ---- Parts of the block ---------------------------------------------------------------------- */

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

/* Takes the row's list, sorted, scores divided by the temperature; false when it was too long.
 * Other blocks of the launch may have written it. */
__device__ bool take_list(const operands &o, int64_t row, double temperature,
                          shared_memory *shared) {
  uint32_t count = *(volatile uint32_t *)&o.n_listed[row];
  if (count > MOST_LISTED)
    return false;
  int padded = SIMT_SUBGROUP;
  while (padded < (int)count)
    padded *= 2;
  for (int i = (int)threadIdx.x; i < padded; i += THREADS) {
    bool exists = i < (int)count;
    const volatile entry *e = &o.list[row * MOST_LISTED + i];
    shared->scores[i] = exists ? e->value / temperature : -INFINITY;
    shared->listed[i] = exists ? e->token : INT32_MAX;
  }
  if (threadIdx.x == 0)
    shared->n_listed = count;
  sort_list(shared, padded);
  return true;
}

/* The number of entries, of `count`, that top-p keeps: until they and what is `above` the list
 * weigh `limit` together. One thread. */
__device__ int keep_top_p(const shared_memory *shared, int count, double above, double limit) {
  int i = 0;
  while (i < count && above < limit)
    for (double score = shared->scores[i]; i < count && shared->scores[i] == score; i++)
      above += shared->listed_weights[i];
  return i;
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
  if (blockIdx.y == 0) {
    if (threadIdx.x == 0)
      o.n_listed[row] = 0, o.n_done[row] = 0;
    for (int i = (int)threadIdx.x; i < DISTANCES && p[ISO_SAMPLE_TOP_P] < 1; i += STRETCH_THREADS)
      o.weights[row * DISTANCES + i] = 0;
  }
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
  if (changed) {
#pragma unroll
    for (int k = 0; k < STRETCH / STRETCH_THREADS; k++) {
      int i = k * STRETCH_THREADS + (int)threadIdx.x, token = first + i;
      if (token >= o.n_logits)
        break;
      double value = values.of(token, logits[k]);
      if (value > -INFINITY)
        value = penalised(p, value, counts[i]);
      o.scores[row * o.n_logits + token] = value;
      if (value == -INFINITY)
        continue;
      mine = better(mine, scored{value, token});
      n_mine++;
    }
  } else {
    float best = -INFINITY; /* the value is the logit, of the lowest token among equals */
#pragma unroll
    for (int k = 0; k < STRETCH / STRETCH_THREADS; k++) {
      int token = first + k * STRETCH_THREADS + (int)threadIdx.x;
      bool exists = token < o.n_logits && values.is_in(token, logits[k]);
      n_mine += exists;
      if (exists && logits[k] > best)
        best = logits[k], mine.token = token;
    }
    mine.score = best;
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
  enum { LOWEST_BIT = 40, SUBGROUPS_HERE = STRETCH_THREADS / SIMT_SUBGROUP };
  __shared__ int counts[2][SUBGROUPS_HERE]; /* by turns: one barrier a bit */
  int n = o.n_stretches * STRETCH_GROUPS, subgroup = (int)threadIdx.x / SIMT_SUBGROUP;
  static_assert(STRETCH_GROUPS % SIMT_SUBGROUP == 0, "whole subgroups count");
  const double *maxima = o.maxima + row * n;
  uint64_t found = 0;
  for (int bit = 63; bit >= LOWEST_BIT; bit--) {
    uint64_t tried = found | UINT64_C(1) << bit;
    int count = 0;
    for (int i = (int)threadIdx.x; i < n; i += STRETCH_THREADS)
      count += simt_count(key_of(maxima[i]) >= tried);
    counts[bit % 2][subgroup] = count;
    __syncthreads();
    count = 0;
    for (int i = 0; i < SUBGROUPS_HERE; i++)
      count += counts[bit % 2][i];
    if (count >= k)
      found = tried;
    if (count == k)
      break;
  }
  if (found == 0)
    return -INFINITY;
  return __longlong_as_double((long long)(found >> 63 ? found ^ UINT64_C(1) << 63 : ~found));
}

/* What the tokens of a stretch weigh: each of their distances, and all together. */
__device__ void weigh_stretch(const operands &o, int64_t row, const drawing &d,
                              const row_values &values, int first, stretch *mine) {
  __shared__ uint32_t weights[DISTANCES];
  __shared__ double reduced[STRETCH_THREADS / SIMT_SUBGROUP];
  for (int i = (int)threadIdx.x; i < DISTANCES; i += STRETCH_THREADS)
    weights[i] = 0;
  __syncthreads();
  float weight = 0;
  for (int i = (int)threadIdx.x; i < STRETCH && first + i < o.n_logits; i += STRETCH_THREADS) {
    float distance = d.distance(values[first + i]);
    weight += expf(-distance);
    int bucket = bucket_of(distance);
    float share = expf(fminf(fmaf((float)bucket, PER_DISTANCE, -distance), 0.0f));
    if (bucket < DISTANCES)
      atomicAdd(&weights[bucket], __float2uint_rn(share * SHARES));
  }
  double all = simt_block_reduce((double)weight, reduced, simt_sum());
  if (threadIdx.x == 0)
    mine->weight = all;
  __syncthreads();
  for (int i = (int)threadIdx.x; i < DISTANCES; i += STRETCH_THREADS)
    if (weights[i] > 0)
      atomicAdd(&o.weights[row * DISTANCES + i], (unsigned long long)weights[i]);
}

/* Grid: rows, stretches. */
__global__ void __launch_bounds__(STRETCH_THREADS) pick(operands o) {
  simt_begin();
  __shared__ stretch_shared shared;
  int64_t row = blockIdx.x;
  int first = (int)blockIdx.y * STRETCH, end = min(first + STRETCH, o.n_logits);
  if (o.parameters[row * N_PARAMETERS + ISO_SAMPLE_TEMPERATURE] == 0) /* decided, by the way */
    return;
  drawing d = drawing_of(o, row);
  if (d.decided)
    return;
  row_values values = values_of(o, row);
  stretch *mine = o.stretches + row * o.n_stretches + blockIdx.y;
  if (d.weighs_all()) {
    weigh_stretch(o, row, d, values, first, mine);
  } else if (d.is_direct()) {
    scored drawn = draw_among(d, values, first, end, [](float, int) { return true; });
    drawn = stretch_best(drawn, &shared);
    if (threadIdx.x == 0)
      mine->drawn = drawn.score, mine->drawn_token = drawn.token;
  } else {
    double bound = bound_of_top_k(o, row, d.k);
    add_to_list(o, row, values, first, end, [&](double value) { return value >= bound; });
  }
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

/* The best draw of this thread among the first `count` of the sorted list. */
__device__ scored draw_of_list(const drawing &d, const shared_memory *shared, int count) {
  double lowest = d.lowest();
  scored drawn = {0, -1};
  for (int i = (int)threadIdx.x; i < count; i += THREADS) {
    int32_t token = shared->listed[i];
    if (shared->scores[i] >= lowest)
      drawn = better(drawn, scored{shared->scores[i] + d.noise(token), token});
  }
  return drawn;
}

__device__ void weigh_list(const drawing &d, shared_memory *shared) {
  for (int i = (int)threadIdx.x; i < (int)shared->n_listed; i += THREADS)
    shared->listed_weights[i] = exp(shared->scores[i] - d.largest);
  __syncthreads();
}

/* With top-k: -1 where the list is too long. */
__device__ int32_t draw_from_list(const operands &o, int64_t row, const drawing &d,
                                  shared_memory *shared) {
  if (!take_list(o, row, d.temperature, shared))
    return -1;
  weigh_list(d, shared);
  if (threadIdx.x == 0) {
    int count = (int)shared->n_listed, kept = min((int)d.k, count);
    while (kept < count && shared->scores[kept] == shared->scores[kept - 1])
      kept++;
    if (d.top_p < 1) {
      double total = 0;
      for (int i = 0; i < kept; i++)
        total += shared->listed_weights[i];
      kept = keep_top_p(shared, kept, 0, fmax(d.top_p * total, LEAST_LIMIT));
    }
    shared->n_kept = kept;
  }
  __syncthreads();
  return block_best(draw_of_list(d, shared, shared->n_kept), shared).token;
}

/* Finds the bucket that top-p's threshold is in, DISTANCES where all are kept, and what is above
 * it. */
__device__ void find_bucket(const operands &o, int64_t row, double limit, shared_memory *shared) {
  static_assert(DISTANCES == THREADS && DISTANCES <= MOST_LISTED, "a bucket a thread");
  int bucket = (int)threadIdx.x, lane = bucket % SIMT_SUBGROUP, group = bucket / SIMT_SUBGROUP;
  double *sums = shared->listed_weights;
  double sum = (double)o.weights[row * DISTANCES + bucket] / SHARES *
               exp(-(double)bucket * (double)PER_DISTANCE);
  for (int step = 1; step < SIMT_SUBGROUP; step *= 2) {
    double below = simt_shuffle(sum, max(lane - step, 0));
    sum += lane >= step ? below : 0;
  }
  if (lane == SIMT_SUBGROUP - 1)
    shared->reduced[group] = sum;
  if (bucket == 0)
    shared->bucket = DISTANCES;
  __syncthreads();
  double before = 0;
  for (int i = 0; i < group; i++)
    before += shared->reduced[i];
  sums[bucket] = before + sum;
  __syncthreads();
  if (sums[bucket] >= limit)
    atomicMin(&shared->bucket, bucket);
  __syncthreads();
  if (bucket == 0)
    shared->above = shared->bucket > 0 ? sums[shared->bucket - 1] : 0;
  __syncthreads();
}

/* The largest key so that tokens from that key on weigh `limit` together, if those from `low` on
 * do: 1 each or, by_weight, what they are drawn by. Halves the range from `low` to `high`, the
 * largest of all keys, and moves its ends to keys that there are, so that few different values take
 * few rounds. */
__device__ uint64_t find_threshold(const operands &o, const drawing &d, const row_values &values,
                                   uint64_t low, uint64_t high, bool by_weight, double limit,
                                   shared_memory *shared) {
  double above = 0;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2 + 1, next = UINT64_MAX, below = 0;
    double weight = 0;
    for (int token = (int)threadIdx.x; token < o.n_logits; token += THREADS) {
      double value = values[token];
      uint64_t key = key_of(value);
      if (key < low || key > high)
        continue;
      if (key >= middle) {
        weight += by_weight ? expf(-d.distance(value)) : 1.0f;
        next = key < next ? key : next;
      } else {
        below = key > below ? key : below;
      }
    }
    weight = simt_block_reduce(weight, shared->reduced, simt_sum());
    below = simt_block_reduce(below, shared->keys, simt_max());
    next = ~simt_block_reduce(~next, shared->keys, simt_max());
    if (above + weight >= limit || below == 0) {
      low = next;
    } else {
      above += weight;
      high = below;
    }
    if (low == UINT64_MAX) /* none: sums of another order fell short */
      return high;
  }
  return low;
}

/* Where lists are too long. */
__device__ int32_t draw_from_all(const operands &o, int64_t row, const drawing &d,
                                 shared_memory *shared) {
  row_values values = values_of(o, row);
  uint64_t high = key_of(d.best.score), least = 1;
  if (d.k > 0)
    least = find_threshold(o, d, values, least, high, false, d.k, shared);
  if (d.top_p < 1) {
    double total = 0;
    for (int token = (int)threadIdx.x; token < o.n_logits; token += THREADS)
      if (key_of(values[token]) >= least)
        total += expf(-d.distance(values[token]));
    total = simt_block_reduce(total, shared->reduced, simt_sum());
    double limit = fmax(d.top_p * total, LEAST_LIMIT);
    least = find_threshold(o, d, values, least, high, true, limit, shared);
  }
  scored drawn = draw_among(d, values, 0, o.n_logits,
                            [&](float, int token) { return key_of(values[token]) >= least; });
  return block_best(drawn, shared).token;
}

/* Parts of a row; with top-k that leaves all of many, which nobody asks for, one. */
__device__ int parts_of(const operands &o, int64_t row) {
  const float *p = o.parameters + row * N_PARAMETERS;
  return p[ISO_SAMPLE_TOP_P] < 1 && p[ISO_SAMPLE_TOP_K] < 1 ? o.n_parts : 1;
}

/* With top-p of all tokens, this block's part of them; the last block of a row to be done draws.
 * -1 for the others. */
__device__ int32_t draw_by_weight(const operands &o, int64_t row, const drawing &d,
                                  shared_memory *shared) {
  row_values values = values_of(o, row);
  int n_parts = parts_of(o, row), part = (int)blockIdx.y;
  int first = part * o.part, end = n_parts > 1 ? min(first + o.part, o.n_logits) : o.n_logits;
  double limit = fmax(d.top_p * weigh_all(o, row), LEAST_LIMIT);
  find_bucket(o, row, limit, shared);
  int bucket = shared->bucket;
  double above = shared->above;
  scored drawn = draw_among(d, values, first, end,
                            [=](float distance, int) { return bucket_of(distance) < bucket; });
  drawn = block_best(drawn, shared);
  add_to_list(o, row, values, first, end, [&](double value) {
    return bucket < DISTANCES && bucket_of(d.distance(value)) == bucket;
  });
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    o.drawn[row * o.n_parts + part] = drawn;
    __threadfence();
    shared->is_last = atomicAdd(&o.n_done[row], 1u) == (uint32_t)n_parts - 1;
  }
  __syncthreads();
  if (!shared->is_last)
    return -1;
  __threadfence();
  if (!take_list(o, row, d.temperature, shared))
    return draw_from_all(o, row, d, shared);
  weigh_list(d, shared);
  if (threadIdx.x == 0)
    shared->n_kept = keep_top_p(shared, (int)shared->n_listed, above, limit);
  __syncthreads();
  drawn = draw_of_list(d, shared, shared->n_kept);
  for (int i = (int)threadIdx.x; i < n_parts; i += THREADS) {
    const volatile scored *other = &o.drawn[row * o.n_parts + i];
    drawn = better(drawn, scored{other->score, other->token});
  }
  return block_best(drawn, shared).token;
}

/* Grid: rows, parts; all but the first are for rows with top-p of all tokens. */
__global__ void __launch_bounds__(THREADS) draw(operands o) {
  simt_begin();
  __shared__ shared_memory shared;
  int64_t row = blockIdx.x;
  if ((int)blockIdx.y >= parts_of(o, row))
    return;
  drawing d = drawing_of(o, row);
  int32_t token = d.best.token;
  if (!d.decided && d.weighs_all()) {
    token = draw_by_weight(o, row, d, &shared);
    if (!shared.is_last)
      return;
  } else if (blockIdx.y > 0) {
    return;
  } else if (!d.decided) {
    token = d.is_direct() ? draw_from_stretches(o, row) : draw_from_list(o, row, d, &shared);
    if (token < 0)
      token = draw_from_all(o, row, d, &shared);
  }
  if (threadIdx.x == 0)
    o.y[row] = token;
}

/* ---- Record ---------------------------------------------------------------------------------- */

/* Lays out the scratch; returns its size. As many parts as the device works on at once. */
uint64_t lay_out(const iso_op_arguments *arguments, int n_units, uint8_t *scratch, operands *o) {
  const iso_tensor &logits = arguments->inputs[0];
  uint64_t n_rows = (uint64_t)logits.dims[0], at = 0;
  o->n_logits = (int32_t)logits.dims[1];
  o->n_stretches = (o->n_logits + STRETCH - 1) / STRETCH;
  int64_t parts = n_units / (n_rows > 0 ? (int64_t)n_rows : 1);
  parts = parts < o->n_stretches ? parts : o->n_stretches;
  parts = parts < 1 ? 1 : parts;
  o->part = (int32_t)((o->n_stretches + parts - 1) / parts) * STRETCH;
  o->part = o->part < STRETCH ? STRETCH : o->part;
  o->n_parts = (o->n_logits + o->part - 1) / o->part;
  auto take = [&](auto **array, uint64_t count) {
    *array = (std::remove_reference_t<decltype(*array)>)(scratch + at);
    at += (count * sizeof(**array) + 255) / 256 * 256;
  };
  take(&o->scores, n_rows * (uint64_t)o->n_logits);
  take(&o->stretches, n_rows * (uint64_t)o->n_stretches);
  take(&o->maxima, n_rows * (uint64_t)o->n_stretches * STRETCH_GROUPS);
  take(&o->list, n_rows * MOST_LISTED);
  take(&o->n_listed, n_rows);
  take(&o->weights, n_rows * DISTANCES);
  take(&o->drawn, n_rows * (uint64_t)o->n_parts);
  take(&o->n_done, n_rows);
  return at;
}

uint64_t workspace(const iso_device *device, const iso_op_arguments *arguments) {
  operands o = {};
  return lay_out(arguments, simt_n_units(device), nullptr, &o);
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor *inputs = arguments->inputs;
  operands o = {};
  (void)lay_out(arguments, simt_n_units(queue->device), simt_workspace(arguments), &o);
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
  dim3 parts(rows.x, (unsigned)o.n_parts);
  return simt_launch_early(queue, "sample: draw", draw, parts, dim3(THREADS), 0, o);
}

const iso_kernel records[] = {SIMT_SCRATCH_RECORD(SAMPLE, "sample.simt", workspace, launch)};

} /* namespace */

SIMT_EXPORT_KERNELS(sample, records)
