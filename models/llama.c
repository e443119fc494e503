/* Llama 1 to 3.2, and what shares its shape: SmolLM2, Mistral 7B (arXiv:2302.13971); the plain
 * decoder that other files of this folder build on. */
#include "models/builder.h"

static iso_status configure(iso_model_config *config, bool is_gguf) {
  /* Converters to GGUF permute q and k so that rotary pairs lie next to each other. */
  config->rope.interleaved = config->local_rope.interleaved = is_gguf;
  return ISO_OK;
}

static void build(iso_model_builder *builder) {
  iso_block_plain_decoder(builder,
                          (iso_attention_options){.local = builder->config->sliding_window > 0});
}

const iso_architecture iso_architecture_llama = {
    .name = "llama",
    .hf_types = {{"llama", ISO_WINDOW_NEVER, NULL}, {"mistral", ISO_WINDOW_UNLESS_REFUSED, NULL}},
    .configure = configure,
    .build = build,
};
