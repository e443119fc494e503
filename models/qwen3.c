/* Qwen 3: an RMS norm on each head of q and k instead of biases (arXiv:2505.09388). */
#include "models/builder.h"

static iso_status configure(iso_model_config *config, bool is_gguf) {
  (void)is_gguf;
  if (config->sliding_window > 0)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "qwen3 with use_sliding_window is not supported");
  config->qk_norm = true;
  return ISO_OK;
}

static void build(iso_model_builder *builder) {
  iso_block_plain_decoder(builder, (iso_attention_options){.qk_norm = true});
}

const iso_architecture iso_architecture_qwen3 = {
    .name = "qwen3",
    .hf_types = {{"qwen3", ISO_WINDOW_ON_REQUEST, NULL}},
    .configure = configure,
    .build = build,
};
