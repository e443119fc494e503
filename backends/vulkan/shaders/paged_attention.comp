/* paged_attention: softmax kept as a running maximum and sum (arXiv:1805.02867), positions in
 * tiles.
 *
 * A workgroup takes a few tokens next to each other, the query heads that share one key head (or
 * some of them), and one of n_splits parts of what they see. Tokens may belong to several
 * sequences, which are gone through one after another. With more than one part, each leaves its
 * maximum, sum and unscaled result, which paged_attention_join brings together.
 *
 * Only positions that some row of the tile sees are read: others may hold anything. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "functions.glsl"
#include "groups.glsl"
#include "rows.glsl"
#define HAS_FP8_CACHES
#include "cache.glsl"

layout(constant_id = 1) const uint TYPE_Q = 0;
layout(constant_id = 2) const uint TYPE_Y = 0;
layout(constant_id = 3) const uint TYPE_K = 0;
layout(constant_id = 4) const uint TYPE_V = 0;
layout(constant_id = 5) const uint HEAD_DIM = 64;
layout(constant_id = 6) const uint VALUE_DIM = 64;
layout(constant_id = 7) const uint N_HEADS = 1;
layout(constant_id = 8) const uint N_KV_HEADS = 1;
layout(constant_id = 9) const uint PAGE_SIZE = 16;
layout(constant_id = 10) const uint CHUNK = 1;      /* query heads of a workgroup */
layout(constant_id = 11) const uint N_ROWS = 1;     /* tokens times CHUNK */
layout(constant_id = 12) const uint POSITIONS = 32; /* of a tile; divides WORKGROUP */
layout(constant_id = 13) const uint IS_CAUSAL = 1;
layout(constant_id = 14) const uint IS_VECTOR = 0; /* cache rows are whole vectors */

layout(push_constant) uniform Push {
  Rows q, y;
  uint64_t k_cache, v_cache, block_table, query_start, query_length, context_length, slopes, parts;
  uint n_tokens, n_sequences, n_blocks, window, n_splits;
  float scale, soft_cap;
};

const uint GROUP = N_HEADS / N_KV_HEADS, N_CHUNKS = (GROUP + CHUNK - 1) / CHUNK;
const uint N_TILE_TOKENS = N_ROWS / CHUNK;
/* In vectors of four; one more keeps rows of a tile in different banks. */
const uint K_QUADS = (HEAD_DIM + 3) / 4, V_QUADS = (VALUE_DIM + 3) / 4;
const uint STRIDE = (K_QUADS > V_QUADS ? K_QUADS : V_QUADS) + 1;
/* Scores: an invocation takes one position and every ROW_STEP-th row. */
const uint ROW_STEP = WORKGROUP / POSITIONS, N_SCORES = (N_ROWS + ROW_STEP - 1) / ROW_STEP;
/* Results: it takes four columns and every ROW_GROUPS-th row. */
const uint ROW_GROUPS = WORKGROUP / V_QUADS, N_SUMS = (N_ROWS + ROW_GROUPS - 1) / ROW_GROUPS;

const uint AT_ONCE = 8; /* vectors of a product whose loads are under way together */

shared vec4 queries[N_ROWS * K_QUADS];
shared vec4 tile[POSITIONS * STRIDE]; /* of keys, then of values */
shared vec4 scores[N_ROWS * POSITIONS / 4];
shared float largest[2 * N_ROWS]; /* before and after a tile, in turn */
shared uint found[N_ROWS], n_found;
shared bool is_covered[N_ROWS];

/* Rows of the tile: head j of token w is row w * CHUNK + j. */
uint head_of(uint row, uint kv_head, uint chunk) { return kv_head * GROUP + chunk * CHUNK + row % CHUNK; }
bool has_head(uint row, uint chunk) { return chunk * CHUNK + row % CHUNK < GROUP; }

/* The sequences that have tokens from `first` on in this tile. */
void find_sequences(uint first) {
  uint id = gl_LocalInvocationID.x;
  if (id == 0)
    n_found = 0;
  if (id < N_ROWS)
    is_covered[id] = false;
  barrier();
  for (uint s = id; s < n_sequences; s += WORKGROUP) {
    uint start = uint(Ints(query_start).v[s]), n = uint(Ints(query_length).v[s]);
    if (n > 0 && start < first + N_TILE_TOKENS && start + n > first) {
      uint at = atomicAdd(n_found, 1);
      if (at < N_ROWS)
        found[at] = s;
    }
  }
  barrier();
}

void load_queries(uint first, uint kv_head, uint chunk) {
  for (uint i = gl_LocalInvocationID.x; i < N_ROWS * K_QUADS; i += WORKGROUP) {
    uint row = i / K_QUADS, token = first + row / CHUNK;
    vec4 values = vec4(0);
    if (token < n_tokens && has_head(row, chunk)) {
      uint64_t from = row_of(q, token * N_HEADS + head_of(row, kv_head, chunk), N_HEADS);
      for (uint j = 0; j < 4; j++)
        if (i % K_QUADS * 4 + j < HEAD_DIM)
          values[j] = load_element(from, i % K_QUADS * 4 + j, TYPE_Q);
    }
    queries[i] = values;
  }
}

/* Keys and values of a tile are under way while the one before is worked on. */
const uint K_LOADS = (POSITIONS * K_QUADS + WORKGROUP - 1) / WORKGROUP;
const uint V_LOADS = (POSITIONS * V_QUADS + WORKGROUP - 1) / WORKGROUP;
vec4 next_keys[K_LOADS], next_values[V_LOADS];

/* Positions p0 to end of a sequence's cache, zeros behind. */
#define FETCH(NEXT, CACHE, TYPE, N, QUADS, N_LOADS, P0)                                            \
  [[unroll]] for (uint u = 0; u < N_LOADS; u++) {                                                  \
    uint at = id + u * WORKGROUP, p = (P0) + at / QUADS;                                           \
    NEXT[u] = vec4(0);                                                                             \
    if (at < POSITIONS * QUADS && p < end)                                                         \
      NEXT[u] = load_position(CACHE, TYPE, N, sequence, kv_head, p, at % QUADS * 4);               \
  }
#define PUT(NEXT, QUADS, N_LOADS)                                                                  \
  [[unroll]] for (uint u = 0; u < N_LOADS; u++) {                                                  \
    uint at = id + u * WORKGROUP;                                                                  \
    if (at < POSITIONS * QUADS)                                                                    \
      tile[at / QUADS * STRIDE + at % QUADS] = NEXT[u];                                            \
  }

/* Elements d to d + 3 of a position. */
vec4 load_position(uint64_t cache, uint type, uint n, uint sequence, uint kv_head, uint p, uint d) {
  uint page = uint(Ints(block_table).v[sequence * n_blocks + p / PAGE_SIZE]);
  uint64_t row = (uint64_t(page) * N_KV_HEADS + kv_head) * PAGE_SIZE + p % PAGE_SIZE;
  return load_cache(cache + row * cache_row_bytes(type, n), d, n, type, IS_VECTOR != 0);
}

/* The score of a product of a query and a key; -infinity where the position is not seen. */
float score_of(float product, uint row, uint p, uint end, int position, uint context, uint kv_head,
               uint chunk) {
  int last = IS_CAUSAL != 0 ? position : int(context) - 1;
  int seen = window != 0 && position >= int(window) ? position - int(window) + 1 : 0;
  if (p >= end || int(p) > last || int(p) < seen)
    return -INFINITY;
  float score = product * scale;
  if (soft_cap > 0.0)
    score = soft_cap * tanh_of(score / soft_cap);
  if (slopes != 0)
    score += Floats(slopes).v[head_of(row, kv_head, chunk)] * float(int(p) - position);
  return score;
}

void store_results(uint token, uint head, uint split, float maximum, float total,
                   uint column, float value) {
  if (n_splits == 1) {
    store_element(row_of(y, token * N_HEADS + head, N_HEADS), column, TYPE_Y,
                  total > 0.0 ? value / total : 0.0);
    return;
  }
  uint64_t part = parts + uint64_t((token * N_HEADS + head) * n_splits + split) *
                              ((VALUE_DIM + 2) * 4);
  if (column == 0) {
    Floats(part).v[0] = maximum;
    Floats(part).v[1] = total;
  }
  Floats(part).v[2 + column] = value;
}

/* All rows of the tile that belong to one sequence. */
void attend(uint sequence, uint first, uint kv_head, uint chunk, uint split) {
  uint id = gl_LocalInvocationID.x;
  int start = Ints(query_start).v[sequence], n = Ints(query_length).v[sequence];
  uint context = uint(Ints(context_length).v[sequence]);
  int offset = int(context) - n - start; /* position of token t is t + offset */
  int low_token = max(start, int(first)), high_token = min(start + n, int(first + N_TILE_TOKENS)) - 1;
  int low_position = low_token + offset;
  uint low = window != 0 && low_position >= int(window) ? uint(low_position) - window + 1 : 0;
  uint high = IS_CAUSAL != 0 ? uint(high_token + offset) + 1 : context;
  uint length = (high - low + n_splits - 1) / n_splits;
  length = (length + POSITIONS - 1) / POSITIONS * POSITIONS;
  uint begin = low + split * length, end = min(high, begin + length);
  uint place = id % POSITIONS, first_row = id / POSITIONS;
  uint quad = id % V_QUADS, row_group = id / V_QUADS;
  vec4 sums[N_SUMS];
  float totals[N_SUMS];
  [[unroll]] for (uint i = 0; i < N_SUMS; i++) {
    sums[i] = vec4(0);
    totals[i] = 0;
  }
  barrier();
  if (id < N_ROWS)
    largest[id] = -INFINITY;
  uint turn = 0;
  FETCH(next_keys, k_cache, TYPE_K, HEAD_DIM, K_QUADS, K_LOADS, begin)
  FETCH(next_values, v_cache, TYPE_V, VALUE_DIM, V_QUADS, V_LOADS, begin)
  [[dont_unroll]] for (uint p0 = begin; p0 < end; p0 += POSITIONS) {
    barrier();
    PUT(next_keys, K_QUADS, K_LOADS)
    barrier();
    FETCH(next_keys, k_cache, TYPE_K, HEAD_DIM, K_QUADS, K_LOADS, p0 + POSITIONS)
    float products[N_SCORES];
    [[unroll]] for (uint i = 0; i < N_SCORES; i++)
      products[i] = 0;
    [[dont_unroll]] for (uint d0 = 0; d0 < K_QUADS; d0 += AT_ONCE)
      [[unroll]] for (uint d = d0; d < d0 + AT_ONCE; d++) {
        if (K_QUADS % AT_ONCE != 0 && d >= K_QUADS)
          continue;
        vec4 key = tile[place * STRIDE + d];
        [[unroll]] for (uint i = 0; i < N_SCORES; i++)
          products[i] += dot(queries[min(first_row + i * ROW_STEP, N_ROWS - 1) * K_QUADS + d], key);
      }
    [[unroll]] for (uint i = 0; i < N_SCORES; i++) {
      uint row = first_row + i * ROW_STEP;
      int token = int(first + row / CHUNK);
      bool is_ours = token >= low_token && token <= high_token && has_head(row, chunk);
      if (row < N_ROWS)
        scores[row * (POSITIONS / 4) + place / 4][place % 4] =
            is_ours ? score_of(products[i], row, p0 + place, end, token + offset, context, kv_head,
                               chunk)
                    : -INFINITY;
    }
    barrier();
    PUT(next_values, V_QUADS, V_LOADS)
    FETCH(next_values, v_cache, TYPE_V, VALUE_DIM, V_QUADS, V_LOADS, p0 + POSITIONS)
    for (uint row = first_row; row < N_ROWS; row += ROW_STEP) {
      vec4 most = vec4(largest[turn * N_ROWS + row]);
      for (uint p = 0; p < POSITIONS / 4; p++)
        most = max(most, scores[row * (POSITIONS / 4) + p]);
      if (place == 0)
        largest[(1 - turn) * N_ROWS + row] = max(max(most.x, most.y), max(most.z, most.w));
    }
    barrier();
    for (uint row = first_row; row < N_ROWS; row += ROW_STEP) {
      float score = scores[row * (POSITIONS / 4) + place / 4][place % 4];
      scores[row * (POSITIONS / 4) + place / 4][place % 4] =
          score == -INFINITY ? 0.0 : exp(score - largest[(1 - turn) * N_ROWS + row]);
    }
    barrier();
    [[unroll]] for (uint i = 0; i < N_SUMS; i++) {
      uint row = min(row_group + i * ROW_GROUPS, N_ROWS - 1);
      float before = largest[turn * N_ROWS + row];
      float shrink = before == -INFINITY ? 0.0 : exp(before - largest[(1 - turn) * N_ROWS + row]);
      totals[i] *= shrink;
      sums[i] *= shrink;
    }
    [[dont_unroll]] for (uint p = 0; p < POSITIONS / 4; p++) {
      vec4 values[4];
      [[unroll]] for (uint j = 0; j < 4; j++)
        values[j] = tile[(4 * p + j) * STRIDE + quad];
      [[unroll]] for (uint i = 0; i < N_SUMS; i++) {
        vec4 weights = scores[min(row_group + i * ROW_GROUPS, N_ROWS - 1) * (POSITIONS / 4) + p];
        totals[i] += weights.x + weights.y + weights.z + weights.w;
        sums[i] += weights.x * values[0] + weights.y * values[1] + weights.z * values[2] +
                   weights.w * values[3];
      }
    }
    turn = 1 - turn;
  }
  barrier();
  [[unroll]] for (uint i = 0; i < N_SUMS; i++) {
    uint row = row_group + i * ROW_GROUPS;
    int token = int(first + row / CHUNK);
    if (row_group >= ROW_GROUPS || row >= N_ROWS || token < low_token || token > high_token ||
        !has_head(row, chunk))
      continue;
    if (quad == 0)
      is_covered[row] = true;
    for (uint j = 0; j < 4; j++)
      if (quad * 4 + j < VALUE_DIM)
        store_results(uint(token), head_of(row, kv_head, chunk), split,
                      largest[turn * N_ROWS + row], totals[i], quad * 4 + j, sums[i][j]);
  }
}

void main() {
  uint group = group_index(), split = group % n_splits;
  group /= n_splits;
  uint chunk = group % N_CHUNKS, kv_head = group / N_CHUNKS % N_KV_HEADS;
  uint first = group / (N_CHUNKS * N_KV_HEADS) * N_TILE_TOKENS;
  if (first >= n_tokens)
    return;
  load_queries(first, kv_head, chunk);
  find_sequences(first);
  for (uint i = 0; i < min(n_found, N_ROWS); i++)
    attend(found[i], first, kv_head, chunk, split);
  barrier();
  /* Rows of no sequence are zero. */
  for (uint r = 0; r < N_ROWS; r++) {
    uint token = first + r / CHUNK;
    if (is_covered[r] || token >= n_tokens || !has_head(r, chunk))
      continue;
    for (uint column = gl_LocalInvocationID.x; column < VALUE_DIM; column += WORKGROUP)
      store_results(token, head_of(r, kv_head, chunk), split, -INFINITY, 0.0, column, 0.0);
  }
}
