#include "ops/sampling.h"
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Logits are looked at in blocks of this many: as many as a word of a mask has bits, and eight
 * counters of the generator have words. */
enum { BLOCK = 32, COUNTERS = BLOCK / 4, LANES = 8 };

/* A value that may be filtered, and what it weighs. */
typedef struct weighed {
  float value, weight;
} weighed;

/* A row whose tokens are being filtered: those with logits[token] >= cut are in the running, which
 * is never true of NaN. */
typedef struct running {
  const float *logits; /* the row's own, or `changed` where some are penalised or not allowed */
  int64_t n;
  float *maxima; /* of each block, -infinity where it has no number */
  float largest, cut, inverse_temperature;
  /* Scratch, n each. */
  float *changed, *weights;
  weighed *pool;
} running;

static int64_t block_count(const running *self) { return (self->n + BLOCK - 1) / BLOCK; }

/* Elements of block `block`: a constant for all but the last, for the compiler's sake. */
#define FOR_BLOCK(self, block, CALL)                                                               \
  do {                                                                                             \
    if (((block) + 1) * BLOCK <= (self)->n)                                                        \
      CALL(BLOCK);                                                                                 \
    else                                                                                           \
      CALL((int)((self)->n - (block)*BLOCK));                                                      \
  } while (0)

#define INLINE static inline __attribute__((always_inline))

/* Loops over all tokens are compiled for wider vectors too, and the loader picks; all give the same
 * bits, for none contracts. The sanitizers' run time is not ready when it does. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) &&                 \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

/* ---- Noise ---------------------------------------------------------------------------------- */

void iso_philox(uint64_t key, const uint32_t counter[4], uint32_t out_words[4]) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
  for (int round = 0; round < 10; round++, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
    uint64_t a = (uint64_t)0xD2511F53 * x0, b = (uint64_t)0xCD9E8D57 * x2;
    x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
    x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
    x1 = (uint32_t)b;
    x3 = (uint32_t)a;
  }
  out_words[0] = x0;
  out_words[1] = x1;
  out_words[2] = x2;
  out_words[3] = x3;
}

/* The words of a block's tokens, as iso_philox() gives them. */
#if defined(__SSE2__)
/* Two counters a vector, a word in the low half of each 64 bits; high halves hold anything. */
INLINE void block_words(const iso_sample_row *row, int64_t block, uint32_t out_words[BLOCK]) {
  const __m128i m0 = _mm_set1_epi64x(0xD2511F53), m1 = _mm_set1_epi64x(0xCD9E8D57);
  __m128i x0[COUNTERS / 2], x1[COUNTERS / 2], x2[COUNTERS / 2], x3[COUNTERS / 2];
  for (int i = 0; i < COUNTERS / 2; i++) {
    x0[i] = _mm_set_epi64x(block * COUNTERS + 2 * i + 1, block * COUNTERS + 2 * i);
    x1[i] = _mm_set1_epi64x(row->draw);
    x2[i] = x3[i] = _mm_setzero_si128();
  }
  uint32_t k0 = (uint32_t)row->seed, k1 = (uint32_t)(row->seed >> 32);
  for (int round = 0; round < 10; round++, k0 += 0x9E3779B9, k1 += 0xBB67AE85)
    for (int i = 0; i < COUNTERS / 2; i++) {
      __m128i a = _mm_mul_epu32(x0[i], m0), b = _mm_mul_epu32(x2[i], m1);
      x0[i] = _mm_xor_si128(_mm_srli_epi64(b, 32), _mm_xor_si128(x1[i], _mm_set1_epi64x(k0)));
      x2[i] = _mm_xor_si128(_mm_srli_epi64(a, 32), _mm_xor_si128(x3[i], _mm_set1_epi64x(k1)));
      x1[i] = b;
      x3[i] = a;
    }
  for (int i = 0; i < COUNTERS / 2; i++) {
    __m128i even = _mm_unpacklo_epi32(x0[i], x1[i]), odd = _mm_unpackhi_epi32(x0[i], x1[i]);
    __m128i even_high = _mm_unpacklo_epi32(x2[i], x3[i]);
    __m128i odd_high = _mm_unpackhi_epi32(x2[i], x3[i]);
    __m128i *out = (__m128i *)(void *)(out_words + 8 * i);
    _mm_storeu_si128(out, _mm_unpacklo_epi64(even, even_high));
    _mm_storeu_si128(out + 1, _mm_unpacklo_epi64(odd, odd_high));
  }
}
#else
INLINE void block_words(const iso_sample_row *row, int64_t block, uint32_t out_words[BLOCK]) {
  for (int i = 0; i < COUNTERS; i++) {
    uint32_t counter[4] = {(uint32_t)(block * COUNTERS + i), row->draw, 0, 0};
    iso_philox(row->seed, counter, out_words + 4 * i);
  }
}
#endif

/* `value` if `condition`, else `other`, of numbers at hand: no branch keeps a loop from vectors. */
INLINE float or_else(bool condition, float value, float other) {
  uint32_t bits, other_bits, chosen = 0u - (uint32_t)condition;
  memcpy(&bits, &value, sizeof bits);
  memcpy(&other_bits, &other, sizeof bits);
  bits = (bits & chosen) | (other_bits & ~chosen);
  memcpy(&value, &bits, sizeof bits);
  return value;
}

/* v of sampling.h: at least 2^-33. Words fit an int32 once shifted or masked, which converts
 * cheaper than a uint32. */
INLINE float uniform_of(uint32_t word) {
  float v =
      (float)(int32_t)(word >> 8) * 0x1p-24f + ((float)(int32_t)(word & 255) + 0.5f) * 0x1p-32f;
  return or_else(v < 1 - 0x1p-24f, v, 1 - 0x1p-24f);
}

#define LEAST_UNIFORM 0x1p-33f

/* Lies between -2.9 (v near 1) and 22.9 (v = 2^-33). */
static double gumbel(float v) { return -log(-log1p(-(double)v)); }

/* exp(x) for x <= 0, to 2e-7 of itself down to exp(-87), below which it stays there: 2^n times a
 * polynomial on [-ln 2 / 2, ln 2 / 2], n found by adding what leaves no room for a fraction. */
INLINE float fast_exp(float x) {
  x = or_else(x > -87.0f, x, -87.0f);
  float shifted = x * 1.44269504f + 12582912.0f; /* 1.5 2^23 */
  int32_t n, bits;
  memcpy(&n, &shifted, sizeof n);
  float whole = shifted - 12582912.0f;
  float r = (x - whole * 0.693145752f) - whole * 1.42860677e-6f; /* ln 2 in two parts */
  float p = 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1;
  p = p * r + 1;
  memcpy(&bits, &p, sizeof bits);
  bits += (int32_t)((uint32_t)n << 23);
  memcpy(&p, &bits, sizeof p);
  return p;
}

/* ---- What is in the running ----------------------------------------------------------------- */

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

static float penalised(const float *parameters, double logit, int32_t n_output) {
  double repetition = parameters[ISO_SAMPLE_REPETITION_PENALTY];
  logit = logit > 0 ? logit / repetition : logit * repetition;
  logit -= (double)parameters[ISO_SAMPLE_FREQUENCY_PENALTY] * n_output;
  return (float)(n_output > 0 ? logit - parameters[ISO_SAMPLE_PRESENCE_PENALTY] : logit);
}

/* Penalises each token of the history once. `counts` is scratch of which only their entries are
 * used: occurrences in the output, -1 when done. */
static iso_status penalise(const iso_sample_row *row, float *logits, int32_t *counts) {
  for (int64_t i = 0; i < row->n_history; i++) {
    int32_t token = row->history[i];
    if (token < -1 || token >= row->n_logits)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "history holds token %d, the vocabulary has %" PRId64, token, row->n_logits);
    if (token >= 0)
      counts[token] = 0;
  }
  for (int64_t i = row->output_start > 0 ? row->output_start : 0; i < row->n_history; i++)
    if (row->history[i] >= 0)
      counts[row->history[i]]++;
  for (int64_t i = 0; i < row->n_history; i++) {
    int32_t token = row->history[i];
    if (token < 0 || counts[token] < 0)
      continue;
    logits[token] = penalised(row->parameters, logits[token], counts[token]);
    counts[token] = -1;
  }
  return ISO_OK;
}

/* What may not be drawn becomes -infinity. */
static void mask(const iso_sample_row *row, float *logits) {
  static const uint32_t bits[BLOCK] = {
#define FOUR(i) 1u << (i), 1u << ((i) + 1), 1u << ((i) + 2), 1u << ((i) + 3)
      FOUR(0),  FOUR(4),  FOUR(8), FOUR(12), FOUR(16),
      FOUR(20), FOUR(24), FOUR(28)
#undef FOUR
  };
  for (int64_t token = 0; token < row->n_logits; token += BLOCK) {
    uint32_t word = row->allowed[token / BLOCK];
    int64_t count = row->n_logits - token < BLOCK ? row->n_logits - token : BLOCK;
    for (int64_t i = 0; word != UINT32_MAX && i < count; i++)
      logits[token + i] = word & bits[i] ? logits[token + i] : -INFINITY;
  }
}

INLINE float largest_of(const float *logits, int count) {
  float most[LANES], result = -INFINITY;
  for (int i = 0; i < LANES; i++)
    most[i] = -INFINITY;
  int whole = count / LANES * LANES;
  for (int i = 0; i < whole; i += LANES)
    for (int lane = 0; lane < LANES; lane++)
      most[lane] = logits[i + lane] > most[lane] ? logits[i + lane] : most[lane];
  for (int lane = 0; lane < LANES; lane++)
    result = most[lane] > result ? most[lane] : result;
  for (int i = whole; i < count; i++)
    result = logits[i] > result ? logits[i] : result;
  return result;
}

WIDE static void find_maxima(running *self) {
  for (int64_t block = 0; block < block_count(self); block++) {
#define CALL(count) self->maxima[block] = largest_of(self->logits + block * BLOCK, count)
    FOR_BLOCK(self, block, CALL);
#undef CALL
    self->largest = self->maxima[block] > self->largest ? self->maxima[block] : self->largest;
  }
}

static iso_status start(const iso_sample_row *row, iso_sample_candidate *candidates,
                        running *out_running) {
  float *scratch = (float *)candidates;
  int64_t n = row->n_logits;
  running *self = out_running;
  *self = (running){.logits = row->logits,
                    .n = n,
                    .largest = -INFINITY,
                    .cut = -FLT_MAX,
                    .changed = scratch,
                    .weights = scratch + n,
                    .pool = (weighed *)(void *)(scratch + 2 * n),
                    .maxima = scratch + 4 * n};
  bool penalties = has_penalties(row->parameters);
  if (row->allowed || penalties) {
    self->logits = memcpy(self->changed, row->logits, (size_t)n * sizeof(float));
    if (penalties)
      ISO_TRY(penalise(row, self->changed, (int32_t *)(void *)self->weights));
    if (row->allowed)
      mask(row, self->changed);
  }
  float temperature = row->parameters[ISO_SAMPLE_TEMPERATURE];
  self->inverse_temperature = temperature < FLT_MIN ? FLT_MAX : 1 / temperature;
  find_maxima(self);
  return ISO_OK;
}

/* The lowest token that has the largest logit. */
static int32_t likeliest(const running *self) {
  int64_t token = 0;
  while (self->maxima[token / BLOCK] != self->largest)
    token += BLOCK;
  while (self->logits[token] != self->largest)
    token++;
  return (int32_t)token;
}

/* ---- Filters -------------------------------------------------------------------------------- */

static void swap(weighed *a, weighed *b) {
  weighed saved = *a;
  *a = *b;
  *b = saved;
}

/* Keeps those in the pool for which all of larger value weigh less than `limit` together, and
 * returns the least value kept; `least` if none is. Quickselect with three parts; the pool is
 * reordered. */
static float least_kept(weighed *pool, int64_t count, double limit, float least) {
  int64_t low = 0, high = count; /* those before `low` stay, those from `high` on go */
  double kept = 0;
  uint32_t random = 1;
  while (low < high && kept < limit) {
    random = random * 1664525u + 1013904223u;
    float pivot = pool[low + (int64_t)((uint64_t)random * (uint64_t)(high - low) >> 32)].value;
    double above = 0, equal = 0;
    int64_t above_end = low, equal_end = low;
    for (int64_t i = low; i < high; i++) {
      if (pool[i].value < pivot)
        continue;
      swap(&pool[i], &pool[equal_end]);
      if (pool[equal_end].value == pivot) {
        equal += pool[equal_end].weight;
      } else {
        above += pool[equal_end].weight;
        swap(&pool[equal_end], &pool[above_end++]);
      }
      equal_end++;
    }
    if (kept + above >= limit) {
      high = above_end;
    } else {
      least = pivot;
      kept += above + equal;
      low = equal_end;
    }
  }
  return least;
}

INLINE bool any_between(const float *logits, float low, float high, int count) {
  int32_t any = 0;
  for (int i = 0; i < count; i++)
    any |= (logits[i] >= low) & (logits[i] < high);
  return any;
}

/* Puts the tokens with low <= logit < high into the pool; NULL weights are 1. */
WIDE static int64_t fill_pool(const running *self, float low, float high, const float *weights) {
  int64_t count = 0;
  for (int64_t block = 0; block < block_count(self); block++) {
    const float *logits = self->logits + block * BLOCK;
    bool any = self->maxima[block] >= low;
    if (!any)
      continue;
#define CALL(count) any = any_between(logits, low, high, count)
    FOR_BLOCK(self, block, CALL);
#undef CALL
    for (int64_t i = 0; any && i < BLOCK && block * BLOCK + i < self->n; i++)
      if (logits[i] >= low && logits[i] < high)
        self->pool[count++] = (weighed){logits[i], weights ? weights[block * BLOCK + i] : 1};
  }
  return count;
}

/* The k-th largest of the blocks' largest is at most the k-th largest of all, so that few tokens
 * have to be looked at. */
static void keep_top_k(running *self, double k) {
  k = floor(k);
  if (k < 1 || k >= (double)self->n)
    return;
  float low = self->cut;
  int64_t blocks = block_count(self);
  if (k <= (double)blocks) {
    for (int64_t block = 0; block < blocks; block++)
      self->pool[block] = (weighed){self->maxima[block], 1};
    float bound = least_kept(self->pool, blocks, k, low);
    low = bound > low ? bound : low;
  }
  int64_t count = fill_pool(self, low, INFINITY, NULL);
  self->cut = least_kept(self->pool, count, k, low);
}

/* A sum in an order that fits vectors of any width. */
INLINE float sum_of(const float *values, int count) {
  float sums[LANES] = {0};
  int whole = count / LANES * LANES;
  for (int i = 0; i < whole; i += LANES)
    for (int lane = 0; lane < LANES; lane++)
      sums[lane] += values[i + lane];
  for (int i = whole; i < count; i++)
    sums[i - whole] += values[i];
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; lane++)
      sums[lane] += sums[lane + half];
  return sums[0];
}

INLINE float weigh(const running *self, const float *logits, float *restrict weights, int count) {
  const float largest = self->largest, scale = self->inverse_temperature, cut = self->cut;
  for (int i = 0; i < count; i++) {
    float logit = logits[i];
    weights[i] = or_else(logit >= cut, fast_exp((logit - largest) * scale), 0);
  }
  return sum_of(weights, count);
}

/* exp((logit - largest) / temperature) of every token in the running, and their sum. */
WIDE static double weigh_all(running *self) {
  double total = 0;
  for (int64_t block = 0; block < block_count(self); block++) {
    if (!(self->maxima[block] >= self->cut))
      continue;
#define CALL(count)                                                                                \
  total += (double)weigh(self, self->logits + block * BLOCK, self->weights + block * BLOCK, count)
    FOR_BLOCK(self, block, CALL);
#undef CALL
  }
  return total;
}

INLINE float weight_from(const float *logits, const float *weights, float low, int count) {
  float kept[BLOCK];
  for (int i = 0; i < count; i++)
    kept[i] = or_else(logits[i] >= low, weights[i], 0);
  return sum_of(kept, count);
}

/* What the tokens from `low` on weigh together. */
WIDE static double weight_above(const running *self, float low) {
  double total = 0;
  for (int64_t block = 0; block < block_count(self); block++) {
    if (!(self->maxima[block] >= low))
      continue;
#define CALL(count)                                                                                \
  total +=                                                                                         \
      (double)weight_from(self->logits + block * BLOCK, self->weights + block * BLOCK, low, count)
    FOR_BLOCK(self, block, CALL);
#undef CALL
  }
  return total;
}

/* Bisects between a value whose upper tokens weigh enough and one whose weigh too little, then
 * settles the few in between one by one. */
static void keep_top_p(running *self, double temperature, double top_p) {
  if (top_p >= 1)
    return;
  double total = weigh_all(self), limit = fmax(top_p * total, DBL_MIN), above;
  float high = self->largest;
  if ((above = weight_above(self, high)) >= limit) {
    self->cut = high;
    return;
  }
  /* Tokens below this weigh less than 1 - top_p of all even if all tokens are among them. */
  double bound = self->largest + temperature * log((1 - top_p) * total / (double)self->n);
  float low = fmaxf(self->cut, (float)fmax(bound, -FLT_MAX));
  if (weight_above(self, low) < limit)
    low = self->cut;
  for (int64_t left = self->n; left > BLOCK; left /= 2) {
    float middle = low / 2 + high / 2;
    if (middle <= low || middle >= high)
      break;
    double weight = weight_above(self, middle);
    if (weight >= limit) {
      low = middle;
    } else {
      high = middle;
      above = weight;
    }
  }
  int64_t count = fill_pool(self, low, high, self->weights);
  self->cut = least_kept(self->pool, count, limit - above, high);
}

static void keep_min_p(running *self, double temperature, double min_p) {
  if (min_p <= 0)
    return;
  double least = self->largest + temperature * log(min_p);
  float cut = (float)fmax(least, -FLT_MAX);
  if ((double)cut < least)
    cut = nextafterf(cut, INFINITY);
  self->cut = fmaxf(self->cut, fminf(cut, self->largest));
}

/* ---- The draw ------------------------------------------------------------------------------- */

/* Whether any token of a block may score `best`. As g <= -log(v), one can only if
 * v <= exp(score - best), which is its weight times `factor`. */
INLINE bool may_win(const running *self, const float *logits, const uint32_t *words, float factor,
                    int count) {
  const float largest = self->largest, scale = self->inverse_temperature, cut = self->cut;
  int32_t any = 0;
  for (int i = 0; i < count; i++) {
    float logit = logits[i], weight = fast_exp((logit - largest) * scale) * factor;
    any |= or_else(logit >= cut, weight, 0) >= uniform_of(words[i]);
  }
  return any;
}

typedef struct winner {
  double score;
  int32_t token;
  float factor; /* exp(largest - score), and a thousandth for what is not exact */
} winner;

static void challenge(const running *self, double temperature, int32_t token, uint32_t word,
                      winner *best) {
  double score = self->logits[token] / temperature + gumbel(uniform_of(word));
  if (score < best->score || (score == best->score && token > best->token))
    return;
  best->score = score;
  best->token = token;
  best->factor = (float)(exp(self->largest / temperature - score) * 1.001);
}

WIDE static int32_t draw(const iso_sample_row *row, const running *self, int32_t first) {
  double temperature = row->parameters[ISO_SAMPLE_TEMPERATURE];
  uint32_t words[BLOCK];
  winner best = {-INFINITY, first, 0};
  block_words(row, first / BLOCK, words);
  challenge(self, temperature, first, words[first % BLOCK], &best);
  for (int64_t block = 0; block < block_count(self); block++) {
    float most = self->maxima[block];
    if (!(most >= self->cut) ||
        fast_exp((most - self->largest) * self->inverse_temperature) * best.factor < LEAST_UNIFORM)
      continue;
    block_words(row, block, words);
    const float *logits = self->logits + block * BLOCK;
    bool hit;
#define CALL(count) hit = may_win(self, logits, words, best.factor, count)
    FOR_BLOCK(self, block, CALL);
#undef CALL
    for (int64_t i = 0; hit && i < BLOCK && block * BLOCK + i < self->n; i++)
      if (logits[i] >= self->cut)
        challenge(self, temperature, (int32_t)(block * BLOCK + i), words[i], &best);
  }
  return best.token;
}

iso_status iso_sample_token(const iso_sample_row *row, iso_sample_candidate *candidates,
                            int32_t *out_token) {
  const float *parameters = row->parameters;
  ISO_TRY(check_parameters(parameters));
  running self;
  ISO_TRY(start(row, candidates, &self));
  *out_token = -1;
  if (!(self.largest > -INFINITY))
    return ISO_OK;
  *out_token = likeliest(&self);
  double temperature = parameters[ISO_SAMPLE_TEMPERATURE];
  if (temperature == 0 || self.largest == INFINITY)
    return ISO_OK;
  keep_top_k(&self, parameters[ISO_SAMPLE_TOP_K]);
  keep_top_p(&self, temperature, parameters[ISO_SAMPLE_TOP_P]);
  keep_min_p(&self, temperature, parameters[ISO_SAMPLE_MIN_P]);
  *out_token = draw(row, &self, *out_token);
  return ISO_OK;
}
