/* Rotary positions. A thread rotates one pair of a head, or copies two elements beyond them. */
#include "backends/simt/simt.cuh"

namespace {

struct operands {
  simt_rows x, y;
  const int32_t *positions;
  const float *frequencies;
  int32_t n_heads, n_pairs, pairs_of_head; /* the latter with those that are only copied */
  uint32_t interleaved;
  float magnitude;
};

__global__ void rope(operands o, int64_t n) {
  int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= n)
    return;
  int64_t row = index / o.pairs_of_head;
  int pair = (int)(index - row * o.pairs_of_head);
  const uint8_t *x = o.x.row(row);
  uint8_t *y = o.y.row(row);
  if (pair >= o.n_pairs) {
    int64_t i = 2 * (int64_t)pair;
    simt_store(o.y.scheme, y, i, simt_load(o.x.scheme, x, i));
    if (i + 1 < o.x.n_columns)
      simt_store(o.y.scheme, y, i + 1, simt_load(o.x.scheme, x, i + 1));
    return;
  }
  float angle = __fmul_rn((float)o.positions[row / o.n_heads], o.frequencies[pair]);
  float sine, cosine;
  sincosf(angle, &sine, &cosine);
  sine *= o.magnitude, cosine *= o.magnitude;
  int first = o.interleaved ? 2 * pair : pair;
  int second = o.interleaved ? 2 * pair + 1 : pair + o.n_pairs;
  float a = simt_load(o.x.scheme, x, first), b = simt_load(o.x.scheme, x, second);
  simt_store(o.y.scheme, y, first, a * cosine - b * sine);
  simt_store(o.y.scheme, y, second, a * sine + b * cosine);
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  auto *attributes = (const iso_rope_attributes *)arguments->attributes;
  operands o = {};
  o.x = simt_rows_of(arguments->inputs[0]);
  o.y = simt_rows_of(arguments->outputs[0]);
  o.positions = (const int32_t *)simt_address(arguments->inputs[1]);
  o.frequencies = (const float *)simt_address(arguments->inputs[2]);
  o.n_heads = (int32_t)arguments->inputs[0].dims[1];
  o.n_pairs = (int32_t)arguments->inputs[2].dims[0];
  o.pairs_of_head = (int32_t)((o.x.n_columns + 1) / 2);
  o.interleaved = attributes->interleaved;
  o.magnitude = attributes->magnitude;
  int64_t n = o.y.n_rows * o.pairs_of_head;
  if (n == 0)
    return ISO_OK;
  return simt_launch(queue, "rope", rope, dim3((unsigned)((n + 127) / 128)), dim3(128), 0, o, n);
}

const iso_kernel records[] = {SIMT_RECORD(ROPE, "rope.simt", launch)};

} /* namespace */

SIMT_EXPORT_KERNELS(rope, records)
