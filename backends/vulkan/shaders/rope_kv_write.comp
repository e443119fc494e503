/* rope of queries and of keys, and kv_write of the keys and values: each TEAM of a workgroup takes
 * EACH heads of one token, of the N_HEADS queries, then of the N_KV_HEADS keys and values. All rows
 * are dense. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "functions.glsl"
#include "groups.glsl"

layout(constant_id = 1) const uint TYPE_X = 0; /* of heads before and after */
layout(constant_id = 2) const uint TYPE_K_CACHE = 0;
layout(constant_id = 3) const uint TYPE_V_CACHE = 0;
layout(constant_id = 4) const uint INTERLEAVED = 0;
layout(constant_id = 5) const uint N_HEADS = 1;
layout(constant_id = 6) const uint N_KV_HEADS = 1;
layout(constant_id = 7) const uint HEAD_DIM = 64;
layout(constant_id = 8) const uint VALUE_DIM = 64;
layout(constant_id = 9) const uint PAGE_SIZE = 16;

layout(push_constant) uniform Push {
  uint64_t q, k, v, turned_q, turned_k, positions, frequencies, slots, k_cache, v_cache;
  uint n_tokens, n_pairs, n_slots;
  float magnitude;
};

const uint TEAM = 64, EACH = 4;
uint lane() { return gl_LocalInvocationID.x % TEAM; }

uint bytes_of(uint type) { return type == FLOAT_F32 ? 4 : 2; }

/* Rows of a token: queries, keys, values. Where a row of them lies before and after, and in the cache, 0
 * where it does not go there. */
const uint N_TURNED = N_HEADS + N_KV_HEADS, N_ROWS = N_TURNED + N_KV_HEADS;

uint64_t before(uint token, uint row) {
  uint bytes = HEAD_DIM * bytes_of(TYPE_X);
  return row < N_HEADS ? q + uint64_t(token * N_HEADS + row) * bytes
                       : k + uint64_t(token * N_KV_HEADS + row - N_HEADS) * bytes;
}

uint64_t after(uint token, uint row) {
  uint bytes = HEAD_DIM * bytes_of(TYPE_X);
  return row < N_HEADS ? turned_q + uint64_t(token * N_HEADS + row) * bytes
                       : turned_k + uint64_t(token * N_KV_HEADS + row - N_HEADS) * bytes;
}

/* Of head `head`, whose rows have so many bytes. */
uint64_t cached(uint64_t cache, int slot, uint head, uint bytes) {
  if (slot < 0 || slot >= n_slots)
    return 0;
  return cache + ((uint64_t(uint(slot) / PAGE_SIZE) * N_KV_HEADS + head) * PAGE_SIZE +
                  uint(slot) % PAGE_SIZE) * bytes;
}

void store_turned(uint token, uint row, int slot, uint i, float value) {
  store_element(after(token, row), i, TYPE_X, value);
  if (row < N_HEADS)
    return;
  uint64_t to = cached(k_cache, slot, row - N_HEADS, HEAD_DIM * bytes_of(TYPE_K_CACHE));
  if (to != 0)
    store_element(to, i, TYPE_K_CACHE, value);
}

/* Rows `first` to first + EACH - 1 share their angles, and are loaded before any is stored. */
void turn(uint token, uint first, int slot, float position) {
  for (uint i = lane(); i < n_pairs; i += TEAM) {
    uint low = INTERLEAVED != 0 ? 2 * i : i, high = INTERLEAVED != 0 ? low + 1 : i + n_pairs;
    precise float angle = position * Floats(frequencies).v[i];
    vec2 turn = cosine_sine(angle) * magnitude, pairs[EACH];
    [[unroll]] for (uint e = 0; e < EACH; e++)
      if (first + e < N_TURNED) {
        uint64_t from = before(token, first + e);
        pairs[e] = vec2(load_element(from, low, TYPE_X), load_element(from, high, TYPE_X));
      }
    [[unroll]] for (uint e = 0; e < EACH; e++)
      if (first + e < N_TURNED) {
        store_turned(token, first + e, slot, low, pairs[e].x * turn.x - pairs[e].y * turn.y);
        store_turned(token, first + e, slot, high, pairs[e].x * turn.y + pairs[e].y * turn.x);
      }
  }
  for (uint row = first; row < min(first + EACH, N_TURNED); row++)
    for (uint i = 2 * n_pairs + lane(); i < HEAD_DIM; i += TEAM)
      store_turned(token, row, slot, i, load_element(before(token, row), i, TYPE_X));
}

void main() {
  const uint N_PARTS = (N_ROWS + EACH - 1) / EACH; /* of a token */
  uint team = group_index() * (WORKGROUP / TEAM) + gl_LocalInvocationID.x / TEAM;
  uint token = team / N_PARTS, first = team % N_PARTS * EACH;
  if (token >= n_tokens)
    return;
  int slot = Ints(slots).v[token];
  if (first < N_TURNED)
    turn(token, first, slot, float(Ints(positions).v[token]));
  for (uint row = max(first, N_TURNED); row < min(first + EACH, N_ROWS); row++) {
    uint head = row - N_TURNED;
    uint64_t from = v + uint64_t(token * N_KV_HEADS + head) * (VALUE_DIM * bytes_of(TYPE_X));
    uint64_t to = cached(v_cache, slot, head, VALUE_DIM * bytes_of(TYPE_V_CACHE));
    for (uint i = lane(); to != 0 && i < VALUE_DIM; i += TEAM)
      store_element(to, i, TYPE_V_CACHE, load_element(from, i, TYPE_X));
  }
}
