/* Results of matmul_matrix.comp and matmul_large.comp: `sums` are FRAGMENTS_M x FRAGMENTS_N fragments of
 * each of THREADS / 32 subgroups, the first at row m0 + warp_m and column n0 + warp_n. SCRATCH are vectors
 * of shared memory, 64 a subgroup. */

/* What one workgroup writes and another reads while both run. */
layout(buffer_reference, std430, buffer_reference_align = 16) coherent buffer Parts { vec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Arrivals { uint v[]; };

/* Leaves the sums of one part of a tile, each invocation the eight of a fragment that it holds, which
 * are the same in all parts. Whoever is done last gathers them, in the parts' order, so that sums do
 * not depend on it, and returns true. The counter is left at 0, as it was found. */
bool gather_parts(uint tile, uint split) {
  const uint QUADS = FRAGMENTS_M * FRAGMENTS_N * 2, BYTES = QUADS * THREADS * 16;
  uint64_t first = sums_to + uint64_t(tile * n_splits) * BYTES + gl_LocalInvocationID.x * 16;
  Parts own = Parts(first + split * BYTES);
  [[unroll]] for (uint i = 0; i < QUADS; i++) {
    vec4 four;
    [[unroll]] for (uint e = 0; e < 4; e++)
      four[e] = sums[i / 2][i % 2 * 4 + e];
    own.v[i * THREADS] = four;
  }
  memoryBarrierBuffer();
  barrier();
  if (gl_LocalInvocationID.x == 0) {
    uint n_arrived = atomicAdd(Arrivals(arrivals).v[tile], 1) + 1;
    if (n_arrived == n_splits)
      Arrivals(arrivals).v[tile] = 0;
    SCRATCH[0].x = n_arrived;
  }
  barrier();
  memoryBarrierBuffer();
  if (SCRATCH[0].x != n_splits)
    return false;
  [[unroll]] for (uint i = 0; i < FRAGMENTS_M * FRAGMENTS_N; i++)
    sums[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
  [[dont_unroll]] for (uint s = 0; s < n_splits; s++) {
    Parts part = Parts(first + s * BYTES);
    [[unroll]] for (uint i = 0; i < QUADS; i++) {
      vec4 four = part.v[i * THREADS];
      [[unroll]] for (uint e = 0; e < 4; e++)
        sums[i / 2][i % 2 * 4 + e] += four[e];
    }
  }
  return true;
}

/* A fragment at a time through shared memory that no slice needs any more: each lane has eight
 * columns of a row. */
void store_results(uint warp_m, uint warp_n) {
  uint own = gl_SubgroupID * (16 * 16 / 4), lane = gl_SubgroupInvocationID;
  barrier();
  [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++) {
    uint r = m0 + warp_m + 16 * i + lane / 2;
    float scale = r < n_rows ? Floats(row_scales).v[r] : 0.0;
    uint64_t to = row_of(y, min(r, n_rows - 1), y_inner_rows);
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
      uint n = n0 + warp_n + 16 * j + lane % 2 * 8;
      subgroupBarrier();
      coopMatStore(sums[i * FRAGMENTS_N + j], SCRATCH, own, 4, gl_CooperativeMatrixLayoutRowMajor);
      subgroupBarrier();
      vec4 low = uintBitsToFloat(SCRATCH[own + lane * 2]) * scale;
      vec4 high = uintBitsToFloat(SCRATCH[own + lane * 2 + 1]) * scale;
      if (r >= n_rows)
        continue;
      if (IS_VECTOR != 0 && HAS_BIAS == 0 && n + 8 <= n_out) {
        store_four(to, (first_column + n) / 4, TYPE_Y, low);
        store_four(to, (first_column + n) / 4 + 1, TYPE_Y, high);
        continue;
      }
      for (uint e = 0; e < 8 && n + e < n_out; e++) {
        float value = e < 4 ? low[e] : high[e - 4];
        if (HAS_BIAS != 0)
          value += Floats(bias).v[n + e];
        store_element(to, first_column + n + e, TYPE_Y, value);
      }
    }
  }
}
