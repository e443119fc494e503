/* What kernels stand on, for every vendor whose compilers take CUDA's dialect of C++. The vendor's
 * side is the header simt_platform.h of its backend; nothing here knows a subgroup's width.
 *
 * A kernel file of this folder ends with its records and SIMT_EXPORT_KERNELS(name, records), and
 * is listed once in backends/simt/kernels.def. */
#ifndef ISOMER_SIMT_H
#define ISOMER_SIMT_H

#include <simt_platform.h>
#include <stddef.h>
#include <type_traits>

/* ---- Records -------------------------------------------------------------------------------- */

struct simt_kernel_list {
  const iso_kernel *records;
  uint32_t count;
};

#define SIMT_EXPORT_KERNELS(name, records)                                                         \
  extern "C" {                                                                                     \
  extern const simt_kernel_list simt_kernels_##name;                                               \
  const simt_kernel_list simt_kernels_##name = {records, sizeof records / sizeof records[0]};      \
  }

constexpr iso_scheme_mask SIMT_FLOATS = ISO_SCHEME_BIT(ISO_SCHEME_F32) |
                                        ISO_SCHEME_BIT(ISO_SCHEME_F16) |
                                        ISO_SCHEME_BIT(ISO_SCHEME_BF16);
constexpr iso_scheme_mask SIMT_ALL = ~(iso_scheme_mask)0;

/* A record that takes every mix of float activations, without scratch or a layout of its own. */
#define SIMT_RECORD(OP, record_name, function)                                                     \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_##OP, .name = record_name, .schemes = SIMT_ALL,       \
    .activations = SIMT_FLOATS, .layout = ISO_LAYOUT_PLAIN, .rank = 0, .launch = function          \
  }

/* The same with scratch. */
#define SIMT_SCRATCH_RECORD(OP, record_name, scratch, function)                                    \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_##OP, .name = record_name, .schemes = SIMT_ALL,       \
    .activations = SIMT_FLOATS, .layout = ISO_LAYOUT_PLAIN, .rank = 0, .workspace = scratch,       \
    .launch = function                                                                             \
  }

/* Whether an op's attributes promise that what they name is settled; hosts that do not know the
 * promise do not make it. */
#define SIMT_SETTLED(attributes)                                                                   \
  ((attributes)->size >=                                                                           \
       offsetof(std::remove_cvref_t<decltype(*(attributes))>, settled) + sizeof(uint32_t) &&       \
   (attributes)->settled != 0)

/* ---- Operands ---------------------------------------------------------------------------------
 */

/* An operand as rows: all dimensions but the last, which is contiguous. Neighbouring dimensions
 * that one stride can walk are joined, so that nearly every operand has a single one. */
struct simt_rows {
  uint8_t *data;
  iso_scheme scheme;
  int64_t n_rows, n_columns;
  int32_t n_dims; /* of the rows, outermost first; 1 to 3 */
  int64_t dims[3], strides[3];

  __host__ __device__ uint8_t *row(int64_t index) const {
    if (n_dims == 1)
      return data + index * strides[0];
    int64_t offset = 0;
    for (int d = n_dims - 1; d >= 0; d--) {
      offset += index % dims[d] * strides[d];
      index /= dims[d];
    }
    return data + offset;
  }
};

/* Absent operands have data NULL and no rows. */
static inline simt_rows simt_rows_of(const iso_tensor &tensor) {
  simt_rows rows = {};
  rows.n_dims = 1;
  if (tensor.n_dims == 0)
    return rows;
  rows.data = simt_address(tensor);
  rows.scheme = tensor.scheme;
  rows.n_columns = tensor.dims[tensor.n_dims - 1];
  rows.n_rows = 1;
  int32_t n = 0;
  for (uint32_t d = 0; d + 1 < tensor.n_dims; d++) {
    rows.n_rows *= tensor.dims[d];
    if (tensor.dims[d] == 1)
      continue;
    if (n > 0 && rows.strides[n - 1] == tensor.dims[d] * tensor.strides[d]) {
      rows.dims[n - 1] *= tensor.dims[d];
      rows.strides[n - 1] = tensor.strides[d];
    } else {
      rows.dims[n] = tensor.dims[d];
      rows.strides[n++] = tensor.strides[d];
    }
  }
  rows.n_dims = n > 0 ? n : 1;
  return rows;
}

/* Bytes of an element of a plain float. */
__host__ __device__ inline int simt_float_bytes(iso_scheme scheme) {
  return scheme == ISO_SCHEME_F32 ? 4 : 2;
}

/* Whether every row starts at a multiple of `bytes`. */
static inline bool simt_is_aligned(const simt_rows &rows, uint64_t bytes) {
  uint64_t bits = (uint64_t)(uintptr_t)rows.data;
  for (int d = 0; d < rows.n_dims; d++)
    bits |= (uint64_t)rows.strides[d];
  return (bits & (bytes - 1)) == 0;
}

/* ---- Values ------------------------------------------------------------------------------------
 */

/* Plain floats whose type is known when the kernel is compiled ... */
__device__ inline float simt_to_float(float value) { return value; }
__device__ inline float simt_to_float(simt_f16 value) { return __half2float(value); }
__device__ inline float simt_to_float(simt_bf16 value) { return __bfloat162float(value); }
template <typename T> __device__ inline T simt_from_float(float value);
template <> __device__ inline float simt_from_float<float>(float value) { return value; }
template <> __device__ inline simt_f16 simt_from_float<simt_f16>(float value) {
  return __float2half_rn(value);
}
template <> __device__ inline simt_bf16 simt_from_float<simt_bf16>(float value) {
  return __float2bfloat16_rn(value);
}

/* ... or only when it runs: all lanes take one branch. */
__device__ inline float simt_load(iso_scheme scheme, const void *row, int64_t i) {
  switch (scheme) {
  case ISO_SCHEME_F32:
    return ((const float *)row)[i];
  case ISO_SCHEME_F16:
    return __half2float(((const simt_f16 *)row)[i]);
  default:
    return __bfloat162float(((const simt_bf16 *)row)[i]);
  }
}
__device__ inline void simt_store(iso_scheme scheme, void *row, int64_t i, float value) {
  switch (scheme) {
  case ISO_SCHEME_F32:
    ((float *)row)[i] = value;
    break;
  case ISO_SCHEME_F16:
    ((simt_f16 *)row)[i] = __float2half_rn(value);
    break;
  default:
    ((simt_bf16 *)row)[i] = __float2bfloat16_rn(value);
  }
}

/* The value as it is after being stored. */
__device__ inline float simt_rounded(iso_scheme scheme, float value) {
  return scheme == ISO_SCHEME_F32   ? value
         : scheme == ISO_SCHEME_F16 ? __half2float(__float2half_rn(value))
                                    : __bfloat162float(__float2bfloat16_rn(value));
}

/* Four values from column i on, a multiple of 4 in a row that starts at a multiple of 16 bytes. */
__device__ inline void simt_load4(iso_scheme scheme, const void *row, int64_t i, float out[4]) {
  if (scheme == ISO_SCHEME_F32) {
    float4 v = *(const float4 *)((const float *)row + i);
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
    return;
  }
  uint2 bits = *(const uint2 *)((const uint16_t *)row + i);
  uint32_t words[2] = {bits.x, bits.y};
  for (int p = 0; p < 2; p++) {
    float2 v;
    if (scheme == ISO_SCHEME_F16)
      v = __half22float2(*(const __half2 *)&words[p]);
    else
      v = make_float2(__uint_as_float(words[p] << 16), __uint_as_float(words[p] & 0xffff0000u));
    out[2 * p] = v.x, out[2 * p + 1] = v.y;
  }
}
__device__ inline void simt_store4(iso_scheme scheme, void *row, int64_t i, const float in[4]) {
  if (scheme == ISO_SCHEME_F32) {
    *(float4 *)((float *)row + i) = make_float4(in[0], in[1], in[2], in[3]);
    return;
  }
  uint32_t words[2];
  for (int p = 0; p < 2; p++) {
    if (scheme == ISO_SCHEME_F16) {
      __half2 v = __floats2half2_rn(in[2 * p], in[2 * p + 1]);
      words[p] = *(const uint32_t *)&v;
    } else {
      __nv_bfloat162 v = __floats2bfloat162_rn(in[2 * p], in[2 * p + 1]);
      words[p] = *(const uint32_t *)&v;
    }
  }
  *(uint2 *)((uint16_t *)row + i) = make_uint2(words[0], words[1]);
}

/* Eight values from column i on, a multiple of 8, likewise. */
__device__ inline void simt_load8(iso_scheme scheme, const void *row, int64_t i, float out[8]) {
  if (scheme == ISO_SCHEME_F32) {
    simt_load4(scheme, row, i, out);
    simt_load4(scheme, row, i + 4, out + 4);
    return;
  }
  uint4 bits = *(const uint4 *)((const uint16_t *)row + i);
  simt_load4(scheme, &bits.x, 0, out);
  simt_load4(scheme, &bits.z, 0, out + 4);
}
__device__ inline void simt_store8(iso_scheme scheme, void *row, int64_t i, const float in[8]) {
  if (scheme == ISO_SCHEME_F32) {
    simt_store4(scheme, row, i, in);
    simt_store4(scheme, row, i + 4, in + 4);
    return;
  }
  uint4 bits;
  simt_store4(scheme, &bits.x, 0, in);
  simt_store4(scheme, &bits.z, 0, in + 4);
  *(uint4 *)((uint16_t *)row + i) = bits;
}

/* N values, 4 or 8, from column i on of a row of n: at once where `wide`, when n is a multiple of N
 * and rows start as simt_store4() or simt_store8() ask, or those there are. */
template <int N>
__device__ __forceinline__ void simt_store_some(iso_scheme scheme, void *row, int64_t i, int64_t n,
                                                bool wide, const float (&in)[N]) {
  if (wide && i < n) {
    if constexpr (N == 4)
      simt_store4(scheme, row, i, in);
    else
      simt_store8(scheme, row, i, in);
  }
#pragma unroll
  for (int j = 0; j < N; j++)
    if (!wide && i + j < n)
      simt_store(scheme, row, i + j, in[j]);
}

/* The two values of a word of 16-bit floats. */
__device__ inline void simt_load2(iso_scheme scheme, const uint32_t *word, float out[2]) {
  if (scheme == ISO_SCHEME_F16) {
    float2 v = __half22float2(*(const __half2 *)word);
    out[0] = v.x, out[1] = v.y;
  } else {
    out[0] = __uint_as_float(*word << 16), out[1] = __uint_as_float(*word & 0xffff0000u);
  }
}

/* Two values from column i on, which is even, in a row that starts at a multiple of 8 bytes. */
__device__ inline void simt_store2(iso_scheme scheme, void *row, int64_t i, float a, float b) {
  if (scheme == ISO_SCHEME_F32) {
    *(float2 *)((float *)row + i) = make_float2(a, b);
  } else if (scheme == ISO_SCHEME_F16) {
    *(__half2 *)((simt_f16 *)row + i) = __floats2half2_rn(a, b);
  } else {
    *(__nv_bfloat162 *)((simt_bf16 *)row + i) = __floats2bfloat162_rn(a, b);
  }
}

/* ---- Reductions ---------------------------------------------------------------------------------
 */

struct simt_sum {
  template <typename T> __device__ T operator()(T a, T b) const { return a + b; }
};
struct simt_max {
  template <typename T> __device__ T operator()(T a, T b) const { return a > b ? a : b; }
};

/* Over a subgroup; every lane gets the result. All lanes must take part. */
template <typename T, typename F> __device__ inline T simt_subgroup_reduce(T value, F combine) {
  for (int mask = SIMT_SUBGROUP / 2; mask > 0; mask /= 2)
    value = combine(value, simt_shuffle_xor(value, mask));
  return value;
}

/* Over a block of whole subgroups, in one order whatever the timing; every thread gets the result.
 * `shared` holds a T a subgroup, and may be used again at once. */
template <typename T, typename F>
__device__ inline T simt_block_reduce(T value, T *shared, F combine) {
  value = simt_subgroup_reduce(value, combine);
  int n = (int)blockDim.x / SIMT_SUBGROUP;
  if (n == 1)
    return value;
  __syncthreads();
  if (threadIdx.x % SIMT_SUBGROUP == 0)
    shared[threadIdx.x / SIMT_SUBGROUP] = value;
  __syncthreads();
  value = shared[0];
  for (int i = 1; i < n; i++)
    value = combine(value, shared[i]);
  return value;
}

/* Threads of a block that walks `n` items together: whole subgroups, at most `most`. */
static inline unsigned simt_block_size(int64_t n, unsigned most) {
  int64_t threads = (n + SIMT_SUBGROUP - 1) / SIMT_SUBGROUP * SIMT_SUBGROUP;
  return threads < SIMT_SUBGROUP ? SIMT_SUBGROUP : threads < most ? (unsigned)threads : most;
}

#endif
