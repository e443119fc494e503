/* Rows of x that the blocks of matmul_eight() make before they multiply them: the sums of two rows
 * and their norms.
 *
 * A block makes a row, all of it to device memory, and tells the others by a counter; threads that
 * copy x wait for all rows. So all blocks of the launch must run at once. Values are those of the
 * kernel that does the same by itself (backends/simt/norm.cu). */
#ifndef ISOMER_CUDA_HOPPER_MATMUL_EIGHT_MAKE_H
#define ISOMER_CUDA_HOPPER_MATMUL_EIGHT_MAKE_H

#include "backends/cuda/hopper/hopper.cuh"
#include "backends/simt/rounding.cuh"

enum {
  MAKE_THREADS = 256,      /* of a block, those that multiply */
  MAKE_NORM_COLUMNS = 4096 /* at most: two vectors of 8 a thread */
};

/* Rows of bf16, at multiples of 16 bytes. */
struct make_rows {
  uint8_t *data;
  int64_t stride;

  __device__ __forceinline__ void load(int row, int column, float (&v)[8]) const {
    simt_load8(ISO_SCHEME_BF16, data + row * stride, column, v);
  }
  /* Rounds to what it stores. */
  __device__ __forceinline__ void store(int row, int column, float (&v)[8]) const {
    simt_store8(ISO_SCHEME_BF16, data + row * stride, column, v);
#pragma unroll
    for (float &value : v)
      value = simt_rounded(ISO_SCHEME_BF16, value);
  }
};

/* Where blocks meet: two counters, zero before and after a launch. */
struct make_meeting {
  uint32_t *counters; /* rows that are made; blocks that have seen all of them */

  /* By the threads that made rows, of which there is one a block or more. */
  __device__ __forceinline__ void tell() const {
#if HOPPER_HAS_WGMMA
    asm volatile("fence.proxy.async;" ::: "memory"); /* others copy it in bulk */
    hopper_sync(3, MAKE_THREADS);
    if (threadIdx.x % MAKE_THREADS == 0)
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counters) : "memory");
#endif
  }
  /* By one thread of each block. */
  __device__ __forceinline__ void wait(uint32_t n_shares) const {
#if HOPPER_HAS_WGMMA
    uint32_t made;
    do
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(made) : "l"(counters) : "memory");
    while (made < n_shares);
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
  }
  /* After that, by the same thread: the last one clears the counters. */
  __device__ __forceinline__ void leave(uint32_t n_blocks) const {
    if (atomicAdd(counters + 1, 1) == n_blocks - 1)
      counters[0] = 0, counters[1] = 0;
  }
};

/* Rows are there, rounded. */
struct make_nothing {
  static constexpr bool makes = false;
};

/* A sum of two rows and its norm, a row a block at a time. */
struct make_norm {
  static constexpr bool makes = true;
  make_rows a, b, sum, y;
  const float *weight;
  float epsilon, weight_offset;
  int32_t n_rows, n_columns;
  simt_rounded_rows to;
  make_meeting meeting;

  __device__ __forceinline__ uint32_t shares(int n_blocks) const { return min(n_rows, n_blocks); }

  __device__ __forceinline__ void make(int block, int n_blocks) const {
    __shared__ float partial[MAKE_NORM_COLUMNS / 8 / SIMT_SUBGROUP];
    constexpr int vectors = MAKE_NORM_COLUMNS / 8 / MAKE_THREADS, of_block = MAKE_THREADS / 32;
    int thread = (int)threadIdx.x % MAKE_THREADS;
    auto column = [&](int c) { return (c * MAKE_THREADS + thread) * 8; };
    float scales[vectors][8] = {};
    if (block < n_rows) /* weights are never written: no need to wait for them */
#pragma unroll
      for (int c = 0; c < vectors; c++)
        if (column(c) < n_columns)
          simt_load8(ISO_SCHEME_F32, weight, column(c), scales[c]);
    simt_wait_for_earlier();
    if (block >= n_rows)
      return;
    for (int row = block; row < n_rows; row += n_blocks) {
      float v[vectors][8] = {}, other[vectors][8] = {};
#pragma unroll
      for (int c = 0; c < vectors; c++)
        if (column(c) < n_columns)
          a.load(row, column(c), v[c]), b.load(row, column(c), other[c]);
#pragma unroll
      for (int c = 0; c < vectors; c++) {
        float squares = 0;
        if (column(c) < n_columns) {
#pragma unroll
          for (int j = 0; j < 8; j++)
            v[c][j] += other[c][j];
          sum.store(row, column(c), v[c]);
#pragma unroll
          for (int j = 0; j < 8; j++)
            squares += v[c][j] * v[c][j];
        }
        squares = simt_subgroup_reduce(squares, simt_sum());
        if (thread % 32 == 0)
          partial[c * of_block + thread / 32] = squares;
      }
      hopper_sync(3, MAKE_THREADS);
      float whole = partial[0];
#pragma unroll
      for (int i = 1; i < vectors * of_block; i++)
        whole += partial[i];
      hopper_sync(3, MAKE_THREADS);
      float scale = 1.0f / sqrtf(whole / (float)n_columns + epsilon);
#pragma unroll
      for (int c = 0; c < vectors; c++) {
        if (column(c) >= n_columns)
          continue;
#pragma unroll
        for (int j = 0; j < 8; j++)
          v[c][j] = v[c][j] * scale * (scales[c][j] + weight_offset);
        y.store(row, column(c), v[c]);
        simt_round(to, row, column(c), v[c]);
      }
    }
    meeting.tell();
  }
};

#endif
