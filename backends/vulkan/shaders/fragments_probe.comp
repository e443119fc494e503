/* Whether components of fragments lie as matrix_fragments.glsl takes them to, and those of sums as
 * paged_attention_fragments.comp does: one subgroup multiplies 16 x 16 numbers by 16 x 16, and each
 * invocation counts those of its components that are wrong. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#pragma use_vulkan_memory_model
#include "types.glsl"
#include "matrix_fragments.glsl"

layout(push_constant) uniform Push {
  uint64_t wrong; /* a count for each invocation */
};

const uint SIDE = 16;
shared vec4 products[SIDE * SIDE / 4];
shared uvec4 numbers[SIDE * SIDE / 8];

/* Element k of a row: integers from -8 to 7 in no order. Those of the weight are rows SIDE on. */
float element(uint row, uint k) {
  uint bits = (row * SIDE + k + 1) * 2654435761u;
  bits = (bits ^ bits >> 15) * 2246822519u;
  return float(bits >> 28) - 8.0;
}

/* Elements k to k + 3. */
uvec2 quad_of(uint row, uint k) {
  return uvec2(packHalf2x16(vec2(element(row, k), element(row, k + 1))),
               packHalf2x16(vec2(element(row, k + 2), element(row, k + 3))));
}

void main() {
  uint id = gl_SubgroupInvocationID, row = id / 4, k = id % 4 * 4, n_wrong = 0;
  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums =
      coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
  sums = coopMatMulAdd(fragment_of_x(uvec4(quad_of(row, k), quad_of(row + 8, k))),
                       fragment_of_weight(uvec4(quad_of(SIDE + row, k), quad_of(SIDE + row + 8, k))),
                       sums);
  coopMatStore(sums, products, 0, SIDE / 4, gl_CooperativeMatrixLayoutRowMajor);
  numbers[id] = uvec4(quad_of(id / 2, id % 2 * 8), quad_of(id / 2, id % 2 * 8 + 4));
  barrier();
  for (uint i = id; i < SIDE * SIDE; i += 32) {
    float sum = 0;
    for (uint j = 0; j < SIDE; j++)
      sum += element(i / SIDE, j) * element(SIDE + i % SIDE, j);
    n_wrong += products[i / 4][i % 4] == sum ? 0 : 1;
  }
  /* Sums and weights of attention. */
  coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a;
  coopMatLoad(a, numbers, 0, SIDE / 8, gl_CooperativeMatrixLayoutRowMajor);
  [[unroll]] for (uint e = 0; e < 8; e++) {
    uint r = id / 4 + e / 4 * 8, column = id % 4 * 2 + e % 2 + e / 2 % 2 * 8;
    n_wrong += sums[e] == products[r * 4 + column / 4][column % 4] ? 0 : 1;
    n_wrong += float(a[e]) == element(r, column) ? 0 : 1;
  }
  Words(wrong).v[id] = n_wrong;
}
