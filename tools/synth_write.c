#include "tools/synth.h"

#include "ops/rope_scaling.h"
#include "tools/synth_rows.h"
#include "tools/tool.h"
#include <stdlib.h>

/* Bytes handed to the sink at a time, or one row where that is longer. */
enum { CHUNK_BYTES = 1 << 20, MAX_SEGMENT_SETS = 16 };

typedef struct output {
  const iso_synth_model *model;
  const iso_synth_sink *sink;
  iso_synth_segments sets[MAX_SEGMENT_SETS]; /* one for each scheme and row length met */
  int n_sets;
  uint64_t written;
  iso_progress_bar bar;
} output;

static iso_status find_segments(output *self, iso_scheme scheme, int64_t columns,
                                const iso_synth_segments **out_segments) {
  for (int i = 0; i < self->n_sets; i++) {
    *out_segments = &self->sets[i];
    if (self->sets[i].scheme == scheme && self->sets[i].columns == columns)
      return ISO_OK;
  }
  if (self->n_sets == MAX_SEGMENT_SETS)
    return iso_fail(ISO_ERROR_INTERNAL, "more than %d kinds of matrices", MAX_SEGMENT_SETS);
  iso_synth_segments *fresh = &self->sets[self->n_sets++];
  *out_segments = fresh;
  return iso_synth_segments_create(self->model->seed, scheme, columns, fresh);
}

/* The row that a file's row stands for. With pair_rows, row 2 i + b of a head is row
 * i + b * head_dim / 2 of a file that keeps the halves apart. */
static int64_t source_row(const output *self, const iso_synth_tensor *tensor, int64_t row) {
  int64_t width = self->model->config.head_dim, within = row % width;
  return tensor->pair_rows ? row - within + within / 2 + within % 2 * (width / 2) : row;
}

static iso_status append(output *self, const void *data, uint64_t bytes) {
  if (iso_tool_interrupted())
    return iso_fail(ISO_ERROR_CANCELLED, "interrupted; nothing was written");
  ISO_TRY(self->sink->append(self->sink->writer, data, bytes));
  self->written += bytes;
  iso_progress_bar_update(&self->bar, "writing", self->written, self->model->bytes);
  return ISO_OK;
}

static iso_status write_matrix(output *self, const iso_synth_tensor *tensor) {
  const iso_synth_segments *segments;
  uint64_t row_bytes, key = iso_synth_key(self->model->seed, tensor->name);
  ISO_TRY(iso_scheme_row_bytes(tensor->scheme, tensor->dims[1], &row_bytes));
  ISO_TRY(find_segments(self, tensor->scheme, tensor->dims[1], &segments));
  int64_t rows_a_chunk = (int64_t)(CHUNK_BYTES / row_bytes);
  if (rows_a_chunk == 0)
    rows_a_chunk = 1;
  uint8_t *chunk = malloc((size_t)rows_a_chunk * row_bytes);
  if (!chunk)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for rows of %s", tensor->name);
  iso_status status = ISO_OK;
  for (int64_t row = 0; row < tensor->dims[0] && status == ISO_OK; row += rows_a_chunk) {
    int64_t count = tensor->dims[0] - row < rows_a_chunk ? tensor->dims[0] - row : rows_a_chunk;
    for (int64_t i = 0; i < count; i++)
      iso_synth_fill_row(segments, key, tensor->dims[0], source_row(self, tensor, row + i),
                         chunk + (uint64_t)i * row_bytes);
    status = append(self, chunk, (uint64_t)count * row_bytes);
  }
  free(chunk);
  return status;
}

/* What frequencies are divided by, as GGUF files carry Llama 3.1's scaling. */
static iso_status fill_rope_factors(const iso_model_config *config, float *out_values) {
  int32_t pairs = config->rope.rotary_dim / 2;
  iso_rope_config plain = config->rope;
  plain.scaling = ISO_ROPE_SCALING_NONE;
  float magnitude, *scaled = malloc((size_t)pairs * sizeof *scaled);
  if (!scaled)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for rotary frequencies");
  iso_status status = iso_rope_frequencies(&plain, config->context_length, out_values, &magnitude);
  if (status == ISO_OK)
    status = iso_rope_frequencies(&config->rope, config->context_length, scaled, &magnitude);
  for (int32_t i = 0; i < pairs && status == ISO_OK; i++)
    out_values[i] /= scaled[i];
  free(scaled);
  return status;
}

static iso_status write_vector(output *self, const iso_synth_tensor *tensor) {
  const iso_model_config *config = &self->model->config;
  int64_t count = tensor->dims[0];
  uint64_t bytes, key = iso_synth_key(self->model->seed, tensor->name);
  ISO_TRY(iso_scheme_row_bytes(tensor->scheme, count, &bytes));
  float *values = malloc((size_t)count * sizeof *values);
  void *encoded = malloc(bytes);
  iso_status status = values && encoded
                          ? ISO_OK
                          : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %s", tensor->name);
  if (status == ISO_OK && tensor->kind == ISO_SYNTH_ROPE_FACTORS)
    status = fill_rope_factors(config, values);
  else if (status == ISO_OK)
    iso_synth_fill_vector(key, tensor->kind == ISO_SYNTH_NORM ? 1 - config->norm_weight_offset : 0,
                          count, values);
  if (status == ISO_OK) {
    iso_scheme_encode_row(tensor->scheme, values, NULL, encoded, count);
    status = append(self, encoded, bytes);
  }
  free(values);
  free(encoded);
  return status;
}

iso_status iso_synth_write_tensors(const iso_synth_model *model, const iso_synth_sink *sink) {
  output self = {.model = model, .sink = sink};
  iso_progress_bar_begin(&self.bar, stderr);
  iso_status status = ISO_OK;
  for (int i = 0; i < model->n_tensors && status == ISO_OK; i++)
    status = sink->add_tensor(sink->writer, model->tensors[i].file_name, model->tensors[i].scheme,
                              model->tensors[i].n_dims, model->tensors[i].dims);
  for (int i = 0; i < model->n_tensors && status == ISO_OK; i++)
    status = model->tensors[i].kind == ISO_SYNTH_MATRIX ? write_matrix(&self, &model->tensors[i])
                                                        : write_vector(&self, &model->tensors[i]);
  for (int i = 0; i < self.n_sets; i++)
    iso_synth_segments_free(&self.sets[i]);
  return status;
}
