/* Many rows by experts whose weights are plain 16-bit floats, on Hopper's matrix unit.
 *
 * As matmul_many.cuh, from which come the order of rows by their experts, the image of x and the
 * way out; but weights are rows of floats, which nobody decodes. So a group of subgroups copies
 * them, 16 bytes a thread, to where the matrix unit reads both operands from: rows of 128 bytes
 * whose chunks are exchanged by row. A thread tells of its copies when they are there and
 * fenced, while newer ones are on their way. */
#ifndef ISOMER_CUDA_HOPPER_EXPERTS_MANY_H
#define ISOMER_CUDA_HOPPER_EXPERTS_MANY_H

#include "backends/cuda/hopper/matmul_many.cuh"

struct experts_shared {
  static constexpr int x_bytes = MANY_COLUMNS * 128, w_bytes = MANY_FEATURES * 128;
  static constexpr int depth = 5, ahead = depth - 2; /* copies of a thread on their way */
  static constexpr int w_at = depth * x_bytes, bytes = w_at + depth * w_bytes + 1024;
  static_assert((MANY_FEATURES + 4) * MANY_COLUMNS * 4 <= depth * w_bytes, "sums fit");
};

/* Grid: 1, tiles of features, tiles of rows of x. Rows of the weight are row_bytes apart. */
template <typename V>
__global__ void __launch_bounds__(MANY_THREADS, 1)
    experts_many(const __grid_constant__ matmul_many_arguments a, int64_t row_bytes) {
#if HOPPER_HAS_WGMMA
  typedef experts_shared layout;
  extern __shared__ uint8_t dynamic[];
  __shared__ uint64_t full[layout::depth], empty[layout::depth];
  uint8_t *shared = dynamic + (1024 - mma_shared_address(dynamic) % 1024) % 1024;
  int64_t first_row = (int64_t)blockIdx.z * MANY_COLUMNS;
  int64_t first_feature = (int64_t)blockIdx.y * MANY_FEATURES;
  if (threadIdx.x == 0) {
    for (int i = 0; i < layout::depth; i++) {
      hopper_barrier_init(&full[i], MANY_GROUP + 1);
      hopper_barrier_init(&empty[i], 4 * MANY_GROUPS);
    }
    hopper_barrier_fence();
  }
  simt_let_later_begin();
  simt_wait_for_earlier();
  matmul_many_group group = a.groups[blockIdx.z];
  if (group.expert < 0)
    return;
  int n_stages = group.expert == a.n_experts ? 0 : a.n_units;
  __syncthreads();

  if (threadIdx.x < MANY_GROUP) { /* copies */
    int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
    const uint8_t *weight =
        a.weight + group.expert * a.expert_bytes + (first_feature + row) * row_bytes + chunk * 16;
    const uint8_t *image = a.image + (int64_t)blockIdx.z * a.n_units * layout::x_bytes;
    for (int stage = 0; stage < n_stages + layout::ahead; stage++) {
      int slot = stage % layout::depth;
      if (stage < n_stages) {
        hopper_barrier_wait(&empty[slot], stage / layout::depth % 2 ^ 1);
        if (threadIdx.x == 0) {
          hopper_barrier_expect(&full[slot], layout::x_bytes);
          hopper_copy(shared + slot * layout::x_bytes, image + (int64_t)stage * layout::x_bytes,
                      layout::x_bytes, &full[slot]);
        }
        uint8_t *to =
            shared + layout::w_at + slot * layout::w_bytes + row * 128 + (chunk ^ row % 8) * 16;
        bool is_column = stage * MANY_STAGE + chunk * 8 < a.n_columns;
#pragma unroll
        for (int i = 0; i < MANY_FEATURES / 16; i++) {
          bool exists = is_column && first_feature + row + i * 16 < a.n_features;
          mma_copy16(to + i * 16 * 128,
                     exists ? weight + i * 16 * row_bytes + stage * 128 : a.weight,
                     exists ? 16 : 0);
        }
      }
      mma_copy_commit();
      mma_copy_wait<layout::ahead>();
      if (stage >= layout::ahead) {
        hopper_shared_fence();
        hopper_barrier_arrive(&full[(stage - layout::ahead) % layout::depth]);
      }
    }
  } else {
    int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    float sums[MANY_COLUMNS / 2]; /* the first product sets them */
    for (int stage = 0; stage < n_stages; stage++) {
      int slot = stage % layout::depth;
      hopper_barrier_wait(&full[slot], stage / layout::depth % 2);
      uint64_t left =
          hopper_rows(shared + layout::w_at + slot * layout::w_bytes + warp / 4 * 64 * 128);
      uint64_t right = hopper_rows(shared + slot * layout::x_bytes);
      hopper_product_begin();
#pragma unroll
      for (int i = 0; i < 4; i++)
        hopper_product_shared<V>(sums, left + 2 * i, right + 2 * i, stage + i > 0);
      hopper_product_commit();
      hopper_product_wait<1>(); /* the stage before is done */
      if (lane == 0 && stage > 0)
        hopper_barrier_arrive(&empty[(stage - 1) % layout::depth]);
    }
    hopper_product_wait<0>();
    hopper_sync(1, MANY_GROUPS * MANY_GROUP); /* sums go where x and weights were */
    float *out = (float *)shared;
#pragma unroll
    for (float &sum : sums)
      sum = n_stages > 0 ? sum : 0.0f;
    hopper_product_store(sums, out + warp * 16, MANY_FEATURES + 4);
    hopper_sync(1, MANY_GROUPS * MANY_GROUP);
    matmul_many_store(a, out, first_row, first_feature, group, 0, 1);
  }
#endif
}

/* As matmul_many_run_grouped(), for weights of V, rows row_bytes apart. */
template <typename V>
iso_status experts_many_run(iso_queue *queue, uint8_t *workspace, const int32_t *experts,
                            matmul_many_arguments a, int64_t row_bytes) {
  if (a.n_rows == 0 || a.n_features == 0)
    return ISO_OK;
  int64_t n_groups = matmul_many_groups(a.n_rows, a.n_experts);
  ISO_TRY((matmul_many_order<V, true>(queue, workspace, experts, n_groups, MANY_STAGE, &a)));
  dim3 grid(1, (unsigned)matmul_count(a.n_features, MANY_FEATURES), (unsigned)n_groups);
  return hopper_launch(queue, "grouped_matmul.plain.many", experts_many<V>, grid,
                       dim3(MANY_THREADS), 1, (size_t)experts_shared::bytes, a, row_bytes);
}

#endif
