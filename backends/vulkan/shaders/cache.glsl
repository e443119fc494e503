/* Rows of a KV cache: f32, f16, bf16, or blocks of q8_0, and with HAS_FP8_CACHES of f8_g128. Types as
 * cache_type_of() of attention.c numbers them. */
const uint CACHE_Q8_0 = 3, CACHE_F8_G128 = 4;
#ifdef HAS_FP8_CACHES
#include "e4m3.glsl"
#endif

uint64_t cache_row_bytes(uint type, uint n) {
#ifdef HAS_FP8_CACHES
  if (type == CACHE_F8_G128)
    return n / 128 * 132;
#endif
  return type == FLOAT_F32 ? n * 4 : type == CACHE_Q8_0 ? n / 32 * 34 : n * 2;
}

/* Elements i to i + 3 of a row of n elements, those past its end 0; i is a multiple of 4. */
vec4 load_cache(uint64_t row, uint i, uint n, uint type, bool is_vector) {
  if (type == CACHE_Q8_0) {
    uint64_t block = row + i / 32 * 34;
    uint code = 1 + i % 32 / 2;
    uint word = uint(Halves(block).v[code]) | uint(Halves(block).v[code + 1]) << 16;
    int w = int(word);
    return vec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8), bitfieldExtract(w, 16, 8),
                w >> 24) *
           unpackHalf2x16(uint(Halves(block).v[0])).x;
  }
#ifdef HAS_FP8_CACHES
  if (type == CACHE_F8_G128) {
    uint64_t block = row + i / 128 * 132;
    return e4m3_of(Words(block).v[1 + i % 128 / 4]) * Floats(block).v[0];
  }
#endif
  if (is_vector)
    return load_four(row, i / 4, type);
  vec4 values = vec4(0);
  for (uint j = 0; j < 4; j++)
    if (i + j < n)
      values[j] = load_element(row, i + j, type);
  return values;
}
