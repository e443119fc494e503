/* The matrix unit and the copies that feed it, behind a few functions. NVIDIA's instructions from
 * sm_80 on; below that the file compiles and the kernels that need it are refused by their check.
 *
 * Products are of 16 x 16 by 16 x 8 values of 16 bits, summed in f32. Lane 4 g + t of a subgroup
 * holds of the left operand rows g and g + 8, of the right one column g, of the result rows g and
 * g + 8 of columns 2 t and 2 t + 1. */
#ifndef ISOMER_SIMT_MATMUL_MMA_H
#define ISOMER_SIMT_MATMUL_MMA_H

#include "backends/simt/simt.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define MMA_HAS_UNIT 1
#else
#define MMA_HAS_UNIT 0
#endif

static inline bool mma_is_there(const iso_device *device) { return device->generation >= 80; }

/* Adds left times right to sums. */
template <typename V>
__device__ __forceinline__ void mma_add(float (&sums)[4], const uint32_t (&left)[4],
                                        uint32_t right0, uint32_t right1) {
#if MMA_HAS_UNIT
  if constexpr (sizeof(V) == 2 && !__is_same(V, simt_bf16))
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
#endif
}

/* The same of 16 x 32 bytes, signed or not, by 32 x 8 signed ones: four to a register, columns 4 t
 * .. and 16 + 4 t .. of the left operand's rows, the same rows of the right one's column. */
template <bool Signed>
__device__ __forceinline__ void mma_add_integers(int (&sums)[4], const uint32_t (&left)[4],
                                                 uint32_t right0, uint32_t right1) {
#if MMA_HAS_UNIT
#define MMA_INTEGERS(type)                                                                         \
  asm("mma.sync.aligned.m16n8k32.row.col.s32." type ".s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "       \
      "{%8,%9}, {%0,%1,%2,%3};"                                                                    \
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])                                 \
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1))
  if constexpr (Signed)
    MMA_INTEGERS("s8");
  else
    MMA_INTEGERS("u8");
#undef MMA_INTEGERS
#endif
}

__device__ __forceinline__ uint32_t mma_shared_address(const void *pointer) {
  return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* Starts copying 16 bytes to shared memory, the first `bytes` of them from memory and zeros after
 * them. Both addresses are multiples of 16. */
__device__ __forceinline__ void mma_copy16(void *shared, const void *memory, int bytes = 16) {
#if MMA_HAS_UNIT
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(mma_shared_address(shared)),
               "l"(memory), "r"(bytes)
               : "memory");
#endif
}
/* Ends a group of copies of this thread. */
__device__ __forceinline__ void mma_copy_commit() {
#if MMA_HAS_UNIT
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* Waits for all but the newest `Newer` groups of this thread. */
template <int Newer> __device__ __forceinline__ void mma_copy_wait() {
#if MMA_HAS_UNIT
  asm volatile("cp.async.wait_group %0;" ::"n"(Newer) : "memory");
#endif
}

/* The largest of all lanes'. */
__device__ __forceinline__ uint32_t mma_subgroup_max(uint32_t value) {
#if MMA_HAS_UNIT
  uint32_t most = 0;
  asm("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(most) : "r"(value));
  return most;
#else
  return value;
#endif
}

template <typename V> __device__ __forceinline__ uint32_t mma_pack(float a, float b) {
  if constexpr (__is_same(V, simt_bf16)) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return *(uint32_t *)&pair;
  } else {
    __half2 pair = __floats2half2_rn(a, b);
    return *(uint32_t *)&pair;
  }
}

/* Two E4M3 numbers, the lower two bytes, as f16. */
__device__ __forceinline__ uint32_t mma_e4m3_pair(uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((uint16_t)bytes));
  return pair;
#else /* their bits in a half are the number by 2^-8; who has NaN tells it by the scale */
  uint32_t spread = __byte_perm(bytes, 0, 0x1404);
  uint32_t bits = (spread & 0x80008000u) | (spread & 0x7f007f00u) >> 1;
  __half2 pair = __hmul2(*(const __half2 *)&bits, __float2half2_rn(256));
  return *(const uint32_t *)&pair;
#endif
}

/* Two values as the sum of two 16-bit planes: 22 bits of significand in f16, 16 in bf16. */
template <typename V>
__device__ __forceinline__ void mma_split(float a, float b, uint32_t *out_high, uint32_t *out_low) {
  if constexpr (__is_same(V, simt_bf16)) {
    __nv_bfloat162 high = __floats2bfloat162_rn(a, b);
    uint32_t bits = *(uint32_t *)&high;
    __nv_bfloat162 low = __floats2bfloat162_rn(a - __uint_as_float(bits << 16),
                                               b - __uint_as_float(bits & 0xffff0000u));
    *out_high = bits, *out_low = *(uint32_t *)&low;
  } else {
    __half2 high = __floats2half2_rn(a, b);
    float2 back = __half22float2(high);
    __half2 low = __floats2half2_rn(a - back.x, b - back.y);
    *out_high = *(uint32_t *)&high, *out_low = *(uint32_t *)&low;
  }
}

/* The power of two that brings values up to `largest` into f16's range with room for sums, and its
 * inverse. */
__device__ __forceinline__ void mma_half_scale(float largest, float *out_scale,
                                               float *out_inverse) {
  int exponent = max((int)(__float_as_uint(largest) >> 23 & 255), 15);
  *out_scale = __uint_as_float((uint32_t)(268 - exponent) << 23);
  *out_inverse = __uint_as_float((uint32_t)(exponent - 14) << 23);
}

#endif
