/* paged_attention of one token at a time, which is what decoding asks for: nothing is shared while
 * keys and values stream by.
 *
 * A workgroup takes a token, CHUNK query heads that share one key head, and one of n_splits parts
 * of what they see. LANES invocations next to each other hold eight elements of the head each and
 * take a position at a time, AT_ONCE of them under way; each such group keeps its own running
 * maxima and sums (arXiv:1805.02867), which are brought together at the end.
 *
 * With ROPE, of the one token of one sequence: rope of its queries and its key and kv_write are done
 * here as well, and the workgroup of a head that is done last joins the parts of the context. It
 * alone writes rows of activations, since the others may still read what lay there before. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "types.glsl"
#include "functions.glsl"
#include "groups.glsl"
#include "rows.glsl"
#define HAS_FP8_CACHES
#include "cache.glsl"

layout(constant_id = 1) const uint TYPE_Q = 0;
layout(constant_id = 2) const uint TYPE_Y = 0;
layout(constant_id = 3) const uint TYPE_K = 0;
layout(constant_id = 4) const uint TYPE_V = 0;
layout(constant_id = 5) const uint HEAD_DIM = 64; /* eight times a power of two */
layout(constant_id = 6) const uint N_HEADS = 1;
layout(constant_id = 7) const uint N_KV_HEADS = 1;
layout(constant_id = 8) const uint PAGE_SIZE = 16;
layout(constant_id = 9) const uint CHUNK = 1;
layout(constant_id = 10) const uint IS_CAUSAL = 1;

const uint GROUP = N_HEADS / N_KV_HEADS, N_CHUNKS = (GROUP + CHUNK - 1) / CHUNK;

#ifdef ROPE
#include "rope_one.glsl"
#else
#define Parts Floats
#define n_parts n_splits
#define page_of(entry) uint(entry)

/* As in paged_attention.comp. */
layout(push_constant) uniform Push {
  Rows q, y;
  uint64_t k_cache, v_cache, block_table, query_start, query_length, context_length, slopes, parts;
  uint n_tokens, n_sequences, n_blocks, window, n_splits;
  float scale, soft_cap;
};
#endif

const uint LANES = HEAD_DIM / 8, N_TEAMS = WORKGROUP / LANES, QUADS = HEAD_DIM / 4;
#ifdef ROPE
const uint AT_ONCE = 2; /* of larger workgroups; four took longer */
#else
const uint AT_ONCE = 4;
#endif

shared vec4 team_sums[N_TEAMS * CHUNK * QUADS];
shared vec2 team_totals[N_TEAMS * CHUNK]; /* largest score, sum of weights */

uint head_of(uint kv_head, uint chunk, uint j) { return kv_head * GROUP + chunk * CHUNK + j; }
bool has_head(uint chunk, uint j) { return chunk * CHUNK + j < GROUP; }

bool has_token(uint sequence, int token, out int start, out int n) {
  start = Ints(query_start).v[sequence];
  n = Ints(query_length).v[sequence];
  return token >= start && token < start + n;
}

/* Eight elements of a row of a cache: as they lie where they have 16 bits. */
uvec4 load_raw(uint64_t row, uint octet, uint type) {
  if (type == FLOAT_F16 || type == FLOAT_BF16)
    return Words4(row).v[octet];
  return uvec4(0);
}
void decode_raw(uint64_t row, uvec4 raw, uint octet, uint type, out vec4 low, out vec4 high) {
  if (type == FLOAT_BF16) {
    low = uintBitsToFloat(uvec4(raw.x << 16, raw.x & 0xffff0000u, raw.y << 16, raw.y & 0xffff0000u));
    high = uintBitsToFloat(uvec4(raw.z << 16, raw.z & 0xffff0000u, raw.w << 16, raw.w & 0xffff0000u));
  } else if (type == FLOAT_F16) {
    low = vec4(unpackHalf2x16(raw.x), unpackHalf2x16(raw.y));
    high = vec4(unpackHalf2x16(raw.z), unpackHalf2x16(raw.w));
  } else {
    low = load_cache(row, 8 * octet, HEAD_DIM, type, true);
    high = load_cache(row, 8 * octet + 4, HEAD_DIM, type, true);
  }
}

void store_quad(uint token, uint head, uint split, uint quad, float maximum, float total,
                vec4 value) {
  if (n_parts == 1) {
#ifdef ROPE
    uint64_t row = head_row(y_at, head);
#else
    uint64_t row = row_of(y, token * N_HEADS + head, N_HEADS);
#endif
    value = total > 0.0 ? value / total : vec4(0);
    for (uint e = 0; e < 4; e++)
      store_element(row, 4 * quad + e, TYPE_Y, value[e]);
    return;
  }
  uint64_t part =
      parts + uint64_t((token * N_HEADS + head) * n_parts + split) * ((HEAD_DIM + 2) * 4);
  if (quad == 0) {
    Parts(part).v[0] = maximum;
    Parts(part).v[1] = total;
  }
  for (uint e = 0; e < 4; e++)
    Parts(part).v[2 + 4 * quad + e] = value[e];
}

/* Positions of a team under way: their rows in the caches, keys and values. */
uint64_t cache_rows[AT_ONCE];
uvec4 raw_keys[AT_ONCE], raw_values[AT_ONCE];

uint64_t key_row(uint u) { return k_cache + cache_rows[u] * cache_row_bytes(TYPE_K, HEAD_DIM); }
uint64_t value_row(uint u) { return v_cache + cache_rows[u] * cache_row_bytes(TYPE_V, HEAD_DIM); }

/* A team's positions from p0 on, below `end`. */
void ask_for_positions(uint sequence, uint kv_head, uint p0, uint end, uint octet) {
  [[unroll]] for (uint u = 0; u < AT_ONCE; u++) {
    uint p = min(p0 + u * N_TEAMS, end - 1);
    uint page = page_of(Ints(block_table).v[sequence * n_blocks + p / PAGE_SIZE]);
    cache_rows[u] = (uint64_t(page) * N_KV_HEADS + kv_head) * PAGE_SIZE + p % PAGE_SIZE;
    raw_keys[u] = load_raw(key_row(u), octet, TYPE_K);
    raw_values[u] = load_raw(value_row(u), octet, TYPE_V);
  }
}

void main() {
  uint group = group_index(), split = group % n_splits;
  group /= n_splits;
  uint chunk = group % N_CHUNKS, kv_head = group / N_CHUNKS % N_KV_HEADS;
  uint token = group / (N_CHUNKS * N_KV_HEADS);
  if (token >= n_tokens)
    return;
  uint id = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
  uint team = id / LANES, octet = id % LANES;
  vec4 q_low[CHUNK], q_high[CHUNK], low[CHUNK], high[CHUNK];
  float largest[CHUNK], totals[CHUNK];
#ifdef ROPE
  ask_for_heads(kv_head, chunk);
  int turned_position = Ints(first_integer).v[positions_at];
  int token_slot = Ints(first_integer).v[slots_at];
  int start, n, context = Ints(context_length).v[0];
  const uint sequence = 0;
  bool is_found = has_token(0, 0, start, n);
  /* However many parts there are, the first begins where the context does: its keys and values are
   * asked for before anybody knows where it ends, and what lies behind that is not looked at. */
  bool is_ahead = split == 0 && window == 0 && n_blocks > 0 && n_slots > 0;
  if (is_ahead)
    ask_for_positions(0, kv_head, team, n_blocks * PAGE_SIZE, octet);
#else
  /* Sequences that decode have one token each, so theirs is most often number `token`. */
  int start, n;
  uint sequence = min(token, n_sequences - 1);
  bool is_found = has_token(sequence, int(token), start, n);
  for (uint s = 0; s < n_sequences && !is_found; s++) {
    sequence = s;
    is_found = has_token(s, int(token), start, n);
  }
  int context = Ints(context_length).v[sequence];
  const bool is_ahead = false;
#endif
  int position = context - n + int(token) - start;
  uint begin = 0, end = 0;
  if (is_found) {
    uint from = window != 0 && position >= int(window) ? uint(position) - window + 1 : 0;
    uint to = IS_CAUSAL != 0 ? uint(position) + 1 : uint(context);
#ifdef ROPE
    choose_parts(to - from);
#endif
    uint length = (to - from + n_parts - 1) / n_parts;
    begin = from + split * length;
    end = min(to, begin + length);
  }
#ifdef ROPE
  if (split >= n_parts)
    return;
#endif
  if (begin < end && !is_ahead)
    ask_for_positions(sequence, kv_head, begin + team, end, octet);
#ifdef ROPE
  turn_heads(kv_head, chunk, float(turned_position));
  int64_t slot = slot_row(kv_head, token_slot);
  if (split == 0 && chunk == 0 && slot >= 0)
    write_cache(slot);
#endif
  [[unroll]] for (uint j = 0; j < CHUNK; j++) {
#ifdef ROPE
    q_low[j] = own_four(j, 2 * octet);
    q_high[j] = own_four(j, 2 * octet + 1);
#else
    uint64_t from = row_of(q, token * N_HEADS + min(head_of(kv_head, chunk, j), N_HEADS - 1), N_HEADS);
    for (uint e = 0; e < 4; e++) {
      q_low[j][e] = load_element(from, 8 * octet + e, TYPE_Q);
      q_high[j][e] = load_element(from, 8 * octet + 4 + e, TYPE_Q);
    }
#endif
    low[j] = high[j] = vec4(0);
    largest[j] = -INFINITY;
    totals[j] = 0;
  }
  for (uint p0 = begin + team; p0 - team < end; p0 += N_TEAMS * AT_ONCE) {
    float scores[AT_ONCE][CHUNK];
    [[unroll]] for (uint u = 0; u < AT_ONCE; u++) {
      uint p = p0 + u * N_TEAMS;
      vec4 key_low, key_high;
      decode_raw(key_row(u), raw_keys[u], octet, TYPE_K, key_low, key_high);
#ifdef ROPE
      if (int64_t(cache_rows[u]) == slot) { /* written by this dispatch */
        key_low = as_cached(own_four(CHUNK, 2 * octet), TYPE_K);
        key_high = as_cached(own_four(CHUNK, 2 * octet + 1), TYPE_K);
      }
#endif
      [[unroll]] for (uint j = 0; j < CHUNK; j++) {
        float score = dot(q_low[j], key_low) + dot(q_high[j], key_high);
        for (uint step = LANES / 2; step > 0; step /= 2)
          score += subgroupShuffleXor(score, step);
        score *= scale;
        if (soft_cap > 0.0)
          score = soft_cap * tanh_of(score / soft_cap);
#ifndef ROPE
        if (slopes != 0)
          score += Floats(slopes).v[min(head_of(kv_head, chunk, j), N_HEADS - 1)] *
                   float(int(p) - position);
#endif
        scores[u][j] = p < end ? score : -INFINITY;
      }
    }
    [[unroll]] for (uint j = 0; j < CHUNK; j++) {
      float most = largest[j];
      [[unroll]] for (uint u = 0; u < AT_ONCE; u++)
        most = max(most, scores[u][j]);
      float shift = most == -INFINITY ? 0.0 : most, shrink = exp(largest[j] - shift);
      largest[j] = most;
      low[j] *= shrink;
      high[j] *= shrink;
      totals[j] *= shrink;
      [[unroll]] for (uint u = 0; u < AT_ONCE; u++) {
        scores[u][j] = exp(scores[u][j] - shift);
        totals[j] += scores[u][j];
      }
    }
    [[unroll]] for (uint u = 0; u < AT_ONCE; u++) {
      vec4 value_low, value_high;
      decode_raw(value_row(u), raw_values[u], octet, TYPE_V, value_low, value_high);
#ifdef ROPE
      if (int64_t(cache_rows[u]) == slot) {
        value_low = as_cached(own_four(CHUNK + 1, 2 * octet), TYPE_V);
        value_high = as_cached(own_four(CHUNK + 1, 2 * octet + 1), TYPE_V);
      }
#endif
      if (p0 + u * N_TEAMS < end)
        [[unroll]] for (uint j = 0; j < CHUNK; j++) {
          low[j] += scores[u][j] * value_low;
          high[j] += scores[u][j] * value_high;
        }
    }
    if (p0 - team + N_TEAMS * AT_ONCE < end)
      ask_for_positions(sequence, kv_head, p0 + N_TEAMS * AT_ONCE, end, octet);
  }
  [[unroll]] for (uint j = 0; j < CHUNK; j++) {
    team_sums[(team * CHUNK + j) * QUADS + 2 * octet] = low[j];
    team_sums[(team * CHUNK + j) * QUADS + 2 * octet + 1] = high[j];
    if (octet == 0)
      team_totals[team * CHUNK + j] = vec2(largest[j], totals[j]);
  }
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < CHUNK * QUADS; i += WORKGROUP) {
    uint j = i / QUADS, quad = i % QUADS;
    float most = -INFINITY, total = 0;
    for (uint t = 0; t < N_TEAMS; t++)
      most = max(most, team_totals[t * CHUNK + j].x);
    float shift = most == -INFINITY ? 0.0 : most;
    vec4 sum = vec4(0);
    for (uint t = 0; t < N_TEAMS; t++) {
      float weight = exp(team_totals[t * CHUNK + j].x - shift);
      total += weight * team_totals[t * CHUNK + j].y;
      sum += weight * team_sums[(t * CHUNK + j) * QUADS + quad];
    }
    if (has_head(chunk, j))
      store_quad(token, head_of(kv_head, chunk, j), split, quad, most, total, sum);
  }
#ifdef ROPE
  if (is_last(kv_head * N_CHUNKS + chunk)) {
    write_turned(kv_head, chunk);
    if (n_parts > 1)
      join_parts(kv_head, chunk);
  }
#endif
}
