/* Attention of prompts on matrix units (VK_KHR_cooperative_matrix): what paged_attention_matrix.comp and
 * paged_attention_fragments.comp share. Products of halves with sums in f32; scores, maxima and sums of
 * weights in f32.
 *
 * A workgroup of eight subgroups takes 128 rows: a few tokens next to each other times the query
 * heads that share one key head. Each subgroup keeps 16 rows, their queries and their results in
 * fragments. POSITIONS keys and values at a time go through shared memory, and while they are
 * worked on the next are on their way.
 *
 * Only positions that some row of the tile sees are read: others may hold anything. With
 * VECTOR_ROWS, four elements of every row of q and y lie at a multiple of their size. */
layout(constant_id = 1) const uint TYPE_Q = 0;
layout(constant_id = 2) const uint TYPE_Y = 0;
layout(constant_id = 3) const uint TYPE_K = 0;
layout(constant_id = 4) const uint TYPE_V = 0;
layout(constant_id = 5) const uint N_HEADS = 1;
layout(constant_id = 6) const uint N_KV_HEADS = 1;
layout(constant_id = 7) const uint PAGE_SIZE = 16;
layout(constant_id = 8) const uint CHUNK = 1; /* query heads of a workgroup */
layout(constant_id = 9) const uint IS_CAUSAL = 1;

/* As in paged_attention.comp. */
layout(push_constant) uniform Push {
  Rows q, y;
  uint64_t k_cache, v_cache, block_table, query_start, query_length, context_length, slopes, parts;
  uint n_tokens, n_sequences, n_blocks, window, n_splits;
  float scale, soft_cap;
};

#define SUBGROUP 32
#define N_WARPS (FIXED_WORKGROUP / SUBGROUP)
#define N_ROWS (16 * N_WARPS)
#define OCTETS (HEAD / 8)
/* Rows of shared memory in vectors of 16 bytes: one more keeps banks apart. */
#define STRIDE (HEAD / 8 + 1)
#define N_LOADS (POSITIONS * OCTETS / (N_WARPS * SUBGROUP)) /* of eight elements, an invocation */

const uint GROUP = N_HEADS / N_KV_HEADS, N_CHUNKS = (GROUP + CHUNK - 1) / CHUNK;
const uint N_TILE_TOKENS = N_ROWS / CHUNK;

shared uvec4 keys[POSITIONS * STRIDE], values[POSITIONS * STRIDE]; /* of halves */
shared uint found[N_ROWS], n_found;
shared bool is_covered[N_ROWS];

/* Rows of the tile: head j of token w is row w * CHUNK + j. */
uint head_of(uint row, uint kv_head, uint chunk) {
  return kv_head * GROUP + chunk * CHUNK + row % CHUNK;
}
bool has_head(uint row, uint chunk) {
  return row < N_TILE_TOKENS * CHUNK && chunk * CHUNK + row % CHUNK < GROUP;
}

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

uvec2 pack(vec4 v) {
  v = clamp(v, -65504.0, 65504.0);
  return uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw));
}

/* Elements 8 i to 8 i + 7 of a row of the cache: as they lie where they have 16 bits, so that nobody
 * waits for them yet, else as halves. */
uvec4 load_octet(uint64_t row, uint i, uint type) {
  if (type == FLOAT_F16 || type == FLOAT_BF16)
    return Words4(row).v[i];
  return uvec4(pack(load_cache(row, 8 * i, HEAD, type, true)),
               pack(load_cache(row, 8 * i + 4, HEAD, type, true)));
}

/* What load_octet() gave, as halves. */
uvec4 halves_of(uvec4 bits, uint type) {
  if (type != FLOAT_BF16)
    return bits;
  return uvec4(pack(uintBitsToFloat(uvec4(bits.x << 16, bits.x & 0xffff0000u, bits.y << 16,
                                          bits.y & 0xffff0000u))),
               pack(uintBitsToFloat(uvec4(bits.z << 16, bits.z & 0xffff0000u, bits.w << 16,
                                          bits.w & 0xffff0000u))));
}

uvec4 next_keys[N_LOADS], next_values[N_LOADS];

/* Positions p0 to end of a sequence's cache, zeros behind: one of N_LOADS parts of them. */
void fetch_part(uint u, uint sequence, uint kv_head, uint p0, uint end) {
  uint at = gl_LocalInvocationID.x + u * (N_WARPS * SUBGROUP), p = p0 + at / OCTETS;
  next_keys[u] = next_values[u] = uvec4(0);
  if (p < end) {
    uint page = uint(Ints(block_table).v[sequence * n_blocks + p / PAGE_SIZE]);
    uint64_t row = (uint64_t(page) * N_KV_HEADS + kv_head) * PAGE_SIZE + p % PAGE_SIZE;
    next_keys[u] = load_octet(k_cache + row * cache_row_bytes(TYPE_K, HEAD), at % OCTETS, TYPE_K);
    next_values[u] = load_octet(v_cache + row * cache_row_bytes(TYPE_V, HEAD), at % OCTETS, TYPE_V);
  }
}

void fetch(uint sequence, uint kv_head, uint p0, uint end) {
  [[unroll]] for (uint u = 0; u < N_LOADS; u++)
    fetch_part(u, sequence, kv_head, p0, end);
}

void put() {
  [[unroll]] for (uint u = 0; u < N_LOADS; u++) {
    uint at = gl_LocalInvocationID.x + u * (N_WARPS * SUBGROUP);
    uint to = at / OCTETS * STRIDE + at % OCTETS;
    keys[to] = halves_of(next_keys[u], TYPE_K);
    values[to] = halves_of(next_values[u], TYPE_V);
  }
}

#define FRAGMENT(USE) coopmat<float16_t, gl_ScopeSubgroup, 16, 16, USE>
#define SUMS coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>

/* Queries of this subgroup: through `keys`, half of the rows at a time. */
FRAGMENT(gl_MatrixUseA) queries[HEAD / 16];

void load_queries(uint first, uint kv_head, uint chunk) {
  uint warp = gl_SubgroupID;
  [[unroll]] for (uint part = 0; part < N_ROWS / POSITIONS; part++) {
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < POSITIONS * OCTETS; i += WORKGROUP) {
      uint r = part * POSITIONS + i / OCTETS, token = first + r / CHUNK;
      vec4 low = vec4(0), high = vec4(0);
      if (token < n_tokens && has_head(r, chunk)) {
        uint64_t from = row_of(q, token * N_HEADS + head_of(r, kv_head, chunk), N_HEADS);
#ifdef VECTOR_ROWS
        low = load_four(from, i % OCTETS * 2, TYPE_Q);
        high = load_four(from, i % OCTETS * 2 + 1, TYPE_Q);
#else
        for (uint j = 0; j < 4; j++) {
          low[j] = load_element(from, i % OCTETS * 8 + j, TYPE_Q);
          high[j] = load_element(from, i % OCTETS * 8 + 4 + j, TYPE_Q);
        }
#endif
      }
      keys[i / OCTETS * STRIDE + i % OCTETS] = uvec4(pack(low), pack(high));
    }
    barrier();
    if (warp / (POSITIONS / 16) == part)
      [[unroll]] for (uint d = 0; d < HEAD / 16; d++)
        coopMatLoad(queries[d], keys, warp % (POSITIONS / 16) * 16 * STRIDE + 2 * d,
                    STRIDE, gl_CooperativeMatrixLayoutRowMajor);
  }
  barrier();
}

/* The score of a product of a query and a key; -infinity where the position is not seen. */
float score_of(float product, int p, int seen_from, int seen_to, int position, float slope) {
  if (p < seen_from || p >= seen_to)
    return -INFINITY;
  float score = product * scale;
  if (soft_cap > 0.0)
    score = soft_cap * tanh_of(score / soft_cap);
  return score + slope * float(p - position);
}

void store_results(uint token, uint head, uint split, float maximum, float total, uint column,
                   float value) {
  if (n_splits == 1) {
    store_element(row_of(y, token * N_HEADS + head, N_HEADS), column, TYPE_Y,
                  total > 0.0 ? value / total : 0.0);
    return;
  }
  uint64_t part =
      parts + uint64_t((token * N_HEADS + head) * n_splits + split) * ((HEAD + 2) * 4);
  if (column == 0) {
    Floats(part).v[0] = maximum;
    Floats(part).v[1] = total;
  }
  Floats(part).v[2 + column] = value;
}
