/* Paged attention of many query rows a sequence, prompts, on Hopper's matrix unit: online softmax
 * over tiles of keys (arXiv:2205.14135), with one group of subgroups that copies and two that
 * multiply and take exponents in turns (arXiv:2407.08608).
 *
 * A block takes 128 rows of one query head; each multiplying group 64 of them. Keys and values come
 * a tile of 128 positions at a time into a ring of slots, keys and values by turns, as rows of
 * 128 bytes whose 16-byte chunks are exchanged by row. Queries and weights of values are rounded to
 * the type of the slots; scores, maxima and sums are f32. */
#ifndef ISOMER_CUDA_HOPPER_ATTENTION_PROMPT_H
#define ISOMER_CUDA_HOPPER_ATTENTION_PROMPT_H

#include "backends/cuda/hopper/hopper.cuh"
#include "backends/simt/attention_split.cuh"
#include "backends/simt/fusion.h"

enum {
  PROMPT_ROWS = 128, /* of queries in a block */
  PROMPT_KEYS = 128, /* positions in a tile */
  PROMPT_SLOTS = 6,
  PROMPT_GROUP = 128, /* threads */
  PROMPT_THREADS = 3 * PROMPT_GROUP
};

template <int Dim> struct prompt_slot { static constexpr int bytes = PROMPT_KEYS * Dim * 2; };

/* Rows of no sequence are zero. A subgroup a token. */
static __global__ void __launch_bounds__(128)
    attention_clear(const __grid_constant__ attention_operands o) {
  simt_let_later_begin();
  simt_wait_for_earlier();
  int lane = threadIdx.x % 32, token = (int)blockIdx.x * 4 + (int)threadIdx.x / 32;
  bool covered = token >= o.n_tokens;
  for (int s = lane; s < o.n_sequences; s += 32)
    covered |= token >= o.query_start[s] && token - o.query_start[s] < o.query_length[s];
  if (__any_sync(0xffffffffu, covered))
    return;
  for (int head = 0; head < o.n_heads; head++)
    for (int e = lane; e < o.y.n_columns; e += 32)
      simt_store(o.y.scheme, o.y.row((int64_t)token * o.n_heads + head), e, 0.0f);
}

/* How the copying group brings tiles of a cache into slots, as `value`s. A group's thread knows
 * where rows 16 i .. of the tile lie, i = threadIdx.x % 8, as bytes from the start of the cache.
 * `scales`: NULL for values; for keys, where a cache that has_key_scales leaves what the scores of
 * each position are to be multiplied by.
 *
 * These are 16-bit floats: copied while the tiles before them are on their way. */
template <typename V, int Dim> struct prompt_floats {
  typedef V value;
  static constexpr bool has_key_scales = false;
  static constexpr int behind = 2; /* turns between copying a tile and telling of it */
  static constexpr int copying_registers = 40, multiplying_registers = 232;

  static __device__ __forceinline__ void copy(const attention_cache &cache, int64_t offset,
                                              int begin, const attention_tile &tile, uint8_t *slot,
                                              float *) {
    constexpr int chunks = Dim / 8, rows = PROMPT_GROUP / chunks; /* a turn */
    int chunk = threadIdx.x % chunks, in_turn = (int)threadIdx.x / chunks;
    uint8_t *to =
        slot + chunk / 8 * PROMPT_KEYS * 128 + in_turn * 128 + (chunk % 8 ^ in_turn % 8) * 16;
    const uint8_t *from = cache.data + chunk * 16;
#pragma unroll
    for (int i = 0; i < PROMPT_KEYS / rows; i++) {
      int row = i * rows + in_turn, position = begin + row;
      int64_t at = __shfl_sync(0xffffffffu, offset, i * rows / 16);
      bool seen = position >= tile.first && position <= tile.last;
      mma_copy16(to + i * rows * 128, seen ? from + at + row % 16 * cache.row_bytes : cache.data,
                 seen ? 16 : 0);
    }
  }
};

/* Q8_0: a thread decodes a row, each value rounded to f16. */
template <int Dim> struct prompt_q8_0 {
  typedef simt_f16 value;
  static constexpr bool has_key_scales = false;
  static constexpr int behind = 0;
  static constexpr int copying_registers = 56, multiplying_registers = 224;
  static constexpr int row_bytes = Dim / 32 * 34, n_words = row_bytes / 4;
  static_assert(PROMPT_KEYS == PROMPT_GROUP && row_bytes % 4 == 0, "a thread a row");

  static __device__ __forceinline__ void copy(const attention_cache &cache, int64_t offset,
                                              int begin, const attention_tile &tile, uint8_t *slot,
                                              float *) {
    int row = (int)threadIdx.x, position = begin + row;
    int64_t at = __shfl_sync(0xffffffffu, offset, row % 32 / 16 + row / 32 * 2);
    bool seen = position >= tile.first && position <= tile.last;
    const uint8_t *from = cache.data + at + row % 16 * row_bytes;
    uint32_t words[n_words];
#pragma unroll
    for (int i = 0; i < n_words; i++)
      words[i] = 0;
    if (seen && row_bytes % 8 == 0)
#pragma unroll
      for (int i = 0; i < n_words / 2; i++)
        *(uint2 *)&words[2 * i] = ((const uint2 *)from)[i];
    if (seen && row_bytes % 8 != 0)
#pragma unroll
      for (int i = 0; i < n_words; i++)
        words[i] = ((const uint32_t *)from)[i];
#pragma unroll
    for (int chunk = 0; chunk < Dim / 8; chunk++) {
      constexpr int SCALE = 34;
      int b = chunk / 4;
      __half2 scale =
          __half2half2(__ushort_as_half((unsigned short)(words[b * SCALE / 4] >> (b % 2 * 16))));
      uint32_t out[4];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        int first = b * SCALE + 2 + chunk % 4 * 8 + i * 4;
        uint32_t codes = first % 4 == 0
                             ? words[first / 4]
                             : __byte_perm(words[first / 4], words[first / 4 + 1], 0x5432);
        __half2 low = __hmul2(attention_halves<0, 1>(codes), scale);
        __half2 high = __hmul2(attention_halves<2, 3>(codes), scale);
        out[2 * i] = *(uint32_t *)&low, out[2 * i + 1] = *(uint32_t *)&high;
      }
      *(uint4 *)(slot + chunk / 8 * PROMPT_KEYS * 128 + row * 128 + (chunk % 8 ^ row % 8) * 16) =
          make_uint4(out[0], out[1], out[2], out[3]);
    }
  }
};

/* F8_G128, heads of 128: a thread decodes a row as bf16, which has room for any scale. Keys are
 * codes, exactly, and their scales multiply scores: large scores would tell how keys were rounded.
 * Values are multiplied by their scales and rounded. */
struct prompt_f8 {
  typedef simt_bf16 value;
  static constexpr bool has_key_scales = true;
  static constexpr int behind = 0;
  static constexpr int copying_registers = 56, multiplying_registers = 224;
  static constexpr int row_bytes = 132, n_words = row_bytes / 4;

  static __device__ __forceinline__ void copy(const attention_cache &cache, int64_t offset,
                                              int begin, const attention_tile &tile, uint8_t *slot,
                                              float *scales) {
    int row = (int)threadIdx.x, position = begin + row;
    int64_t at = __shfl_sync(0xffffffffu, offset, row % 32 / 16 + row / 32 * 2);
    bool seen = position >= tile.first && position <= tile.last;
    const uint32_t *from = (const uint32_t *)(cache.data + at + row % 16 * row_bytes);
    uint32_t words[n_words];
#pragma unroll
    for (int i = 0; i < n_words; i++)
      words[i] = seen ? from[i] : 0;
    float scale = __uint_as_float(words[0]);
    if (scales) {
      scales[row] = scale;
      scale = 1;
    }
#pragma unroll
    for (int chunk = 0; chunk < 16; chunk++) {
      uint32_t out[4];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float2 low = __half22float2(attention_e4m3<false>(words[1 + chunk * 2 + i]));
        float2 high = __half22float2(attention_e4m3<true>(words[1 + chunk * 2 + i]));
        out[2 * i] = mma_pack<simt_bf16>(low.x * scale, low.y * scale);
        out[2 * i + 1] = mma_pack<simt_bf16>(high.x * scale, high.y * scale);
      }
      *(uint4 *)(slot + chunk / 8 * PROMPT_KEYS * 128 + row * 128 + (chunk % 8 ^ row % 8) * 16) =
          make_uint4(out[0], out[1], out[2], out[3]);
    }
  }
};

/* To 2^-22, which the rounding of queries hides. */
__device__ __forceinline__ float prompt_tanh(float x) {
  const float TWO_LOG2_E = 2.8853900817779268f;
  return 1 - __fdividef(2.0f, attention_exp2(fminf(x * TWO_LOG2_E, 100.0f)) + 1);
}

/* Scores that need nothing, that must be masked, and that are bent by a cap or slopes as well. */
enum prompt_mode { PROMPT_PLAIN, PROMPT_MASKED, PROMPT_BENT };

/* What a thread knows of its two rows. */
struct prompt_row {
  float scale; /* what undoes the scale of the query, times the op's */
  int position, first, last;
};

/* Exponents of 2 for the scores of one tile. `shrink`: what the sums so far are multiplied by. */
template <prompt_mode Mode>
__device__ __forceinline__ void
prompt_weigh(const attention_operands &o, float (&scores)[64], const prompt_row (&rows)[2],
             float slope, int begin, float (&maximum)[2], float (&total)[2], float (&shrink)[2]) {
  const float LOG2_E = 1.4426950408889634f;
  int first_column = begin + 2 * ((int)threadIdx.x % 4);
  float highest[2] = {-INFINITY, -INFINITY}, base[2], factor[2];
#pragma unroll
  for (int i = 0; i < 64; i++) {
    int r = i / 2 % 2, column = i / 4 * 8 + i % 2;
    if constexpr (Mode == PROMPT_BENT) {
      float score = scores[i] * rows[r].scale;
      if (o.soft_cap > 0)
        score = o.soft_cap * prompt_tanh(score / o.soft_cap);
      scores[i] = score + slope * (float)(first_column + column - rows[r].position);
    }
    if (Mode != PROMPT_PLAIN &&
        (column < rows[r].first - first_column || column > rows[r].last - first_column))
      scores[i] = -INFINITY;
    highest[r] = fmaxf(highest[r], scores[i]);
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    factor[r] = Mode == PROMPT_BENT ? LOG2_E : rows[r].scale * LOG2_E;
    highest[r] = fmaxf(highest[r], simt_shuffle_xor(highest[r], 1));
    highest[r] = fmaxf(highest[r], simt_shuffle_xor(highest[r], 2));
    float now = fmaxf(maximum[r], highest[r] * factor[r]);
    shrink[r] = maximum[r] == now ? 1.0f : attention_exp2(maximum[r] - now);
    maximum[r] = now;
    total[r] *= shrink[r];
    base[r] = now == -INFINITY ? 0.0f : now;
  }
#pragma unroll
  for (int i = 0; i < 64; i++) {
    int r = i / 2 % 2;
    scores[i] = attention_exp2(fmaf(scores[i], factor[r], -base[r]));
    total[r] += scores[i];
  }
}

/* Row `q` of the queries as left operands of rows r and r + 8, times `up`; the largest magnitude.
 */
template <typename V, int Dim, typename T>
__device__ __forceinline__ void prompt_query(const uint8_t *q, int t, int r, float *out_down,
                                             uint32_t (&queries)[Dim / 16][4]) {
  typedef struct alignas(2 * sizeof(T)) {
    T at[2];
  } pair;
  float values[Dim / 8][2], largest = 0, up = 1;
#pragma unroll
  for (int i = 0; i < Dim / 8; i++) {
    pair both = *(const pair *)((const T *)q + i * 8 + 2 * t);
#pragma unroll
    for (int j = 0; j < 2; j++) {
      values[i][j] = simt_to_float(both.at[j]);
      largest = fmaxf(largest, fabsf(values[i][j]));
    }
  }
  *out_down = 1;
  if constexpr (!__is_same(V, simt_bf16)) {
    largest = fmaxf(largest, simt_shuffle_xor(largest, 1));
    mma_half_scale(fmaxf(largest, simt_shuffle_xor(largest, 2)), &up, out_down);
  }
#pragma unroll
  for (int i = 0; i < Dim / 8; i++)
    queries[i / 2][i % 2 * 2 + r] = mma_pack<V>(values[i][0] * up, values[i][1] * up);
}

/* Grid: query heads, then tiles of rows, those that see the most first. Loops: where there are more
 * tiles than that, a block goes on with every gridDim.y-th; `done` counts the copies of those
 * before. */
template <typename Cache, int Dim, bool Loops>
__global__ void __launch_bounds__(PROMPT_THREADS, 1)
    attention_prompt(const __grid_constant__ attention_operands o) {
#if HOPPER_HAS_WGMMA
  typedef typename Cache::value V;
  extern __shared__ uint8_t dynamic[];
  __shared__ uint64_t full[PROMPT_SLOTS], free_again[PROMPT_SLOTS];
  __shared__ float2 key_scales[Cache::has_key_scales ? PROMPT_SLOTS / 2 : 1][PROMPT_KEYS / 2];
  uint8_t *ring = dynamic + (1024 - mma_shared_address(dynamic) % 1024) % 1024;
  constexpr int slot_bytes = prompt_slot<Dim>::bytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < PROMPT_SLOTS; i++) {
      hopper_barrier_init(&full[i], PROMPT_GROUP);
      hopper_barrier_init(&free_again[i], 8);
    }
    hopper_barrier_fence();
  }
  simt_let_later_begin();
  simt_wait_for_earlier();
  int index = (int)(gridDim.y - 1 - blockIdx.y), done = 0;
  attention_tile tile = attention_find_tile(o, index, PROMPT_ROWS);
  __syncthreads();
  int head = blockIdx.x, kv_head = head / o.group;

  if (threadIdx.x < PROMPT_GROUP) {
    hopper_give_registers<Cache::copying_registers>();
    for (; tile.sequence >= 0; tile = attention_find_tile(o, index, PROMPT_ROWS)) {
      int base = tile.first / PROMPT_KEYS * PROMPT_KEYS;
      int n_tiles = (tile.last - base) / PROMPT_KEYS + 1;
      const int32_t *table = o.block_table + (int64_t)tile.sequence * o.n_blocks;
      int64_t in_keys = 0, in_values = 0;
      for (int i = 0; i < 2 * n_tiles + Cache::behind; i++) {
        if (i < 2 * n_tiles) {
          int begin = base + i / 2 * PROMPT_KEYS, slot = (done + i) % PROMPT_SLOTS;
          if (i % 2 == 0) {
            int position = begin + (int)threadIdx.x % 8 * 16;
            int page = attention_page(o, table, position, tile.last);
            in_keys = attention_row(o, o.k, page, kv_head, position) - o.k.data;
            in_values = attention_row(o, o.v, page, kv_head, position) - o.v.data;
          }
          hopper_barrier_wait(&free_again[slot], (done + i) / PROMPT_SLOTS % 2 ^ 1);
          float *scales = Cache::has_key_scales && i % 2 == 0 ? &key_scales[slot / 2][0].x : NULL;
          Cache::copy(i % 2 ? o.v : o.k, i % 2 ? in_values : in_keys, begin, tile,
                      ring + slot * slot_bytes, scales);
        }
        mma_copy_commit();
        mma_copy_wait<Cache::behind>();
        if (i >= Cache::behind) {
          hopper_shared_fence();
          hopper_barrier_arrive(&full[(done + i - Cache::behind) % PROMPT_SLOTS]);
        }
      }
      if (!Loops)
        break;
      done += 2 * n_tiles, index += (int)gridDim.y;
    }
    return;
  }

  hopper_take_registers<Cache::multiplying_registers>();
  int group = (int)threadIdx.x / PROMPT_GROUP - 1, lane = threadIdx.x % 32, t = lane % 4;
  int row = group * 64 + (int)threadIdx.x / 32 % 4 * 16 + lane / 4; /* and row + 8 */
  for (; tile.sequence >= 0; tile = attention_find_tile(o, index, PROMPT_ROWS)) {
    int base = tile.first / PROMPT_KEYS * PROMPT_KEYS;
    int n_tiles = (tile.last - base) / PROMPT_KEYS + 1;
    prompt_row rows[2];
    uint32_t queries[Dim / 16][4];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      int in_tile = row + r * 8, window = (int)o.window, position = tile.position + in_tile;
      rows[r].position = position;
      rows[r].first = window > 0 && position >= window ? position - window + 1 : 0;
      rows[r].last = o.causal ? min(position, tile.context - 1) : tile.context - 1;
      const uint8_t *q =
          o.q.row((int64_t)(tile.token + (in_tile < tile.n_rows ? in_tile : 0)) * o.n_heads + head);
      float down;
      if (o.q.scheme == ISO_SCHEME_F32)
        prompt_query<V, Dim, float>(q, t, r, &down, queries);
      else if (o.q.scheme == ISO_SCHEME_F16)
        prompt_query<V, Dim, simt_f16>(q, t, r, &down, queries);
      else
        prompt_query<V, Dim, simt_bf16>(q, t, r, &down, queries);
      rows[r].scale = o.scale * down;
    }
    float slope = o.slopes ? o.slopes[head] : 0.0f;
    bool plain = o.soft_cap == 0 && !o.slopes && o.scale > 0;
    /* Positions that every row of this group sees, and the last that any does. */
    int group_first = tile.position + group * 64, group_last = group_first + 63;
    int all_from = o.window && group_last >= (int)o.window ? group_last - (int)o.window + 1 : 0;
    int all_to = o.causal ? group_first : tile.context - 1;
    all_to = min(all_to, tile.last);

    float maximum[2] = {-INFINITY, -INFINITY}, total[2] = {}, shrink[2];
    float result[Dim / 2] = {}, scores[64];
    uint32_t weights[PROMPT_KEYS / 16][4];
    auto score = [&](int i) {
      int slot = (done + 2 * i) % PROMPT_SLOTS;
      const uint8_t *keys = ring + slot * slot_bytes;
      hopper_barrier_wait(&full[slot], (done + 2 * i) / PROMPT_SLOTS % 2);
      hopper_sync(2 + group, 2 * PROMPT_GROUP);
      hopper_product_begin();
#pragma unroll
      for (int k = 0; k < Dim / 16; k++)
        hopper_product<V, PROMPT_KEYS>::add(
            scores, queries[k], hopper_rows(keys + k / 4 * PROMPT_KEYS * 128) + k % 4 * 2, k > 0);
      hopper_product_commit();
    };
    auto gather = [&](int i) {
      int slot = (done + 2 * i) % PROMPT_SLOTS + 1;
      const uint8_t *values = ring + slot * slot_bytes;
      hopper_barrier_wait(&full[slot], (done + 2 * i) / PROMPT_SLOTS % 2);
      hopper_product_begin();
#pragma unroll
      for (int k = 0; k < PROMPT_KEYS / 16; k++)
        hopper_product<V, Dim, true>::add(
            result, weights[k], hopper_rows_transposed(values + k * 16 * 128, PROMPT_KEYS * 128));
      hopper_product_commit();
    };
    auto release = [&](int slot) {
      if (lane == 0)
        hopper_barrier_arrive(&free_again[slot]);
    };
    /* When the scores of tile i are there. */
    auto release_keys = [&](int i) {
      int slot = (done + 2 * i) % PROMPT_SLOTS;
      if constexpr (Cache::has_key_scales) {
#pragma unroll
        for (int c = 0; c < PROMPT_KEYS / 8; c++) {
          float2 scale = key_scales[slot / 2][c * 4 + t];
          scores[4 * c] *= scale.x, scores[4 * c + 1] *= scale.y;
          scores[4 * c + 2] *= scale.x, scores[4 * c + 3] *= scale.y;
        }
        __syncwarp();
      }
      release(slot);
    };
    auto weigh = [&](int i) {
      int begin = base + i * PROMPT_KEYS;
      if (!plain)
        prompt_weigh<PROMPT_BENT>(o, scores, rows, slope, begin, maximum, total, shrink);
      else if (begin < all_from || begin + PROMPT_KEYS - 1 > all_to)
        prompt_weigh<PROMPT_MASKED>(o, scores, rows, slope, begin, maximum, total, shrink);
      else
        prompt_weigh<PROMPT_PLAIN>(o, scores, rows, slope, begin, maximum, total, shrink);
    };
    auto round = [&]() {
#pragma unroll
      for (int k = 0; k < PROMPT_KEYS / 16; k++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          weights[k][j] = mma_pack<V>(scores[8 * k + 2 * j], scores[8 * k + 2 * j + 1]);
    };
    if (group == 1)
      hopper_arrive(2, 2 * PROMPT_GROUP);
    score(0);
    hopper_arrive(2 + (group ^ 1), 2 * PROMPT_GROUP);
    hopper_product_wait<0>();
    release_keys(0);
    weigh(0);
    round();
    for (int i = 1; i < n_tiles; i++) {
      score(i);
      gather(i - 1);
      hopper_arrive(2 + (group ^ 1), 2 * PROMPT_GROUP);
      hopper_product_wait<1>();
      release_keys(i);
      weigh(i);
      hopper_product_wait<0>();
      release((done + 2 * (i - 1)) % PROMPT_SLOTS + 1);
#pragma unroll
      for (int e = 0; e < Dim / 2; e++)
        result[e] *= shrink[e / 2 % 2];
      round();
    }
    gather(n_tiles - 1);
    hopper_product_wait<0>();
    release((done + 2 * (n_tiles - 1)) % PROMPT_SLOTS + 1);
    if (group == 0) /* the other group's last word */
      hopper_sync(2, 2 * PROMPT_GROUP);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      total[r] += simt_shuffle_xor(total[r], 1);
      total[r] += simt_shuffle_xor(total[r], 2);
      if (row + r * 8 >= tile.n_rows)
        continue;
      uint8_t *y = o.y.row((int64_t)(tile.token + row + r * 8) * o.n_heads + head);
      float inverse = 1 / total[r];
#pragma unroll
      for (int j = 0; j < Dim / 8; j++) {
        simt_store2(o.y.scheme, y, 8 * j + 2 * t, result[4 * j + 2 * r] * inverse,
                    result[4 * j + 2 * r + 1] * inverse);
      }
    }
    if (!Loops)
      break;
    done += 2 * n_tiles, index += (int)gridDim.y;
  }
#endif
}

/* Tiles that rows of so many sequences may need. */
static inline int64_t attention_prompt_tiles(int64_t n_tokens, int64_t n_sequences) {
  int64_t tiles = n_sequences > 0 ? n_tokens / PROMPT_ROWS + n_sequences : 0;
  return tiles < n_tokens ? tiles : n_tokens;
}

template <typename Cache, int Dim, bool Loops = false>
iso_status attention_prompt_launch(iso_queue *queue, const attention_operands &o) {
  if (o.n_tokens == 0)
    return ISO_OK;
  if (!Loops) /* else attention_split() clears */
    ISO_TRY(simt_launch_early(queue, "paged_attention.clear", attention_clear,
                              dim3((unsigned)(o.n_tokens + 3) / 4), dim3(128), 0, o));
  int64_t tiles = attention_prompt_tiles(o.n_tokens, o.n_sequences);
  if (tiles == 0)
    return ISO_OK;
  /* Beside sequences that decode most tiles are empty, and an empty block costs what starting it
   * does, with most of a multiprocessor's shared memory: blocks for two of each, and those that
   * whole tiles need. */
  int64_t most = o.n_tokens / PROMPT_ROWS + simt_n_units(queue->device) * 2 / o.n_heads + 1;
  if (Loops && tiles > most)
    tiles = most;
  return simt_launch_early(queue, "paged_attention.prompt", attention_prompt<Cache, Dim, Loops>,
                           dim3((unsigned)o.n_heads, (unsigned)tiles), dim3(PROMPT_THREADS),
                           (size_t)(PROMPT_SLOTS * prompt_slot<Dim>::bytes + 1024), o);
}

/* Prompts beside sequences that decode. Those whose rows one tile of attention_split.cuh holds go
 * that way, which reads their keys once for all heads and splits them; there are no more such tiles
 * than sequences. Both run beside each other: one is bound by memory, the other has few blocks,
 * which therefore come first. */
static inline attention_split_plan attention_mixed_plan(int64_t slots, int64_t n_sequences,
                                                        int64_t n_heads, int64_t n_kv_heads,
                                                        int64_t capacity, int64_t dim) {
  return attention_split_of(slots, n_sequences, n_sequences, n_heads, n_kv_heads, capacity, dim);
}

template <typename Prompt, typename Split, int Dim>
iso_status attention_mixed_launch(iso_queue *queue, const attention_operands &o,
                                  const attention_split_plan &plan, uint8_t *workspace) {
  attention_operands few = o, many = o;
  few.most_rows = plan.tile_rows;
  many.least_rows = plan.tile_rows + 1;
  ISO_TRY(simt_fork(queue, 1));
  iso_status status = attention_prompt_launch<Prompt, Dim, true>(queue, many);
  simt_enter_lane(queue, 0);
  if (status == ISO_OK)
    status = attention_split_launch<Split, Dim, true>(queue, few, plan, workspace);
  simt_leave_lane(queue);
  iso_status joined = simt_join(queue, 1);
  return status != ISO_OK ? status : joined;
}

#endif
