/* matmul on matrix units of more rows than VULKAN_MANY_ROWS: halves times halves, sums in f32.
 *
 * What bounds matmul_matrix.comp are stores into shared memory and loads from it. So x goes past it: it
 * lies as fragments (shrink.glsl), which each subgroup loads as its registers hold them, AHEAD slices of
 * 16 columns before they are multiplied. Weights go through shared memory, STEP columns at a time, and
 * while these are multiplied the next are under way, asked for in between: all at once, they would hold
 * up the loads of fragments behind them.
 *
 * A workgroup takes TILE_M rows of x and TILE_N of the weight, a subgroup WARP_M x WARP_N of them. Rows
 * of x past the last one hold anything. Tiles from n_whole on are split as with SPLIT_LAST_TILES of
 * matmul_matrix.comp. Its SPIR-V is kept in spirv/ as well. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#pragma use_vulkan_memory_model
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"

layout(constant_id = 1) const uint TYPE_Y = 0;
layout(constant_id = 2) const uint HAS_BIAS = 0;
layout(constant_id = 3) const uint N_IN = 64;      /* a multiple of STEP */
layout(constant_id = 4) const uint IS_WHOLE_N = 0; /* there are columns for a tile */
layout(constant_id = 5) const uint IS_SPLIT = 0;   /* some tiles are */
layout(constant_id = 6) const uint IS_VECTOR = 0;  /* eight columns of y lie at 16 bytes */

/* As in matmul_matrix.comp. */
layout(push_constant) uniform Push {
  Rows y;
  uint64_t x, weight, row_scales, bias, sums_to;
  uint n_rows, n_out, y_inner_rows, first_column, n_splits, length, n_whole;
  uint64_t arrivals;
};

#define THREADS (TILE_M / WARP_M * (TILE_N / WARP_N) * 32)
#define FRAGMENTS_M (WARP_M / 16)
#define FRAGMENTS_N (WARP_N / 16)
#define SLICES (STEP / 16)
#define OCTETS (STEP / 8)
#define AT_ONCE (THREADS / OCTETS) /* rows of the weight that a workgroup loads at once */
#define LOADS (TILE_N / AT_ONCE)
#define STRIDE (OCTETS + 1) /* vectors of a row: one more keeps banks apart */
shared uvec4 weights[TILE_N * STRIDE];
#define SCRATCH weights

uint m0, n0; /* of this workgroup's tile */
coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums[FRAGMENTS_M * FRAGMENTS_N];

#include "matrix_results.glsl"

/* ---- Weights ------------------------------------------------------------------------------------- */

uvec4 under_way[LOADS];
uint64_t from; /* of this invocation's first row */
uint row, to;

void fetch(uint load, uint k) {
  under_way[load] = uvec4(0);
  if (IS_WHOLE_N != 0 || row + load * AT_ONCE < n_out)
    under_way[load] = Words4(from + k * 2).v[load * AT_ONCE * (N_IN / 8)];
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

void put(uint load) {
  weights[to + load * AT_ONCE * STRIDE] = decoded(under_way[load]);
}

/* ---- Activations --------------------------------------------------------------------------------- */

uvec4 ahead[AHEAD][FRAGMENTS_M]; /* slices of x, that of slice s at s % AHEAD */
uint64_t fragments;              /* of this invocation in the first one */

uvec4 load_fragment(uint i, uint k) { return Words4(fragments + k * 32).v[i * (N_IN * 2)]; }

/* The components of a fragment of A in the order of its registers, two each. */
coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> fragment_of(uvec4 words) {
  coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> fragment;
  const uint first[4] = {0, 4, 2, 6};
  [[unroll]] for (uint i = 0; i < 4; i++) {
    f16vec2 two = unpackFloat2x16(words[i]);
    fragment[first[i]] = two.x;
    fragment[first[i] + 1] = two.y;
  }
  return fragment;
}

/* ---- Products ------------------------------------------------------------------------------------ */

/* Slice s of the step at k, and a share of the loads of the step at `next`. */
void multiply_slice(uint s, uint k, uint begin, uint end, uint next, uint warp_n) {
  coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> b[FRAGMENTS_N];
  [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
    coopMatLoad(b[j], weights, (warp_n + 16 * j) * STRIDE + 2 * s, STRIDE,
                gl_CooperativeMatrixLayoutColumnMajor);
  uint further = k + 16 * (s + AHEAD);
  further = further < end ? further : begin;
  [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++) {
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a = fragment_of(ahead[s % AHEAD][i]);
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
      sums[i * FRAGMENTS_N + j] = coopMatMulAdd(a, b[j], sums[i * FRAGMENTS_N + j]);
    ahead[s % AHEAD][i] = load_fragment(i, further);
    [[unroll]] for (uint load = s * LOADS / SLICES + i; load < (s + 1) * LOADS / SLICES;
                    load += FRAGMENTS_M)
      fetch(load, next);
  }
}

void main() {
  /* Tiles under way at once share their weights: those of one column come after one another. */
  uint group = group_index(), split = 0, tile = group;
  bool is_split = IS_SPLIT != 0 && group >= n_whole;
  if (is_split) {
    split = (group - n_whole) % n_splits;
    tile = n_whole + (group - n_whole) / n_splits;
  }
  uint n_row_tiles = (n_rows + TILE_M - 1) / TILE_M;
  m0 = tile % n_row_tiles * TILE_M;
  n0 = tile / n_row_tiles * TILE_N;
  if (n0 >= n_out)
    return;
  if (IS_WHOLE_N != 0) /* what the last tile shares with the one before is the same */
    n0 = min(n0, n_out - TILE_N);
  uint begin = split * length, end = is_split ? min(begin + length, N_IN) : N_IN;
  uint id = gl_LocalInvocationID.x, warp = gl_SubgroupID;
  uint warp_m = warp / (TILE_N / WARP_N) * WARP_M, warp_n = warp % (TILE_N / WARP_N) * WARP_N;
  [[unroll]] for (uint i = 0; i < FRAGMENTS_M * FRAGMENTS_N; i++)
    sums[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
  fragments = x + uint64_t(m0 + warp_m) * (N_IN * 2) + gl_SubgroupInvocationID * 16;
  row = n0 + id / OCTETS;
  from = weight + (uint64_t(row) * N_IN + id % OCTETS * 8) * 2;
  to = id / OCTETS * STRIDE + id % OCTETS;
  [[unroll]] for (uint load = 0; load < LOADS; load++)
    fetch(load, begin);
  [[unroll]] for (uint s = 0; s < AHEAD; s++)
    [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
      ahead[s][i] = load_fragment(i, begin + 16 * s);
  [[dont_unroll]] for (uint k = begin; k < end; k += STEP) {
    barrier();
    [[unroll]] for (uint load = 0; load < LOADS; load++)
      put(load);
    barrier();
    uint next = k + STEP < end ? k + STEP : begin;
    [[unroll]] for (uint s = 0; s < SLICES; s++)
      multiply_slice(s, k, begin, end, next, warp_n);
  }
  if (is_split && !gather_parts(tile - n_whole, split))
    return;
  store_results(warp_m, warp_n);
}
