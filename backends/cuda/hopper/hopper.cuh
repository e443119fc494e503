/* Hopper's own instructions behind a few functions: products of a group of 4 subgroups with the
 * right operand in shared memory (wgmma), bulk copies to shared memory, and the barriers they
 * complete on. PTX ISA 8.0, sections 9.7.14 and 9.7.8.24.
 *
 * Everything compiles for other architectures and does nothing there: records that use it refuse
 * devices of another generation. */
#ifndef ISOMER_CUDA_HOPPER_H
#define ISOMER_CUDA_HOPPER_H

#include "backends/simt/matmul_mma.cuh"
#include <atomic>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HOPPER_HAS_WGMMA 1
#else
#define HOPPER_HAS_WGMMA 0
#endif

static inline iso_refusal hopper_check(const iso_device *device, const char **out_detail) {
  if (device->generation == 90)
    return ISO_ACCEPTED;
  *out_detail = "made for compute capability 9.0";
  return ISO_REFUSED_DEVICE;
}

/* ---- Barriers and copies ----------------------------------------------------------------------
 */

__device__ __forceinline__ void hopper_barrier_init(uint64_t *barrier, int arrivals) {
#if HOPPER_HAS_WGMMA
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(mma_shared_address(barrier)),
               "r"(arrivals)
               : "memory");
#endif
}
/* Makes barriers that one thread has initialized known to the copy engine. */
__device__ __forceinline__ void hopper_barrier_fence() {
#if HOPPER_HAS_WGMMA
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
__device__ __forceinline__ void hopper_barrier_arrive(uint64_t *barrier) {
#if HOPPER_HAS_WGMMA
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(mma_shared_address(barrier))
               : "memory");
#endif
}
/* Arrives and says how many bytes copies will bring. */
__device__ __forceinline__ void hopper_barrier_expect(uint64_t *barrier, uint32_t bytes) {
#if HOPPER_HAS_WGMMA
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mma_shared_address(barrier)),
      "r"(bytes)
      : "memory");
#endif
}
/* Between ordinary accesses to shared memory and the matrix unit's or the copy engine's. */
__device__ __forceinline__ void hopper_shared_fence() {
#if HOPPER_HAS_WGMMA
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/* Waits for the phase of this parity to end. */
__device__ __forceinline__ void hopper_barrier_wait(uint64_t *barrier, uint32_t parity) {
#if HOPPER_HAS_WGMMA
  asm volatile("{\n"
               ".reg .pred done;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@done bra.uni over;\n"
               "bra.uni again;\n"
               "over:\n"
               "}" ::"r"(mma_shared_address(barrier)),
               "r"(parity)
               : "memory");
#endif
}
/* True in one lane of a whole subgroup. Unlike a comparison of lanes it tells the compiler that what
 * follows is done once: operands of copies then need no loop over lanes, some 25 instructions each. */
__device__ __forceinline__ bool hopper_elect() {
  uint32_t elected = 0;
#if HOPPER_HAS_WGMMA
  asm volatile("{ .reg .pred one; elect.sync _|one, 0xffffffff; selp.u32 %0, 1, 0, one; }"
               : "=r"(elected));
#endif
  return elected != 0;
}
/* Copies bytes, a multiple of 16 as both addresses are, and counts them on the barrier. */
__device__ __forceinline__ void hopper_copy(void *shared, const void *memory, uint32_t bytes,
                                            uint64_t *barrier) {
#if HOPPER_HAS_WGMMA
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
               "[%3];" ::"r"(mma_shared_address(shared)),
               "l"(memory), "r"(bytes), "r"(mma_shared_address(barrier))
               : "memory");
#endif
}
/* The same to this place in the shared memory of every block of the cluster in `blocks`, a bit a
 * rank, each counting on its own barrier. */
__device__ __forceinline__ void hopper_copy_to_all(void *shared, const void *memory, uint32_t bytes,
                                                   uint64_t *barrier, uint16_t blocks) {
#if HOPPER_HAS_WGMMA
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
               "cluster [%0], [%1], %2, [%3], %4;" ::"r"(mma_shared_address(shared)),
               "l"(memory), "r"(bytes), "r"(mma_shared_address(barrier)), "h"(blocks)
               : "memory");
#endif
}

/* A matrix as the copy engine sees it: the driver's CUtensorMap, in a kernel's parameters. */
struct alignas(64) hopper_map {
  uint64_t opaque[16];
};

/* Copies a box of a matrix from this column and row on; what lies outside the matrix is zeros. */
__device__ __forceinline__ void hopper_copy_box(void *shared, const hopper_map *map, int column,
                                                int row, uint64_t *barrier) {
#if HOPPER_HAS_WGMMA
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];" ::"r"(mma_shared_address(shared)),
               "l"(map), "r"(column), "r"(row), "r"(mma_shared_address(barrier))
               : "memory");
#endif
}

/* ---- Clusters: blocks along x that share their memory --------------------------------------- */

/* Arrives at block `rank`'s barrier of this place. It orders what this thread did in its own block's
 * shared memory, no more: a release of the cluster would wait for all of device memory. */
__device__ __forceinline__ void hopper_barrier_arrive_at(uint64_t *barrier, int rank) {
#if HOPPER_HAS_WGMMA
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
               "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(
                   mma_shared_address(barrier)),
               "r"(rank)
               : "memory");
#endif
}

__device__ __forceinline__ void hopper_cluster_sync() {
#if HOPPER_HAS_WGMMA
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
#endif
}
/* The same, ordering nothing: before a block ends whose memory others still use. */
__device__ __forceinline__ void hopper_cluster_meet() {
#if HOPPER_HAS_WGMMA
  asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" ::: "memory");
#endif
}
/* The two halves of the latter, for who has something to do in between. */
__device__ __forceinline__ void hopper_cluster_arrive() {
#if HOPPER_HAS_WGMMA
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void hopper_cluster_wait() {
#if HOPPER_HAS_WGMMA
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}
/* Sends values to where block `rank` of the cluster has `shared`, and counts their bytes on its
 * barrier of this place. */
__device__ __forceinline__ void hopper_cluster_send(float4 *shared, uint64_t *barrier, int rank,
                                                    float4 v) {
#if HOPPER_HAS_WGMMA
  asm volatile("{ .reg .b32 there, on; mapa.shared::cluster.u32 there, %0, %2;\n"
               "mapa.shared::cluster.u32 on, %1, %2;\n"
               "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], "
               "{%3, %4, %5, %6}, [on]; }" ::"r"(mma_shared_address(shared)),
               "r"(mma_shared_address(barrier)), "r"(rank), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
#endif
}
__device__ __forceinline__ void hopper_cluster_send(float2 *shared, uint64_t *barrier, int rank,
                                                    float2 v) {
#if HOPPER_HAS_WGMMA
  asm volatile("{ .reg .b32 there, on; mapa.shared::cluster.u32 there, %0, %2;\n"
               "mapa.shared::cluster.u32 on, %1, %2;\n"
               "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], "
               "{%3, %4}, [on]; }" ::"r"(mma_shared_address(shared)),
               "r"(mma_shared_address(barrier)), "r"(rank), "f"(v.x), "f"(v.y)
               : "memory");
#endif
}
/* 16 bytes of the shared memory of block `rank` of the cluster, where this block has `shared`. */
__device__ __forceinline__ float4 hopper_cluster_load(const float *shared, int rank) {
  float4 v = {};
#if HOPPER_HAS_WGMMA
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %4, %5;\n"
               "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there]; }"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(mma_shared_address(shared)), "r"(rank)
               : "memory");
#endif
  return v;
}
/* The sums of four values at an address that the first `n_ranks` blocks of a cluster have alike, at
 * most Most. */
template <int Most>
__device__ __forceinline__ void hopper_cluster_sum(const float *shared, int n_ranks,
                                                   float (&out)[4]) {
  float4 of_rank[Most];
#pragma unroll
  for (int r = 0; r < Most; r++)
    if (r < n_ranks)
      of_rank[r] = hopper_cluster_load(shared, r);
#pragma unroll
  for (int i = 0; i < 4; i++)
    out[i] = 0;
#pragma unroll
  for (int r = 0; r < Most; r++)
    if (r < n_ranks) {
      out[0] += of_rank[r].x, out[1] += of_rank[r].y;
      out[2] += of_rank[r].z, out[3] += of_rank[r].w;
    }
}

/* As simt_launch_early(), in clusters of `cluster` blocks along x. Together: blocks wait for each
 * other, and are no more than the device runs at once; it begins none before there is room for all,
 * whatever kernels of other queues run. */
template <bool Together = false, typename... P, typename... A>
iso_status hopper_launch(iso_queue *queue, const char *name, void (*kernel)(P...), dim3 grid,
                         dim3 block, unsigned cluster, size_t shared_bytes, A... arguments) {
  ISO_TRY(simt_prepare_launch(queue, kernel, shared_bytes));
  cudaLaunchAttribute attributes[3] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = cluster;
  attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  attributes[1].id = Together ? cudaLaunchAttributeCooperative : cudaLaunchAttributeIgnore;
  if (Together)
    attributes[1].val.cooperative = 1;
  attributes[2].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[2].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = queue->stream;
  config.attrs = attributes;
  config.numAttrs = queue->device->starts_early && !queue->at_turn ? 3 : 2;
  queue->at_turn = false;
  (void)cudaLaunchKernelEx(&config, kernel, P(arguments)...); /* its error is also the last one */
  return cuda_launched(queue, name);
}

/* Clusters of `blocks` blocks that the device runs at once, at least 1. They must lie in one of its
 * parts, whose sizes differ from card to card. */
template <typename... P>
int hopper_clusters(iso_queue *queue, void (*kernel)(P...), int threads, unsigned blocks,
                    size_t shared_bytes) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = blocks;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3((unsigned)threads);
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int count = 0;
  if (simt_prepare_launch(queue, kernel, shared_bytes) == ISO_OK &&
      cudaOccupancyMaxActiveClusters(&count, kernel, &config) == cudaSuccess && count > 0)
    return count;
  (void)cudaGetLastError();
  return 1;
}

/* Describes rows of 16-bit values, each at a multiple of 16 bytes, in boxes of `box_rows` rows (256
 * at most) and 128 bytes, whose chunks are exchanged as hopper_rows() has them. False where the
 * driver cannot. */
static inline bool hopper_describe(hopper_map *out_map, const void *data, int64_t n_rows,
                                   int64_t n_columns, int64_t stride_bytes, uint32_t box_rows) {
  /* cuTensorMapEncodeTiled() and the numbers of its enumerations: <cuda.h> is this backend's. */
  typedef int (*encode_function)(hopper_map *, int, uint32_t, void *, const uint64_t *,
                                 const uint64_t *, const uint32_t *, const uint32_t *, int, int, int,
                                 int);
  enum { UINT16 = 1, NOT_INTERLEAVED = 0, SWIZZLE_128B = 3, PROMOTE_256B = 3, ZEROS = 0 };
  static std::atomic<void *> known;
  void *encode = known.load(std::memory_order_relaxed);
  if (!encode) {
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                                         cudaEnableDefault, &result);
#else
    cudaError_t error =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &encode, cudaEnableDefault, &result);
#endif
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess || !encode) {
      (void)cudaGetLastError();
      return false;
    }
    known.store(encode, std::memory_order_relaxed);
  }
  uint64_t dims[2] = {(uint64_t)n_columns, (uint64_t)n_rows};
  uint64_t strides[1] = {(uint64_t)stride_bytes};
  uint32_t boxes[2] = {64, box_rows}, steps[2] = {1, 1};
  return ((encode_function)encode)(out_map, UINT16, 2, (void *)data, dims, strides, boxes, steps,
                                   NOT_INTERLEAVED, SWIZZLE_128B, PROMOTE_256B, ZEROS) == 0;
}

/* Threads of a barrier of its own number, 1 to 15. */
__device__ __forceinline__ void hopper_sync(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
/* Counts this thread in without waiting. */
__device__ __forceinline__ void hopper_arrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
template <int Registers> __device__ __forceinline__ void hopper_take_registers() {
#if HOPPER_HAS_WGMMA
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
#endif
}
template <int Registers> __device__ __forceinline__ void hopper_give_registers() {
#if HOPPER_HAS_WGMMA
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
#endif
}

/* ---- Products
 * ------------------------------------------------------------------------------------ */

__device__ __forceinline__ void hopper_product_begin() {
#if HOPPER_HAS_WGMMA
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void hopper_product_commit() {
#if HOPPER_HAS_WGMMA
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <int Newer> __device__ __forceinline__ void hopper_product_wait() {
#if HOPPER_HAS_WGMMA
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Newer) : "memory");
#endif
}

/* The same rows as the right operand's rows, not its columns: 8 rows after another, the next 64
 * values of each `next_bytes` further on. */
__device__ __forceinline__ uint64_t hopper_rows_transposed(const void *shared,
                                                           uint32_t next_bytes) {
  uint64_t address = mma_shared_address(shared);
  return (address & 0x3ffff) >> 4 | (uint64_t)(next_bytes >> 4) << 16 | (uint64_t)64 << 32 |
         (uint64_t)1 << 62;
}

/* Describes rows of 128 bytes (64 values), whose 16-byte chunks are exchanged by chunk ^ row % 8,
 * 8 rows after another from a multiple of 1,024 bytes. 16 columns further on is 2 more. */
__device__ __forceinline__ uint64_t hopper_rows(const void *shared) {
  uint64_t address = mma_shared_address(shared);
  return (address & 0x3ffff) >> 4 | (uint64_t)1 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}

/* The shape of a product is part of the instruction's name and of its list of registers. */
#define HOPPER_WGMMA(n, type, list, a0, a1, a2, a3, b, add, transposed)                            \
  "{ .reg .pred add; setp.ne.u32 add, " add ", 0; wgmma.mma_async.sync.aligned.m64n" n             \
  "k16.f32." type "." type " {" list "}, {" a0 "," a1 "," a2 "," a3 "}, " b                        \
  ", add, 1, 1, " transposed "; }"
#define HOPPER_LIST_32                                                                             \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                         \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define HOPPER_LIST_48                                                                             \
  HOPPER_LIST_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define HOPPER_LIST_56 HOPPER_LIST_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define HOPPER_LIST_64                                                                             \
  HOPPER_LIST_32 ","                                                                               \
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                \
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define HOPPER_OUT_8(i)                                                                            \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]),       \
      "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define HOPPER_OUT_32_AT(i)                                                                        \
  HOPPER_OUT_8(i), HOPPER_OUT_8(i + 8), HOPPER_OUT_8(i + 16), HOPPER_OUT_8(i + 24)
#define HOPPER_OUT_32 HOPPER_OUT_32_AT(0)
#define HOPPER_OUT_48 HOPPER_OUT_32, HOPPER_OUT_8(32), HOPPER_OUT_8(40)
#define HOPPER_OUT_56 HOPPER_OUT_48, HOPPER_OUT_8(48)
#define HOPPER_OUT_64 HOPPER_OUT_32, HOPPER_OUT_32_AT(32)

/* Adds 64 x 16 values in registers (rows 16 w .. of subgroup w, as in mma_add()) times Columns x 16
 * values in shared memory to sums, or replaces them. Transposed: the right operand is 16 x Columns.
 * Register 4 j + i of the sums: columns 8 j + 2 t + i % 2, row g + i / 2 * 8. */
template <typename V, int Columns, bool Transposed = false> struct hopper_product;
template <typename V, bool Transposed> struct hopper_product<V, 64, Transposed> {
  static __device__ __forceinline__ void add(float (&sums)[32], const uint32_t (&left)[4],
                                             uint64_t right, int add = 1) {
#if HOPPER_HAS_WGMMA
    if constexpr (__is_same(V, simt_bf16))
      asm volatile(HOPPER_WGMMA("64", "bf16", HOPPER_LIST_32, "%32", "%33", "%34", "%35", "%36",
                                "%37", "%38")
                   : HOPPER_OUT_32
                   : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(add),
                     "n"(Transposed));
    else
      asm volatile(
          HOPPER_WGMMA("64", "f16", HOPPER_LIST_32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
          : HOPPER_OUT_32
          : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(add),
            "n"(Transposed));
#endif
  }
};
template <typename V, bool Transposed> struct hopper_product<V, 128, Transposed> {
  static __device__ __forceinline__ void add(float (&sums)[64], const uint32_t (&left)[4],
                                             uint64_t right, int add = 1) {
#if HOPPER_HAS_WGMMA
    if constexpr (__is_same(V, simt_bf16))
      asm volatile(HOPPER_WGMMA("128", "bf16", HOPPER_LIST_64, "%64", "%65", "%66", "%67", "%68",
                                "%69", "%70")
                   : HOPPER_OUT_64
                   : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(add),
                     "n"(Transposed));
    else
      asm volatile(HOPPER_WGMMA("128", "f16", HOPPER_LIST_64, "%64", "%65", "%66", "%67", "%68",
                                "%69", "%70")
                   : HOPPER_OUT_64
                   : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(add),
                     "n"(Transposed));
#endif
  }
};

/* 64 x 16 values times 2 N x 16, both in shared memory as hopper_rows() describes them. */
#define HOPPER_WGMMA_SHARED(n, type, list, left, right, add)                                       \
  "{ .reg .pred add; setp.ne.u32 add, " add ", 0; wgmma.mma_async.sync.aligned.m64n" n             \
  "k16.f32." type "." type " {" list "}, " left ", " right ", add, 1, 1, 0, 0; }"
template <typename V, int N>
__device__ __forceinline__ void hopper_product_shared(float (&sums)[N], uint64_t left,
                                                      uint64_t right, int add) {
#if HOPPER_HAS_WGMMA
#define HOPPER_SHARED_OF(n, list, l, r, a, out)                                                    \
  if constexpr (__is_same(V, simt_bf16))                                                           \
    asm volatile(HOPPER_WGMMA_SHARED(n, "bf16", list, l, r, a)                                     \
                 : out                                                                             \
                 : "l"(left), "l"(right), "r"(add));                                               \
  else                                                                                             \
    asm volatile(HOPPER_WGMMA_SHARED(n, "f16", list, l, r, a)                                      \
                 : out                                                                             \
                 : "l"(left), "l"(right), "r"(add))
  if constexpr (N == 32) {
    HOPPER_SHARED_OF("64", HOPPER_LIST_32, "%32", "%33", "%34", HOPPER_OUT_32);
  } else if constexpr (N == 48) {
    HOPPER_SHARED_OF("96", HOPPER_LIST_48, "%48", "%49", "%50", HOPPER_OUT_48);
  } else if constexpr (N == 56) {
    HOPPER_SHARED_OF("112", HOPPER_LIST_56, "%56", "%57", "%58", HOPPER_OUT_56);
  } else {
    HOPPER_SHARED_OF("128", HOPPER_LIST_64, "%64", "%65", "%66", HOPPER_OUT_64);
  }
#undef HOPPER_SHARED_OF
#endif
}

/* Sums of a product as rows of the right operand's columns, `stride` floats apart: subgroup w of
 * those that multiply has features 16 w .. 16 w + 15 of each, from `out` on. Part `part` of `Parts`
 * of the columns. */
template <int N, int Parts = 1>
__device__ __forceinline__ void hopper_product_store(const float (&sums)[N], float *out, int stride,
                                                     int part = 0) {
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < N / Parts; i++)
    out[(i / 4 * 8 + 2 * t + i % 2) * stride + g + i / 2 % 2 * 8] = sums[part * (N / Parts) + i];
}

/* The same for 64 x 32 values of 8 bits, E4M3 with sums in f32 or int8 with sums in i32: 16 columns
 * of 4 subgroups' registers as bytes 4 t .. of rows g and g + 8, then those of 16 more columns. */
#define HOPPER_WGMMA_8(n, types, list, a0, a1, a2, a3, b, add, negate)                             \
  "{ .reg .pred add; setp.ne.u32 add, " add ", 0; wgmma.mma_async.sync.aligned.m64n" n             \
  "k32." types " {" list "}, {" a0 "," a1 "," a2 "," a3 "}, " b ", add" negate "; }"
#define HOPPER_IN_8(i)                                                                             \
  "+r"(sums[i]), "+r"(sums[i + 1]), "+r"(sums[i + 2]), "+r"(sums[i + 3]), "+r"(sums[i + 4]),       \
      "+r"(sums[i + 5]), "+r"(sums[i + 6]), "+r"(sums[i + 7])
#define HOPPER_IN_32_AT(i) HOPPER_IN_8(i), HOPPER_IN_8(i + 8), HOPPER_IN_8(i + 16), HOPPER_IN_8(i + 24)
#define HOPPER_RIGHT_8                                                                             \
  "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(add)

__device__ __forceinline__ void hopper_product_8(float (&sums)[32], const uint32_t (&left)[4],
                                                 uint64_t right, int add) {
#if HOPPER_HAS_WGMMA
  asm volatile(HOPPER_WGMMA_8("64", "f32.e4m3.e4m3", HOPPER_LIST_32, "%32", "%33", "%34", "%35",
                              "%36", "%37", ", 1, 1")
               : HOPPER_OUT_32
               : HOPPER_RIGHT_8);
#endif
}
__device__ __forceinline__ void hopper_product_8(float (&sums)[64], const uint32_t (&left)[4],
                                                 uint64_t right, int add) {
#if HOPPER_HAS_WGMMA
  asm volatile(HOPPER_WGMMA_8("128", "f32.e4m3.e4m3", HOPPER_LIST_64, "%64", "%65", "%66", "%67",
                              "%68", "%69", ", 1, 1")
               : HOPPER_OUT_64
               : HOPPER_RIGHT_8);
#endif
}
__device__ __forceinline__ void hopper_product_8(int32_t (&sums)[32], const uint32_t (&left)[4],
                                                 uint64_t right, int add) {
#if HOPPER_HAS_WGMMA
  asm volatile(HOPPER_WGMMA_8("64", "s32.s8.s8", HOPPER_LIST_32, "%32", "%33", "%34", "%35", "%36",
                              "%37", "")
               : HOPPER_IN_32_AT(0)
               : HOPPER_RIGHT_8);
#endif
}
__device__ __forceinline__ void hopper_product_8(int32_t (&sums)[64], const uint32_t (&left)[4],
                                                 uint64_t right, int add) {
#if HOPPER_HAS_WGMMA
  asm volatile(HOPPER_WGMMA_8("128", "s32.s8.s8", HOPPER_LIST_64, "%64", "%65", "%66", "%67", "%68",
                              "%69", "")
               : HOPPER_IN_32_AT(0), HOPPER_IN_32_AT(32)
               : HOPPER_RIGHT_8);
#endif
}

#endif
