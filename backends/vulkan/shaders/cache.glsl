/* Rows of a KV cache: f32, f16, bf16, or blocks of q8_0. Types as in vulkan_cache_type_of(). */
const uint CACHE_Q8_0 = 3;

uint64_t cache_row_bytes(uint type, uint n) {
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
  if (is_vector)
    return load_four(row, i / 4, type);
  vec4 values = vec4(0);
  for (uint j = 0; j < 4; j++)
    if (i + j < n)
      values[j] = load_element(row, i + j, type);
  return values;
}
