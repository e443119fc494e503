/* Weights of matmul_matrix.comp on their way: fetch_weight() sends for a slice, put_weight() decodes
 * it into shared memory. Rows past the last one count as zero. */

#if defined(SCHEME_F16) || defined(SCHEME_BF16)
/* ---- Octets of elements -------------------------------------------------------------------------- */

#define W_LOADS (TILE_N / AT_ONCE)
uvec4 w_next[W_LOADS];
uint64_t w_from;
uint w_row, w_column;

void start_weights() {
  w_row = n0 + gl_LocalInvocationID.x / OCTETS;
  w_column = gl_LocalInvocationID.x % OCTETS * 8;
  w_from = rest + (uint64_t(w_row) * N_IN + w_column) * 2;
}

void fetch_weight(uint k0) {
  [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
    w_next[i] = uvec4(0);
    if ((IS_WHOLE_N != 0 || w_row + i * AT_ONCE < n_out) && (N_IN % STEP == 0 || k0 + w_column < N_IN))
      w_next[i] = Words4(w_from + k0 * 2).v[i * AT_ONCE * (N_IN / 8)];
  }
}

#if defined(SCHEME_BF16)
uint halves_of_bf16(uint bits) {
  vec2 values = uintBitsToFloat(uvec2(bits << 16, bits & 0xffff0000u));
  return packHalf2x16(clamp(values, -65504.0, 65504.0));
}
uvec4 decoded(uvec4 bits) {
  return uvec4(halves_of_bf16(bits.x), halves_of_bf16(bits.y), halves_of_bf16(bits.z),
               halves_of_bf16(bits.w));
}
#else
#define decoded(bits) bits
#endif

void put_weight() {
  uint to = gl_LocalInvocationID.x / OCTETS * STRIDE + gl_LocalInvocationID.x % OCTETS;
  [[unroll]] for (uint i = 0; i < W_LOADS; i++)
    weight_slice[to + i * AT_ONCE * STRIDE] = decoded(w_next[i]);
}

#elif defined(SCHEME_Q4_0) || defined(SCHEME_Q8_0)
/* ---- Units of 16 bytes of codes, packed: integers become halves by their bits, which is exact ----- */

#if defined(SCHEME_Q4_0)
#define UNIT 32
#else
#define UNIT 16
#endif
#define UNITS (STEP / UNIT) /* in a row of a slice */
#define W_AT_ONCE (THREADS / UNITS)
#define W_LOADS ((TILE_N + W_AT_ONCE - 1) / W_AT_ONCE) /* of the last, some may be too many */
uvec4 w_next[W_LOADS];
uint w_scale[W_LOADS];
uint64_t w_codes, w_scales;
uint w_row, w_column;

bool is_in_tile(uint load) {
  return TILE_N % W_AT_ONCE == 0 || gl_LocalInvocationID.x / UNITS + load * W_AT_ONCE < TILE_N;
}

void start_weights() {
  w_row = n0 + gl_LocalInvocationID.x / UNITS;
  w_column = gl_LocalInvocationID.x % UNITS * UNIT;
  uint64_t element = uint64_t(w_row) * N_IN + w_column;
  w_codes = rest + element / UNIT * 16;
  w_scales = scales + element / 32 * 2;
}

void fetch_weight(uint k0) {
  [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
    w_next[i] = uvec4(0);
    w_scale[i] = 0;
    if ((IS_WHOLE_N != 0 || w_row + i * W_AT_ONCE < n_out) && is_in_tile(i) &&
        (N_IN % STEP == 0 || k0 + w_column < N_IN)) {
      w_next[i] = Words4(w_codes + k0 / UNIT * 16).v[i * W_AT_ONCE * (N_IN / UNIT)];
      w_scale[i] = uint(Halves(w_scales + k0 / 32 * 2).v[i * W_AT_ONCE * (N_IN / 32)]);
    }
  }
}

/* Two codes in the low bits of the halves of a word, less what they are above the numbers meant. */
uint scaled(uint codes, float16_t above, f16vec2 scale) {
  return packFloat2x16((unpackFloat2x16(codes | 0x64006400u) - (float16_t(1024) + above)) * scale);
}

void put_weight() {
  uint to = gl_LocalInvocationID.x / UNITS * STRIDE + gl_LocalInvocationID.x % UNITS * (UNIT / 8);
  [[unroll]] for (uint i = 0; i < W_LOADS; i++, to += W_AT_ONCE * STRIDE) {
    if (!is_in_tile(i))
      break;
    f16vec2 scale = unpackFloat2x16(w_scale[i]).xx;
#if defined(SCHEME_Q4_0)
    [[unroll]] for (uint octet = 0; octet < 4; octet++) {
      uvec4 halves;
      [[unroll]] for (uint j = 0; j < 2; j++) {
        uint word = w_next[i][octet % 2 * 2 + j] >> octet / 2 * 4;
        halves[2 * j] = scaled(word & 0xfu | (word & 0xf00u) << 8, float16_t(8), scale);
        halves[2 * j + 1] = scaled(word >> 16 & 0xfu | word >> 8 & 0xf0000u, float16_t(8), scale);
      }
      weight_slice[to + octet] = halves;
    }
#else
    [[unroll]] for (uint octet = 0; octet < 2; octet++) {
      uvec4 halves;
      [[unroll]] for (uint j = 0; j < 2; j++) {
        uint word = w_next[i][octet * 2 + j] ^ 0x80808080u;
        halves[2 * j] = scaled(word & 0xffu | (word & 0xff00u) << 8, float16_t(128), scale);
        halves[2 * j + 1] =
            scaled(word >> 16 & 0xffu | word >> 8 & 0xff0000u, float16_t(128), scale);
      }
      weight_slice[to + octet] = halves;
    }
#endif
  }
}

#else
/* ---- Groups of eight elements, as weights.glsl decodes them ---------------------------------------- */

#define W_AT_ONCE (THREADS / OCTETS)
#define W_LOADS (TILE_N / W_AT_ONCE)
Group w_next[W_LOADS];

void start_weights() {}

void fetch_weight(uint k0) {
  uint row = n0 + gl_LocalInvocationID.x / OCTETS, g = k0 / 8 + gl_LocalInvocationID.x % OCTETS;
  [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
    w_next[i] = Group(vec4(0), vec4(0), vec2(0), vec2(0));
    if ((IS_WHOLE_N != 0 || row + i * W_AT_ONCE < n_out) && (N_IN % STEP == 0 || g * 8 < N_IN))
      w_next[i] = decode(weight_row(rest, scales, row + i * W_AT_ONCE, N_IN), g / (HALF / 4),
                         g % (HALF / 4), N_IN);
  }
}

uvec2 round_halves(vec4 values) {
  values = clamp(values, -65504.0, 65504.0);
  return uvec2(packHalf2x16(values.xy), packHalf2x16(values.zw));
}

/* Quads of elements `quad` of a row of the slice. */
void put_quad(uint row, uint quad, uvec2 halves) {
  if (quad % 2 == 0)
    weight_slice[row * STRIDE + quad / 2].xy = halves;
  else
    weight_slice[row * STRIDE + quad / 2].zw = halves;
}

void put_weight() {
  uint row = gl_LocalInvocationID.x / OCTETS, g = gl_LocalInvocationID.x % OCTETS;
  uint quad = g / (HALF / 4) * (HALF / 2) + g % (HALF / 4);
  [[unroll]] for (uint i = 0; i < W_LOADS; i++, row += W_AT_ONCE) {
    put_quad(row, quad, round_halves(w_next[i].low * w_next[i].scale.x + w_next[i].bias.x));
    put_quad(row, quad + HALF / 4,
             round_halves(w_next[i].high * w_next[i].scale.y + w_next[i].bias.y));
  }
}
#endif
