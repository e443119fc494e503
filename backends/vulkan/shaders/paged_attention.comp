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
const uint K_STRIDE = HEAD_DIM + 1, V_STRIDE = VALUE_DIM + 1;
const uint TILE_STRIDE = K_STRIDE > V_STRIDE ? K_STRIDE : V_STRIDE;
const uint COLUMNS = (VALUE_DIM + WORKGROUP - 1) / WORKGROUP; /* of an invocation */

shared float queries[N_ROWS * HEAD_DIM];
shared float tile[POSITIONS * TILE_STRIDE]; /* of keys, then of values */
shared float scores[N_ROWS * POSITIONS];
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
  for (uint i = gl_LocalInvocationID.x; i < N_ROWS * HEAD_DIM; i += WORKGROUP) {
    uint row = i / HEAD_DIM, token = first + row / CHUNK;
    float value = 0;
    if (token < n_tokens && has_head(row, chunk))
      value = load_element(row_of(q, token * N_HEADS + head_of(row, kv_head, chunk), N_HEADS),
                           i % HEAD_DIM, TYPE_Q);
    queries[i] = value;
  }
}

/* Positions p0 to end of a sequence's cache into the tile, zeros behind. */
void load_tile(uint64_t cache, uint type, uint n, uint stride, uint sequence, uint kv_head, uint p0,
               uint end) {
  uint quads = (n + 3) / 4;
  for (uint i = gl_LocalInvocationID.x; i < POSITIONS * quads; i += WORKGROUP) {
    uint p = p0 + i / quads, d = i % quads * 4;
    vec4 values = vec4(0);
    if (p < end) {
      uint page = uint(Ints(block_table).v[sequence * n_blocks + p / PAGE_SIZE]);
      uint64_t row = (uint64_t(page) * N_KV_HEADS + kv_head) * PAGE_SIZE + p % PAGE_SIZE;
      values = load_cache(cache + row * cache_row_bytes(type, n), d, n, type, IS_VECTOR != 0);
    }
    for (uint j = 0; j < 4; j++)
      if (d + j < n)
        tile[i / quads * stride + d + j] = values[j];
  }
}

/* The score of a row and a position of the tile; -infinity where it is not seen. */
float score_of(uint row, uint place, uint p, uint end, int position, uint context, uint kv_head,
               uint chunk) {
  int last = IS_CAUSAL != 0 ? position : int(context) - 1;
  int seen = window != 0 && position >= int(window) ? position - int(window) + 1 : 0;
  if (p >= end || int(p) > last || int(p) < seen)
    return -INFINITY;
  float sum = 0;
  for (uint d = 0; d < HEAD_DIM; d++)
    sum = fma(queries[row * HEAD_DIM + d], tile[place * K_STRIDE + d], sum);
  sum *= scale;
  if (soft_cap > 0.0)
    sum = soft_cap * tanh_of(sum / soft_cap);
  if (slopes != 0)
    sum += Floats(slopes).v[head_of(row, kv_head, chunk)] * float(int(p) - position);
  return sum;
}

void store_results(uint row, uint token, uint head, uint split, float maximum, float total,
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
  float sums[COLUMNS * N_ROWS], totals[N_ROWS];
  for (uint r = 0; r < N_ROWS; r++) {
    totals[r] = 0;
    for (uint c = 0; c < COLUMNS; c++)
      sums[c * N_ROWS + r] = 0;
  }
  barrier();
  if (id < N_ROWS)
    largest[id] = -INFINITY;
  uint turn = 0;
  for (uint p0 = begin; p0 < end; p0 += POSITIONS) {
    barrier();
    load_tile(k_cache, TYPE_K, HEAD_DIM, K_STRIDE, sequence, kv_head, p0, end);
    barrier();
    uint place = id % POSITIONS;
    for (uint row = id / POSITIONS; row < N_ROWS; row += WORKGROUP / POSITIONS) {
      int token = int(first + row / CHUNK);
      float score = -INFINITY;
      if (token >= low_token && token <= high_token && has_head(row, chunk))
        score = score_of(row, place, p0 + place, end, token + offset, context, kv_head, chunk);
      scores[row * POSITIONS + place] = score;
    }
    barrier();
    load_tile(v_cache, TYPE_V, VALUE_DIM, V_STRIDE, sequence, kv_head, p0, end);
    for (uint row = id / POSITIONS; row < N_ROWS; row += WORKGROUP / POSITIONS) {
      float maximum = largest[turn * N_ROWS + row];
      for (uint p = 0; p < POSITIONS; p++)
        maximum = max(maximum, scores[row * POSITIONS + p]);
      if (place == 0)
        largest[(1 - turn) * N_ROWS + row] = maximum;
    }
    barrier();
    for (uint row = id / POSITIONS; row < N_ROWS; row += WORKGROUP / POSITIONS) {
      float score = scores[row * POSITIONS + place];
      scores[row * POSITIONS + place] =
          score == -INFINITY ? 0.0 : exp(score - largest[(1 - turn) * N_ROWS + row]);
    }
    barrier();
    for (uint r = 0; r < N_ROWS; r++) {
      float before = largest[turn * N_ROWS + r];
      float shrink = before == -INFINITY ? 0.0 : exp(before - largest[(1 - turn) * N_ROWS + r]);
      totals[r] *= shrink;
      for (uint c = 0; c < COLUMNS; c++)
        sums[c * N_ROWS + r] *= shrink;
    }
    for (uint p = 0; p < POSITIONS; p++)
      for (uint c = 0; c < COLUMNS; c++) {
        uint column = id + c * WORKGROUP;
        float value = column < VALUE_DIM ? tile[p * V_STRIDE + column] : 0.0;
        for (uint r = 0; r < N_ROWS; r++) {
          float weight = scores[r * POSITIONS + p];
          sums[c * N_ROWS + r] = fma(weight, value, sums[c * N_ROWS + r]);
          if (c == 0)
            totals[r] += weight;
        }
      }
    turn = 1 - turn;
  }
  barrier();
  for (uint r = 0; r < N_ROWS; r++) {
    int token = int(first + r / CHUNK);
    if (token < low_token || token > high_token || !has_head(r, chunk))
      continue;
    if (id == 0)
      is_covered[r] = true;
    for (uint c = 0; c < COLUMNS; c++)
      if (id + c * WORKGROUP < VALUE_DIM)
        store_results(r, uint(token), head_of(r, kv_head, chunk), split,
                      largest[turn * N_ROWS + r], totals[r], id + c * WORKGROUP,
                      sums[c * N_ROWS + r]);
  }
}

void main() {
  uint group = group_index(), split = group % n_splits;
  group /= n_splits;
  uint chunk = group % N_CHUNKS, kv_head = group / N_CHUNKS % N_KV_HEADS;
  uint first = group / (N_CHUNKS * N_KV_HEADS) * N_TILE_TOKENS;
  if (first >= n_tokens)
    return;
  find_sequences(first);
  load_queries(first, kv_head, chunk);
  for (uint i = 0; i < min(n_found, N_ROWS); i++)
    attend(found[i], first, kv_head, chunk, split);
  barrier();
  /* Rows of no sequence are zero. */
  for (uint r = 0; r < N_ROWS; r++) {
    uint token = first + r / CHUNK;
    if (is_covered[r] || token >= n_tokens || !has_head(r, chunk))
      continue;
    for (uint column = gl_LocalInvocationID.x; column < VALUE_DIM; column += WORKGROUP)
      store_results(r, token, head_of(r, kv_head, chunk), split, -INFINITY, 0.0, column, 0.0);
  }
}
