/* Plain attention over paged keys and values: any head size up to 1024, every cache scheme, mask
 * and batch. A block takes one query head of one row; its subgroups take turns at chunks of as
 * many positions as they have lanes, each with running maxima and sums of its own, which are
 * merged at the end. Faster records are in attention_*.cu. */
#include "backends/simt/decode.cuh"

namespace {

enum { SUBGROUPS = 4, THREADS = SUBGROUPS * SIMT_SUBGROUP, MOST_DIM = 1024 };

struct cache {
  const uint8_t *data;
  iso_scheme scheme;
  int64_t row_bytes;
};

struct operands {
  simt_rows q, y;
  cache k, v;
  const int32_t *block_table, *query_start, *query_length, *context_length;
  const float *slopes; /* NULL: none */
  int32_t n_heads, n_kv_heads, head_dim, value_dim, page_size, n_pages, n_blocks, n_sequences;
  float scale, soft_cap;
  uint32_t causal, window;
  bool by_eight; /* head_dim is a multiple of 8 */
};

/* The sequence of row t, or -1. All threads of the block get it. */
__device__ int find_sequence(const operands &o, int64_t t, int *shared) {
  if (threadIdx.x == 0)
    *shared = -1;
  __syncthreads();
  for (int s = (int)threadIdx.x; s < o.n_sequences; s += THREADS)
    if (o.query_length[s] > 0 && t >= o.query_start[s] &&
        t < (int64_t)o.query_start[s] + o.query_length[s])
      *shared = s;
  __syncthreads();
  return *shared;
}

/* Row of the caches that holds a position. Pages are held to the pool, whatever the table says. */
__device__ int64_t cache_row(const operands &o, const int32_t *table, int position, int kv_head) {
  int block = position / o.page_size;
  int page = min(max(table[min(block, o.n_blocks - 1)], 0), o.n_pages - 1);
  return ((int64_t)page * o.n_kv_heads + kv_head) * o.page_size + position % o.page_size;
}

__device__ float score_of(const operands &o, const float *q, const uint8_t *key) {
  float sum = 0;
  if (o.by_eight) {
    for (int g = 0; g < o.head_dim / 8; g++) {
      float k[8];
      simt_decode_cache(o.k.scheme, key, g, k);
#pragma unroll
      for (int i = 0; i < 8; i++)
        sum += q[8 * g + i] * k[i];
    }
  } else {
    for (int i = 0; i < o.head_dim; i++)
      sum += q[i] * simt_load_cache(o.k.scheme, key, i);
  }
  sum *= o.scale;
  return o.soft_cap > 0 ? o.soft_cap * tanhf(sum / o.soft_cap) : sum;
}

/* PARTS: elements of a value that a lane keeps, value_dim <= PARTS * SIMT_SUBGROUP. */
template <int PARTS> __global__ void __launch_bounds__(THREADS) attend(operands o) {
  simt_begin();
  extern __shared__ float shared[]; /* q, then a subgroup's sums after another */
  __shared__ int found;
  __shared__ float maxima[SUBGROUPS], totals[SUBGROUPS];
  int64_t t = blockIdx.x;
  int head = (int)blockIdx.y, lane = (int)threadIdx.x % SIMT_SUBGROUP;
  int subgroup = (int)threadIdx.x / SIMT_SUBGROUP;
  int kv_head = head / (o.n_heads / o.n_kv_heads);
  uint8_t *y = o.y.row(t * o.n_heads + head);
  int s = find_sequence(o, t, &found);
  if (s < 0) {
    for (int e = (int)threadIdx.x; e < o.value_dim; e += THREADS)
      simt_store(o.y.scheme, y, e, 0.0f);
    return;
  }
  const uint8_t *query = o.q.row(t * o.n_heads + head);
  for (int i = (int)threadIdx.x; i < o.head_dim; i += THREADS)
    shared[i] = simt_load(o.q.scheme, query, i);
  __syncthreads();

  const int32_t *table = o.block_table + (int64_t)s * o.n_blocks;
  int context = o.context_length[s];
  int position = context - o.query_length[s] + (int)(t - o.query_start[s]);
  int last = o.causal ? position : context - 1;
  int first = o.window && position >= (int)o.window ? position - (int)o.window + 1 : 0;
  float slope = o.slopes ? o.slopes[head] : 0.0f;
  float maximum = -INFINITY, total = 0, sums[PARTS] = {};
  for (int chunk = first + subgroup * SIMT_SUBGROUP; chunk <= last; chunk += THREADS) {
    int p = chunk + lane;
    float score = -INFINITY;
    int64_t row = 0;
    if (p <= last) {
      row = cache_row(o, table, p, kv_head);
      score = score_of(o, shared, o.k.data + row * o.k.row_bytes) + slope * (float)(p - position);
    }
    float highest = fmaxf(maximum, simt_subgroup_reduce(score, simt_max()));
    float shrink = maximum == highest ? 1.0f : expf(maximum - highest);
    float weight = p <= last ? (score == highest ? 1.0f : expf(score - highest)) : 0.0f;
    maximum = highest;
    total = total * shrink + simt_subgroup_reduce(weight, simt_sum());
#pragma unroll
    for (int j = 0; j < PARTS; j++)
      sums[j] *= shrink;
    int count = min(SIMT_SUBGROUP, last - chunk + 1);
    for (int i = 0; i < count; i++) {
      float w = simt_shuffle(weight, i);
      const uint8_t *value = o.v.data + simt_shuffle(row, i) * o.v.row_bytes;
#pragma unroll
      for (int j = 0; j < PARTS; j++) {
        int e = lane + j * SIMT_SUBGROUP;
        if (e < o.value_dim)
          sums[j] += w * simt_load_cache(o.v.scheme, value, e);
      }
    }
  }

  /* Merge: each subgroup's sums under the common maximum. */
  float *mine = shared + o.head_dim + subgroup * o.value_dim;
#pragma unroll
  for (int j = 0; j < PARTS; j++)
    if (lane + j * SIMT_SUBGROUP < o.value_dim)
      mine[lane + j * SIMT_SUBGROUP] = sums[j];
  if (lane == 0) {
    maxima[subgroup] = maximum;
    totals[subgroup] = total;
  }
  __syncthreads();
  float highest = -INFINITY, whole = 0, factors[SUBGROUPS];
  for (int g = 0; g < SUBGROUPS; g++)
    highest = fmaxf(highest, maxima[g]);
  for (int g = 0; g < SUBGROUPS; g++) {
    factors[g] = maxima[g] == -INFINITY ? 0.0f : expf(maxima[g] - highest);
    whole += totals[g] * factors[g];
  }
  for (int e = (int)threadIdx.x; e < o.value_dim; e += THREADS) {
    float sum = 0;
    for (int g = 0; g < SUBGROUPS; g++)
      sum += shared[o.head_dim + g * o.value_dim + e] * factors[g];
    simt_store(o.y.scheme, y, e, sum / whole);
  }
}

iso_refusal check(const iso_device *, const iso_op_arguments *arguments, const char **out_detail) {
  const iso_tensor *inputs = arguments->inputs;
  if (inputs[0].dims[2] > MOST_DIM || inputs[2].dims[3] > MOST_DIM) {
    *out_detail = "heads wider than 1024";
    return ISO_REFUSED_SIZE;
  }
  if (inputs[0].dims[1] > 65535) {
    *out_detail = "more than 65535 heads";
    return ISO_REFUSED_SIZE;
  }
  return ISO_ACCEPTED;
}

cache cache_of(const iso_tensor &tensor) {
  return cache{simt_address(tensor), tensor.scheme, tensor.strides[2]};
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  auto *attributes = (const iso_paged_attention_attributes *)arguments->attributes;
  const iso_tensor *inputs = arguments->inputs;
  operands o = {};
  o.q = simt_rows_of(inputs[0]);
  o.y = simt_rows_of(arguments->outputs[0]);
  o.k = cache_of(inputs[1]);
  o.v = cache_of(inputs[2]);
  o.block_table = (const int32_t *)simt_address(inputs[3]);
  o.query_start = (const int32_t *)simt_address(inputs[4]);
  o.query_length = (const int32_t *)simt_address(inputs[5]);
  o.context_length = (const int32_t *)simt_address(inputs[6]);
  o.slopes = (const float *)simt_address(inputs[7]);
  o.n_heads = (int32_t)inputs[0].dims[1];
  o.head_dim = (int32_t)inputs[0].dims[2];
  o.n_pages = (int32_t)inputs[1].dims[0];
  o.n_kv_heads = (int32_t)inputs[1].dims[1];
  o.page_size = (int32_t)inputs[1].dims[2];
  o.value_dim = (int32_t)inputs[2].dims[3];
  o.n_sequences = (int32_t)inputs[3].dims[0];
  o.n_blocks = (int32_t)inputs[3].dims[1];
  o.scale = attributes->scale != 0 ? attributes->scale : 1.0f / sqrtf((float)o.head_dim);
  o.soft_cap = attributes->soft_cap;
  o.causal = attributes->causal;
  o.window = attributes->window;
  o.by_eight = o.head_dim % 8 == 0;
  if (o.y.n_rows == 0)
    return ISO_OK;
  dim3 grid((unsigned)inputs[0].dims[0], (unsigned)o.n_heads);
  size_t bytes = sizeof(float) * (size_t)(o.head_dim + SUBGROUPS * o.value_dim);
  auto kernel = o.value_dim <= 4 * SIMT_SUBGROUP   ? attend<4>
                : o.value_dim <= 8 * SIMT_SUBGROUP ? attend<8>
                                                   : attend<MOST_DIM / SIMT_SUBGROUP>;
  return simt_launch_early(queue, "paged_attention", kernel, grid, dim3(THREADS), bytes, o);
}

const iso_kernel records[] = {{.size = sizeof(iso_kernel),
                               .op = ISO_OP_PAGED_ATTENTION,
                               .name = "paged_attention.simt",
                               .schemes = SIMT_CACHE_SCHEMES,
                               .activations = SIMT_FLOATS,
                               .layout = ISO_LAYOUT_PLAIN,
                               .rank = 0,
                               .check = check,
                               .launch = launch}};

} /* namespace */

SIMT_EXPORT_KERNELS(paged_attention, records)
