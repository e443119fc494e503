/* Blocks that architectures share. A builder carries the graph under construction; every block
 * takes and returns values, and the first failure sticks, so an architecture reads straight down.
 *
 * Shapes: T tokens of this step, R rows whose logits are wanted; activations are [T, hidden]. */
#ifndef ISOMER_MODELS_BUILDER_H
#define ISOMER_MODELS_BUILDER_H

#include "models/model.h"

struct iso_model_builder {
  const iso_model *model;
  const iso_model_config *config;
  const iso_model_graph_options *options;
  iso_graph *graph;
  iso_status status; /* first failure outside the graph; its sentence is in `message` */
  char message[256];
  int32_t n_missing; /* tensors that the file does not have */
  iso_value token_ids, positions, kv_slots, block_table;
  iso_value query_start, query_length, context_length, logit_rows;
  iso_value adapters; /* ISO_NO_VALUE without any */
};

/* Declares the graph's inputs. */
void iso_builder_begin(iso_model_builder *builder);

/* A weight of the file by name; "%d" in the name is the layer. Shape and presence are checked;
 * ISO_NO_VALUE (and a sticky failure) when wrong. */
iso_value iso_builder_matrix(iso_model_builder *builder, const char *name, int layer, int64_t rows,
                             int64_t columns);
iso_value iso_builder_vector(iso_model_builder *builder, const char *name, int layer,
                             int64_t length);

/* token ids -> [T, hidden], scaled by the configuration. */
iso_value iso_block_embedding(iso_model_builder *builder);
/* RMS norm over the last dimension with "<name>.weight". */
iso_value iso_block_norm(iso_model_builder *builder, iso_value x, const char *name, int layer,
                         int64_t length);
/* The same for what only products read. */
iso_value iso_block_input_norm(iso_model_builder *builder, iso_value x, const char *name,
                               int layer, int64_t length);

typedef struct iso_attention_options {
  bool qk_norm; /* RMS norm of each head of q and k before rope */
  bool local;   /* sliding window, and the local rotary table where there is one */
} iso_attention_options;
/* Projections, rope, cache write, paged attention, output projection: [T, hidden] -> same. */
iso_value iso_block_attention(iso_model_builder *builder, iso_value x, int layer,
                              iso_attention_options attention);
/* down(activation(gate(x)) * up(x)). */
iso_value iso_block_mlp(iso_model_builder *builder, iso_value x, int layer);
iso_value iso_block_add(iso_model_builder *builder, iso_value a, iso_value b);
/* Final norm, the wanted rows, output head (the embedding table when tied), soft cap;
 * marks "hidden" and "logits". */
void iso_block_head(iso_model_builder *builder, iso_value x);

/* The whole of a plain pre-norm decoder: embedding, layers of attention and MLP, head. */
void iso_block_plain_decoder(iso_model_builder *builder, iso_attention_options attention);

/* Fails where a decoder's weight in the model's files is not among the graph's, naming it. */
ISO_MUST_CHECK iso_status iso_model_check_all_read(const iso_model *model, const iso_graph *graph);

/* The rotary table of a configuration for a context length, malloc'ed, rotary_dim / 2 numbers, and
 * the magnitude that goes with it. */
ISO_MUST_CHECK iso_status iso_rope_table_create(const iso_rope_config *rope, int32_t context,
                                                float **out_table, float *out_magnitude);

/* Names of the computed rotary tables, served as weights. */
#define ISO_ROPE_TABLE "rope.frequencies"
#define ISO_ROPE_LOCAL_TABLE "rope.local_frequencies"

#endif
