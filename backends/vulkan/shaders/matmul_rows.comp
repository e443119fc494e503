/* matmul for few rows, and grouped_matmul (EXPERTS): each subgroup reads N_WEIGHT_ROWS rows of the
 * weight once, lanes side by side along them, and multiplies them with N_X_ROWS rows of x. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "matmul.glsl"

/* Adds the products of group G of every row to the sums. */
#define MULTIPLY(G)                                                                                \
  {                                                                                                \
    uint span = (G) / (HALF / 4), j = (G) % (HALF / 4), k = span * (2 * HALF) + 4 * j;             \
    Group groups[N_WEIGHT_ROWS];                                                                   \
    [[unroll]] for (uint n = 0; n < N_WEIGHT_ROWS; n++)                                            \
      groups[n] = decode(weights[n], span, j, n_in);                                               \
    [[unroll]] for (uint m = 0; m < N_X_ROWS; m++) {                                               \
      vec4 low = load_x(rows[m], k), high = load_x(rows[m], k + HALF);                             \
      float low_sum = low.x + low.y + low.z + low.w, high_sum = high.x + high.y + high.z + high.w; \
      [[unroll]] for (uint n = 0; n < N_WEIGHT_ROWS; n++)                                          \
        sums[n * N_X_ROWS + m] += group_product(groups[n], low, high, low_sum, high_sum);          \
    }                                                                                              \
  }

void main() {
  uint group = group_index(), first = group / n_tiles * N_X_ROWS;
  /* Tiles are shared out by the subgroups there are, whatever their width. */
  uint tile = group % n_tiles * gl_NumSubgroups + gl_SubgroupID;
  uint n_weight_tiles = (n_out + N_WEIGHT_ROWS - 1) / N_WEIGHT_ROWS;
  uint weight_base = 0;
  if (first >= n_rows)
    return;
#ifdef EXPERTS
  weight_base = min(uint(Ints(experts).v[first]), n_experts - 1) * n_out;
  uint x_row = x_inner_rows == 1 ? first / n_choices : first;
#else
  uint x_row = first;
#endif
  for (; tile < n_weight_tiles; tile += n_tiles * gl_NumSubgroups) {
    uint n0 = tile * N_WEIGHT_ROWS;
    WeightRow weights[N_WEIGHT_ROWS];
    uint64_t rows[N_X_ROWS];
    float sums[N_WEIGHT_ROWS * N_X_ROWS];
    for (uint n = 0; n < N_WEIGHT_ROWS; n++)
      weights[n] = weight_row(rest, scales, weight_base + min(n0 + n, n_out - 1), n_in);
    for (uint m = 0; m < N_X_ROWS; m++)
      rows[m] = row_of(x, min(x_row + m, n_rows - 1), x_inner_rows);
    for (uint i = 0; i < N_WEIGHT_ROWS * N_X_ROWS; i++)
      sums[i] = 0;
    uint n_groups = (n_in + 7) / 8, g = gl_SubgroupInvocationID;
    /* Many loads under way where there is room, then what is left. */
    for (; g + (UNROLL - 1) * gl_SubgroupSize < n_groups; g += UNROLL * gl_SubgroupSize)
      [[unroll]] for (uint u = 0; u < UNROLL; u++)
        MULTIPLY(g + u * gl_SubgroupSize)
    for (; g < n_groups; g += gl_SubgroupSize)
      MULTIPLY(g)
    for (uint n = 0; n < N_WEIGHT_ROWS; n++)
      for (uint m = 0; m < N_X_ROWS; m++) {
        float sum = subgroupAdd(sums[n * N_X_ROWS + m]);
        if (subgroupElect() && n0 + n < n_out && first + m < n_rows) {
          if (HAS_BIAS != 0)
            sum += Floats(bias).v[n0 + n];
          store_element(row_of(y, first + m, y_inner_rows), n0 + n, TYPE_Y, sum);
        }
      }
  }
}
