/* For the tests of planner and executor: a small language model's graph, fake kernel records, and
 * a checker that replays a plan's memory. */
#ifndef ISOMER_TESTS_PLAN_FAKES_H
#define ISOMER_TESTS_PLAN_FAKES_H

#include <isomer/plan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fake_model {
  int32_t n_layers;
  bool tied;         /* the embedding table is the output projection too */
  bool split_hidden; /* q, k and v are views of one product */
  iso_scheme weight_scheme;
  bool leaves_out; /* steps may leave out rows that are added to q and to what attention gives */
} fake_model;

enum {
  FAKE_TOKENS = 16,
  FAKE_SEQUENCES = 4,
  FAKE_ROWS = 4,
  FAKE_HIDDEN = 64,
  FAKE_HEADS = 4,
  FAKE_KV_HEADS = 2,
  FAKE_HEAD_DIM = 16,
  FAKE_MLP = 96,
  FAKE_VOCABULARY = 80,
  FAKE_PAGES = 6,
  FAKE_PAGE = 8,
};

#define FAKE_T iso_dim_symbol(ISO_SYMBOL_TOKENS, FAKE_TOKENS)
#define FAKE_S iso_dim_symbol(ISO_SYMBOL_SEQUENCES, FAKE_SEQUENCES)
#define FAKE_R iso_dim_symbol(ISO_SYMBOL_LOGIT_ROWS, FAKE_ROWS)
#define FAKE_N(size) iso_dim_constant(size)

static inline iso_shape fake_shape1(iso_dim a) { return (iso_shape){1, {a}}; }
static inline iso_shape fake_shape2(iso_dim a, iso_dim b) { return (iso_shape){2, {a, b}}; }
static inline iso_shape fake_shape3(iso_dim a, iso_dim b, iso_dim c) {
  return (iso_shape){3, {a, b, c}};
}
static inline iso_shape fake_shape4(iso_dim a, iso_dim b, iso_dim c, iso_dim d) {
  return (iso_shape){4, {a, b, c, d}};
}

typedef struct fake_builder {
  iso_graph *g;
  const fake_model *model;
  iso_value positions, slots, block_table, query_start, query_length, context, frequencies;
} fake_builder;

static inline iso_value fake_weight(fake_builder *b, const char *name, int layer, int64_t n,
                                    int64_t k) {
  char full[64];
  snprintf(full, sizeof full, layer < 0 ? "%s" : "%s.%d", name, layer);
  return iso_graph_weight(b->g, full, b->model->weight_scheme, fake_shape2(FAKE_N(n), FAKE_N(k)));
}

static inline iso_value fake_norm(fake_builder *b, const char *name, int layer, iso_value x) {
  char full[64];
  snprintf(full, sizeof full, layer < 0 ? "%s" : "%s.%d", name, layer);
  iso_value gain = iso_graph_weight(b->g, full, ISO_SCHEME_F32, fake_shape1(FAKE_N(FAKE_HIDDEN)));
  return iso_graph_apply(b->g, ISO_OP_RMS_NORM, NULL, ISO_SCHEME_F32, 2, x, gain);
}

static inline iso_value fake_matmul(fake_builder *b, iso_value x, iso_value weight) {
  return iso_graph_apply(b->g, ISO_OP_MATMUL, NULL, ISO_SCHEME_F32, 2, x, weight);
}

/* y + x, or y in steps that leave it out. */
static inline iso_value fake_adapt(fake_builder *b, iso_value y, iso_value x) {
  if (!b->model->leaves_out)
    return y;
  iso_value sum = iso_graph_apply(b->g, ISO_OP_ADD, NULL, ISO_SCHEME_F32, 2,
                                  iso_graph_recount(b->g, y, ISO_SYMBOL_ADAPTED_ROWS),
                                  iso_graph_recount(b->g, x, ISO_SYMBOL_ADAPTED_ROWS));
  return iso_graph_otherwise(b->g, sum, y);
}

static inline iso_value fake_heads(fake_builder *b, iso_value x, int64_t heads) {
  return iso_graph_reshape(b->g, x, fake_shape3(FAKE_T, FAKE_N(heads), FAKE_N(FAKE_HEAD_DIM)));
}

static inline iso_value fake_rope(fake_builder *b, iso_value x) {
  return iso_graph_apply(b->g, ISO_OP_ROPE, NULL, ISO_SCHEME_F32, 3, x, b->positions,
                         b->frequencies);
}

static inline iso_value fake_attention(fake_builder *b, int layer, iso_value x) {
  enum { Q = FAKE_HEADS * FAKE_HEAD_DIM, KV = FAKE_KV_HEADS * FAKE_HEAD_DIM };
  iso_value q, k, v;
  if (b->model->split_hidden) {
    iso_value all = fake_matmul(b, x, fake_weight(b, "qkv", layer, Q + 2 * KV, FAKE_HIDDEN));
    q = iso_graph_columns(b->g, all, 0, Q);
    k = iso_graph_columns(b->g, all, Q, KV);
    v = iso_graph_columns(b->g, all, Q + KV, KV);
  } else {
    q = fake_matmul(b, x, fake_weight(b, "q", layer, Q, FAKE_HIDDEN));
    q = fake_adapt(b, q, x);
    k = fake_matmul(b, x, fake_weight(b, "k", layer, KV, FAKE_HIDDEN));
    v = fake_matmul(b, x, fake_weight(b, "v", layer, KV, FAKE_HIDDEN));
  }
  q = fake_rope(b, fake_heads(b, q, FAKE_HEADS));
  k = fake_rope(b, fake_heads(b, k, FAKE_KV_HEADS));
  v = fake_heads(b, v, FAKE_KV_HEADS);
  iso_shape cache = fake_shape4(FAKE_N(FAKE_PAGES), FAKE_N(FAKE_KV_HEADS), FAKE_N(FAKE_PAGE),
                                FAKE_N(FAKE_HEAD_DIM));
  char name[32];
  snprintf(name, sizeof name, "k_cache.%d", layer);
  iso_value k_cache = iso_graph_state(b->g, name, ISO_SCHEME_F32, cache);
  snprintf(name, sizeof name, "v_cache.%d", layer);
  iso_value v_cache = iso_graph_state(b->g, name, ISO_SCHEME_F32, cache);
  iso_value write[] = {k, v, b->slots, k_cache, v_cache}, written[2];
  iso_graph_append(b->g, ISO_OP_KV_WRITE, write, NULL, ISO_SCHEME_F32, written);
  iso_value y =
      iso_graph_apply(b->g, ISO_OP_PAGED_ATTENTION, NULL, ISO_SCHEME_F32, 7, q, written[0],
                      written[1], b->block_table, b->query_start, b->query_length, b->context);
  return iso_graph_reshape(b->g, y, fake_shape2(FAKE_T, FAKE_N(Q)));
}

static inline iso_value fake_mlp(fake_builder *b, int layer, iso_value x) {
  iso_value gate = fake_matmul(b, x, fake_weight(b, "gate", layer, FAKE_MLP, FAKE_HIDDEN));
  iso_value up = fake_matmul(b, x, fake_weight(b, "up", layer, FAKE_MLP, FAKE_HIDDEN));
  iso_value y = iso_graph_apply(b->g, ISO_OP_GLU, NULL, ISO_SCHEME_F32, 2, gate, up);
  return fake_matmul(b, y, fake_weight(b, "down", layer, FAKE_HIDDEN, FAKE_MLP));
}

/* The finished graph of a model; NULL on failure. Outputs are "logits" and "token". */
static inline iso_graph *fake_model_graph(const fake_model *model) {
  fake_builder b = {.model = model};
  if (iso_graph_create(&b.g) != ISO_OK)
    return NULL;
  iso_graph *g = b.g;
  iso_value ids = iso_graph_input(g, "token_ids", ISO_SCHEME_I32, fake_shape1(FAKE_T));
  b.positions = iso_graph_input(g, "positions", ISO_SCHEME_I32, fake_shape1(FAKE_T));
  b.slots = iso_graph_input(g, "kv_slots", ISO_SCHEME_I32, fake_shape1(FAKE_T));
  b.block_table = iso_graph_input(g, "block_table", ISO_SCHEME_I32, fake_shape2(FAKE_S, FAKE_N(3)));
  b.query_start = iso_graph_input(g, "query_start", ISO_SCHEME_I32, fake_shape1(FAKE_S));
  b.query_length = iso_graph_input(g, "query_length", ISO_SCHEME_I32, fake_shape1(FAKE_S));
  b.context = iso_graph_input(g, "context_length", ISO_SCHEME_I32, fake_shape1(FAKE_S));
  iso_value rows = iso_graph_input(g, "logit_rows", ISO_SCHEME_I32, fake_shape1(FAKE_R));
  b.frequencies = iso_graph_weight(g, "rope_frequencies", ISO_SCHEME_F32,
                                   fake_shape1(FAKE_N(FAKE_HEAD_DIM / 2)));
  iso_value table = fake_weight(&b, "table", -1, FAKE_VOCABULARY, FAKE_HIDDEN);
  iso_value x = iso_graph_apply(g, ISO_OP_EMBEDDING, NULL, ISO_SCHEME_F32, 2, ids, table);
  for (int layer = 0; layer < model->n_layers; layer++) {
    iso_graph_set_layer(g, layer);
    iso_value attended = fake_attention(&b, layer, fake_norm(&b, "attention_norm", layer, x));
    iso_value out = fake_weight(&b, "out", layer, FAKE_HIDDEN, FAKE_HIDDEN);
    attended = fake_adapt(&b, fake_matmul(&b, attended, out), attended);
    x = iso_graph_apply(g, ISO_OP_ADD, NULL, ISO_SCHEME_F32, 2, x, attended);
    iso_value mixed = fake_mlp(&b, layer, fake_norm(&b, "mlp_norm", layer, x));
    x = iso_graph_apply(g, ISO_OP_ADD, NULL, ISO_SCHEME_F32, 2, x, mixed);
  }
  iso_graph_set_layer(g, model->n_layers);
  x = fake_norm(&b, "final_norm", -1, x);
  x = iso_graph_apply(g, ISO_OP_GATHER_ROWS, NULL, ISO_SCHEME_F32, 2, x, rows);
  iso_value head = model->tied ? table : fake_weight(&b, "head", -1, FAKE_VOCABULARY, FAKE_HIDDEN);
  iso_value logits = fake_matmul(&b, x, head);
  iso_value token = iso_graph_apply(g, ISO_OP_ARGMAX, NULL, ISO_SCHEME_F32, 1, logits);
  iso_graph_output(g, logits, "logits");
  iso_graph_output(g, token, "token");
  if (iso_graph_finish(g) != ISO_OK) {
    iso_graph_destroy(g);
    return NULL;
  }
  return g;
}

/* ---- Memory checker ---------------------------------------------------------------------- */

/* Whose bytes lie in a stretch of an arena. */
typedef struct fake_stretch {
  uint32_t device;
  uint64_t begin, end;
  iso_value storage; /* ISO_NO_VALUE: scratch */
} fake_stretch;

typedef struct fake_memory {
  const iso_plan *plan;
  fake_stretch *stretches;
  size_t count;
  char problem[256]; /* "" while all is well */
} fake_memory;

static inline uint64_t fake_bytes(const iso_graph *graph, iso_value storage) {
  const iso_value_info *info = iso_graph_get_value(graph, storage);
  uint64_t bytes = 0;
  return iso_shape_bytes(&info->shape, info->scheme, &bytes) == ISO_OK ? bytes : UINT64_MAX;
}

/* The stretch of the whole storage that an arena operand lies in. */
static inline fake_stretch fake_whole(const fake_memory *m, uint32_t device,
                                      const iso_plan_operand *operand) {
  const iso_value_info *info = iso_graph_get_value(m->plan->graph, operand->value);
  uint64_t begin = operand->offset - info->storage_offset;
  return (fake_stretch){device, begin, begin + fake_bytes(m->plan->graph, info->storage),
                        info->storage};
}

static inline bool fake_overlap(fake_stretch a, fake_stretch b) {
  return a.device == b.device && a.begin < b.end && b.begin < a.end;
}

/* What was in the stretch is gone; the owner's bytes are there now. */
static inline void fake_write(fake_memory *m, fake_stretch written) {
  if (written.end > m->plan->arena_bytes[written.device])
    snprintf(m->problem, sizeof m->problem, "value %d ends past the arena", written.storage);
  size_t kept = 0;
  for (size_t i = 0; i < m->count; i++)
    if (!fake_overlap(m->stretches[i], written))
      m->stretches[kept++] = m->stretches[i];
  m->stretches[kept++] = written;
  m->count = kept;
}

static inline void fake_read(fake_memory *m, fake_stretch wanted, int step) {
  for (size_t i = 0; i < m->count; i++)
    if (m->stretches[i].device == wanted.device && m->stretches[i].begin == wanted.begin &&
        m->stretches[i].end == wanted.end && m->stretches[i].storage == wanted.storage)
      return;
  snprintf(m->problem, sizeof m->problem, "step %d reads value %d, whose bytes are gone", step,
           wanted.storage);
}

static inline void fake_check_step(fake_memory *m, int s, uint32_t alignment) {
  const iso_plan_step *step = &m->plan->steps[s];
  bool copy = step->kind == ISO_STEP_COPY;
  fake_stretch parts[2 * ISO_MAX_INPUTS + ISO_MAX_OUTPUTS + 1];
  size_t n_parts = 0;
  for (int i = 0; i < ISO_MAX_INPUTS; i++)
    if (step->inputs[i].storage == ISO_STORAGE_ARENA) {
      parts[n_parts] = fake_whole(m, copy ? step->source_device : step->device, &step->inputs[i]);
      fake_read(m, parts[n_parts++], s);
      const iso_value_info *info = iso_graph_get_value(m->plan->graph, step->inputs[i].value);
      if (info->otherwise == ISO_NO_VALUE)
        continue;
      uint64_t begin = step->otherwise_offsets[i] - info->storage_offset;
      parts[n_parts] =
          (fake_stretch){step->device, begin, begin + fake_bytes(m->plan->graph, info->otherwise),
                         info->otherwise};
      fake_read(m, parts[n_parts++], s);
    }
  size_t n_inputs = n_parts;
  for (int i = 0; i < ISO_MAX_OUTPUTS; i++)
    if (step->outputs[i].storage == ISO_STORAGE_ARENA)
      parts[n_parts++] = fake_whole(m, step->device, &step->outputs[i]);
  if (step->workspace_bytes)
    parts[n_parts++] = (fake_stretch){step->device, step->workspace_offset,
                                      step->workspace_offset + step->workspace_bytes, ISO_NO_VALUE};
  for (size_t i = n_inputs; i < n_parts; i++) {
    if (parts[i].begin % alignment)
      snprintf(m->problem, sizeof m->problem, "step %d writes at an odd offset", s);
    for (size_t j = 0; j < i; j++)
      if (fake_overlap(parts[i], parts[j]))
        snprintf(m->problem, sizeof m->problem, "step %d: operands overlap", s);
    fake_write(m, parts[i]);
  }
}

/* Replays every step: each reads what was last written for it, writes nothing it reads, and what
 * the host reads is whole at the end. Returns "" or what is wrong; not thread safe. */
static inline const char *fake_check_memory(const iso_plan *plan, uint32_t alignment) {
  static fake_memory m;
  m = (fake_memory){.plan = plan};
  m.stretches = calloc(plan->n_steps * (ISO_MAX_OUTPUTS + 1) + 1, sizeof *m.stretches);
  for (uint32_t s = 0; s < plan->n_steps && !*m.problem; s++)
    fake_check_step(&m, (int)s, alignment);
  for (iso_value v = 0; v < iso_graph_value_count(plan->graph) && !*m.problem; v++)
    if (plan->value_operand[v].storage == ISO_STORAGE_ARENA)
      fake_read(&m, fake_whole(&m, (uint32_t)plan->value_device[v], &plan->value_operand[v]),
                (int)plan->n_steps);
    else if (iso_graph_get_value(plan->graph, v)->is_output && plan->value_device[v] < 0)
      snprintf(m.problem, sizeof m.problem, "output %d is nowhere", v);
  free(m.stretches);
  return m.problem;
}

#endif
