/* kv_write: keys and values of this step into their cache pages. A workgroup stores one row: a head
 * of one token, its key or its value. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"
#include "cache.glsl"
#include "encode_q8_0.glsl"

layout(constant_id = 1) const uint TYPE_K = 0;
layout(constant_id = 2) const uint TYPE_V = 0;
layout(constant_id = 3) const uint TYPE_K_CACHE = 0;
layout(constant_id = 4) const uint TYPE_V_CACHE = 0;

layout(push_constant) uniform Push {
  Rows k, v;
  uint64_t slots, k_cache, v_cache;
  uint n_tokens, n_heads, page_size, head_dim, value_dim, n_slots;
};

void store_row(uint64_t from, uint64_t to, uint n, uint type, uint cache_type) {
  if (cache_type == CACHE_Q8_0) {
    for (uint block = gl_LocalInvocationID.x; block < n / 32; block += WORKGROUP)
      store_q8_0(to + block * 34, from, block * 32, type);
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
