/* paged_attention for prompts on matrix units, wherever components of fragments lie: scores pass
 * through shared memory, where two invocations share a row. Kept compiled in spirv/, as
 * matmul_matrix.comp is. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#pragma use_vulkan_memory_model
#include "types.glsl"
#include "functions.glsl"
#include "groups.glsl"
#include "rows.glsl"
#if HEAD % 128 == 0 /* blocks of f8_g128 are whole heads */
#define HAS_FP8_CACHES
#endif
#include "cache.glsl"


#define POSITIONS 32
#include "attention_matrix.glsl"

#define SCORE_STRIDE (POSITIONS / 4 + 1)
#define WEIGHT_STRIDE (POSITIONS / 8 + 1)
shared vec4 scores[N_WARPS][16 * SCORE_STRIDE]; /* also 16 x 16 results and factors */
shared uvec4 weights[N_WARPS][16 * WEIGHT_STRIDE];

/* All rows of the tile that belong to one sequence. */
void attend(uint sequence, uint first, uint kv_head, uint chunk, uint split) {
  uint warp = gl_SubgroupID, lane = gl_SubgroupInvocationID;
  int start = Ints(query_start).v[sequence], n = Ints(query_length).v[sequence];
  int context = Ints(context_length).v[sequence];
  int offset = context - n - start; /* position of token t is t + offset */
  int low_token = max(start, int(first));
  int high_token = min(start + n, int(first + N_TILE_TOKENS)) - 1;
  int low_position = low_token + offset;
  uint low = window != 0 && low_position >= int(window) ? uint(low_position) - window + 1 : 0;
  uint high = IS_CAUSAL != 0 ? uint(high_token + offset) + 1 : uint(context);
  uint length = (high - low + n_splits - 1) / n_splits;
  length = (length + POSITIONS - 1) / POSITIONS * POSITIONS;
  uint begin = low + split * length, end = min(high, begin + length);
  /* This invocation's row, and its half of the positions of a tile. */
  uint row = 16 * warp + lane / 2, half_at = lane % 2 * (POSITIONS / 2);
  int token = int(first + row / CHUNK), position = token + offset;
  bool is_ours = token >= low_token && token <= high_token && has_head(row, chunk);
  int seen_to = !is_ours ? 0 : IS_CAUSAL != 0 ? min(position + 1, int(end)) : int(end);
  int seen_from = window != 0 ? position - int(window) + 1 : 0;
  float slope = 0;
  if (slopes != 0 && is_ours)
    slope = Floats(slopes).v[head_of(row, kv_head, chunk)];
  float largest = -INFINITY, total = 0;
  SUMS sums[HEAD / 16];
  [[unroll]] for (uint d = 0; d < HEAD / 16; d++)
    sums[d] = SUMS(0.0);
  if (begin < end)
    fetch(sequence, kv_head, begin, end);
  [[dont_unroll]] for (uint p0 = begin; p0 < end; p0 += POSITIONS) {
    barrier();
    put();
    barrier();
    if (p0 + POSITIONS < end)
      fetch(sequence, kv_head, p0 + POSITIONS, end);
    [[unroll]] for (uint j = 0; j < POSITIONS / 16; j++) {
      SUMS products = SUMS(0.0);
      [[unroll]] for (uint d = 0; d < HEAD / 16; d++) {
        FRAGMENT(gl_MatrixUseB) key;
        coopMatLoad(key, keys, 16 * j * STRIDE + 2 * d, STRIDE,
                    gl_CooperativeMatrixLayoutColumnMajor);
        products = coopMatMulAdd(queries[d], key, products);
      }
      coopMatStore(products, scores[warp], 4 * j, SCORE_STRIDE,
                   gl_CooperativeMatrixLayoutRowMajor);
    }
    subgroupBarrier();
    float own[POSITIONS / 2], most = largest;
#ifdef VECTOR_ROWS
    bool is_whole = subgroupAll(int(p0) >= seen_from && int(p0) + POSITIONS <= seen_to) &&
                    soft_cap == 0.0 && slopes == 0;
    [[unroll]] for (uint i = 0; i < POSITIONS / 2; i += 4) {
      vec4 four = scores[warp][lane / 2 * SCORE_STRIDE + half_at / 4 + i / 4];
      [[unroll]] for (uint j = 0; j < 4; j++)
        own[i + j] = four[j];
    }
    if (is_whole) { /* most often all rows see all of the tile */
      [[unroll]] for (uint i = 0; i < POSITIONS / 2; i++) {
        own[i] *= scale;
        most = max(most, own[i]);
      }
    } else
      [[unroll]] for (uint i = 0; i < POSITIONS / 2; i++) {
        own[i] = score_of(own[i], int(p0 + half_at + i), seen_from, seen_to, position, slope);
        most = max(most, own[i]);
      }
#else
    [[unroll]] for (uint i = 0; i < POSITIONS / 2; i++) {
      own[i] = score_of(scores[warp][lane / 2 * SCORE_STRIDE + half_at / 4 + i / 4][i % 4],
                        int(p0 + half_at + i), seen_from, seen_to, position, slope);
      most = max(most, own[i]);
    }
#endif
    most = max(most, subgroupShuffleXor(most, 1));
    float shrink = most == largest ? 1.0 : exp(largest - most);
    float shift = most == -INFINITY ? 0.0 : most, sum = 0;
    [[unroll]] for (uint i = 0; i < POSITIONS / 2; i += 8) {
      vec4 low, high;
      [[unroll]] for (uint j = 0; j < 4; j++) {
        low[j] = exp(own[i + j] - shift);
        high[j] = exp(own[i + 4 + j] - shift);
      }
      sum += dot(low + high, vec4(1));
      weights[warp][lane / 2 * WEIGHT_STRIDE + (half_at + i) / 8] =
          uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy),
                packHalf2x16(high.zw));
    }
    total = total * shrink + sum + subgroupShuffleXor(sum, 1);
    largest = most;
    if (subgroupAny(shrink != 1.0)) {
      subgroupBarrier();
      scores[warp][lane / 2 * SCORE_STRIDE + lane % 2 * 2] = vec4(shrink);
      scores[warp][lane / 2 * SCORE_STRIDE + lane % 2 * 2 + 1] = vec4(shrink);
      subgroupBarrier();
      SUMS factors;
      coopMatLoad(factors, scores[warp], 0, SCORE_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint d = 0; d < HEAD / 16; d++)
        sums[d] = sums[d] * factors;
    }
    subgroupBarrier();
    [[unroll]] for (uint j = 0; j < POSITIONS / 16; j++) {
      FRAGMENT(gl_MatrixUseA) weight;
      coopMatLoad(weight, weights[warp], 2 * j, WEIGHT_STRIDE,
                  gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint d = 0; d < HEAD / 16; d++) {
        FRAGMENT(gl_MatrixUseB) value;
        coopMatLoad(value, values, 16 * j * STRIDE + 2 * d, STRIDE,
                    gl_CooperativeMatrixLayoutRowMajor);
        sums[d] = coopMatMulAdd(weight, value, sums[d]);
      }
    }
  }
  if (is_ours && lane % 2 == 0)
    is_covered[row] = true;
  [[unroll]] for (uint d = 0; d < HEAD / 16; d++) {
    subgroupBarrier();
    coopMatStore(sums[d], scores[warp], 0, SCORE_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
    subgroupBarrier();
#ifdef VECTOR_ROWS
    if (is_ours && n_splits == 1) {
      uint64_t to = row_of(y, uint(token) * N_HEADS + head_of(row, kv_head, chunk), N_HEADS);
      float factor = total > 0.0 ? 1.0 / total : 0.0;
      [[unroll]] for (uint i = 0; i < 2; i++)
        store_four(to, 4 * d + lane % 2 * 2 + i, TYPE_Y,
                   scores[warp][lane / 2 * SCORE_STRIDE + lane % 2 * 2 + i] * factor);
    } else
#endif
    if (is_ours)
      [[unroll]] for (uint i = 0; i < 8; i++) {
        uint column = lane % 2 * 8 + i;
        store_results(uint(token), head_of(row, kv_head, chunk), split, largest, total,
                      16 * d + column,
                      scores[warp][lane / 2 * SCORE_STRIDE + column / 4][column % 4]);
      }
  }
}

#include "attention_tiles.glsl"
