/* matmul for some tens of rows on matrix units (VK_KHR_cooperative_matrix): weights are decoded to
 * halves on their way to shared memory, so that each is read once from where it lies.
 *
 * A workgroup takes TILE_M rows of x, TILE_N of the weight and one of n_splits parts of their
 * length; a subgroup WARP_M x WARP_N results in fragments of 16 x 16. Results are left as f32 sums
 * [split][row][column], both padded to whole tiles, which matmul_join.comp brings together: so few
 * rows make too few tiles to fill a device otherwise. Kept compiled in spirv/, as matmul_matrix.comp
 * is. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#pragma use_vulkan_memory_model
#include "types.glsl"
#include "groups.glsl"

layout(constant_id = 1) const uint SPLIT = 0;
const uint VECTOR = 1;

/* x is [n_rows, n_in] in halves. */
layout(push_constant) uniform Push {
  uint64_t x, rest, scales, sums_to;
  uint n_rows, n_out, n_in, n_tiles, n_splits, length; /* columns of a split */
};

#include "weights.glsl"

#define STRIDE (STEP + 8) /* halves; keeps rows at 16 bytes and banks apart */
#define SUBGROUP 32
#define THREADS ((TILE_M / WARP_M) * (TILE_N / WARP_N) * SUBGROUP)
#define OCTETS (STEP / 8)
#define X_LOADS (TILE_M * OCTETS / THREADS)

shared f16vec4 x_slice[TILE_M * STRIDE / 4], weight_slice[TILE_N * STRIDE / 4];

uvec4 x_next[X_LOADS];

void fetch_x(uint m0, uint k0) {
  [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
    uint at = gl_LocalInvocationID.x + i * THREADS, r = m0 + at / OCTETS;
    x_next[i] = uvec4(0);
    if (r < n_rows)
      x_next[i] = Words4(x + uint64_t(r) * n_in * 2).v[k0 / 8 + at % OCTETS];
  }
}

f16vec4 halves_of(uvec2 bits) {
  return f16vec4(unpackFloat2x16(bits.x), unpackFloat2x16(bits.y));
}

void put_x() {
  [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
    uint at = gl_LocalInvocationID.x + i * THREADS;
    uint to = at / OCTETS * (STRIDE / 4) + at % OCTETS * 2;
    x_slice[to] = halves_of(x_next[i].xy);
    x_slice[to + 1] = halves_of(x_next[i].zw);
  }
}

#if defined(SCHEME_Q4_0) || defined(SCHEME_Q8_0)
/* 16 bytes of codes an invocation; integers become halves by their bits, which is exact. */
#if defined(SCHEME_Q4_0)
#define UNIT 32
#else
#define UNIT 16
#endif
#define UNITS (STEP / UNIT)
#define W_LOADS (TILE_N * UNITS / THREADS)
uvec4 w_next[W_LOADS];
uint w_scale[W_LOADS];

void fetch_weight(uint n0, uint k0) {
  [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
    uint at = gl_LocalInvocationID.x + i * THREADS, n = min(n0 + at / UNITS, n_out - 1);
    WeightRow row = weight_row(rest, scales, n, n_in);
    uint unit = k0 / UNIT + at % UNITS;
    w_next[i] = Words4(row.rest).v[unit];
    w_scale[i] = uint(Halves(row.scales).v[unit * UNIT / 32]);
  }
}

void put_weight() {
  [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
    uint at = gl_LocalInvocationID.x + i * THREADS;
    uint to = at / UNITS * (STRIDE / 4) + at % UNITS * (UNIT / 4);
    float16_t scale = unpackFloat2x16(w_scale[i]).x;
    [[unroll]] for (uint j = 0; j < 4; j++) {
      uint word = w_next[i][j];
#if defined(SCHEME_Q4_0)
      uvec2 low = uvec2(word & 0xfu | (word & 0xf00u) << 8, word >> 16 & 0xfu | word >> 8 & 0xf0000u);
      word >>= 4;
      uvec2 high = uvec2(word & 0xfu | (word & 0xf00u) << 8, word >> 16 & 0xfu | word >> 8 & 0xf0000u);
      weight_slice[to + j] = (halves_of(low | 0x64006400u) - float16_t(1032)) * scale;
      weight_slice[to + 4 + j] = (halves_of(high | 0x64006400u) - float16_t(1032)) * scale;
#else
      word ^= 0x80808080u;
      uvec2 codes = uvec2(word & 0xffu | (word & 0xff00u) << 8, word >> 16 & 0xffu | word >> 8 & 0xff0000u);
      weight_slice[to + j] = (halves_of(codes | 0x64006400u) - float16_t(1152)) * scale;
#endif
    }
  }
}
#else
/* Groups of eight elements. */
#define GROUPS (STEP / 8)
#define W_LOADS (TILE_N * GROUPS / THREADS)
Group w_next[W_LOADS];

void fetch_weight(uint n0, uint k0) {
  [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
    uint at = gl_LocalInvocationID.x + i * THREADS, n = min(n0 + at / GROUPS, n_out - 1);
    uint g = k0 / 8 + at % GROUPS;
    w_next[i] = decode(weight_row(rest, scales, n, n_in), g / (HALF / 4), g % (HALF / 4), n_in);
  }
}

f16vec4 round_halves(vec4 values) { return f16vec4(clamp(values, -65504.0, 65504.0)); }

void put_weight() {
  [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
    uint at = gl_LocalInvocationID.x + i * THREADS, g = at % GROUPS;
    uint to = at / GROUPS * (STRIDE / 4) + g / (HALF / 4) * (HALF / 2) + g % (HALF / 4);
    weight_slice[to] = round_halves(w_next[i].low * w_next[i].scale.x + w_next[i].bias.x);
    weight_slice[to + HALF / 4] = round_halves(w_next[i].high * w_next[i].scale.y + w_next[i].bias.y);
  }
}
#endif

#define FRAGMENTS_M (WARP_M / 16)
#define FRAGMENTS_N (WARP_N / 16)

void main() {
  uint group = group_index(), split = group % n_splits;
  group /= n_splits;
  uint m_tile = group / n_tiles, m0 = m_tile * TILE_M, n0 = group % n_tiles * TILE_N;
  if (m0 >= n_rows)
    return;
  uint begin = split * length, end = min(begin + length, n_in), warp = gl_SubgroupID;
  uint warp_m = warp / (TILE_N / WARP_N) * WARP_M, warp_n = warp % (TILE_N / WARP_N) * WARP_N;
  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums[FRAGMENTS_M * FRAGMENTS_N];
  [[unroll]] for (uint i = 0; i < FRAGMENTS_M * FRAGMENTS_N; i++)
    sums[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
  if (begin < end) {
    fetch_x(m0, begin);
    fetch_weight(n0, begin);
  }
  [[dont_unroll]] for (uint k0 = begin; k0 < end; k0 += STEP) {
    barrier();
    put_x();
    put_weight();
    barrier();
    if (k0 + STEP < end) {
      fetch_x(m0, k0 + STEP);
      fetch_weight(n0, k0 + STEP);
    }
    [[unroll]] for (uint k = 0; k < STEP / 4; k += 4) {
      coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a[FRAGMENTS_M];
      coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> b;
      [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
        coopMatLoad(a[i], x_slice, (warp_m + 16 * i) * (STRIDE / 4) + k, STRIDE / 4,
                    gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
        coopMatLoad(b, weight_slice, (warp_n + 16 * j) * (STRIDE / 4) + k, STRIDE / 4,
                    gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
          sums[i * FRAGMENTS_N + j] = coopMatMulAdd(a[i], b, sums[i * FRAGMENTS_N + j]);
      }
    }
  }
  uint n_columns = n_tiles * TILE_N, n_m_tiles = (n_rows + TILE_M - 1) / TILE_M;
  uint64_t to = sums_to + uint64_t((split * n_m_tiles + m_tile) * TILE_M + warp_m) * n_columns * 4;
  [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
      coopMatStore(sums[i * FRAGMENTS_N + j], Floats(to).v, 16 * i * n_columns + n0 + warp_n + 16 * j,
                   n_columns, gl_CooperativeMatrixLayoutRowMajor);
}
