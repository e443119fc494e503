/* paged_attention for prompts on matrix units, for devices where components of fragments lie as
 * matrix_fragments.glsl takes them to: scores become weights in registers. An invocation holds components
 * of rows g and g + 8 of its subgroup's 16, g being a quarter of its number: of each two columns next to
 * each other and two 8 further on, in a fragment of scores as in one of weights. Kept compiled in spirv/,
 * as matmul_matrix.comp is. */
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


#include "attention_matrix.glsl"

/* All rows of the tile that belong to one sequence. Scores and maxima count in powers of 2. */
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
  const float LOG2_E = 1.4426950408889634;
  uint row[2];
  int token[2], position[2], seen_to[2], seen_from[2];
  bool is_ours[2];
  float slope[2], largest[2], total[2]; /* the last of this invocation's columns alone */
  [[unroll]] for (uint r = 0; r < 2; r++) {
    row[r] = 16 * warp + lane / 4 + 8 * r;
    token[r] = int(first + row[r] / CHUNK);
    position[r] = token[r] + offset;
    is_ours[r] = token[r] >= low_token && token[r] <= high_token && has_head(row[r], chunk);
    seen_to[r] = !is_ours[r] ? 0 : IS_CAUSAL != 0 ? min(position[r] + 1, int(end)) : int(end);
    seen_from[r] = window != 0 ? position[r] - int(window) + 1 : 0;
    slope[r] = 0;
    if (slopes != 0 && is_ours[r])
      slope[r] = Floats(slopes).v[head_of(row[r], kv_head, chunk)];
    largest[r] = -INFINITY;
    total[r] = 0;
  }
  SUMS sums[HEAD / 16];
  [[unroll]] for (uint d = 0; d < HEAD / 16; d++)
    sums[d] = SUMS(0.0);
  if (begin < end)
    fetch(sequence, kv_head, begin, end);
  [[dont_unroll]] for (uint p0 = begin; p0 < end; p0 += POSITIONS) {
    barrier();
    put();
    barrier();
    SUMS products[POSITIONS / 16];
    [[unroll]] for (uint j = 0; j < POSITIONS / 16; j++) {
      products[j] = SUMS(0.0);
      [[unroll]] for (uint d = 0; d < HEAD / 16; d++) {
        FRAGMENT(gl_MatrixUseB) key;
        coopMatLoad(key, keys, 16 * j * STRIDE + 2 * d, STRIDE,
                    gl_CooperativeMatrixLayoutColumnMajor);
        products[j] = coopMatMulAdd(queries[d], key, products[j]);
      }
      if (j < N_LOADS) /* not all at once: loads of keys would wait behind them */
        fetch_part(j, sequence, kv_head, p0 + POSITIONS, end);
    }
    bool is_whole = soft_cap == 0.0 && slopes == 0;
    [[unroll]] for (uint r = 0; r < 2; r++)
      is_whole = is_whole && int(p0) >= seen_from[r] && int(p0) + POSITIONS <= seen_to[r];
    float most[2] = largest;
    if (subgroupAll(is_whole)) { /* most often all rows see all of the tile */
      [[unroll]] for (uint j = 0; j < POSITIONS / 16; j++)
        [[unroll]] for (uint e = 0; e < 8; e++) {
          float score = products[j][e] * (scale * LOG2_E);
          products[j][e] = score;
          most[e / 4] = max(most[e / 4], score);
        }
    } else {
      [[unroll]] for (uint j = 0; j < POSITIONS / 16; j++)
        [[unroll]] for (uint e = 0; e < 8; e++) {
          const uint r = e / 4;
          int p = int(p0 + 16 * j + lane % 4 * 2 + e % 2 + e / 2 % 2 * 8);
          float score =
              score_of(products[j][e], p, seen_from[r], seen_to[r], position[r], slope[r]) * LOG2_E;
          products[j][e] = score;
          most[r] = max(most[r], score);
        }
    }
    float shrink[2], shift[2];
    [[unroll]] for (uint r = 0; r < 2; r++) {
      most[r] = max(most[r], subgroupShuffleXor(most[r], 1));
      most[r] = max(most[r], subgroupShuffleXor(most[r], 2));
      shrink[r] = most[r] == largest[r] ? 1.0 : exp2(largest[r] - most[r]);
      shift[r] = most[r] == -INFINITY ? 0.0 : most[r];
      largest[r] = most[r];
      total[r] *= shrink[r];
    }
    if (subgroupAny(shrink[0] != 1.0 || shrink[1] != 1.0))
      [[unroll]] for (uint d = 0; d < HEAD / 16; d++)
        [[unroll]] for (uint e = 0; e < 8; e++)
          sums[d][e] *= shrink[e / 4];
    [[unroll]] for (uint j = 0; j < POSITIONS / 16; j++) {
      FRAGMENT(gl_MatrixUseA) weight;
      [[unroll]] for (uint e = 0; e < 8; e++) {
        float share = exp2(products[j][e] - shift[e / 4]);
        total[e / 4] += share;
        weight[e] = float16_t(share);
      }
      [[unroll]] for (uint d = 0; d < HEAD / 16; d++) {
        FRAGMENT(gl_MatrixUseB) value;
        coopMatLoad(value, values, 16 * j * STRIDE + 2 * d, STRIDE,
                    gl_CooperativeMatrixLayoutRowMajor);
        sums[d] = coopMatMulAdd(weight, value, sums[d]);
      }
    }
  }
  float factor[2];
  [[unroll]] for (uint r = 0; r < 2; r++) {
    total[r] += subgroupShuffleXor(total[r], 1);
    total[r] += subgroupShuffleXor(total[r], 2);
    factor[r] = total[r] > 0.0 ? 1.0 / total[r] : 0.0;
    if (is_ours[r] && lane % 4 == 0)
      is_covered[row[r]] = true;
  }
  bool is_odd = lane % 2 == 1;
  uint64_t to = row_of(y, uint(is_odd ? token[1] : token[0]) * N_HEADS +
                              head_of(is_odd ? row[1] : row[0], kv_head, chunk), N_HEADS);
  [[unroll]] for (uint d = 0; d < HEAD / 16; d++)
    [[unroll]] for (uint h = 0; h < 2; h++) {
#ifdef VECTOR_ROWS
      if (n_splits == 1) {
        /* Two neighbours have two columns of both rows each: one takes four of the one row, the other
         * of the other. */
        vec2 above = vec2(sums[d][2 * h], sums[d][2 * h + 1]) * factor[0];
        vec2 below = vec2(sums[d][2 * h + 4], sums[d][2 * h + 5]) * factor[1];
        vec2 got = subgroupShuffleXor(is_odd ? above : below, 1);
        if (is_odd ? is_ours[1] : is_ours[0])
          store_four(to, 4 * d + 2 * h + lane % 4 / 2, TYPE_Y,
                     is_odd ? vec4(got, below) : vec4(above, got));
        continue;
      }
#endif
      [[unroll]] for (uint e = 0; e < 4; e++)
        if (is_ours[e / 2])
          store_results(uint(token[e / 2]), head_of(row[e / 2], kv_head, chunk), split,
                        largest[e / 2] / LOG2_E, total[e / 2],
                        16 * d + 8 * h + lane % 4 * 2 + e % 2, sums[d][e / 2 * 4 + 2 * h + e % 2]);
    }
}

#include "attention_tiles.glsl"
