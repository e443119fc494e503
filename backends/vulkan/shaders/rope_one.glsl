/* Of paged_attention_one.comp with ROPE: operands, rope of the token's heads, and how the workgroup
 * that is done last is found. vulkan_launch_rope_attention() fills them in. */
layout(constant_id = 11) const uint INTERLEAVED = 0;
layout(constant_id = 12) const uint N_PAIRS = 1;
layout(constant_id = 13) const float magnitude = 1;
layout(constant_id = 14) const float scale = 1;
layout(constant_id = 15) const float soft_cap = 0;

/* Rows of activations and integers are told by the words that lie before them after a first one:
 * addresses of all would not fit. All rows are dense. */
layout(push_constant) uniform Push {
  uint64_t first_row, first_integer, frequencies, k_cache, v_cache, parts, arrivals;
  uint q_at, k_at, v_at, turned_q_at, turned_k_at, y_at;
  uint positions_at, slots_at, block_table_at, query_start_at, query_length_at, context_length_at;
  uint n_blocks, n_slots, window, n_splits;
};
#define block_table (first_integer + uint64_t(block_table_at) * 4)
#define query_start (first_integer + uint64_t(query_start_at) * 4)
#define query_length (first_integer + uint64_t(query_length_at) * 4)
#define context_length (first_integer + uint64_t(context_length_at) * 4)
/* Entries of positions that nobody sees, which may hold anything, are looked up as well. */
#define page_of(entry) min(uint(entry), n_slots / PAGE_SIZE - 1)
const uint n_tokens = 1, n_sequences = 1;
const uint PART = 64; /* positions, ROPE_POSITIONS of attention.c: parts are no shorter */

/* What one workgroup writes and another reads while both run. */
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Parts { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Arrivals { uint v[]; };

/* The queries of this workgroup, their key and value; queries and key are turned. */
shared float own_heads[(CHUNK + 2) * HEAD_DIM];
shared uint n_arrived;
const uint MOST_PARTS = 32; /* MAX_SPLITS of attention.c */
shared vec2 part_totals[CHUNK * MOST_PARTS]; /* largest score, sum of weights */

/* Of the n_splits that the launch has workgroups for, those in use: to join parts takes as long as
 * another PART positions do. */
uint n_parts = 1;
void choose_parts(uint length) {
  n_parts = length <= 2 * PART ? 1 : min((length + PART - 1) / PART, n_splits);
}

uint64_t part_of(uint head, uint part) {
  return parts + uint64_t(head * n_parts + part) * ((HEAD_DIM + 2) * 4);
}

uint64_t head_row(uint at, uint head) {
  return first_row + uint64_t(at) * 4 + head * (HEAD_DIM * (TYPE_Q == FLOAT_F32 ? 4 : 2));
}

/* Where head `i` of own_heads comes from. */
uint64_t own_row(uint kv_head, uint chunk, uint i) {
  return i < CHUNK    ? head_row(q_at, min(kv_head * GROUP + chunk * CHUNK + i, N_HEADS - 1))
         : i == CHUNK ? head_row(k_at, kv_head)
                      : head_row(v_at, kv_head);
}

/* What rotation needs, asked for before anything else is waited for. */
const uint N_TURNS = (CHUNK + 1) * N_PAIRS, OWN_TURNS = (N_TURNS + WORKGROUP - 1) / WORKGROUP;
const uint OWN_VALUES = (HEAD_DIM + WORKGROUP - 1) / WORKGROUP;
vec2 pairs[OWN_TURNS];
float pair_frequencies[OWN_TURNS], own_values[OWN_VALUES];

uint first_of(uint pair) { return INTERLEAVED != 0 ? 2 * pair : pair; }
uint second_of(uint pair) { return INTERLEAVED != 0 ? 2 * pair + 1 : pair + N_PAIRS; }

void ask_for_heads(uint kv_head, uint chunk) {
  [[unroll]] for (uint own = 0; own < OWN_TURNS; own++) {
    uint i = min(own * WORKGROUP + gl_LocalInvocationID.x, N_TURNS - 1), pair = i % N_PAIRS;
    uint64_t from = own_row(kv_head, chunk, i / N_PAIRS);
    pairs[own] = vec2(load_element(from, first_of(pair), TYPE_Q),
                      load_element(from, second_of(pair), TYPE_Q));
    pair_frequencies[own] = Floats(frequencies).v[pair];
  }
  uint64_t value = own_row(kv_head, chunk, CHUNK + 1);
  [[unroll]] for (uint own = 0; own < OWN_VALUES; own++) {
    uint i = min(own * WORKGROUP + gl_LocalInvocationID.x, HEAD_DIM - 1);
    own_values[own] = load_element(value, i, TYPE_Q);
  }
}

void turn_heads(uint kv_head, uint chunk, float position) {
  const uint n_kept = HEAD_DIM - 2 * N_PAIRS;
  [[unroll]] for (uint own = 0; own < OWN_TURNS; own++) {
    uint i = own * WORKGROUP + gl_LocalInvocationID.x, pair = i % N_PAIRS;
    uint head = i / N_PAIRS * HEAD_DIM;
    if (N_TURNS % WORKGROUP != 0 && i >= N_TURNS)
      continue;
    precise float angle = position * pair_frequencies[own];
    vec2 turn = cosine_sine(angle) * magnitude, old = pairs[own];
    own_heads[head + first_of(pair)] = old.x * turn.x - old.y * turn.y;
    own_heads[head + second_of(pair)] = old.x * turn.y + old.y * turn.x;
  }
  for (uint i = gl_LocalInvocationID.x; i < (CHUNK + 1) * n_kept; i += WORKGROUP) {
    uint head = i / n_kept, e = 2 * N_PAIRS + i % n_kept;
    own_heads[head * HEAD_DIM + e] = load_element(own_row(kv_head, chunk, head), e, TYPE_Q);
  }
  [[unroll]] for (uint own = 0; own < OWN_VALUES; own++) {
    uint i = own * WORKGROUP + gl_LocalInvocationID.x;
    if (HEAD_DIM % WORKGROUP == 0 || i < HEAD_DIM)
      own_heads[(CHUNK + 1) * HEAD_DIM + i] = own_values[own];
  }
  barrier();
}

vec4 own_four(uint head, uint quad) {
  uint at = head * HEAD_DIM + 4 * quad;
  return vec4(own_heads[at], own_heads[at + 1], own_heads[at + 2], own_heads[at + 3]);
}

/* As a cache of that type holds it. */
vec4 as_cached(vec4 values, uint type) {
  if (type == FLOAT_F32)
    return values;
  for (uint e = 0; e < 4; e++)
    values[e] = type == FLOAT_F16 ? half_to_float(float_to_half(values[e]))
                                  : uintBitsToFloat(float_to_bfloat(values[e]) << 16);
  return values;
}

/* Rows of the caches that the token's key and value go to, counted as block_table does; -1: none. */
int64_t slot_row(uint kv_head, int slot) {
  if (slot < 0 || slot >= n_slots)
    return -1;
  uint page = uint(slot) / PAGE_SIZE;
  return int64_t((uint64_t(page) * N_KV_HEADS + kv_head) * PAGE_SIZE + uint(slot) % PAGE_SIZE);
}

void write_cache(int64_t row) {
  uint64_t key = k_cache + uint64_t(row) * cache_row_bytes(TYPE_K, HEAD_DIM);
  uint64_t value = v_cache + uint64_t(row) * cache_row_bytes(TYPE_V, HEAD_DIM);
  for (uint i = gl_LocalInvocationID.x; i < HEAD_DIM; i += WORKGROUP) {
    store_element(key, i, TYPE_K, own_heads[CHUNK * HEAD_DIM + i]);
    store_element(value, i, TYPE_V, own_heads[(CHUNK + 1) * HEAD_DIM + i]);
  }
}

/* Whether all other parts of this workgroup's heads are there, so that it may join them and write
 * over what they read. The count is left at 0, as it was found. */
bool is_last(uint heads) {
  if (n_parts == 1)
    return true;
  memoryBarrierBuffer();
  barrier();
  if (gl_LocalInvocationID.x == 0) {
    n_arrived = atomicAdd(Arrivals(arrivals).v[heads], 1) + 1;
    if (n_arrived == n_parts)
      Arrivals(arrivals).v[heads] = 0;
  }
  barrier();
  memoryBarrierBuffer();
  return n_arrived == n_parts;
}

void write_turned(uint kv_head, uint chunk) {
  for (uint i = gl_LocalInvocationID.x; i < (CHUNK + 1) * HEAD_DIM; i += WORKGROUP) {
    uint j = i / HEAD_DIM, head = kv_head * GROUP + chunk * CHUNK + j;
    if (j == CHUNK && chunk == 0)
      store_element(head_row(turned_k_at, kv_head), i % HEAD_DIM, TYPE_Q, own_heads[i]);
    else if (j < CHUNK && chunk * CHUNK + j < GROUP)
      store_element(head_row(turned_q_at, head), i % HEAD_DIM, TYPE_Q, own_heads[i]);
  }
}

/* As paged_attention_join.comp: what each part weighs, then four elements an invocation. */
void join_parts(uint kv_head, uint chunk) {
  uint first_head = kv_head * GROUP + chunk * CHUNK;
  for (uint i = gl_LocalInvocationID.x; i < CHUNK * n_parts; i += WORKGROUP) {
    uint j = i / n_parts, part = i % n_parts;
    uint64_t from = part_of(min(first_head + j, N_HEADS - 1), part);
    part_totals[j * MOST_PARTS + part] = vec2(Parts(from).v[0], Parts(from).v[1]);
  }
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < CHUNK * HEAD_DIM / 4; i += WORKGROUP) {
    uint j = i / (HEAD_DIM / 4), quad = i % (HEAD_DIM / 4);
    if (chunk * CHUNK + j >= GROUP)
      continue;
    float largest = -INFINITY, total = 0;
    for (uint s = 0; s < n_parts; s++)
      largest = max(largest, part_totals[j * MOST_PARTS + s].x);
    float shift = largest == -INFINITY ? 0.0 : largest;
    vec4 sum = vec4(0);
    for (uint s = 0; s < n_parts; s++) {
      uint64_t from = part_of(first_head + j, s);
      vec4 value;
      for (uint e = 0; e < 4; e++)
        value[e] = Parts(from).v[2 + 4 * quad + e];
      float weight = exp(part_totals[j * MOST_PARTS + s].x - shift);
      total += weight * part_totals[j * MOST_PARTS + s].y;
      sum += weight * value;
    }
    sum = total > 0.0 ? sum / total : vec4(0);
    for (uint e = 0; e < 4; e++)
      store_element(head_row(y_at, first_head + j), 4 * quad + e, TYPE_Y, sum[e]);
  }
}
