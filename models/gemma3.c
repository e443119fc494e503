/* Gemma 3: norms before and after each block, q/k norms, a gelu MLP, and five layers of sliding
 * window for each global one, with a rotary base of their own (arXiv:2503.19786). */
#include "models/builder.h"

#include <math.h>

/* The files of the published models leave these out. */
enum { WINDOW_PATTERN = 6, LAYERS_OF_27B = 62 };
#define LOCAL_ROPE_THETA 10000.0f

static iso_status configure(iso_model_config *config, bool is_gguf) {
  config->embedding_scale = sqrtf((float)config->hidden_size);
  config->activation = ISO_ACTIVATION_GELU_TANH;
  config->qk_norm = true;
  /* Converters to GGUF add the 1 that the model's code adds to its norm weights. */
  config->norm_weight_offset = is_gguf ? 0.0f : 1.0f;
  if (config->sliding_window > 0 && config->window_pattern == 0)
    config->window_pattern = WINDOW_PATTERN;
  /* Scaling past the trained context is for the global layers only. */
  if (config->local_rope.theta == 0.0f)
    config->local_rope =
        (iso_rope_config){.theta = LOCAL_ROPE_THETA, .rotary_dim = config->rope.rotary_dim};
  if (is_gguf && config->n_layers == LAYERS_OF_27B)
    config->attention_scale = 1.0f / sqrtf((float)config->hidden_size / (float)config->n_heads);
  return ISO_OK;
}

static void build(iso_model_builder *builder) {
  const iso_model_config *config = builder->config;
  int64_t hidden = config->hidden_size;
  iso_value x = iso_block_embedding(builder);
  for (int layer = 0; layer < config->n_layers; layer++) {
    iso_graph_set_layer(builder->graph, layer);
    bool global = config->window_pattern == 0 || (layer + 1) % config->window_pattern == 0;
    iso_attention_options attention = {.qk_norm = true, .local = !global};
    iso_value h = iso_block_input_norm(builder, x, "blk.%d.attn_norm", layer, hidden);
    h = iso_block_attention(builder, h, layer, attention);
    h = iso_block_norm(builder, h, "blk.%d.post_attention_norm", layer, hidden);
    x = iso_block_add(builder, x, h);
    h = iso_block_input_norm(builder, x, "blk.%d.ffn_norm", layer, hidden);
    h = iso_block_mlp(builder, h, layer);
    h = iso_block_norm(builder, h, "blk.%d.post_ffw_norm", layer, hidden);
    x = iso_block_add(builder, x, h);
  }
  iso_block_head(builder, x);
}

/* Gemma3TextConfig of transformers: the folders of 4B and more say only what differs from it. */
static const iso_model_config hf_defaults = {
    .vocabulary_size = 262208,
    .n_heads = 8,
    .n_kv_heads = 4,
    .head_dim = 256,
    .context_length = 131072,
    .sliding_window = 4096,
    .rope = {.theta = 1e6f},
    .attention_scale = 0.0625f, /* query_pre_attn_scalar 256 */
};

static const iso_weight_name hf_names[] = {
    {"blk.%d.post_attention_norm.weight", "layers.%d.post_attention_layernorm.weight"},
    {"blk.%d.ffn_norm.weight", "layers.%d.pre_feedforward_layernorm.weight"},
    {"blk.%d.post_ffw_norm.weight", "layers.%d.post_feedforward_layernorm.weight"},
    {NULL, NULL},
};

const iso_architecture iso_architecture_gemma3 = {
    .name = "gemma3",
    .hf_types = {{"gemma3_text", ISO_WINDOW_UNLESS_REFUSED, &hf_defaults},
                 {"gemma3", ISO_WINDOW_UNLESS_REFUSED, &hf_defaults}},
    .hf_names = hf_names,
    .configure = configure,
    .build = build,
};
