/* matmul on matrix units (VK_KHR_cooperative_matrix): halves times halves, sums in f32.
 *
 * A workgroup takes TILE_M rows of x, TILE_N of the weight and one of n_splits parts of their
 * length; a subgroup WARP_M x WARP_N results in fragments of 16 x 16. Slices STEP deep go through
 * shared memory, weights being decoded on the way, and while one is multiplied the next is under
 * way. Few rows make too few tiles to fill a device, and the last tiles of many leave most of it
 * idle, so they are split (SPLIT_HOW):
 *
 *     SPLIT_LEAVES_SUMS  results are left as f32 sums [split][row][column], both padded to whole
 *                        tiles, which matmul_join.comp brings together
 *     SPLIT_LAST_TILES   tiles from n_whole on; the workgroup that is done last with one gathers
 *                        its parts
 *
 * Shared memory is what limits this: its rows are padded so that neither stores nor loads of
 * fragments meet in a bank, and N_IN is a constant so that addresses take few registers. The
 * compilers of older distributions do not know the extension, so the SPIR-V of this file is kept in
 * spirv/; spirv/make makes it anew. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#pragma use_vulkan_memory_model
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"

layout(constant_id = 1) const uint SPLIT = 0;
layout(constant_id = 2) const uint TYPE_Y = 0;
layout(constant_id = 3) const uint HAS_BIAS = 0;
layout(constant_id = 4) const uint N_IN = 32;
layout(constant_id = 5) const uint IS_WHOLE_M = 0; /* there are rows for a tile, ... */
layout(constant_id = 6) const uint IS_WHOLE_N = 0; /* ... and columns */
layout(constant_id = 7) const uint SPLIT_HOW = 0;       /* SPLIT_* */
layout(constant_id = 8) const uint IS_VECTOR = 0; /* eight columns of y lie at 16 bytes */
const uint VECTOR = 1;
const uint SPLIT_LEAVES_SUMS = 1, SPLIT_LAST_TILES = 2;

/* x is [n_rows, N_IN] in halves. The results of row r are multiplied by row_scales[r]. */
layout(push_constant) uniform Push {
  Rows y;
  uint64_t x, rest, scales, row_scales, bias, sums_to;
  uint n_rows, n_out, y_inner_rows, first_column, n_splits, length; /* columns of x of a split */
  uint n_whole;      /* tiles that are not split; of SPLIT_LEAVES_SUMS, 0 */
  uint64_t arrivals; /* a counter for each tile that is */
};

#include "weights.glsl"

#define STRIDE ((STEP + 8) / 8) /* vectors of 16 bytes: one more keeps banks apart */
#define SUBGROUP 32
#define N_WARPS ((TILE_M / WARP_M) * (TILE_N / WARP_N))
#define THREADS (N_WARPS * SUBGROUP)
#define OCTETS (STEP / 8)
#define AT_ONCE (THREADS / OCTETS) /* rows of halves that a workgroup loads at once */
#define FRAGMENTS_M (WARP_M / 16)
#define FRAGMENTS_N (WARP_N / 16)

shared uvec4 x_slice[TILE_M * STRIDE], weight_slice[TILE_N * STRIDE];
#define SCRATCH x_slice

uint m0, n0; /* of this workgroup's tile */

/* ---- Activations ------------------------------------------------------------------------------- */

#define X_LOADS (TILE_M / AT_ONCE)
uvec4 x_next[X_LOADS];

void fetch_x(uint64_t from, uint k0) {
  uint row = m0 + gl_LocalInvocationID.x / OCTETS, k = k0 + gl_LocalInvocationID.x % OCTETS * 8;
  [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
    x_next[i] = uvec4(0);
    if ((IS_WHOLE_M != 0 || row + i * AT_ONCE < n_rows) && (N_IN % STEP == 0 || k < N_IN))
      x_next[i] = Words4(from + k0 * 2).v[i * AT_ONCE * (N_IN / 8)];
  }
}

void put_x() {
  uint to = gl_LocalInvocationID.x / OCTETS * STRIDE + gl_LocalInvocationID.x % OCTETS;
  [[unroll]] for (uint i = 0; i < X_LOADS; i++)
    x_slice[to + i * AT_ONCE * STRIDE] = x_next[i];
}

#include "matrix_weights.glsl"

/* ---- Products ------------------------------------------------------------------------------------ */

coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums[FRAGMENTS_M * FRAGMENTS_N];

void multiply_slices(uint warp_m, uint warp_n) {
  [[unroll]] for (uint k = 0; k < OCTETS; k += 2) {
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a[FRAGMENTS_M];
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> b[FRAGMENTS_N];
    [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
      coopMatLoad(a[i], x_slice, (warp_m + 16 * i) * STRIDE + k, STRIDE,
                  gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
      coopMatLoad(b[j], weight_slice, (warp_n + 16 * j) * STRIDE + k, STRIDE,
                  gl_CooperativeMatrixLayoutColumnMajor);
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
      [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
        sums[i * FRAGMENTS_N + j] = coopMatMulAdd(a[i], b[j], sums[i * FRAGMENTS_N + j]);
  }
}

/* ---- Results ------------------------------------------------------------------------------------- */

void leave_sums(uint split, uint warp_m, uint warp_n) {
  uint n_columns = (n_out + TILE_N - 1) / TILE_N * TILE_N;
  uint n_padded_rows = (n_rows + TILE_M - 1) / TILE_M * TILE_M;
  uint64_t to = sums_to + uint64_t(split * n_padded_rows + m0 + warp_m) * n_columns * 4;
  [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
      coopMatStore(sums[i * FRAGMENTS_N + j], Floats(to).v,
                   16 * i * n_columns + n0 + warp_n + 16 * j, n_columns,
                   gl_CooperativeMatrixLayoutRowMajor);
}

#include "matrix_results.glsl"

void main() {
  /* Tiles under way at once share their weights: those of one column come after one another. */
  uint group = group_index(), split = 0, tile = group;
  bool is_split = SPLIT_HOW == SPLIT_LEAVES_SUMS ||
                  (SPLIT_HOW == SPLIT_LAST_TILES && group >= n_whole);
  if (is_split) {
    split = (group - n_whole) % n_splits;
    tile = n_whole + (group - n_whole) / n_splits;
  }
  uint n_row_tiles = (n_rows + TILE_M - 1) / TILE_M;
  m0 = tile % n_row_tiles * TILE_M;
  n0 = tile / n_row_tiles * TILE_N;
  if (n0 >= n_out)
    return;
  /* The last tiles begin earlier, so that none has to ask what lies outside: what they share with
   * the ones before is the same. */
  if (IS_WHOLE_M != 0)
    m0 = min(m0, n_rows - TILE_M);
  if (IS_WHOLE_N != 0)
    n0 = min(n0, n_out - TILE_N);
  uint begin = split * length, end = is_split ? min(begin + length, N_IN) : N_IN;
  uint warp = gl_SubgroupID;
  uint warp_m = warp / (TILE_N / WARP_N) * WARP_M, warp_n = warp % (TILE_N / WARP_N) * WARP_N;
  [[unroll]] for (uint i = 0; i < FRAGMENTS_M * FRAGMENTS_N; i++)
    sums[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
  uint id = gl_LocalInvocationID.x;
  uint64_t from = x + (uint64_t(m0 + id / OCTETS) * N_IN + id % OCTETS * 8) * 2;
  start_weights();
  fetch_x(from, begin);
  fetch_weight(begin);
  [[dont_unroll]] for (uint k0 = begin; k0 < end; k0 += STEP) {
    barrier();
    put_x();
    put_weight();
    barrier();
    if (k0 + STEP < end) {
      fetch_x(from, k0 + STEP);
      fetch_weight(k0 + STEP);
    }
    multiply_slices(warp_m, warp_n);
  }
  if (SPLIT_HOW == SPLIT_LEAVES_SUMS) {
    leave_sums(split, warp_m, warp_n);
    return;
  }
  if (SPLIT_HOW == SPLIT_LAST_TILES && is_split && !gather_parts(tile - n_whole, split))
    return;
  store_results(warp_m, warp_n);
}
