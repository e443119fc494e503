/* Ops on paged caches: kv_write, paged_attention. */
#include "backends/vulkan/fusion.h"
#include "backends/vulkan/ops.h"
#include <math.h>
#include <string.h>

enum {
  WRITE_WORKGROUP = 32,
  WORKGROUP = 128,
  JOIN_WORKGROUP = 64,
  MAX_HEAD_DIM = 256,
  MAX_ROWS = 16,       /* of a workgroup: tokens times query heads of one key head */
  MAX_CHUNK = 8,       /* query heads of a workgroup */
  WANTED_GROUPS = 512, /* contexts are cut up until so many workgroups are there */
  MAX_SPLITS = 32,
  ONE_CHUNK = 4,        /* paged_attention_one.comp */
  ONE_POSITIONS = 32,   /* that a workgroup takes at a time */
  ROPE_WORKGROUP = 512, /* with rope, of one token: heads are few, so each has more invocations */
  ROPE_CHUNK = 2,
  ROPE_GROUPS = 128,   /* all of them at once */
  ROPE_POSITIONS = 64, /* PART of shaders/rope_one.glsl */
  MATRIX_ROWS = 128,   /* paged_attention_matrix.comp */
  MATRIX_WORKGROUP = 256,
  MATRIX_POSITIONS = 32,
  MATRIX_GROUPS = 256
};

enum { Q, K_CACHE, V_CACHE, BLOCK_TABLE, QUERY_START, QUERY_LENGTH, CONTEXT_LENGTH, ALIBI_SLOPES };

/* As in shaders/cache.glsl. */
static uint32_t cache_type_of(const iso_tensor *cache) {
  return cache->scheme == ISO_SCHEME_Q8_0      ? 3
         : cache->scheme == ISO_SCHEME_F8_G128 ? 4
                                               : vulkan_type_of(cache);
}

static VULKAN_LAUNCH(kv_write_alone) {
  const iso_tensor *k = &arguments->inputs[0], *v = &arguments->inputs[1];
  const iso_tensor *k_cache = &arguments->inputs[3], *v_cache = &arguments->inputs[4];
  struct {
    vulkan_rows k, v;
    uint64_t slots, k_cache, v_cache;
    uint32_t n_tokens, n_heads, page_size, head_dim, value_dim, n_slots;
  } push = {.k = vulkan_rows_of(k),
            .v = vulkan_rows_of(v),
            .slots = vulkan_address(&arguments->inputs[2]),
            .k_cache = vulkan_address(k_cache),
            .v_cache = vulkan_address(v_cache),
            .n_tokens = (uint32_t)k->dims[0],
            .n_heads = (uint32_t)k->dims[1],
            .page_size = (uint32_t)k_cache->dims[2],
            .head_dim = (uint32_t)k->dims[2],
            .value_dim = (uint32_t)v->dims[2],
            .n_slots = (uint32_t)(k_cache->dims[0] * k_cache->dims[2])};
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_kv_write,
                              .constants = {WRITE_WORKGROUP, vulkan_type_of(k), vulkan_type_of(v),
                                            cache_type_of(k_cache), cache_type_of(v_cache)},
                              .n_constants = 5,
                              .push = &push,
                              .push_bytes = sizeof push};
  vulkan_split_groups((uint64_t)push.n_tokens * push.n_heads * 2, dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}

VULKAN_LAUNCH(vulkan_kv_write) { return vulkan_defer(queue, arguments, kv_write_alone); }

/* ---- Attention ----------------------------------------------------------------------------- */

/* How the work of one launch is shared out. */
typedef struct attention_tiling {
  uint32_t chunk, n_chunks; /* query heads of a workgroup; chunks of a key head */
  uint32_t n_tokens;        /* tokens of a workgroup */
  uint32_t positions;       /* of a tile */
  uint32_t n_splits;        /* parts of a context */
  uint64_t n_groups;
} attention_tiling;

/* Cuts contexts up until there are `wanted` workgroups, or parts have `least` positions. */
static void plan_splits(const iso_op_arguments *arguments, uint32_t wanted, uint32_t least,
                        attention_tiling *tiling) {
  const iso_tensor *q = &arguments->inputs[Q], *k = &arguments->inputs[K_CACHE];
  uint64_t n_blocks = (uint64_t)arguments->inputs[BLOCK_TABLE].dims[1];
  uint64_t n_groups = (uint64_t)vulkan_ceil_div((uint64_t)q->dims[0], tiling->n_tokens) *
                      (uint64_t)k->dims[1] * tiling->n_chunks;
  uint64_t most = vulkan_ceil_div(n_blocks * (uint64_t)k->dims[2], least);
  uint64_t splits = n_groups ? wanted / n_groups : 1;
  splits = splits < most ? splits : most;
  tiling->n_splits = splits < 1 ? 1 : splits > MAX_SPLITS ? MAX_SPLITS : (uint32_t)splits;
  tiling->n_groups = n_groups * tiling->n_splits;
}

static attention_tiling plan_tiling(const iso_op_arguments *arguments) {
  const iso_tensor *q = &arguments->inputs[Q], *k = &arguments->inputs[K_CACHE];
  const iso_tensor *v = &arguments->inputs[V_CACHE], *table = &arguments->inputs[BLOCK_TABLE];
  uint32_t group = (uint32_t)(q->dims[1] / k->dims[1]);
  bool is_wide = k->dims[3] > 128 || v->dims[3] > 128; /* shared memory holds half as many rows */
  attention_tiling tiling = {.chunk = group < MAX_CHUNK ? group : MAX_CHUNK,
                             .positions = is_wide ? 16 : 32,
                             .n_tokens = 1};
  uint32_t most_rows = is_wide ? MAX_ROWS / 2 : MAX_ROWS;
  if (q->dims[0] > 2 * table->dims[0]) /* prefill: sequences have many tokens */
    tiling.n_tokens = most_rows / tiling.chunk;
  tiling.n_chunks = vulkan_ceil_div(group, tiling.chunk);
  plan_splits(arguments, WANTED_GROUPS, 4 * tiling.positions, &tiling);
  return tiling;
}

/* However many tokens there are, groups that are cut up number at most WANTED_GROUPS. */
uint64_t vulkan_attention_workspace(const iso_device *device, const iso_op_arguments *arguments) {
  (void)device;
  uint64_t value_dim = (uint64_t)arguments->inputs[V_CACHE].dims[3];
  return (uint64_t)WANTED_GROUPS * MAX_ROWS * (value_dim + 2) * sizeof(float);
}

iso_refusal vulkan_check_attention(const iso_device *device, const iso_op_arguments *arguments,
                                   const char **out_detail) {
  if (arguments->inputs[K_CACHE].dims[3] > MAX_HEAD_DIM ||
      arguments->inputs[V_CACHE].dims[3] > MAX_HEAD_DIM) {
    *out_detail = "heads of more than 256 elements";
    return ISO_REFUSED_SHAPE;
  }
  return vulkan_check_rows(device, arguments, out_detail);
}

static iso_status join(iso_queue *queue, const iso_op_arguments *arguments, uint64_t parts,
                       uint32_t n_splits) {
  const iso_tensor *y = &arguments->outputs[0];
  vulkan_sizes sizes = vulkan_sizes_of(y);
  struct {
    vulkan_rows y;
    uint64_t parts;
    uint32_t n_rows, n_heads, value_dim, n_splits;
  } push = {.y = vulkan_rows_of(y),
            .parts = parts,
            .n_rows = sizes.n_rows,
            .n_heads = sizes.inner_rows,
            .value_dim = sizes.n_columns,
            .n_splits = n_splits};
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_paged_attention_join,
                              .constants = {JOIN_WORKGROUP, vulkan_type_of(y)},
                              .n_constants = 2,
                              .push = &push,
                              .push_bytes = sizeof push};
  vulkan_split_groups(sizes.n_rows, dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}

static bool is_vector_cache(const iso_tensor *cache) {
  return cache->dims[3] % 4 == 0 && vulkan_address(cache) % 16 == 0;
}

typedef struct attention_push {
  vulkan_rows q, y;
  uint64_t k_cache, v_cache, block_table, query_start, query_length, context_length, slopes;
  uint64_t parts;
  uint32_t n_tokens, n_sequences, n_blocks, window, n_splits;
  float scale, soft_cap;
} attention_push;

static const uint32_t ATTENTION_PUSH_BYTES = offsetof(attention_push, soft_cap) + sizeof(float);

static float scale_of(const iso_op_arguments *arguments) {
  const iso_paged_attention_attributes *attributes = arguments->attributes;
  return attributes->scale != 0 ? attributes->scale
                                : 1 / sqrtf((float)arguments->inputs[K_CACHE].dims[3]);
}

static attention_push describe(const iso_op_arguments *arguments, uint32_t n_splits) {
  const iso_paged_attention_attributes *attributes = arguments->attributes;
  const iso_tensor *inputs = arguments->inputs, *q = &inputs[Q], *k = &inputs[K_CACHE];
  attention_push push = {.q = vulkan_rows_of(q),
                         .y = vulkan_rows_of(&arguments->outputs[0]),
                         .k_cache = vulkan_address(k),
                         .v_cache = vulkan_address(&inputs[V_CACHE]),
                         .block_table = vulkan_address(&inputs[BLOCK_TABLE]),
                         .query_start = vulkan_address(&inputs[QUERY_START]),
                         .query_length = vulkan_address(&inputs[QUERY_LENGTH]),
                         .context_length = vulkan_address(&inputs[CONTEXT_LENGTH]),
                         .n_tokens = (uint32_t)q->dims[0],
                         .n_sequences = (uint32_t)inputs[BLOCK_TABLE].dims[0],
                         .n_blocks = (uint32_t)inputs[BLOCK_TABLE].dims[1],
                         .window = attributes->window,
                         .n_splits = n_splits,
                         .scale = scale_of(arguments),
                         .soft_cap = attributes->soft_cap};
  if (arguments->n_inputs > ALIBI_SLOPES)
    push.slopes = vulkan_address(&inputs[ALIBI_SLOPES]);
  if (n_splits > 1)
    push.parts = arguments->workspace->address + arguments->workspace_offset;
  return push;
}

/* Enqueues the dispatch, and what brings the parts of a context together. */
static iso_status attend(iso_queue *queue, const iso_op_arguments *arguments,
                         const attention_tiling *tiling, vulkan_dispatch *dispatch) {
  attention_push push = describe(arguments, tiling->n_splits);
  dispatch->push = &push;
  dispatch->push_bytes = ATTENTION_PUSH_BYTES;
  vulkan_split_groups(tiling->n_groups, dispatch->groups);
  ISO_TRY(vulkan_enqueue_op(queue, arguments, dispatch));
  return tiling->n_splits > 1 && push.n_tokens > 0
             ? join(queue, arguments, push.parts, tiling->n_splits)
             : ISO_OK;
}

/* Whether paged_attention_one.comp takes the heads: teams of invocations lie within subgroups. */
static bool fits_one(const iso_device *device, const iso_op_arguments *arguments) {
  const iso_tensor *k = &arguments->inputs[K_CACHE], *v = &arguments->inputs[V_CACHE];
  uint32_t lanes = (uint32_t)k->dims[3] / 8;
  return device->facts.has_shuffle && v->dims[3] == k->dims[3] && k->dims[3] % 8 == 0 &&
         lanes > 0 && (lanes & (lanes - 1)) == 0 && lanes <= device->facts.subgroup_width &&
         arguments->inputs[BLOCK_TABLE].dims[0] > 0 && is_vector_cache(k) && is_vector_cache(v);
}

/* Of paged_attention_one.comp: at most `most` query heads to a workgroup; see plan_splits(). */
static attention_tiling plan_one(const iso_op_arguments *arguments, uint32_t most, uint32_t wanted,
                                 uint32_t least) {
  uint32_t group = (uint32_t)(arguments->inputs[Q].dims[1] / arguments->inputs[K_CACHE].dims[1]);
  attention_tiling tiling = {
      .chunk = group < most ? group : most, .positions = ONE_POSITIONS, .n_tokens = 1};
  tiling.n_chunks = vulkan_ceil_div(group, tiling.chunk);
  plan_splits(arguments, wanted, least, &tiling);
  return tiling;
}

static iso_status attend_one(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_paged_attention_attributes *attributes = arguments->attributes;
  const iso_tensor *q = &arguments->inputs[Q], *k = &arguments->inputs[K_CACHE];
  const iso_tensor *v = &arguments->inputs[V_CACHE], *y = &arguments->outputs[0];
  attention_tiling tiling = plan_one(arguments, ONE_CHUNK, WANTED_GROUPS, 4 * ONE_POSITIONS);
  vulkan_dispatch dispatch = {
      .shader = VULKAN_SHADER_paged_attention_one,
      .constants = {WORKGROUP, vulkan_type_of(q), vulkan_type_of(y), cache_type_of(k),
                    cache_type_of(v), (uint32_t)k->dims[3], (uint32_t)q->dims[1],
                    (uint32_t)k->dims[1], (uint32_t)k->dims[2], tiling.chunk, attributes->causal},
      .n_constants = 11};
  return attend(queue, arguments, &tiling, &dispatch);
}

/* ---- One token, from rope on ------------------------------------------------------------------
 */

typedef struct rope_attention_push {
  uint64_t first_row, first_integer, frequencies, k_cache, v_cache, parts, arrivals;
  uint32_t q, k, v, turned_q, turned_k, y;
  uint32_t positions, slots, block_table, query_start, query_length, context_length;
  uint32_t n_blocks, n_slots, window, n_splits;
} rope_attention_push;

/* Tells addresses by the words between the lowest of them and each. False where one is too far. */
static bool tell_near(const uint64_t *addresses, uint32_t n, uint64_t *out_first, uint32_t *out) {
  *out_first = addresses[0];
  for (uint32_t i = 1; i < n; i++)
    *out_first = addresses[i] < *out_first ? addresses[i] : *out_first;
  for (uint32_t i = 0; i < n; i++) {
    uint64_t distance = addresses[i] - *out_first;
    if (distance % 4 != 0 || distance / 4 > UINT32_MAX)
      return false;
    out[i] = (uint32_t)(distance / 4);
  }
  return true;
}

static bool describe_rope(const iso_op_arguments *rope_q, const iso_op_arguments *rope_k,
                          const iso_op_arguments *write, const iso_op_arguments *attention,
                          rope_attention_push *out_push) {
  const iso_tensor *inputs = attention->inputs, *k_cache = &inputs[K_CACHE];
  uint64_t rows[] = {
      vulkan_address(&rope_q->inputs[0]),  vulkan_address(&rope_k->inputs[0]),
      vulkan_address(&write->inputs[1]),   vulkan_address(&rope_q->outputs[0]),
      vulkan_address(&rope_k->outputs[0]), vulkan_address(&attention->outputs[0]),
  };
  uint64_t integers[] = {
      vulkan_address(&rope_q->inputs[1]),    vulkan_address(&write->inputs[2]),
      vulkan_address(&inputs[BLOCK_TABLE]),  vulkan_address(&inputs[QUERY_START]),
      vulkan_address(&inputs[QUERY_LENGTH]), vulkan_address(&inputs[CONTEXT_LENGTH]),
  };
  const iso_paged_attention_attributes *attributes = attention->attributes;
  *out_push = (rope_attention_push){.frequencies = vulkan_address(&rope_q->inputs[2]),
                                    .k_cache = vulkan_address(k_cache),
                                    .v_cache = vulkan_address(&inputs[V_CACHE]),
                                    .n_blocks = (uint32_t)inputs[BLOCK_TABLE].dims[1],
                                    .n_slots = (uint32_t)(k_cache->dims[0] * k_cache->dims[2]),
                                    .window = attributes->window};
  return tell_near(rows, 6, &out_push->first_row, &out_push->q) &&
         tell_near(integers, 6, &out_push->first_integer, &out_push->positions);
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static iso_status attend_alone(iso_queue *queue, const iso_op_arguments *arguments);

/* Parts of all heads, and a counter for each workgroup's heads where there are several parts. */
_Static_assert(WANTED_GROUPS *ONE_CHUNK *(MAX_HEAD_DIM + 2) * sizeof(float) <= VULKAN_PARTS_BYTES &&
                   WANTED_GROUPS / 2 <= VULKAN_ARRIVALS,
               "room for all parts");

/* The shader keeps eight floats of each head an invocation, and the heads themselves. */
static uint32_t choose_rope_workgroup(const iso_device *device, const iso_tensor *k_cache) {
  uint32_t head_dim = (uint32_t)k_cache->dims[3], workgroup = ROPE_WORKGROUP;
  uint32_t n_teams = workgroup / (head_dim < 8 ? 1 : head_dim / 8);
  uint32_t n_floats =
      ROPE_CHUNK * (8 * workgroup + 2 * n_teams + 2 * MAX_SPLITS) + (ROPE_CHUNK + 2) * head_dim + 1;
  return workgroup <= device->facts.most_invocations &&
                 n_floats * sizeof(float) <= device->facts.shared_bytes
             ? workgroup
             : workgroup / 2;
}

iso_status vulkan_launch_rope_attention(iso_queue *queue, const iso_op_arguments *rope_q,
                                        const iso_op_arguments *rope_k,
                                        const iso_op_arguments *write,
                                        const iso_op_arguments *attention) {
  const iso_device *device = vulkan_queue_device(queue);
  const iso_rope_attributes *rope = rope_q->attributes;
  const iso_paged_attention_attributes *attributes = attention->attributes;
  const iso_tensor *q = &attention->inputs[Q], *k = &attention->inputs[K_CACHE];
  /* A key that is turned in place is read by its own workgroups alone, so they take more heads. */
  bool is_in_place = vulkan_address(&rope_k->inputs[0]) == vulkan_address(&rope_k->outputs[0]);
  uint32_t workgroup = is_in_place ? WORKGROUP : choose_rope_workgroup(device, k);
  /* To join parts takes no dispatch here, so they may be short. */
  attention_tiling tiling = is_in_place
                                ? plan_one(attention, ONE_CHUNK, WANTED_GROUPS, ROPE_POSITIONS)
                                : plan_one(attention, ROPE_CHUNK, ROPE_GROUPS, ROPE_POSITIONS);
  rope_attention_push push;
  bool writes_once = tiling.n_chunks == 1 || !is_in_place;
  if (!fits_one(device, attention) || !writes_once || !vulkan_queue_arrivals(queue) ||
      !describe_rope(rope_q, rope_k, write, attention, &push)) {
    ISO_TRY(vulkan_launch_rope_kv_write(queue, rope_q, rope_k, write));
    return attend_alone(queue, attention);
  }
  const uint64_t counters = VULKAN_ARRIVALS * sizeof(uint32_t);
  push.arrivals = vulkan_queue_arrivals(queue);
  push.parts = push.arrivals + counters;
  push.n_splits = tiling.n_splits;
  vulkan_access accesses[4 * VULKAN_MAX_ACCESSES + 1];
  uint32_t n = vulkan_accesses_of(rope_q, accesses);
  n += vulkan_accesses_of(rope_k, accesses + n);
  n += vulkan_accesses_of(write, accesses + n);
  n += vulkan_accesses_of(attention, accesses + n);
  accesses[n++] = (vulkan_access){push.arrivals, counters + VULKAN_PARTS_BYTES, true};
  vulkan_dispatch dispatch = {
      .shader = VULKAN_SHADER_rope_attention,
      .constants = {workgroup, vulkan_type_of(q), vulkan_type_of(&attention->outputs[0]),
                    cache_type_of(k), cache_type_of(&attention->inputs[V_CACHE]),
                    (uint32_t)k->dims[3], (uint32_t)q->dims[1], (uint32_t)k->dims[1],
                    (uint32_t)k->dims[2], tiling.chunk, attributes->causal, rope->interleaved,
                    (uint32_t)rope_q->inputs[2].dims[0], bits_of(rope->magnitude),
                    bits_of(scale_of(attention)), bits_of(attributes->soft_cap)},
      .n_constants = 16,
      .push = &push,
      .push_bytes = sizeof push,
      .accesses = accesses,
      .n_accesses = n};
  vulkan_split_groups(tiling.n_groups, dispatch.groups);
  return vulkan_enqueue(queue, &dispatch);
}

/* ---- Any number of tokens ----------------------------------------------------------------------
 */

static VULKAN_LAUNCH(attend_alone) {
  const iso_paged_attention_attributes *attributes = arguments->attributes;
  const iso_tensor *q = &arguments->inputs[Q], *k = &arguments->inputs[K_CACHE];
  const iso_tensor *v = &arguments->inputs[V_CACHE], *y = &arguments->outputs[0];
  attention_tiling tiling = plan_tiling(arguments);
  if (tiling.n_tokens == 1 && fits_one(vulkan_queue_device(queue), arguments))
    return attend_one(queue, arguments);
  vulkan_dispatch dispatch = {
      .shader = VULKAN_SHADER_paged_attention,
      .constants = {WORKGROUP, vulkan_type_of(q), vulkan_type_of(y), cache_type_of(k),
                    cache_type_of(v), (uint32_t)k->dims[3], (uint32_t)v->dims[3],
                    (uint32_t)q->dims[1], (uint32_t)k->dims[1], (uint32_t)k->dims[2], tiling.chunk,
                    tiling.chunk * tiling.n_tokens, tiling.positions, attributes->causal,
                    is_vector_cache(k) && is_vector_cache(v)},
      .n_constants = 15};
  return attend(queue, arguments, &tiling, &dispatch);
}

VULKAN_LAUNCH(vulkan_paged_attention) { return vulkan_defer(queue, arguments, attend_alone); }

/* ---- Prompts on matrix units ----------------------------------------------------------------- */

static attention_tiling plan_matrix_tiling(const iso_op_arguments *arguments) {
  uint32_t group = (uint32_t)(arguments->inputs[Q].dims[1] / arguments->inputs[K_CACHE].dims[1]);
  attention_tiling tiling = {.chunk = group < MAX_CHUNK ? group : MAX_CHUNK,
                             .positions = MATRIX_POSITIONS};
  tiling.n_tokens = MATRIX_ROWS / tiling.chunk;
  tiling.n_chunks = vulkan_ceil_div(group, tiling.chunk);
  plan_splits(arguments, MATRIX_GROUPS, 4 * tiling.positions, &tiling);
  return tiling;
}

uint64_t vulkan_attention_matrix_workspace(const iso_device *device,
                                           const iso_op_arguments *arguments) {
  (void)device;
  uint64_t value_dim = (uint64_t)arguments->inputs[V_CACHE].dims[3];
  return (uint64_t)MATRIX_GROUPS * MATRIX_ROWS * (value_dim + 2) * sizeof(float);
}

static bool is_half(iso_scheme scheme) {
  return scheme == ISO_SCHEME_F16 || scheme == ISO_SCHEME_BF16;
}

/* Caches of f32 keep products of f32: halves would lose what they hold. */
iso_refusal vulkan_check_attention_matrix(const iso_device *device,
                                          const iso_op_arguments *arguments,
                                          const char **out_detail) {
  const iso_tensor *q = &arguments->inputs[Q], *k = &arguments->inputs[K_CACHE];
  const iso_tensor *v = &arguments->inputs[V_CACHE];
  if (!device->facts.has_matrix) {
    *out_detail = "the device has no matrix units that Vulkan shows, or they are not asked for";
    return ISO_REFUSED_DEVICE;
  }
  if ((k->dims[3] != 64 && k->dims[3] != 128) || v->dims[3] != k->dims[3]) {
    *out_detail = "heads are not of 64 or 128 elements";
    return ISO_REFUSED_SHAPE;
  }
  if (k->scheme == ISO_SCHEME_F32 || v->scheme == ISO_SCHEME_F32) {
    *out_detail = "caches of f32 are multiplied in f32";
    return ISO_REFUSED_SCHEME;
  }
  /* Large scores would tell. Codes of 8 bits have lost far more. */
  if (q->scheme == ISO_SCHEME_F32 && (is_half(k->scheme) || is_half(v->scheme))) {
    *out_detail = "queries would be rounded to f16";
    return ISO_REFUSED_ACTIVATION;
  }
  if (q->dims[0] <= 2 * arguments->inputs[BLOCK_TABLE].dims[0]) {
    *out_detail = "sequences have too few tokens";
    return ISO_REFUSED_SHAPE;
  }
  if ((k->buffer && !is_vector_cache(k)) || (v->buffer && !is_vector_cache(v))) {
    *out_detail = "caches do not start at 16 bytes";
    return ISO_REFUSED_STRIDE;
  }
  return vulkan_check_rows(device, arguments, out_detail);
}

VULKAN_LAUNCH(vulkan_paged_attention_matrix) {
  const iso_paged_attention_attributes *attributes = arguments->attributes;
  const iso_tensor *q = &arguments->inputs[Q], *k = &arguments->inputs[K_CACHE];
  const iso_tensor *v = &arguments->inputs[V_CACHE], *y = &arguments->outputs[0];
  static const vulkan_shader shaders[2][3] = {
      {VULKAN_SHADER_paged_attention_matrix_64, VULKAN_SHADER_paged_attention_matrix_128,
       VULKAN_SHADER_paged_attention_matrix_128_vector},
      {VULKAN_SHADER_paged_attention_fragments_64, VULKAN_SHADER_paged_attention_fragments_128,
       VULKAN_SHADER_paged_attention_fragments_128_vector}};
  attention_tiling tiling = plan_matrix_tiling(arguments);
  bool is_vector = vulkan_is_vector_rows(q) && vulkan_is_vector_rows(y);
  vulkan_dispatch dispatch = {.shader = shaders[vulkan_queue_device(queue)->facts.has_fragments]
                                               [k->dims[3] == 64 ? 0 : 1 + is_vector],
                              .constants = {MATRIX_WORKGROUP, vulkan_type_of(q), vulkan_type_of(y),
                                            cache_type_of(k), cache_type_of(v),
                                            (uint32_t)q->dims[1], (uint32_t)k->dims[1],
                                            (uint32_t)k->dims[2], tiling.chunk, attributes->causal},
                              .n_constants = 10};
  return attend(queue, arguments, &tiling, &dispatch);
}
