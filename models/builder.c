#include "models/builder.h"

#include "models/adapter.h"

#include <stdio.h>
#include <stdlib.h>

static void fail(iso_model_builder *builder, iso_status status) {
  if (builder->status != ISO_OK)
    return;
  builder->status = status;
  snprintf(builder->message, sizeof builder->message, "%s", iso_status_message());
}

static iso_dim tokens(const iso_model_builder *builder) {
  return iso_dim_symbol(ISO_SYMBOL_TOKENS, builder->options->max_tokens);
}

static iso_dim adapted(const iso_model_builder *builder) {
  return iso_dim_symbol(ISO_SYMBOL_ADAPTED_ROWS, builder->options->max_tokens);
}

static iso_shape shape_of(uint32_t n_dims, iso_dim first, int64_t second, int64_t third) {
  iso_shape shape = {n_dims, {first, iso_dim_constant(second), iso_dim_constant(third)}};
  return shape;
}

void iso_builder_begin(iso_model_builder *builder) {
  const iso_model_graph_options *options = builder->options;
  iso_dim sequences = iso_dim_symbol(ISO_SYMBOL_SEQUENCES, options->max_sequences);
  iso_dim rows = iso_dim_symbol(ISO_SYMBOL_LOGIT_ROWS, options->max_logit_rows);
  int64_t pages = (options->max_context + options->page_size - 1) / options->page_size;
  const struct {
    iso_value *value;
    const char *name;
    iso_shape shape;
  } inputs[] = {
      {&builder->token_ids, "token_ids", shape_of(1, tokens(builder), 1, 1)},
      {&builder->positions, "positions", shape_of(1, tokens(builder), 1, 1)},
      {&builder->kv_slots, "kv_slots", shape_of(1, tokens(builder), 1, 1)},
      {&builder->block_table, "block_table", shape_of(2, sequences, pages, 1)},
      {&builder->query_start, "query_start", shape_of(1, sequences, 1, 1)},
      {&builder->query_length, "query_length", shape_of(1, sequences, 1, 1)},
      {&builder->context_length, "context_length", shape_of(1, sequences, 1, 1)},
      {&builder->logit_rows, "logit_rows", shape_of(1, rows, 1, 1)},
  };
  for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
    *inputs[i].value =
        iso_graph_input(builder->graph, inputs[i].name, ISO_SCHEME_I32, inputs[i].shape);
  builder->adapters = ISO_NO_VALUE;
  if (options->n_adapters > 0)
    builder->adapters = iso_graph_input(builder->graph, "adapters", ISO_SCHEME_I32,
                                        shape_of(2, adapted(builder), 1, 1));
}

/* "blk.%d.attn_q" + ".weight" for a layer. */
static void format_name(char *out, size_t capacity, const char *name, const char *suffix,
                        int layer) {
  const char *mark = name;
  while (*mark && !(mark[0] == '%' && mark[1] == 'd'))
    mark++;
  if (*mark)
    snprintf(out, capacity, "%.*s%d%s%s", (int)(mark - name), name, layer, mark + 2, suffix);
  else
    snprintf(out, capacity, "%s%s", name, suffix);
}

static iso_value declare_weight(iso_model_builder *builder, const char *name, iso_scheme scheme,
                                iso_shape shape) {
  iso_value value = iso_graph_find(builder->graph, name);
  return value != ISO_NO_VALUE ? value : iso_graph_weight(builder->graph, name, scheme, shape);
}

static iso_value file_weight(iso_model_builder *builder, const char *base, const char *suffix,
                             int layer, int n_dims, const int64_t *dims) {
  char name[128];
  format_name(name, sizeof name, base, suffix, layer);
  const iso_file_tensor *tensor = iso_model_find_tensor(builder->model, name);
  if (!tensor) {
    builder->n_missing++;
    fail(builder, iso_fail(ISO_ERROR_CORRUPT_DATA, "the model has no tensor %s", name));
    return ISO_NO_VALUE;
  }
  bool fits = tensor->n_dims == n_dims;
  iso_shape shape = {(uint32_t)n_dims, {{0}}};
  for (int i = 0; i < n_dims; i++) {
    fits = fits && tensor->dims[i] == dims[i];
    shape.dims[i] = iso_dim_constant(dims[i]);
  }
  if (!fits) {
    fail(builder,
         iso_fail(ISO_ERROR_CORRUPT_DATA,
                  "tensor %s is [%lld, %lld] in %d dimensions, the configuration asks "
                  "for [%lld, %lld] in %d",
                  name, (long long)tensor->dims[0], (long long)tensor->dims[1], tensor->n_dims,
                  (long long)dims[0], (long long)(n_dims > 1 ? dims[1] : 1), n_dims));
    return ISO_NO_VALUE;
  }
  if (tensor->scheme >= ISO_SCHEME_COUNT) {
    fail(builder,
         iso_fail(ISO_ERROR_UNSUPPORTED, "tensor %s is stored as %s, which is not supported", name,
                  tensor->type_name));
    return ISO_NO_VALUE;
  }
  return declare_weight(builder, name, n_dims == 1 ? ISO_SCHEME_F32 : tensor->scheme, shape);
}

iso_value iso_builder_matrix(iso_model_builder *builder, const char *name, int layer, int64_t rows,
                             int64_t columns) {
  int64_t dims[2] = {rows, columns};
  return file_weight(builder, name, ".weight", layer, 2, dims);
}

iso_value iso_builder_vector(iso_model_builder *builder, const char *name, int layer,
                             int64_t length) {
  return file_weight(builder, name, "", layer, 1, &length);
}

static bool has(const iso_model_builder *builder, const char *base, const char *suffix, int layer) {
  char name[128];
  format_name(name, sizeof name, base, suffix, layer);
  return iso_model_find_tensor(builder->model, name) != NULL;
}

static iso_value apply(iso_model_builder *builder, iso_op op, const void *attributes, iso_value a,
                       iso_value b) {
  return iso_graph_apply(builder->graph, op, attributes, builder->options->activation, 2, a, b);
}

iso_value iso_block_embedding(iso_model_builder *builder) {
  const iso_model_config *config = builder->config;
  iso_embedding_attributes attributes = {sizeof attributes, config->embedding_scale};
  iso_value table =
      iso_builder_matrix(builder, "token_embd", 0, config->vocabulary_size, config->hidden_size);
  iso_graph_set_layer(builder->graph, -1);
  return apply(builder, ISO_OP_EMBEDDING, &attributes, builder->token_ids, table);
}

/* Scheme of values that only products, gates and attention read. Where products round them to 8
 * bits, to bf16: half the memory traffic, and less than that loses. */
static iso_scheme inner(const iso_model_builder *builder) {
  return builder->options->operand_bits == 8 ? ISO_SCHEME_BF16 : builder->options->activation;
}

static iso_value norm(iso_model_builder *builder, iso_value x, const char *name, int layer,
                      int64_t length, iso_scheme scheme) {
  const iso_model_config *config = builder->config;
  iso_rms_norm_attributes attributes = {sizeof attributes, config->norm_epsilon,
                                        config->norm_weight_offset};
  iso_value weight = file_weight(builder, name, ".weight", layer, 1, &length);
  return iso_graph_apply(builder->graph, ISO_OP_RMS_NORM, &attributes, scheme, 2, x, weight);
}

iso_value iso_block_norm(iso_model_builder *builder, iso_value x, const char *name, int layer,
                         int64_t length) {
  return norm(builder, x, name, layer, length, builder->options->activation);
}

iso_value iso_block_input_norm(iso_model_builder *builder, iso_value x, const char *name, int layer,
                               int64_t length) {
  return norm(builder, x, name, layer, length, inner(builder));
}

/* To what a product's operands may be rounded where a graph's may. */
typedef struct rounding {
  uint32_t bits, neighbours;
} rounding;
static const rounding COARSE = {8, 256}, MEDIUM = {8, 32}, FINE = {16, 256};

/* The matrices of a layer: less is rounded away where that loses most for the products it takes
 * (backends/cpu/README.md). All rows attend to values; what the last layer's MLP gets wrong, no
 * layer puts right; the largest activations meet the MLP's last matrix, which matters to weights
 * that are none too good themselves. */
typedef struct role {
  const char *name;
  const rounding *in_layers, *in_the_last, *of_frail;
} role;
static const role QUERY = {"blk.%d.attn_q", &COARSE, &COARSE, &COARSE};
static const role KEY = {"blk.%d.attn_k", &COARSE, &COARSE, &COARSE};
static const role VALUE = {"blk.%d.attn_v", &FINE, &FINE, &FINE};
static const role ATTENTION_OUTPUT = {"blk.%d.attn_output", &COARSE, &COARSE, &COARSE};
static const role GATE = {"blk.%d.ffn_gate", &COARSE, &COARSE, &COARSE};
static const role UP = {"blk.%d.ffn_up", &COARSE, &FINE, &COARSE};
static const role DOWN = {"blk.%d.ffn_down", &COARSE, &FINE, &MEDIUM};

/* Schemes of which a model was within a deviation of half a percent of its perplexity, or beyond.
 */
static bool is_frail(iso_scheme scheme) {
  return scheme == ISO_SCHEME_IQ4_NL || scheme == ISO_SCHEME_Q3_K || scheme == ISO_SCHEME_Q4_K;
}

/* Codes that have 8 bits are multiplied as they are on devices made for that, and what is left of a
 * model in Q2_K bears no more rounding. */
static rounding rounding_of(const iso_model_builder *builder, const role *of, int layer,
                            iso_value weight) {
  if (builder->options->operand_bits == 0)
    return (rounding){0};
  if (weight == ISO_NO_VALUE)
    return COARSE;
  iso_scheme scheme = iso_graph_get_value(builder->graph, weight)->scheme;
  if (iso_scheme_get_info(scheme)->kind != ISO_SCHEME_KIND_BLOCK || scheme == ISO_SCHEME_I8_G128 ||
      scheme == ISO_SCHEME_F8_G128)
    return COARSE;
  if (scheme == ISO_SCHEME_Q2_K)
    return FINE;
  if (layer == builder->config->n_layers - 1)
    return *of->in_the_last;
  return is_frail(scheme) ? *of->of_frail : *of->in_layers;
}

/* x times "<name>.weight" [out, in], plus "<name>.bias" where the file has one. */
static iso_value product(iso_model_builder *builder, iso_value x, const role *of, int layer,
                         int64_t out, int64_t in, iso_scheme scheme) {
  iso_value weight = iso_builder_matrix(builder, of->name, layer, out, in);
  iso_value bias = has(builder, of->name, ".bias", layer)
                       ? file_weight(builder, of->name, ".bias", layer, 1, &out)
                       : ISO_NO_VALUE;
  rounding rounded = rounding_of(builder, of, layer, weight);
  iso_matmul_attributes attributes = {sizeof attributes, rounded.bits, rounded.neighbours};
  return iso_graph_apply(builder->graph, ISO_OP_MATMUL, &attributes, scheme, 3, x, weight, bias);
}

/* The rows of x [A, 1, in], each times its own adapter's matrix [out, in]. */
static iso_value times_adapters(iso_model_builder *builder, iso_value x, const char *name,
                                const char *suffix, int64_t out, int64_t in, iso_scheme scheme) {
  char full[128];
  snprintf(full, sizeof full, "%s%s", name, suffix);
  iso_value weight =
      declare_weight(builder, full, ISO_SCHEME_F32,
                     shape_of(3, iso_dim_constant(1 + builder->options->n_adapters), out, in));
  return iso_graph_apply(builder->graph, ISO_OP_GROUPED_MATMUL, NULL, scheme, 3, x, weight,
                         builder->adapters);
}

/* y, the product of x and a matrix, with what the rows' adapters add to it. */
static iso_value adapt(iso_model_builder *builder, iso_value y, iso_value x, const char *base,
                       int layer, int64_t out, int64_t in, iso_scheme scheme) {
  const iso_model_graph_options *options = builder->options;
  iso_graph *graph = builder->graph;
  char name[96];
  format_name(name, sizeof name, base, ".weight", layer);
  int64_t rank = iso_adapters_rank(options->adapters, options->n_adapters, name);
  if (rank == 0)
    return y;
  iso_value rows = iso_graph_recount(graph, x, ISO_SYMBOL_ADAPTED_ROWS);
  rows = iso_graph_reshape(graph, rows, shape_of(3, adapted(builder), 1, in));
  rows = times_adapters(builder, rows, name, ISO_ADAPTER_DOWN, rank, in, scheme);
  rows = times_adapters(builder, rows, name, ISO_ADAPTER_UP, out, rank, scheme);
  rows = iso_graph_reshape(graph, rows, shape_of(2, adapted(builder), out, 1));
  iso_value plain = iso_graph_recount(graph, y, ISO_SYMBOL_ADAPTED_ROWS);
  iso_value sum = iso_graph_apply(graph, ISO_OP_ADD, NULL, scheme, 2, plain, rows);
  return iso_graph_otherwise(graph, sum, y);
}

/* A product of x with a matrix of `out` rows. */
typedef struct projection {
  const role *role;
  int64_t out;
} projection;

/* Products of one x with their adapters, which come last: products that follow each other are one
 * launch on some devices. */
static void linears(iso_model_builder *builder, iso_value x, int layer, int64_t in,
                    iso_scheme scheme, int n, const projection *projections,
                    iso_value *out_values) {
  for (int i = 0; i < n; i++)
    out_values[i] = product(builder, x, projections[i].role, layer, projections[i].out, in, scheme);
  for (int i = 0; i < n && builder->adapters != ISO_NO_VALUE; i++)
    out_values[i] = adapt(builder, out_values[i], x, projections[i].role->name, layer,
                          projections[i].out, in, scheme);
}

static iso_value linear(iso_model_builder *builder, iso_value x, const role *of, int layer,
                        int64_t out, int64_t in, iso_scheme scheme) {
  iso_value y;
  linears(builder, x, layer, in, scheme, 1, &(projection){of, out}, &y);
  return y;
}

static iso_value rope(iso_model_builder *builder, iso_value x, bool local) {
  const iso_rope_config *config = local ? &builder->config->local_rope : &builder->config->rope;
  iso_rope_attributes attributes = {.size = sizeof attributes,
                                    .interleaved = config->interleaved,
                                    .magnitude = 1.0f,
                                    .settled = 1};
  float *frequencies = NULL;
  iso_status status = iso_rope_table_create(config, builder->options->max_context, &frequencies,
                                            &attributes.magnitude);
  if (status != ISO_OK)
    fail(builder, status);
  free(frequencies);
  iso_shape shape = shape_of(1, iso_dim_constant(config->rotary_dim / 2), 1, 1);
  iso_value table =
      declare_weight(builder, local ? ISO_ROPE_LOCAL_TABLE : ISO_ROPE_TABLE, ISO_SCHEME_F32, shape);
  return iso_graph_apply(builder->graph, ISO_OP_ROPE, &attributes, inner(builder), 3, x,
                         builder->positions, table);
}

/* q, k and v: [T, heads, head_dim] each. */
static void project_heads(iso_model_builder *builder, iso_value x, int layer,
                          iso_value *out_values) {
  const iso_model_config *config = builder->config;
  const int32_t n_heads[3] = {config->n_heads, config->n_kv_heads, config->n_kv_heads};
  const projection projections[3] = {{&QUERY, (int64_t)n_heads[0] * config->head_dim},
                                     {&KEY, (int64_t)n_heads[1] * config->head_dim},
                                     {&VALUE, (int64_t)n_heads[2] * config->head_dim}};
  linears(builder, x, layer, config->hidden_size, inner(builder), 3, projections, out_values);
  for (int i = 0; i < 3; i++)
    out_values[i] = iso_graph_reshape(builder->graph, out_values[i],
                                      shape_of(3, tokens(builder), n_heads[i], config->head_dim));
}

static iso_value cache(iso_model_builder *builder, char kind, int layer) {
  const iso_model_graph_options *options = builder->options;
  char name[32];
  snprintf(name, sizeof name, "%c_cache.%d", kind, layer);
  iso_shape shape = {
      4,
      {iso_dim_constant(options->n_pages), iso_dim_constant(builder->config->n_kv_heads),
       iso_dim_constant(options->page_size), iso_dim_constant(builder->config->head_dim)}};
  return iso_graph_state(builder->graph, name, options->kv_scheme, shape);
}

iso_value iso_block_attention(iso_model_builder *builder, iso_value x, int layer,
                              iso_attention_options attention) {
  const iso_model_config *config = builder->config;
  iso_scheme activation = inner(builder);
  bool local_table = attention.local && config->local_rope.theta != 0.0f;

  iso_value heads[3];
  project_heads(builder, x, layer, heads);
  iso_value q = heads[0], k = heads[1], v = heads[2];
  if (attention.qk_norm) {
    q = iso_block_input_norm(builder, q, "blk.%d.attn_q_norm", layer, config->head_dim);
    k = iso_block_input_norm(builder, k, "blk.%d.attn_k_norm", layer, config->head_dim);
  }
  q = rope(builder, q, local_table);
  k = rope(builder, k, local_table);

  iso_value stored[5] = {k, v, builder->kv_slots, cache(builder, 'k', layer),
                         cache(builder, 'v', layer)};
  iso_value caches[2];
  /* Inputs are copied before a step, which stores the positions of its own rows alone. */
  iso_kv_write_attributes settled = {.size = sizeof settled, .settled = 1};
  iso_graph_append(builder->graph, ISO_OP_KV_WRITE, stored, &settled, activation, caches);

  iso_paged_attention_attributes attributes;
  iso_op_default_attributes(ISO_OP_PAGED_ATTENTION, &attributes);
  attributes.scale = config->attention_scale;
  attributes.soft_cap = config->attention_soft_cap;
  attributes.window = attention.local ? (uint32_t)config->sliding_window : 0;
  attributes.settled = 1;
  iso_value y = iso_graph_apply(builder->graph, ISO_OP_PAGED_ATTENTION, &attributes, activation, 8,
                                q, caches[0], caches[1], builder->block_table, builder->query_start,
                                builder->query_length, builder->context_length, ISO_NO_VALUE);
  int64_t width = (int64_t)config->n_heads * config->head_dim;
  y = iso_graph_reshape(builder->graph, y, shape_of(2, tokens(builder), width, 1));
  return linear(builder, y, &ATTENTION_OUTPUT, layer, config->hidden_size, width,
                builder->options->activation);
}

iso_value iso_block_mlp(iso_model_builder *builder, iso_value x, int layer) {
  const iso_model_config *config = builder->config;
  int64_t hidden = config->hidden_size, intermediate = config->intermediate_size;
  iso_glu_attributes attributes = {sizeof attributes, (uint32_t)config->activation};
  iso_scheme scheme = inner(builder);
  const projection projections[2] = {{&GATE, intermediate}, {&UP, intermediate}};
  iso_value parts[2];
  linears(builder, x, layer, hidden, scheme, 2, projections, parts);
  iso_value y =
      iso_graph_apply(builder->graph, ISO_OP_GLU, &attributes, scheme, 2, parts[0], parts[1]);
  return linear(builder, y, &DOWN, layer, hidden, intermediate, builder->options->activation);
}

iso_value iso_block_add(iso_model_builder *builder, iso_value a, iso_value b) {
  return apply(builder, ISO_OP_ADD, NULL, a, b);
}

/* A token of each row, so that rows need not leave the device. */
static void draw_tokens(iso_model_builder *builder, iso_value logits) {
  iso_graph *graph = builder->graph;
  iso_dim rows = iso_dim_symbol(ISO_SYMBOL_LOGIT_ROWS, builder->options->max_logit_rows);
  iso_value parameters = iso_graph_input(graph, "sample_parameters", ISO_SCHEME_F32,
                                         shape_of(2, rows, ISO_SAMPLE_RESERVED + 1, 1));
  iso_value state = iso_graph_input(graph, "sample_state", ISO_SCHEME_I32, shape_of(2, rows, 4, 1));
  iso_value history =
      iso_graph_input(graph, "sample_history", ISO_SCHEME_I32, shape_of(2, rows, 1, 1));
  iso_value tokens = iso_graph_apply(graph, ISO_OP_SAMPLE, NULL, ISO_SCHEME_F32, 5, logits,
                                     parameters, state, history, ISO_NO_VALUE);
  iso_graph_output(graph, tokens, "tokens");
}

void iso_block_head(iso_model_builder *builder, iso_value x) {
  const iso_model_config *config = builder->config;
  iso_graph *graph = builder->graph;
  iso_graph_set_layer(graph, config->n_layers);
  /* Of all tokens: an embedding needs every row's, and no logits. */
  iso_value hidden = iso_block_norm(builder, x, "output_norm", 0, config->hidden_size);
  iso_graph_output(graph, hidden, "hidden");
  iso_value rows = apply(builder, ISO_OP_GATHER_ROWS, NULL, hidden, builder->logit_rows);
  /* The logits are f32 whatever the activations are: the host samples from them. */
  iso_value head = iso_builder_matrix(builder, config->tied_embeddings ? "token_embd" : "output", 0,
                                      config->vocabulary_size, config->hidden_size);
  iso_value logits =
      iso_graph_apply(graph, ISO_OP_MATMUL, NULL, ISO_SCHEME_F32, 3, rows, head, ISO_NO_VALUE);
  if (config->logit_soft_cap != 0.0f) {
    iso_soft_cap_attributes attributes = {sizeof attributes, 1.0f, config->logit_soft_cap};
    logits = iso_graph_apply(graph, ISO_OP_SOFT_CAP, &attributes, ISO_SCHEME_F32, 1, logits);
  }
  iso_graph_output(graph, logits, "logits");
  if (builder->options->samples)
    draw_tokens(builder, logits);
}

void iso_block_plain_decoder(iso_model_builder *builder, iso_attention_options attention) {
  const iso_model_config *config = builder->config;
  iso_value x = iso_block_embedding(builder);
  for (int layer = 0; layer < config->n_layers; layer++) {
    iso_graph_set_layer(builder->graph, layer);
    iso_value h = iso_block_input_norm(builder, x, "blk.%d.attn_norm", layer, config->hidden_size);
    x = iso_block_add(builder, x, iso_block_attention(builder, h, layer, attention));
    h = iso_block_input_norm(builder, x, "blk.%d.ffn_norm", layer, config->hidden_size);
    x = iso_block_add(builder, x, iso_block_mlp(builder, h, layer));
  }
  iso_block_head(builder, x);
}
