/* The frame of a gated linear unit of one row whose invocations keep what they meet of x in
 * registers: a workgroup lies along rows of weights, each invocation with the same units of every
 * row, and makes ROWS results one behind the other, of both weights in turn, with DEPTH loads under
 * way. Where subgroups go along rows by themselves (streams.glsl), each reads all of x again from
 * shared memory, and workgroups are so many that reading x and the gains of a norm tells. Whoever
 * includes this has said the same as there, and
 *
 *     below(row, n)         the row that lies n rows below
 *
 * There are ROWS results at least. DEPTH is a power of two from 2 on, divides 2 ROWS and is no
 * larger than a subgroup. */
layout(constant_id = 13) const uint DEPTH = 2;
layout(constant_id = 14) const uint N_SUBGROUPS = 1; /* of a workgroup */

const uint N_SUMS = 2 * ROWS; /* of gate and up in turn */
const uint N_HELD = (N_UNITS + WORKGROUP - 1) / WORKGROUP;
const bool IS_WHOLE = N_UNITS % WORKGROUP == 0; /* all invocations have N_HELD units */

shared float partial_sums[N_SUBGROUPS * N_SUMS];

uint own_unit(uint h) { return min(h * WORKGROUP + gl_LocalInvocationID.x, N_UNITS - 1); }

float sums[DEPTH]; /* of an invocation */

/* Adds the upper half of 2 n sums to the lower one: half of the invocations go on with either, and
 * get what the others have of theirs. */
void halve(uint n, uint distance) {
  bool is_upper = (gl_SubgroupInvocationID & distance) != 0;
  [[unroll]] for (uint i = 0; i < n; i++) {
    float kept = is_upper ? sums[i + n] : sums[i], given = is_upper ? sums[i] : sums[i + n];
    sums[i] = kept + subgroupShuffleXor(given, distance);
  }
}

/* Adds up over the subgroup, and leaves sums from number `first` on where the workgroup finds them. */
void share_sums(uint first) {
  uint distance = gl_SubgroupSize;
  if (DEPTH >= 8)
    halve(4, distance /= 2);
  if (DEPTH >= 4)
    halve(2, distance /= 2);
  halve(1, distance /= 2);
  uint n_same = distance; /* invocations that hold the same sum */
  while (distance > 1)
    sums[0] += subgroupShuffleXor(sums[0], distance /= 2);
  if (gl_SubgroupInvocationID % n_same == 0)
    partial_sums[gl_SubgroupID * N_SUMS + first + gl_SubgroupInvocationID / n_same] = sums[0];
}

float sum_of(uint i) {
  float sum = 0;
  [[unroll]] for (uint s = 0; s < N_SUBGROUPS; s++)
    sum += partial_sums[s * N_SUMS + i];
  return sum;
}

#define MOST_SUBGROUPS N_SUBGROUPS
#include "squares.glsl"

void main() {
  uint begin = group_index() * ROWS, first_row = min(begin, n_out[0] - ROWS);
  WeightRow rows[2] = {row_of_part(0, first_row), row_of_part(1, first_row)};
  Unit units[DEPTH][N_HELD];
  ask_for_x();
  [[unroll]] for (uint d = 0; d < DEPTH; d++)
    [[unroll]] for (uint h = 0; h < N_HELD; h++)
      units[d][h] = load_unit(below(rows[d % 2], d / 2), own_unit(h));
  float unscaled = own_unscaled();
  float factor = meet_and_scale(1.0 / PRODUCT_SCALE, share_x(), unscaled);
  Met met[N_HELD];
  [[unroll]] for (uint h = 0; h < N_HELD; h++)
    met[h] = met_by(own_unit(h));
  for (uint first = 0; first < N_SUMS; first += DEPTH) {
    [[unroll]] for (uint w = 0; w < 2; w++)
      rows[w] = below(rows[w], DEPTH / 2);
    [[unroll]] for (uint d = 0; d < DEPTH; d++) {
      sums[d] = 0;
      [[unroll]] for (uint h = 0; h < N_HELD; h++) {
        if (IS_WHOLE || h * WORKGROUP + gl_LocalInvocationID.x < N_UNITS)
          sums[d] += product(units[d][h], met[h]);
        if (first + DEPTH < N_SUMS)
          units[d][h] = load_unit(below(rows[d % 2], d / 2), own_unit(h));
      }
    }
    share_sums(first);
  }
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < ROWS; i += WORKGROUP)
    if (first_row + i >= begin) /* else others make it, too */
      store_gated(first_row + i, sum_of(2 * i) * factor, sum_of(2 * i + 1) * factor);
}
