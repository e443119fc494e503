/* kv_write: keys and values of this step into their cache pages. A workgroup stores one row: a head
 * of one token, its key or its value. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"
#define HAS_FP8_CACHES
#include "cache.glsl"
#include "encode_q8_0.glsl"
#include "reduce.glsl"

layout(constant_id = 1) const uint TYPE_K = 0;
layout(constant_id = 2) const uint TYPE_V = 0;
layout(constant_id = 3) const uint TYPE_K_CACHE = 0;
layout(constant_id = 4) const uint TYPE_V_CACHE = 0;

layout(push_constant) uniform Push {
  Rows k, v;
  uint64_t slots, k_cache, v_cache;
  uint n_tokens, n_heads, page_size, head_dim, value_dim, n_slots;
};

/* 128 elements, by the whole workgroup: the scale makes the largest magnitude 448. */
void store_f8_g128(uint64_t block, uint64_t row, uint first, uint type) {
  const float limit = 1.7014117e38; /* half of the largest float */
  float peak = 0;
  for (uint i = gl_LocalInvocationID.x; i < 128; i += WORKGROUP) {
    float value = abs(load_element(row, first + i, type));
    peak = is_nan(value) ? peak : max(peak, min(value, limit));
  }
  float scale = workgroup_max(peak) / 448.0;
  if (gl_LocalInvocationID.x == 0)
    Floats(block).v[0] = scale;
  for (uint quad = gl_LocalInvocationID.x; quad < 32; quad += WORKGROUP) {
    uint word = 0;
    for (uint j = 0; j < 4; j++) {
      float value = load_element(row, first + 4 * quad + j, type);
      value = is_nan(value) || scale == 0.0 ? 0.0 : clamp(value, -limit, limit) / scale;
      word |= float_to_e4m3(value) << 8 * j;
    }
    Words(block).v[1 + quad] = word;
  }
}

void store_row(uint64_t from, uint64_t to, uint n, uint type, uint cache_type) {
  if (cache_type == CACHE_Q8_0) {
    for (uint block = gl_LocalInvocationID.x; block < n / 32; block += WORKGROUP)
      store_q8_0(to + block * 34, from, block * 32, type);
    return;
  }
  if (cache_type == CACHE_F8_G128) {
    for (uint i = 0; i < n / 128; i++)
      store_f8_g128(to + i * 132, from, i * 128, type);
    return;
  }
  for (uint i = gl_LocalInvocationID.x; i < n; i += WORKGROUP)
    store_element(to, i, cache_type, load_element(from, i, type));
}

void main() {
  uint group = group_index(), r = group / 2;
  if (r >= n_tokens * n_heads)
    return;
  int slot = Ints(slots).v[r / n_heads];
  if (slot < 0 || slot >= n_slots)
    return;
  uint64_t row = (uint64_t(uint(slot) / page_size) * n_heads + r % n_heads) * page_size +
                 uint(slot) % page_size;
  if (group % 2 == 0)
    store_row(row_of(k, r, n_heads), k_cache + row * cache_row_bytes(TYPE_K_CACHE, head_dim),
              head_dim, TYPE_K, TYPE_K_CACHE);
  else
    store_row(row_of(v, r, n_heads), v_cache + row * cache_row_bytes(TYPE_V_CACHE, value_dim),
              value_dim, TYPE_V, TYPE_V_CACHE);
}
