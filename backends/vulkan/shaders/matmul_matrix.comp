/* matmul on matrix units (VK_KHR_cooperative_matrix): halves times halves, sums in f32.
 *
 * A workgroup makes TILE_M x TILE_N results, a subgroup WARP_M x WARP_N of them in fragments of
 * 16 x 16. Slices of both operands, STEP deep, lie twice in shared memory: while one is multiplied,
 * the next is on its way. The compilers of older distributions do not know the extension, so the
 * SPIR-V of this file is kept in spirv/; spirv/make makes it anew. */
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

/* x is [n_rows, n_in] and weight [n_out, n_in] in halves; the results of row r are multiplied by
 * scales[r] and stored from column first_column of y on. */
layout(push_constant) uniform Push {
  Rows y;
  uint64_t x, weight, scales, bias;
  uint n_rows, n_out, n_in, y_inner_rows, n_tiles, first_column;
};

#define STEP 32
#define STRIDE (STEP + 8) /* halves; keeps rows at 16 bytes and banks apart */
#define SUBGROUP 32
#define N_WARPS ((TILE_M / WARP_M) * (TILE_N / WARP_N))
#define THREADS (N_WARPS * SUBGROUP)
#define VECTORS_A (TILE_M * STEP / 8 / THREADS)
#define VECTORS_B (TILE_N * STEP / 8 / THREADS)

shared f16vec4 slices[2][(TILE_M + TILE_N) * STRIDE / 4];
shared float results[N_WARPS][16 * 16];

/* Vectors of eight halves of a slice that this invocation brings. */
uvec4 a_next[VECTORS_A], b_next[VECTORS_B];

void fetch(uint m0, uint n0, uint k0) {
  [[unroll]] for (uint i = 0; i < VECTORS_A; i++) {
    uint v = gl_LocalInvocationID.x + i * THREADS, r = m0 + v / (STEP / 8), k = k0 + v % (STEP / 8) * 8;
    a_next[i] = uvec4(0);
    if (r < n_rows)
      a_next[i] = Words4(x + uint64_t(r) * n_in * 2).v[k / 8];
  }
  [[unroll]] for (uint i = 0; i < VECTORS_B; i++) {
    uint v = gl_LocalInvocationID.x + i * THREADS, r = n0 + v / (STEP / 8), k = k0 + v % (STEP / 8) * 8;
    b_next[i] = uvec4(0);
    if (r < n_out)
      b_next[i] = Words4(weight + uint64_t(r) * n_in * 2).v[k / 8];
  }
}

void put_vector(uint which, uint row, uint v, uvec4 bits) {
  uint at = row * (STRIDE / 4) + v % (STEP / 8) * 2;
  slices[which][at] = f16vec4(unpackFloat2x16(bits.x), unpackFloat2x16(bits.y));
  slices[which][at + 1] = f16vec4(unpackFloat2x16(bits.z), unpackFloat2x16(bits.w));
}

void put(uint which) {
  [[unroll]] for (uint i = 0; i < VECTORS_A; i++) {
    uint v = gl_LocalInvocationID.x + i * THREADS;
    put_vector(which, v / (STEP / 8), v, a_next[i]);
  }
  [[unroll]] for (uint i = 0; i < VECTORS_B; i++) {
    uint v = gl_LocalInvocationID.x + i * THREADS;
    put_vector(which, TILE_M + v / (STEP / 8), v, b_next[i]);
  }
}

#define FRAGMENTS_M (WARP_M / 16)
#define FRAGMENTS_N (WARP_N / 16)

void main() {
  /* Tiles under way at once share their weights: those of one column come after one another. */
  uint group = group_index(), n_row_tiles = (n_rows + TILE_M - 1) / TILE_M;
  uint m0 = group % n_row_tiles * TILE_M, n0 = group / n_row_tiles * TILE_N;
  if (n0 >= n_out)
    return;
  uint warp = gl_SubgroupID;
  uint warp_m = warp / (TILE_N / WARP_N) * WARP_M, warp_n = warp % (TILE_N / WARP_N) * WARP_N;
  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums[FRAGMENTS_M * FRAGMENTS_N];
  [[unroll]] for (uint i = 0; i < FRAGMENTS_M * FRAGMENTS_N; i++)
    sums[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
  fetch(m0, n0, 0);
  put(0);
  barrier();
  uint which = 0;
  for (uint k0 = 0; k0 < n_in; k0 += STEP) {
    bool more = k0 + STEP < n_in;
    if (more)
      fetch(m0, n0, k0 + STEP);
    [[unroll]] for (uint k = 0; k < STEP / 4; k += 4) {
      coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a[FRAGMENTS_M];
      coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> b;
      [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
        coopMatLoad(a[i], slices[which], (warp_m + 16 * i) * (STRIDE / 4) + k, STRIDE / 4,
                    gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
        coopMatLoad(b, slices[which], (TILE_M + warp_n + 16 * j) * (STRIDE / 4) + k, STRIDE / 4,
                    gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
          sums[i * FRAGMENTS_N + j] = coopMatMulAdd(a[i], b, sums[i * FRAGMENTS_N + j]);
      }
    }
    if (more)
      put(1 - which);
    which = 1 - which;
    barrier();
  }
  [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
      coopMatStore(sums[i * FRAGMENTS_N + j], results[warp], 0, 16,
                   gl_CooperativeMatrixLayoutRowMajor);
      barrier();
      for (uint e = gl_SubgroupInvocationID; e < 256; e += SUBGROUP) {
        uint r = m0 + warp_m + 16 * i + e / 16, n = n0 + warp_n + 16 * j + e % 16;
        if (r >= n_rows || n >= n_out)
          continue;
        float value = results[warp][e] * Floats(scales).v[r];
        if (HAS_BIAS != 0)
          value += Floats(bias).v[n];
        store_element(row_of(y, r, y_inner_rows), first_column + n, TYPE_Y, value);
      }
      barrier();
    }
}
