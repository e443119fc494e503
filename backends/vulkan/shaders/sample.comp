/* sample: draws one token a row, by the definitions of ops/sampling.h. One workgroup a row.
 *
 * Scores (penalised logits, -infinity for what is out) lie in the workspace. Each filter keeps the
 * tokens from some score on; that score is found by bisecting the 32 bits of a key that orders like
 * it. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "groups.glsl"
#include "reduce.glsl"
#include "best.glsl"

layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Scores { float v[]; };

layout(push_constant) uniform Push {
  uint64_t logits, parameters, state, history, allowed, y, scores, bests;
  uint n_rows, n_logits, n_history, n_words, n_pieces;
};

#include "first_score.glsl"

const uint TEMPERATURE = 0, TOP_K = 1, TOP_P = 2, MIN_P = 3, REPETITION = 4, PRESENCE = 5,
           FREQUENCY = 6, N_PARAMETERS = 8;

float parameter_of(uint r, uint which) { return Floats(parameters).v[r * N_PARAMETERS + which]; }

/* Natural logarithm of a normal number, to a unit in the last place or two: the driver's may be off
 * by 2^-21 near 1. */
float log_of(float x) {
  uint bits = floatBitsToUint(x) - 0x3f3504f3u; /* from sqrt(1 / 2) on */
  int exponent = int(bits) >> 23;
  float m = uintBitsToFloat((bits & 0x7fffffu) + 0x3f3504f3u);
  float s = (m - 1.0) / (m + 1.0), q = s * s;
  float series = s * q * (0.66666669 + q * (0.40000000 + q * (0.28571429 + q * 0.22222222)));
  return float(exponent) * 0.69314575 + (2.0 * s + (series + float(exponent) * 1.4286068e-6));
}

/* -log(1 - v) for 0 < v < 1, without the loss of 1 - v. */
float minus_log1m(float v) {
  if (v > 0.5)
    return -log_of(1.0 - v);
  float s = v / (2.0 - v), q = s * s;
  return 2.0 * s + s * q * (0.66666669 + q * (0.40000000 + q * (0.28571429 + q * (0.22222222 +
         q * (0.18181818 + q * (0.15384615 + q * 0.13333333))))));
}

/* Word token % 4 of Philox4x32-10. */
uint random_word(uvec2 key, uint token, uint draw) {
  uvec4 x = uvec4(token / 4, draw, 0, 0);
  for (int i = 0; i < 10; i++) {
    uint high0, low0, high2, low2;
    umulExtended(0xD2511F53u, x.x, high0, low0);
    umulExtended(0xCD9E8D57u, x.z, high2, low2);
    x = uvec4(high2 ^ x.y ^ key.x, low2, high0 ^ x.w ^ key.y, low0);
    key += uvec2(0x9E3779B9u, 0xBB67AE85u);
  }
  return x[token % 4];
}

float gumbel(uvec2 key, uint token, uint draw) {
  uint word = random_word(key, token, draw);
  float v = float(word >> 8) * 5.9604644775390625e-8 +
            (float(word & 255u) + 0.5) * 2.3283064365386963e-10;
  return -log_of(minus_log1m(min(v, 0.99999994039535522)));
}

/* Orders like the number. */
uint key_of(float x) {
  uint bits = floatBitsToUint(x == 0.0 ? 0.0 : x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/* AT_ONCE loads are under way before the first is used: a row is read by one workgroup alone. */
const uint AT_ONCE = 8;

void start(uint r, uint64_t row) {
  for (uint t0 = gl_LocalInvocationID.x; t0 < n_logits; t0 += WORKGROUP * AT_ONCE) {
    float values[AT_ONCE];
    [[unroll]] for (uint i = 0; i < AT_ONCE; i++)
      values[i] = first_score(r, min(t0 + i * WORKGROUP, n_logits - 1));
    [[unroll]] for (uint i = 0; i < AT_ONCE; i++)
      if (t0 + i * WORKGROUP < n_logits)
        Scores(row).v[t0 + i * WORKGROUP] = values[i];
  }
}

/* The token of the largest score. */
uint find_largest(uint64_t row, out float largest) {
  uint winner = 0xffffffffu;
  largest = 0;
  for (uint t0 = gl_LocalInvocationID.x; t0 < n_logits; t0 += WORKGROUP * AT_ONCE) {
    float values[AT_ONCE];
    [[unroll]] for (uint i = 0; i < AT_ONCE; i++)
      values[i] = Scores(row).v[min(t0 + i * WORKGROUP, n_logits - 1)];
    [[unroll]] for (uint i = 0; i < AT_ONCE; i++)
      if (t0 + i * WORKGROUP < n_logits && values[i] != -INFINITY &&
          (winner == 0xffffffffu || values[i] > largest)) {
        largest = values[i];
        winner = t0 + i * WORKGROUP;
      }
  }
  return workgroup_best(largest, winner);
}

/* The same without penalties, from what sample_best.comp has found in each piece. */
uint join_bests(uint r, out float largest) {
  uint id = gl_LocalInvocationID.x, winner = 0xffffffffu;
  largest = 0;
  if (id < n_pieces) {
    uvec2 best = Words2(bests).v[r * n_pieces + id];
    largest = uintBitsToFloat(best.x);
    winner = best.y;
  }
  return workgroup_best(largest, winner);
}

bool has_penalties(uint r) {
  return parameter_of(r, REPETITION) != 1.0 || parameter_of(r, PRESENCE) != 0.0 ||
         parameter_of(r, FREQUENCY) != 0.0;
}

/* Changes the score of each token of the history once, at its first place there. */
void penalise(uint r, uint64_t row, int output_start) {
  float repetition = parameter_of(r, REPETITION), presence = parameter_of(r, PRESENCE);
  float frequency = parameter_of(r, FREQUENCY);
  uint64_t tokens = history + uint64_t(r) * n_history * 4;
  for (uint i = gl_LocalInvocationID.x; i < n_history; i += WORKGROUP) {
    int token = Ints(tokens).v[i];
    bool is_first = token >= 0 && token < n_logits;
    for (uint j = 0; j < i && is_first; j++)
      is_first = Ints(tokens).v[j] != token;
    if (!is_first)
      continue;
    uint n_output = 0;
    for (uint j = uint(max(output_start, 0)); j < n_history; j++)
      n_output += Ints(tokens).v[j] == token ? 1 : 0;
    float score = Scores(row).v[token];
    if (score == -INFINITY)
      continue;
    score = score > 0.0 ? score / repetition : score * repetition;
    score -= frequency * float(n_output);
    Scores(row).v[token] = n_output > 0 ? score - presence : score;
  }
}

/* Of the tokens from key `floor_key` on: the least key such that all of larger key weigh less than
 * `limit` together. They weigh 1 each, or exp((score - largest) * inverse). */
uint find_cut(uint64_t row, uint floor_key, bool by_count, float largest, float inverse,
              float limit) {
  uint cut = 0; /* the largest key above which there is enough */
  for (int bit = 31; bit >= 0; bit--) {
    uint tried = cut | 1u << bit;
    float sum = 0;
    for (uint t = gl_LocalInvocationID.x; t < n_logits; t += WORKGROUP) {
      float score = Scores(row).v[t];
      uint key = key_of(score);
      if (key >= tried && key >= floor_key)
        sum += by_count ? 1.0 : exp((score - largest) * inverse);
    }
    if (workgroup_sum(sum) >= limit)
      cut = tried;
  }
  /* Those of key `cut` and above weigh enough: the ones below are out. */
  return max(cut, floor_key);
}

float weight_from(uint64_t row, uint floor_key, float largest, float inverse) {
  float sum = 0;
  for (uint t = gl_LocalInvocationID.x; t < n_logits; t += WORKGROUP) {
    float score = Scores(row).v[t];
    if (key_of(score) >= floor_key)
      sum += exp((score - largest) * inverse);
  }
  return workgroup_sum(sum);
}

void main() {
  uint r = group_index();
  if (r >= n_rows)
    return;
  uint64_t row = scores + uint64_t(r) * n_logits * 4;
  uvec2 key = uvec2(Words(state).v[r * 4], Words(state).v[r * 4 + 1]);
  uint draw = Words(state).v[r * 4 + 2];
  /* The likeliest token of a row without penalties has been found already. */
  bool has_scores = has_penalties(r) || parameter_of(r, TEMPERATURE) > 0.0;
  if (has_scores) {
    start(r, row);
    memoryBarrierBuffer();
    barrier();
  }
  if (has_penalties(r))
    penalise(r, row, Ints(state).v[r * 4 + 3]);
  memoryBarrierBuffer();
  barrier();
  float largest;
  uint winner = has_scores ? find_largest(row, largest) : join_bests(r, largest);
  float temperature = parameter_of(r, TEMPERATURE);
  if (winner != 0xffffffffu && temperature > 0.0 && largest != INFINITY) {
    float inverse = 1.0 / temperature, top_k = floor(parameter_of(r, TOP_K));
    float top_p = parameter_of(r, TOP_P), min_p = parameter_of(r, MIN_P);
    uint least = key_of(-3.4028234663852886e38);
    if (top_k >= 1.0 && top_k < float(n_logits))
      least = find_cut(row, least, true, 0.0, 0.0, top_k);
    if (top_p < 1.0)
      least = find_cut(row, least, false, largest, inverse,
                       top_p * weight_from(row, least, largest, inverse));
    least = min(least, key_of(largest));
    float lowest = min_p > 0.0 ? log_of(min_p) : -INFINITY, best = 0;
    winner = 0xffffffffu;
    for (uint t = gl_LocalInvocationID.x; t < n_logits; t += WORKGROUP) {
      float score = Scores(row).v[t], scaled = (score - largest) * inverse;
      if (key_of(score) < least || scaled < lowest)
        continue;
      scaled += gumbel(key, t, draw);
      if (winner == 0xffffffffu || scaled > best) {
        best = scaled;
        winner = t;
      }
    }
    winner = workgroup_best(best, winner);
  }
  if (gl_LocalInvocationID.x == 0)
    Ints(y).v[r] = int(winner);
}
