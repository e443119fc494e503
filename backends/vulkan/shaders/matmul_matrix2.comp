/* matmul on matrix units, of a whole workgroup (VK_NV_cooperative_matrix2): halves times halves,
 * sums in f32. The driver moves slices through shared memory by itself.
 *
 * Kept compiled in spirv/, as matmul_matrix.comp is. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_NV_cooperative_matrix2 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int32 : require
#pragma use_vulkan_memory_model
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"

layout(constant_id = 1) const uint TYPE_Y = 0;
layout(constant_id = 2) const uint HAS_BIAS = 0;

/* As in matmul_matrix.comp. */
layout(push_constant) uniform Push {
  Rows y;
  uint64_t x, weight, scales, bias;
  uint n_rows, n_out, n_in, y_inner_rows, n_tiles, first_column;
};

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Matrix { float16_t v[]; };


uint m0, n0; /* of this workgroup's tile */

float store(const in uint32_t row, const in uint32_t column, const in float sum) {
  uint r = m0 + row, n = n0 + column;
  if (r < n_rows && n < n_out) {
    float value = sum * Floats(scales).v[r];
    if (HAS_BIAS != 0)
      value += Floats(bias).v[n];
    store_element(row_of(y, r, y_inner_rows), first_column + n, TYPE_Y, value);
  }
  return sum;
}

#define CLAMPED tensorLayoutNV<2, gl_CooperativeMatrixClampModeConstantNV>

/* The products of all slices; what lies outside of the operands counts as 0 where LAYOUT clamps. */
#define MULTIPLY(LAYOUT, CREATE)                                                                   \
  LAYOUT a_layout = CREATE;                                                                        \
  LAYOUT b_layout = CREATE;                                                                        \
  a_layout = setTensorLayoutDimensionNV(a_layout, n_rows, n_in);                                   \
  a_layout = setTensorLayoutStrideNV(a_layout, stride, 1);                                         \
  b_layout = setTensorLayoutDimensionNV(b_layout, n_out, n_in);                                    \
  b_layout = setTensorLayoutStrideNV(b_layout, stride, 1);                                         \
  for (uint k = 0; k < n_in; k += STEP) {                                                          \
    coopmat<float16_t, gl_ScopeWorkgroup, TILE_M, STEP, gl_MatrixUseA> a;                          \
    coopmat<float16_t, gl_ScopeWorkgroup, STEP, TILE_N, gl_MatrixUseB> b;                          \
    coopMatLoadTensorNV(a, Matrix(x).v, 0, sliceTensorLayoutNV(a_layout, m0, TILE_M, k, STEP));    \
    coopMatLoadTensorNV(b, Matrix(weight).v, 0,                                                    \
                        sliceTensorLayoutNV(b_layout, n0, TILE_N, k, STEP), transposed);           \
    sums = coopMatMulAdd(a, b, sums);                                                              \
  }

void main() {
  /* Tiles under way at once share their weights: those of one column come after one another. */
  uint group = group_index(), n_row_tiles = (n_rows + TILE_M - 1) / TILE_M;
  m0 = group % n_row_tiles * TILE_M;
  n0 = group / n_row_tiles * TILE_N;
  if (n0 >= n_out)
    return;
  /* Tells the compiler that rows start at vectors of 16 bytes. */
  uint stride = n_in & ~7u;
  tensorViewNV<2, false, 1, 0> transposed = createTensorViewNV(2, false, 1, 0);
  coopmat<float, gl_ScopeWorkgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator> sums =
      coopmat<float, gl_ScopeWorkgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>(0.0);
  if (m0 + TILE_M <= n_rows && n0 + TILE_N <= n_out && n_in % STEP == 0) {
    MULTIPLY(tensorLayoutNV<2>, createTensorLayoutNV(2))
  } else {
    MULTIPLY(CLAMPED, createTensorLayoutNV(2, gl_CooperativeMatrixClampModeConstantNV))
  }
  coopMatPerElementNV(sums, sums, store);
}
