/* Paged attention of many query rows a sequence over f16 and bf16 caches: prompts.
 *
 * A block takes 64 rows of a sequence for one query head, a subgroup 16 of them. Keys and values
 * come in tiles, the next on its way to shared memory while this one is multiplied. Scores, running
 * maxima and sums, and the result stay in registers (arXiv:2307.08691). Queries and weights are as
 * many planes of the cache's type: one, or of f32 queries two, so that they lose nothing to the
 * matrix unit. Tiles that every row sees whole are not masked. */
#include "backends/simt/attention_paged.cuh"

namespace {

enum { WARPS = 4, ROWS = 16 * WARPS };

template <int Dim> struct shape {
  static constexpr int positions = Dim > 128 ? 32 : 64; /* of a tile */
  static constexpr int half_bytes = positions * attention_rows<Dim>::stride;
  static constexpr int stage_bytes = 2 * half_bytes; /* keys, values */
  static constexpr int bytes = 2 * stage_bytes;
};

__device__ __forceinline__ void load_matrices(uint32_t (&out)[4], const void *shared) {
#if MMA_HAS_UNIT
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(mma_shared_address(shared))
               : "memory");
#endif
}

/* Two numbers as planes. */
template <typename V, int Planes>
__device__ __forceinline__ void to_planes(float a, float b, uint32_t (&out)[Planes]) {
  if constexpr (Planes == 2)
    mma_split<V>(a, b, &out[0], &out[1]);
  else
    out[0] = mma_pack<V>(a, b);
}

/* The queries of this subgroup's rows as left operands; scale[i] undoes what row g + 8 i was
 * multiplied by to fit f16. */
template <typename V, int Dim, int Planes>
__device__ __forceinline__ void load_queries(const attention_operands &o,
                                             const uint8_t *const *rows, int t,
                                             uint32_t (&out)[Dim / 16][Planes][4], float *scale) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float up = 1;
    scale[half] = 1;
    if (!__is_same(V, simt_bf16) && o.q.scheme != ISO_SCHEME_F16) {
      float largest = 0;
      for (int k = 2 * t; k < Dim; k += 8)
        for (int i = 0; i < 2; i++)
          largest = fmaxf(largest, fabsf(simt_load(o.q.scheme, rows[half], k + i)));
      largest = fmaxf(largest, simt_shuffle_xor(largest, 1));
      largest = fmaxf(largest, simt_shuffle_xor(largest, 2));
      mma_half_scale(largest, &up, &scale[half]);
    }
#pragma unroll
    for (int k = 0; k < Dim / 16; k++)
#pragma unroll
      for (int part = 0; part < 2; part++) {
        int column = 16 * k + 8 * part + 2 * t;
        uint32_t planes[Planes];
        to_planes<V>(simt_load(o.q.scheme, rows[half], column) * up,
                     simt_load(o.q.scheme, rows[half], column + 1) * up, planes);
#pragma unroll
        for (int plane = 0; plane < Planes; plane++)
          out[k][plane][half + 2 * part] = planes[plane];
      }
  }
}

template <typename V, int Dim, int Planes>
__global__ void __launch_bounds__(WARPS * 32, Dim > 128     ? 1
                                              : Planes == 2 ? 2
                                                            : 3)
    attention_many(const __grid_constant__ attention_operands o, int n_tiles) {
  typedef shape<Dim> shape;
  constexpr int P = shape::positions;
  extern __shared__ __align__(128) uint8_t memory[];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  int head = blockIdx.y, kv_head = head / o.group;
  simt_let_later_begin();
  simt_wait_for_earlier();
  /* The last tiles of a prompt see the most: they start first. */
  attention_tile tile = attention_find_tile(o, n_tiles - 1 - (int)blockIdx.x, ROWS);
  if (tile.sequence < 0)
    return;
  const int32_t *table = o.block_table + (int64_t)tile.sequence * o.n_blocks;
  int base = tile.first / 16 * 16, n_steps = (tile.last - base) / P + 1;

  auto copy = [&](int step) {
    if (step < n_steps) {
      uint8_t *stage = memory + step % 2 * shape::stage_bytes;
#pragma unroll
      for (int i = warp; i < 2 * P / 16; i += WARPS) {
        int group = i % (P / 16), position = base + step * P + group * 16;
        bool is_value = i >= P / 16;
        const attention_cache &cache = is_value ? o.v : o.k;
        int page = attention_page(o, table, position, tile.last);
        attention_rows<Dim>::template copy<16>(
            attention_row(o, cache, page, kv_head, position), cache.row_bytes, position, tile.first,
            tile.last, lane,
            stage + is_value * shape::half_bytes + group * 16 * attention_rows<Dim>::stride);
      }
    }
    mma_copy_commit();
  };
  copy(0);

  /* This lane's two rows, g and g + 8 of the subgroup's. */
  const uint8_t *rows[2];
  int position[2], first[2], last[2], row[2];
  float score_scale[2], maximum[2] = {-INFINITY, -INFINITY}, total[2] = {};
#pragma unroll
  for (int i = 0; i < 2; i++) {
    row[i] = warp * 16 + g + 8 * i;
    bool exists = row[i] < tile.n_rows;
    rows[i] = o.q.row((int64_t)(tile.token + (exists ? row[i] : 0)) * o.n_heads + head);
    position[i] = tile.position + row[i];
    first[i] = o.window && position[i] >= (int)o.window ? position[i] - (int)o.window + 1 : 0;
    last[i] = !exists ? -1 : o.causal ? position[i] : tile.context - 1;
  }
  uint32_t queries[Dim / 16][Planes][4];
  load_queries<V, Dim, Planes>(o, rows, t, queries, score_scale);
  const float LOG2_E = 1.4426950408889634f;
  bool bends = o.soft_cap > 0 || o.slopes;
  float slope = o.slopes ? o.slopes[head] : 0.0f;
  float unit = o.scale * (bends ? 1.0f : LOG2_E);
  score_scale[0] *= unit, score_scale[1] *= unit;
  /* Positions that all rows of this subgroup see. */
  int whole_first = o.window ? tile.position + warp * 16 + 15 - (int)o.window + 1 : 0;
  int whole_last = warp * 16 + 15 >= tile.n_rows ? -1
                   : o.causal                    ? tile.position + warp * 16
                                                 : tile.context - 1;

  float result[Dim / 8][4] = {};
  for (int step = 0; step < n_steps; step++) {
    int begin = base + step * P;
    const uint8_t *keys = memory + step % 2 * shape::stage_bytes;
    const uint8_t *values = keys + shape::half_bytes;
    mma_copy_wait<0>();
    __syncthreads();
    copy(step + 1);

    float scores[P / 8][4] = {};
#pragma unroll
    for (int k = 0; k < Dim / 16; k++)
#pragma unroll
      for (int n = 0; n < P / 16; n++) {
        uint32_t right[4];
        load_matrices(right, keys + attention_rows<Dim>::at(16 * n + lane / 16 * 8 + lane % 8,
                                                            2 * k + lane / 8 % 2));
#pragma unroll
        for (int plane = 0; plane < Planes; plane++) {
          mma_add<V>(scores[2 * n], queries[k][plane], right[0], right[1]);
          mma_add<V>(scores[2 * n + 1], queries[k][plane], right[2], right[3]);
        }
      }

    bool masked = begin < whole_first || begin + P - 1 > whole_last;
    float highest[2] = {maximum[0], maximum[1]};
#pragma unroll
    for (int n = 0; n < P / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int half = i / 2, p = begin + 8 * n + 2 * t + i % 2;
        float score = scores[n][i] * score_scale[half];
        if (bends) {
          if (o.soft_cap > 0)
            score = o.soft_cap * tanhf(score / o.soft_cap);
          score = (score + slope * (float)(p - position[half])) * LOG2_E;
        }
        if (masked && (p < first[half] || p > last[half]))
          score = -INFINITY;
        scores[n][i] = score;
        highest[half] = fmaxf(highest[half], score);
      }
    float shrink[2], offset[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      highest[half] = fmaxf(highest[half], simt_shuffle_xor(highest[half], 1));
      highest[half] = fmaxf(highest[half], simt_shuffle_xor(highest[half], 2));
      shrink[half] = maximum[half] == highest[half] ? 1.0f : exp2f(maximum[half] - highest[half]);
      maximum[half] = highest[half];
      offset[half] = highest[half] == -INFINITY ? 0.0f : highest[half];
      total[half] *= shrink[half];
    }
#pragma unroll
    for (int n = 0; n < P / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        scores[n][i] = exp2f(scores[n][i] - offset[i / 2]);
        total[i / 2] += scores[n][i];
      }
#pragma unroll
    for (int d = 0; d < Dim / 8; d++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        result[d][i] *= shrink[i / 2];
#pragma unroll
    for (int n = 0; n < P / 16; n++) {
      uint32_t weights[Planes][4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        uint32_t planes[Planes];
        to_planes<V>(scores[2 * n + i / 2][i % 2 * 2], scores[2 * n + i / 2][i % 2 * 2 + 1],
                     planes);
#pragma unroll
        for (int plane = 0; plane < Planes; plane++)
          weights[plane][i] = planes[plane];
      }
#pragma unroll
      for (int d = 0; d < Dim / 16; d++) {
        uint32_t right[4];
        mma_load_transposed(right,
                            values + attention_rows<Dim>::at(16 * n + lane / 8 % 2 * 8 + lane % 8,
                                                             2 * d + lane / 16));
#pragma unroll
        for (int plane = 0; plane < Planes; plane++) {
          mma_add<V>(result[2 * d], weights[plane], right[0], right[1]);
          mma_add<V>(result[2 * d + 1], weights[plane], right[2], right[3]);
        }
      }
    }
  }

#pragma unroll
  for (int half = 0; half < 2; half++) {
    total[half] += simt_shuffle_xor(total[half], 1);
    total[half] += simt_shuffle_xor(total[half], 2);
    if (row[half] >= tile.n_rows)
      continue;
    uint8_t *y = o.y.row((int64_t)(tile.token + row[half]) * o.n_heads + head);
    float inverse = 1.0f / total[half];
#pragma unroll
    for (int d = 0; d < Dim / 8; d++)
      simt_store2(o.y.scheme, y, 8 * d + 2 * t, result[d][2 * half] * inverse,
                  result[d][2 * half + 1] * inverse);
  }
}

/* Rows of no sequence become zero. A subgroup a token. */
__global__ void __launch_bounds__(128)
    attention_clear(const __grid_constant__ attention_operands o) {
  int token = (int)blockIdx.x * 4 + (int)threadIdx.x / 32, lane = threadIdx.x % 32;
  simt_begin();
  if (token >= o.n_tokens)
    return;
  int found = 0;
  for (int s = lane; s < o.n_sequences; s += 32)
    found += o.query_length[s] > 0 && token >= o.query_start[s] &&
             token < o.query_start[s] + o.query_length[s];
  if (simt_subgroup_reduce(found, simt_sum()) > 0)
    return;
  for (int head = 0; head < o.n_heads; head++)
    for (int64_t i = lane; i < o.y.n_columns; i += 32)
      simt_store(o.y.scheme, o.y.row((int64_t)token * o.n_heads + head), i, 0.0f);
}

int64_t n_tiles_of(const iso_op_arguments *arguments) {
  int64_t n_tokens = arguments->inputs[0].dims[0], n_sequences = arguments->inputs[3].dims[0];
  int64_t n_tiles = n_tokens / ROWS + n_sequences;
  return n_tiles < n_tokens ? n_tiles : n_tokens;
}

iso_refusal check(const iso_device *device, const iso_op_arguments *arguments,
                  const char **out_detail) {
  if (arguments->inputs[0].dims[1] > 65535) {
    *out_detail = "more heads than a grid holds";
    return ISO_REFUSED_SIZE;
  }
  for (uint32_t d = 0; d + 1 < arguments->outputs[0].n_dims; d++)
    if (arguments->outputs[0].strides[d] % 8 != 0) {
      *out_detail = "rows must start at multiples of 8 bytes";
      return ISO_REFUSED_STRIDE;
    }
  return attention_check(device, arguments, out_detail);
}

template <typename V, int Dim, int Planes>
iso_status launch_sized(iso_queue *queue, const attention_operands &o, int64_t n_tiles) {
  ISO_TRY(simt_launch_early(queue, "paged_attention.clear", attention_clear,
                            dim3((unsigned)((o.n_tokens + 3) / 4)), dim3(128), 0, o));
  return simt_launch_early(queue, "paged_attention.many", attention_many<V, Dim, Planes>,
                           dim3((unsigned)n_tiles, (unsigned)o.n_heads), dim3(WARPS * 32),
                           (size_t)shape<Dim>::bytes, o, (int)n_tiles);
}

template <typename V, int Planes>
iso_status launch_planes(iso_queue *queue, const iso_op_arguments *arguments) {
  attention_operands o = attention_read(arguments);
  int64_t dim = arguments->inputs[0].dims[2], n_tiles = n_tiles_of(arguments);
  if (o.n_tokens == 0)
    return ISO_OK;
  auto launch = dim == 64    ? launch_sized<V, 64, Planes>
                : dim == 96  ? launch_sized<V, 96, Planes>
                : dim == 128 ? launch_sized<V, 128, Planes>
                             : launch_sized<V, 256, Planes>;
  if (n_tiles == 0) /* no sequence: every row is zero */
    return simt_launch_early(queue, "paged_attention.clear", attention_clear,
                             dim3((unsigned)((o.n_tokens + 3) / 4)), dim3(128), 0, o);
  return launch(queue, o, n_tiles);
}

template <typename V> iso_status launch_typed(iso_queue *queue, const iso_op_arguments *arguments) {
  return arguments->inputs[0].scheme == ISO_SCHEME_F32 ? launch_planes<V, 2>(queue, arguments)
                                                       : launch_planes<V, 1>(queue, arguments);
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  return arguments->inputs[1].scheme == ISO_SCHEME_F16 ? launch_typed<simt_f16>(queue, arguments)
                                                       : launch_typed<simt_bf16>(queue, arguments);
}

const iso_kernel records[] = {
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_PAGED_ATTENTION,
     .name = "paged_attention.many",
     .schemes = ISO_SCHEME_BIT(ISO_SCHEME_F16) | ISO_SCHEME_BIT(ISO_SCHEME_BF16),
     .activations = SIMT_FLOATS,
     .layout = ISO_LAYOUT_PLAIN,
     .rank = 10,
     .check = check,
     .launch = launch}};

} /* namespace */

SIMT_EXPORT_KERNELS(attention_many, records)
