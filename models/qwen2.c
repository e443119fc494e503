/* Qwen 2 and 2.5: the Llama shape with biases on q, k and v (arXiv:2407.10671). Biases need no
 * word here: a linear block adds the bias that the file has. */
#include "models/builder.h"

static iso_status configure(iso_model_config *config, bool is_gguf) {
  (void)is_gguf;
  if (config->sliding_window > 0)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "qwen2 with use_sliding_window is not supported");
  return ISO_OK;
}

static void build(iso_model_builder *builder) {
  iso_block_plain_decoder(builder, (iso_attention_options){0});
}

const iso_architecture iso_architecture_qwen2 = {
    .name = "qwen2",
    .hf_types = {{"qwen2", ISO_WINDOW_ON_REQUEST, NULL}},
    .configure = configure,
    .build = build,
};
