/* How a row is normalised by those that multiply it: each workgroup sees all of x, and scales its
 * results. Whoever includes this has said how many subgroups a workgroup has at most, a constant
 * (MOST_SUBGROUPS), and how many this one has (N_SUBGROUPS). */
shared float squares_of[MOST_SUBGROUPS]; /* of each */

/* Waits until all of x is shared, stores the normalised row, and returns what results are multiplied
 * by: `factor`, with a norm times its scale. `squares` are what share_x() returned, `unscaled` is of
 * own_unscaled(). */
float meet_and_scale(float factor, float squares, float unscaled) {
  if (NORM != 0) {
    squares = subgroupAdd(squares);
    if (subgroupElect())
      squares_of[gl_SubgroupID] = squares;
  }
  barrier();
  if (NORM != 0) {
    float all = 0;
    for (uint s = gl_SubgroupInvocationID; s < N_SUBGROUPS; s += gl_SubgroupSize)
      all += squares_of[s];
    float scale = 1.0 / sqrt(subgroupAdd(all) / float(N_IN) + uintBitsToFloat(EPSILON));
    store_normalised(scale, unscaled);
    factor *= scale;
  }
  return factor;
}
