/* The frame of products of one row whose subgroups go along rows of weights by themselves: each
 * makes ROWS results of a weight, of both for a gated linear unit, its invocations side by side
 * along the rows, with DEPTH loads of every row under way. The first leave behind those of x, which
 * is waited for first, and before x is looked at, which a workgroup does once. Whoever includes this
 * has said what a unit of weights is, 16 bytes a load:
 *
 *     N_UNITS, PRODUCT_SCALE, WeightRow, row_of_part(), Unit, load_unit()
 *     ask_for_x()           loads what the invocation looks at of x, and of the gain of a norm
 *     share_x()             fills shared memory with x, times that gain, and returns the sum of
 *                           squares of what the invocation saw
 *     Met, met_by()         what a unit meets of x
 *     product()             PRODUCT_SCALE times their product */
layout(constant_id = 13) const uint DEPTH = 1;

#define N_SUBGROUPS gl_NumSubgroups
#define MOST_SUBGROUPS 256
#include "squares.glsl"

const uint N_SUMS = AFTER == AFTER_GLU ? 2 * ROWS : ROWS;

void main() {
  uint lane = gl_SubgroupInvocationID, width = gl_SubgroupSize;
  uint tile = group_index() * gl_NumSubgroups + gl_SubgroupID, part = part_of(tile);
  uint n0 = tile * ROWS;
  WeightRow rows[N_SUMS];
  Unit units[DEPTH][N_SUMS];
  float sums[N_SUMS];
  [[unroll]] for (uint i = 0; i < N_SUMS; i++) {
    rows[i] = row_of_part(i < ROWS ? part : 1, n0 + i % ROWS);
    sums[i] = 0;
  }
  ask_for_x();
  bool is_whole = N_UNITS % (DEPTH * width) == 0; /* no invocation runs out before others */
  [[unroll]] for (uint d = 0; d < DEPTH; d++)
    [[unroll]] for (uint i = 0; i < N_SUMS; i++)
      if (is_whole || lane + d * width < N_UNITS)
        units[d][i] = load_unit(rows[i], lane + d * width);
  float before = lane < ROWS ? residual_of(part, n0 + lane) : 0.0, unscaled = own_unscaled();
  float factor = meet_and_scale(1.0 / PRODUCT_SCALE, share_x(), unscaled);
  for (uint first = 0; first < N_UNITS; first += DEPTH * width)
    [[unroll]] for (uint d = 0; d < DEPTH; d++) {
      uint unit = first + d * width + lane, next = unit + DEPTH * width;
      if (is_whole || unit < N_UNITS) {
        Met met = met_by(unit);
        [[unroll]] for (uint i = 0; i < N_SUMS; i++)
          sums[i] += product(units[d][i], met);
      }
      if (is_whole ? first + DEPTH * width < N_UNITS : next < N_UNITS)
        [[unroll]] for (uint i = 0; i < N_SUMS; i++)
          units[d][i] = load_unit(rows[i], next);
    }
  [[unroll]] for (uint i = 0; i < N_SUMS; i++)
    sums[i] = subgroupAdd(sums[i]) * factor;
  [[unroll]] for (uint i = 0; i < ROWS; i++)
    if (lane == i && n0 + i < n_out[part]) {
      if (AFTER == AFTER_GLU)
        store_gated(n0 + i, sums[i], sums[ROWS + i]);
      else
        store(part, n0 + i, sums[i], before);
    }
}
