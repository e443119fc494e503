/* What the fast kernels of paged attention share: operands, masks, and tiles of the caches on their
 * way to shared memory. */
#ifndef ISOMER_SIMT_ATTENTION_PAGED_H
#define ISOMER_SIMT_ATTENTION_PAGED_H

#include "backends/simt/matmul_mma.cuh"

struct attention_cache {
  const uint8_t *data;
  int64_t page_bytes, head_bytes, row_bytes; /* from one to the next */
};

struct attention_operands {
  simt_rows q, y; /* rows: token * n_heads + head */
  attention_cache k, v;
  const int32_t *block_table, *query_start, *query_length, *context_length;
  const float *slopes; /* NULL: none */
  int32_t n_tokens, n_heads, n_kv_heads, group, page_size, n_pages, n_blocks, n_sequences;
  float scale, soft_cap;
  uint32_t causal, window;
  bool settled;       /* what attributes name is there before the launch's turn */
  int32_t page_shift; /* page_size as a power of two, -1 when it is none */
  int32_t least_rows = 1, most_rows = INT32_MAX; /* of the sequences that a launch is for */
};

static inline attention_cache attention_cache_of(const iso_tensor &tensor) {
  return {simt_address(tensor), tensor.strides[0], tensor.strides[1], tensor.strides[2]};
}

static inline int32_t attention_shift_of(int64_t page_size) {
  int32_t shift = 0;
  while ((INT64_C(1) << shift) < page_size)
    shift++;
  return (INT64_C(1) << shift) == page_size ? shift : -1;
}

static inline attention_operands attention_read(const iso_op_arguments *arguments) {
  auto *attributes = (const iso_paged_attention_attributes *)arguments->attributes;
  const iso_tensor *inputs = arguments->inputs;
  attention_operands o = {};
  o.q = simt_rows_of(inputs[0]);
  o.y = simt_rows_of(arguments->outputs[0]);
  o.k = attention_cache_of(inputs[1]);
  o.v = attention_cache_of(inputs[2]);
  o.block_table = (const int32_t *)simt_address(inputs[3]);
  o.query_start = (const int32_t *)simt_address(inputs[4]);
  o.query_length = (const int32_t *)simt_address(inputs[5]);
  o.context_length = (const int32_t *)simt_address(inputs[6]);
  o.slopes = (const float *)simt_address(inputs[7]);
  o.n_tokens = (int32_t)inputs[0].dims[0];
  o.n_heads = (int32_t)inputs[0].dims[1];
  o.n_pages = (int32_t)inputs[1].dims[0];
  o.n_kv_heads = (int32_t)inputs[1].dims[1];
  o.group = o.n_heads / o.n_kv_heads;
  o.page_size = (int32_t)inputs[1].dims[2];
  o.page_shift = attention_shift_of(o.page_size);
  o.n_sequences = (int32_t)inputs[3].dims[0];
  o.n_blocks = (int32_t)inputs[3].dims[1];
  o.scale = attributes->scale != 0 ? attributes->scale : 1.0f / sqrtf((float)inputs[0].dims[2]);
  o.soft_cap = attributes->soft_cap;
  o.causal = attributes->causal;
  o.window = attributes->window;
  o.settled = SIMT_SETTLED(attributes);
  return o;
}

/* A part of a sequence's rows. */
struct attention_tile {
  int sequence;             /* -1: none */
  int row, n_rows;          /* within the sequence */
  int token, position;      /* of its first row */
  int context, first, last; /* positions that some of its rows see */
};

/* The tile from `row` on of a sequence of `length` rows. */
__device__ __forceinline__ attention_tile attention_tile_of(const attention_operands &o,
                                                            int sequence, int length, int row,
                                                            int tile_rows) {
  attention_tile tile = {};
  tile.sequence = sequence;
  tile.row = row;
  tile.n_rows = min(tile_rows, length - row);
  tile.token = o.query_start[sequence] + row;
  tile.context = min(o.context_length[sequence], o.n_blocks * o.page_size);
  tile.position = tile.context - length + row;
  int window = (int)o.window;
  tile.first = window > 0 && tile.position >= window ? tile.position - window + 1 : 0;
  tile.last = o.causal ? tile.position + tile.n_rows - 1 : tile.context - 1;
  return tile;
}

/* The sum of this lane's value and those of the lanes below. */
__device__ __forceinline__ int attention_prefix_sum(int value) {
  int lane = threadIdx.x % SIMT_SUBGROUP;
#pragma unroll
  for (int step = 1; step < SIMT_SUBGROUP; step *= 2) {
    int below = __shfl_up_sync(0xffffffffu, value, step);
    value += lane >= step ? below : 0;
  }
  return value;
}

/* The index-th tile of a subgroup's sequences, `base` the first, of which this lane's has `length`
 * rows and `tiles` tiles. False, and the index less by their tiles, when it is not among them. */
__device__ __forceinline__ bool attention_take_tile(const attention_operands &o, int base,
                                                    int length, int tiles, int tile_rows,
                                                    int *index, attention_tile *out) {
  int sum = attention_prefix_sum(tiles), total = simt_shuffle(sum, SIMT_SUBGROUP - 1);
  if (*index >= total) {
    *index -= total;
    return false;
  }
  int owner = __ffs((int)__ballot_sync(0xffffffffu, *index < sum)) - 1;
  int row = (*index - simt_shuffle(sum - tiles, owner)) * tile_rows;
  *out = attention_tile_of(o, base + owner, simt_shuffle(length, owner), row, tile_rows);
  return true;
}

/* The index-th of all tiles of `tile_rows` rows of the launch's sequences, in order. Every lane of
 * a subgroup asks for the same one. */
__device__ inline attention_tile attention_find_tile(const attention_operands &o, int index,
                                                     int tile_rows) {
  attention_tile tile = {};
  tile.sequence = -1;
  int lane = threadIdx.x % SIMT_SUBGROUP;
  for (int base = 0; base < o.n_sequences; base += SIMT_SUBGROUP) {
    int s = base + lane;
    int length = s < o.n_sequences ? o.query_length[s] : 0;
    bool is_ours = length >= o.least_rows && length <= o.most_rows;
    int tiles = is_ours ? (length + tile_rows - 1) / tile_rows : 0;
    if (attention_take_tile(o, base, length, tiles, tile_rows, &index, &tile))
      break;
  }
  return tile;
}

/* 2^x, 0 for what is no normal number. */
__device__ __forceinline__ float attention_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* What a launch has to do for a sequence: its tiles, and how far its context is from the longest
 * there may be, in 32 steps. */
struct attention_share {
  int length, tiles, bucket;
};

__device__ __forceinline__ attention_share attention_share_of(const attention_operands &o,
                                                              int sequence, int tile_rows) {
  attention_share share = {0, 0, 31};
  if (sequence >= o.n_sequences)
    return share;
  int capacity = o.n_blocks * o.page_size;
  int context = min(max(o.context_length[sequence], 0), capacity);
  if (o.window > 0)
    context = min(context, (int)min(o.window, 0x7fffffffu));
  share.length = o.query_length[sequence];
  share.bucket = 31 - min((int)((int64_t)context * 32 / max(capacity, 1)), 31);
  bool is_ours = share.length >= o.least_rows && share.length <= o.most_rows;
  share.tiles = is_ours ? (share.length + tile_rows - 1) / tile_rows : 0;
  return share;
}

/* attention_find_tile() with the tiles of the longest contexts first, so that blocks that
 * start late have little to do. `counts`: 32 words of shared memory for this subgroup. */
__device__ inline attention_tile attention_find_longest(const attention_operands &o, int index,
                                                        int tile_rows, uint32_t *counts) {
  attention_tile tile = {};
  tile.sequence = -1;
  if (o.n_sequences == 1) { /* all that there is to know comes with one wait */
    int length = o.query_length[0];
    tile = attention_tile_of(o, 0, length, index * tile_rows, tile_rows);
    bool is_ours = length >= o.least_rows && length <= o.most_rows;
    if (!is_ours || tile.n_rows <= 0)
      tile.sequence = -1;
    return tile;
  }
  int lane = threadIdx.x % SIMT_SUBGROUP;
  counts[lane] = 0;
  __syncwarp();
  for (int base = 0; base < o.n_sequences; base += SIMT_SUBGROUP) {
    attention_share share = attention_share_of(o, base + lane, tile_rows);
    if (share.tiles > 0)
      atomicAdd(&counts[share.bucket], (uint32_t)share.tiles);
  }
  __syncwarp();
  int of_bucket = (int)counts[lane], sum = attention_prefix_sum(of_bucket);
  uint32_t reach = __ballot_sync(0xffffffffu, index < sum);
  if (reach == 0)
    return tile;
  int chosen = __ffs((int)reach) - 1;
  index -= simt_shuffle(sum - of_bucket, chosen);
  for (int base = 0; base < o.n_sequences; base += SIMT_SUBGROUP) {
    attention_share share = attention_share_of(o, base + lane, tile_rows);
    int tiles = share.bucket == chosen ? share.tiles : 0;
    if (attention_take_tile(o, base, share.length, tiles, tile_rows, &index, &tile))
      break;
  }
  return tile;
}

/* The page of a position, held to the pool; any page for positions that are not seen, of which a
 * sequence without context has nothing else. ByShift: pages are known to be of a power of two, and
 * there is no code for others. */
template <bool ByShift = false>
__device__ __forceinline__ int attention_page(const attention_operands &o, const int32_t *table,
                                              int position, int last) {
  int at = max(min(position, last), 0);
  at = ByShift || o.page_shift >= 0 ? at >> o.page_shift : at / o.page_size;
  return min(max(table[at], 0), o.n_pages - 1);
}

/* The row of a position in its page. */
template <bool ByShift = false>
__device__ __forceinline__ const uint8_t *attention_row(const attention_operands &o,
                                                        const attention_cache &cache, int page,
                                                        int kv_head, int position) {
  int row =
      ByShift || o.page_shift >= 0 ? position & ((1 << o.page_shift) - 1) : position % o.page_size;
  return cache.data + page * cache.page_bytes + kv_head * cache.head_bytes + row * cache.row_bytes;
}

/* Signed bytes I and J of a word as f16, exactly. */
template <int I, int J> __device__ __forceinline__ __half2 attention_halves(uint32_t word) {
  uint32_t bits = __byte_perm(word ^ 0x80808080u, 0x64646464u, 0x4040 | J << 8 | I);
  return __hsub2(*(__half2 *)&bits, __float2half2_rn(1024 + 128));
}

/* The lower or upper two E4M3 codes of a word as f16, exactly. */
template <bool Upper> __device__ __forceinline__ __half2 attention_e4m3(uint32_t word) {
  uint32_t pair = mma_e4m3_pair(Upper ? word >> 16 : word);
  return *(__half2 *)&pair;
}

/* Rows of `Dim` 16-bit values in shared memory, cut into chunks of 16 bytes whose places are
 * exchanged by row: neither 8 rows at one chunk nor 2 rows at 4 chunks meet in a bank. */
template <int Dim> struct attention_rows {
  static constexpr int chunks = Dim / 8, stride = (Dim + 63) / 64 * 128;
  static __device__ __forceinline__ int at(int row, int chunk) {
    return row * stride + (chunk ^ ((row & 1) << 2 | (row >> 1 & 3))) * 16;
  }
  /* A subgroup starts copying Rows rows of a page from `from` on, those of positions [position,
   * position + Rows). Positions outside [first, last] become zeros: what they hold may be
   * anything. */
  template <int Rows>
  static __device__ __forceinline__ void copy(const uint8_t *from, int64_t row_bytes, int position,
                                              int first, int last, int lane, uint8_t *shared) {
#pragma unroll
    for (int i = 0; i < Rows * chunks / 32; i++) {
      int index = i * 32 + lane, row = index / chunks, chunk = index % chunks;
      bool seen = position + row >= first && position + row <= last;
      mma_copy16(shared + at(row, chunk), from + (seen ? row * row_bytes + chunk * 16 : 0),
                 seen ? 16 : 0);
    }
  }
};

/* Sums of 16-bit values in shared memory, transposed: four 8 x 8 matrices a subgroup. */
__device__ __forceinline__ void mma_load_transposed(uint32_t (&out)[4], const void *shared) {
#if MMA_HAS_UNIT
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(mma_shared_address(shared))
               : "memory");
#endif
}
__device__ __forceinline__ uint32_t mma_transpose(uint32_t matrix) {
  uint32_t out = 0;
#if MMA_HAS_UNIT
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(matrix));
#endif
  return out;
}

/* What the fast kernels take: caches of one type, heads of a few widths, and operands that can be
 * copied 16 bytes at a time; of blocks, 16 rows. */
static inline iso_refusal attention_check(const iso_device *device,
                                          const iso_op_arguments *arguments,
                                          const char **out_detail) {
  const iso_tensor *inputs = arguments->inputs;
  if (!mma_is_there(device)) {
    *out_detail = "needs the 16-bit matrix unit of compute capability 8.0";
    return ISO_REFUSED_DEVICE;
  }
  if (inputs[1].scheme != inputs[2].scheme) {
    *out_detail = "keys and values are of two types";
    return ISO_REFUSED_SCHEME;
  }
  int64_t dim = inputs[0].dims[2];
  if (dim != inputs[2].dims[3] || (dim != 64 && dim != 96 && dim != 128 && dim != 256)) {
    *out_detail = "heads must be 64, 96, 128 or 256 wide, values as keys";
    return ISO_REFUSED_SHAPE;
  }
  bool is_f8 = inputs[1].scheme == ISO_SCHEME_F8_G128;
  bool blocks = inputs[1].scheme == ISO_SCHEME_Q8_0 || is_f8;
  if (blocks && dim == 96) {
    *out_detail = "rows of three blocks";
    return ISO_REFUSED_SHAPE;
  }
  if (is_f8 && dim != 128) {
    *out_detail = "rows of several groups";
    return ISO_REFUSED_SHAPE;
  }
  if (inputs[1].dims[2] % 16 != 0) {
    *out_detail = "pages of a size that is no multiple of 16";
    return ISO_REFUSED_SHAPE;
  }
  for (int i = 1; i <= 2; i++)
    if (blocks && inputs[i].strides[2] != (is_f8 ? 132 : dim / 32 * 34)) {
      *out_detail = "rows of a page do not lie one after another";
      return ISO_REFUSED_STRIDE;
    }
  for (int i = 0; i <= 2; i++)
    for (uint32_t d = 0; d + 1 < inputs[i].n_dims; d++)
      if (inputs[i].strides[d] % 16 != 0 && !(blocks && i > 0 && d == 2)) {
        *out_detail = "rows must start at multiples of 16 bytes";
        return ISO_REFUSED_STRIDE;
      }
  return ISO_ACCEPTED;
}

#endif
