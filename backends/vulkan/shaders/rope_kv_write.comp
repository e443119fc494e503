/* rope of queries and of keys, and kv_write of the keys and values: each TEAM of a workgroup takes
 * one head of one token, of the N_HEADS queries, then of the N_KV_HEADS keys and values. All rows
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

const uint TEAM = 64;
uint lane() { return gl_LocalInvocationID.x % TEAM; }

uint bytes_of(uint type) { return type == FLOAT_F32 ? 4 : 2; }

/* Rotates a head; elements go to `cached` too, unless that is 0. */
void turn(uint64_t from, uint64_t to, uint64_t cached, float position) {
  for (uint i = lane(); i < n_pairs; i += TEAM) {
    uint first = INTERLEAVED != 0 ? 2 * i : i, second = INTERLEAVED != 0 ? first + 1 : i + n_pairs;
    float a = load_element(from, first, TYPE_X), b = load_element(from, second, TYPE_X);
    precise float angle = position * Floats(frequencies).v[i];
    vec2 turn = cosine_sine(angle) * magnitude;
    float low = a * turn.x - b * turn.y, high = a * turn.y + b * turn.x;
    store_element(to, first, TYPE_X, low);
    store_element(to, second, TYPE_X, high);
    if (cached != 0) {
      store_element(cached, first, TYPE_K_CACHE, low);
      store_element(cached, second, TYPE_K_CACHE, high);
    }
  }
  for (uint i = 2 * n_pairs + lane(); i < HEAD_DIM; i += TEAM) {
    float value = load_element(from, i, TYPE_X);
    store_element(to, i, TYPE_X, value);
    if (cached != 0)
      store_element(cached, i, TYPE_K_CACHE, value);
  }
}

void main() {
  const uint n_rows = N_HEADS + 2 * N_KV_HEADS; /* of a token */
  uint team = group_index() * (WORKGROUP / TEAM) + gl_LocalInvocationID.x / TEAM;
  uint token = team / n_rows, head = team % n_rows;
  if (token >= n_tokens)
    return;
  float position = float(Ints(positions).v[token]);
  int slot = Ints(slots).v[token];
  if (head < N_HEADS) {
    uint64_t at = uint64_t(token * N_HEADS + head) * (HEAD_DIM * bytes_of(TYPE_X));
    turn(q + at, turned_q + at, 0, position);
    return;
  }
  head -= N_HEADS;
  bool is_value = head >= N_KV_HEADS;
  head = is_value ? head - N_KV_HEADS : head;
  bool is_kept = slot >= 0 && slot < n_slots;
  uint64_t row = (uint64_t(uint(slot) / PAGE_SIZE) * N_KV_HEADS + head) * PAGE_SIZE +
                 uint(slot) % PAGE_SIZE;
  if (!is_value) {
    uint64_t at = uint64_t(token * N_KV_HEADS + head) * (HEAD_DIM * bytes_of(TYPE_X));
    uint64_t cached = k_cache + row * (HEAD_DIM * bytes_of(TYPE_K_CACHE));
    turn(k + at, turned_k + at, is_kept ? cached : 0, position);
  } else if (is_kept) {
    uint64_t from = v + uint64_t(token * N_KV_HEADS + head) * (VALUE_DIM * bytes_of(TYPE_X));
    uint64_t to = v_cache + row * (VALUE_DIM * bytes_of(TYPE_V_CACHE));
    for (uint i = lane(); i < VALUE_DIM; i += TEAM)
      store_element(to, i, TYPE_V_CACHE, load_element(from, i, TYPE_X));
  }
}
