/* Rows encoded in block schemes of 32 elements, by the rules of quant/fit.c without importances:
 * the extreme values set the scale. A thread takes a block. Super-blocks, whose scales are searched
 * for, are encoded where weights are made: on the host. */
#include "backends/simt/decode.cuh"

namespace {

constexpr float HALF_MAX = 65504.0f, TINY = 1e-30f;

struct operands {
  simt_rows x, y;
};

__device__ float clamped(float value, float limit) {
  value = value == value ? value : 0.0f;
  return fminf(fmaxf(value, -limit), limit);
}
__device__ uint16_t half_of(float scale) {
  return __half_as_ushort(__float2half_rn(clamped(scale, HALF_MAX)));
}
__device__ float inverse_of(float scale) { return scale == 0 ? 0.0f : 1.0f / scale; }
/* The code nearest to scaled + offset, ties up, in 0 .. top. */
__device__ int code_of(float scaled, float offset, float top) {
  float shifted = scaled + (offset + 0.5f);
  return (int)fminf(fmaxf(shifted, 0.0f), top);
}
/* Code i of 32 into nibbles, and its fifth bit into `high` (NULL: four bits). */
__device__ void put_code(uint8_t *nibbles, uint8_t *high, int i, int code) {
  if (i < 16)
    nibbles[i] = (uint8_t)(code & 15);
  else
    nibbles[i - 16] |= (uint8_t)((code & 15) << 4);
  if (high) {
    if (i % 8 == 0)
      high[i / 8] = 0;
    high[i / 8] |= (uint8_t)(code >> 4 << (i % 8));
  }
}
/* The value of largest magnitude, the first of equals. */
__device__ float peak_of(const float *x) {
  float peak = 0;
  for (int i = 0; i < 32; i++)
    peak = fabsf(x[i]) > fabsf(peak) ? x[i] : peak;
  return peak;
}

__device__ void encode_q8_0(const float *x, uint8_t *block) {
  float scale = fabsf(peak_of(x)) / 127, inverse = inverse_of(scale);
  *(uint16_t *)block = half_of(scale);
  for (int i = 0; i < 32; i++) {
    float magnitude = fminf(fabsf(x[i] * inverse), 127.0f);
    int code = (int)magnitude;
    code += magnitude - (float)code >= 0.5f;
    block[2 + i] = (uint8_t)(x[i] < 0 ? -code : code);
  }
}
/* Q4_0 and Q5_0. */
__device__ void encode_scaled(const float *x, int half_range, uint8_t *block, uint8_t *nibbles,
                              uint8_t *high) {
  float scale = peak_of(x) / -(float)half_range, inverse = inverse_of(scale);
  *(uint16_t *)block = half_of(scale);
  for (int i = 0; i < 32; i++)
    put_code(nibbles, high, i,
             code_of(x[i] * inverse, (float)half_range, (float)(2 * half_range - 1)));
}
/* Q4_1 and Q5_1. */
__device__ void encode_line(const float *x, int top, uint8_t *block, uint8_t *nibbles,
                            uint8_t *high) {
  float low = x[0], peak = x[0];
  for (int i = 1; i < 32; i++) {
    low = fminf(low, x[i]);
    peak = fmaxf(peak, x[i]);
  }
  float scale = (peak - low) / (float)top, inverse = inverse_of(scale);
  ((uint16_t *)block)[0] = half_of(scale);
  ((uint16_t *)block)[1] = half_of(low);
  for (int i = 0; i < 32; i++)
    put_code(nibbles, high, i, code_of((x[i] - low) * inverse, 0, (float)top));
}

/* The nearest of the 16 levels, the lower of two equally near. */
__device__ int nearest_level(float scaled) {
  int best = 0;
  float least = INFINITY;
  for (int code = 0; code < 16; code++) {
    float error = fabsf(scaled - simt_iq4_nl_value(code));
    if (error < least) {
      least = error;
      best = code;
    }
  }
  return best;
}
/* IQ4_NL: the peak is tried from well inside the outermost levels to where it is clipped; with the
 * codes of each try, the least-squares scale, and the one that explains most wins. */
__device__ void encode_iq4_nl(const float *x, uint8_t *block) {
  float peak = peak_of(x), best_gain = 0, best_scale = 0;
  for (int step = 0; step < 24 && fabsf(peak) >= TINY; step++) {
    float reach = (step % 2 ? -1.0f : 1.0f) * (float)(85 + 6 * (step / 2)), xq = 0, qq = 0;
    for (int i = 0; i < 32; i++) {
      float q = simt_iq4_nl_value(nearest_level(x[i] * (reach / peak)));
      xq += x[i] * q;
      qq += q * q;
    }
    if (qq > 0 && xq * xq > best_gain * qq) {
      best_gain = xq * xq / qq;
      best_scale = xq / qq;
    }
  }
  uint16_t half = half_of(best_scale);
  *(uint16_t *)block = half;
  float inverse = inverse_of(simt_half_bits(half));
  for (int i = 0; i < 32; i++)
    put_code(block + 2, nullptr, i, nearest_level(x[i] * inverse));
}

template <int SCHEME> __device__ void encode(const float *x, uint8_t *block) {
  if (SCHEME == ISO_SCHEME_Q8_0)
    encode_q8_0(x, block);
  else if (SCHEME == ISO_SCHEME_Q4_0)
    encode_scaled(x, 8, block, block + 2, nullptr);
  else if (SCHEME == ISO_SCHEME_Q5_0)
    encode_scaled(x, 16, block, block + 6, block + 2);
  else if (SCHEME == ISO_SCHEME_Q4_1)
    encode_line(x, 15, block, block + 4, nullptr);
  else if (SCHEME == ISO_SCHEME_Q5_1)
    encode_line(x, 31, block, block + 8, block + 4);
  else
    encode_iq4_nl(x, block);
}
/* Beyond these magnitudes a scale is no finite half. */
template <int SCHEME>
constexpr float LIMIT = HALF_MAX *(SCHEME == ISO_SCHEME_Q8_0     ? 127.0f
                                   : SCHEME == ISO_SCHEME_Q4_0   ? 8.0f
                                   : SCHEME == ISO_SCHEME_Q5_0   ? 16.0f
                                   : SCHEME == ISO_SCHEME_IQ4_NL ? 127.0f
                                                                 : 1.0f);

template <int SCHEME> __global__ void quantize(operands o) {
  simt_begin();
  int64_t block = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
  if (block * 32 >= o.x.n_columns)
    return;
  const uint8_t *row = o.x.row(blockIdx.x);
  float x[32];
  for (int i = 0; i < 32; i++)
    x[i] = clamped(simt_load(o.x.scheme, row, block * 32 + i), LIMIT<SCHEME>);
  encode<SCHEME>(x, o.y.row(blockIdx.x) + block * simt_codec<SCHEME>::bytes);
}

typedef void (*kernel)(operands);

kernel choose(iso_scheme scheme) {
  switch (scheme) {
  case ISO_SCHEME_Q8_0:
    return quantize<ISO_SCHEME_Q8_0>;
  case ISO_SCHEME_Q4_0:
    return quantize<ISO_SCHEME_Q4_0>;
  case ISO_SCHEME_Q4_1:
    return quantize<ISO_SCHEME_Q4_1>;
  case ISO_SCHEME_Q5_0:
    return quantize<ISO_SCHEME_Q5_0>;
  case ISO_SCHEME_Q5_1:
    return quantize<ISO_SCHEME_Q5_1>;
  case ISO_SCHEME_IQ4_NL:
    return quantize<ISO_SCHEME_IQ4_NL>;
  default:
    return nullptr;
  }
}

iso_refusal check(const iso_device *, const iso_op_arguments *arguments, const char **out_detail) {
  if (choose((iso_scheme)((const iso_quantize_rows_attributes *)arguments->attributes)->scheme))
    return ISO_ACCEPTED;
  *out_detail = "super-blocks are encoded on the host";
  return ISO_REFUSED_ATTRIBUTE;
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  operands o = {simt_rows_of(arguments->inputs[0]), simt_rows_of(arguments->outputs[0])};
  if (o.x.n_rows == 0)
    return ISO_OK;
  int64_t blocks = o.x.n_columns / 32;
  unsigned threads = simt_block_size(blocks, 128);
  dim3 grid((unsigned)o.x.n_rows, (unsigned)((blocks + threads - 1) / threads));
  return simt_launch_early(queue, "quantize_rows", choose(arguments->outputs[0].scheme), grid,
                           dim3(threads), 0, o);
}

const iso_kernel records[] = {{.size = sizeof(iso_kernel),
                               .op = ISO_OP_QUANTIZE_ROWS,
                               .name = "quantize_rows.simt",
                               .schemes = SIMT_ALL,
                               .activations = SIMT_FLOATS,
                               .layout = ISO_LAYOUT_PLAIN,
                               .rank = 0,
                               .check = check,
                               .launch = launch}};

} /* namespace */

SIMT_EXPORT_KERNELS(quantize_rows, records)
