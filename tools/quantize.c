/* `isomer quantize`: the same model with its matrices in another scheme. */
#include "core/progress.h"
#include "models/formats/gguf_writer.h"
#include "models/model.h"
#include "tools/json_output.h"
#include "tools/scheme_recipe.h"
#include "tools/tool.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Elements that one thread decodes and encodes at a time, or one row where that is longer. */
enum { CHUNK_ELEMENTS = 1 << 18, MAX_THREADS = 64 };

typedef struct conversion {
  const iso_gguf *input;
  iso_gguf_writer *output;
  iso_scheme *schemes; /* of each tensor in the output */
  int n_threads;
  uint64_t bytes, written; /* of all tensors of the output */
  iso_scheme_fallbacks fallbacks;
  iso_progress_bar bar;
} conversion;

/* ---- Rows ------------------------------------------------------------------------------------ */

/* What one thread turns over. */
typedef struct slice {
  pthread_t thread;
  bool has_thread;
  const uint8_t *source;
  uint8_t *target;
  float *values; /* one row */
  iso_scheme from, to;
  int64_t n_rows, columns;
  uint64_t source_row_bytes, target_row_bytes;
  int64_t bad_row; /* the first row that cannot be stored, and its value; -1: all can */
  float bad_value;
} slice;

/* The element of largest magnitude, or the first that is no number. */
static int64_t find_largest(const float *values, int64_t count) {
  int64_t largest = 0;
  for (int64_t i = 0; i < count; i++) {
    if (!isfinite(values[i]))
      return i;
    if (fabsf(values[i]) > fabsf(values[largest]))
      largest = i;
  }
  return largest;
}

/* Encoders take any value: NaN gives zeros, and what is too large for a half, of which scales are
 * made too, gives infinity or another number. A file of these would look like a model. So what is
 * no number is refused, and so is what is far from its value once it is read back, which is only
 * done where values are as large as that. */
static void encode_row(slice *self, int64_t row) {
  const float largest_half = 65504;
  uint8_t *target = self->target + (uint64_t)row * self->target_row_bytes;
  int64_t at = find_largest(self->values, self->columns);
  const float value = self->values[at];
  self->bad_row = row;
  self->bad_value = value;
  if (!isfinite(value))
    return;
  iso_scheme_encode_row(self->to, self->values, NULL, target, self->columns);
  if (fabsf(value) > largest_half / 2) {
    iso_scheme_decode_row(self->to, target, self->values, self->columns);
    if (!(fabsf(self->values[at] - value) <= fabsf(value) / 2))
      return;
  }
  self->bad_row = -1;
}

static void *convert_slice(void *context) {
  slice *self = context;
  self->bad_row = -1;
  for (int64_t row = 0; row < self->n_rows && self->bad_row < 0; row++) {
    iso_scheme_decode_row(self->from, self->source + (uint64_t)row * self->source_row_bytes,
                          self->values, self->columns);
    encode_row(self, row);
  }
  return NULL;
}

/* Runs the slices at once; one that gets no thread runs here. */
static void convert_slices(slice *slices, int n) {
  for (int i = 1; i < n; i++)
    slices[i].has_thread = pthread_create(&slices[i].thread, NULL, convert_slice, &slices[i]) == 0;
  convert_slice(&slices[0]);
  for (int i = 1; i < n; i++)
    if (slices[i].has_thread)
      pthread_join(slices[i].thread, NULL);
    else
      convert_slice(&slices[i]);
}

static iso_status append(conversion *self, const void *data, uint64_t bytes) {
  if (iso_tool_interrupted())
    return iso_fail(ISO_ERROR_CANCELLED, "interrupted; nothing was written");
  ISO_TRY(iso_gguf_writer_append(self->output, data, bytes));
  self->written += bytes;
  iso_progress_bar_update(&self->bar, "quantizing", self->written, self->bytes);
  return ISO_OK;
}

static iso_status check_slices(const iso_file_tensor *tensor, const slice *slices, int n,
                               int64_t first_row) {
  for (int i = 0; i < n; first_row += slices[i++].n_rows) {
    const slice *part = &slices[i];
    if (part->bad_row < 0)
      continue;
    long long row = (long long)(first_row + part->bad_row);
    if (!isfinite(part->bad_value))
      return iso_fail(ISO_ERROR_CORRUPT_DATA, "row %lld of %s holds %s; the model is broken", row,
                      tensor->name, isnan(part->bad_value) ? "NaN" : "an infinity");
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    "row %lld of %s holds %g, which %s cannot; bf16 and f32 can", row, tensor->name,
                    (double)part->bad_value, iso_scheme_get_info(part->to)->name);
  }
  return ISO_OK;
}

/* `rows` at a time go through `slices`, whose targets lie one behind the other in `target`. */
static iso_status convert_rows(conversion *self, const iso_file_tensor *tensor, slice *slices,
                               int64_t n_rows, int64_t rows_a_slice, uint8_t *target) {
  const uint8_t *source = tensor->data;
  for (int64_t row = 0; row < n_rows;) {
    int n = 0;
    int64_t first = row;
    for (; n < self->n_threads && row < n_rows; n++) {
      slices[n].n_rows = n_rows - row < rows_a_slice ? n_rows - row : rows_a_slice;
      slices[n].source = source + (uint64_t)row * slices[n].source_row_bytes;
      slices[n].target = target + (uint64_t)(row - first) * slices[n].target_row_bytes;
      row += slices[n].n_rows;
    }
    convert_slices(slices, n);
    ISO_TRY(check_slices(tensor, slices, n, first));
    ISO_TRY(append(self, target, (uint64_t)(row - first) * slices[0].target_row_bytes));
  }
  return ISO_OK;
}

static iso_status convert_tensor(conversion *self, const iso_file_tensor *tensor, iso_scheme to) {
  int64_t columns = tensor->dims[tensor->n_dims - 1], n_rows = 1;
  for (int i = 0; i + 1 < tensor->n_dims; i++)
    n_rows *= tensor->dims[i]; /* the reader checked that bytes do not overflow */
  int64_t rows_a_slice = columns < CHUNK_ELEMENTS ? CHUNK_ELEMENTS / columns : 1;
  slice slices[MAX_THREADS] = {0};
  uint64_t source_row_bytes, target_row_bytes;
  ISO_TRY(iso_scheme_row_bytes(tensor->scheme, columns, &source_row_bytes));
  ISO_TRY(iso_scheme_row_bytes(to, columns, &target_row_bytes));
  float *values = calloc((size_t)self->n_threads * (size_t)columns, sizeof *values);
  uint8_t *target = malloc((size_t)self->n_threads * (size_t)rows_a_slice * target_row_bytes);
  for (int i = 0; i < self->n_threads; i++)
    slices[i] = (slice){.values = values ? values + (size_t)i * (size_t)columns : NULL,
                        .from = tensor->scheme,
                        .to = to,
                        .columns = columns,
                        .source_row_bytes = source_row_bytes,
                        .target_row_bytes = target_row_bytes};
  iso_status status =
      values && target
          ? convert_rows(self, tensor, slices, n_rows, rows_a_slice, target)
          : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for rows of %s", tensor->name);
  free(values);
  free(target);
  return status;
}

/* ---- The file -------------------------------------------------------------------------------- */

/* Norms and biases, which are single rows, stay as they are; so do a router's scores, which choose
 * experts. */
static bool is_matrix(const iso_file_tensor *tensor) {
  return tensor->n_dims >= 2 && !strstr(tensor->name, "ffn_gate_inp");
}

static iso_status add_metadata(conversion *self, const iso_scheme_recipe *recipe) {
  uint32_t file_type;
  for (uint64_t i = 0; i < iso_gguf_value_count(self->input); i++) {
    const iso_gguf_value *value = iso_gguf_value_at(self->input, i);
    /* What described the old file alone: its mixture of types, its shards. */
    if (strcmp(value->key, "general.file_type") != 0 && strncmp(value->key, "split.", 6) != 0 &&
        strcmp(value->key, "general.quantization_version") != 0)
      ISO_TRY(iso_gguf_writer_add_value(self->output, value));
  }
  if (iso_scheme_recipe_file_type(recipe, &file_type))
    ISO_TRY(iso_gguf_writer_add_u32(self->output, "general.file_type", file_type));
  return iso_gguf_writer_add_u32(self->output, "general.quantization_version", 2);
}

static iso_status add_tensors(conversion *self, const iso_scheme_recipe *recipe,
                              const iso_model_config *config) {
  uint64_t count = iso_gguf_tensor_count(self->input);
  self->schemes = calloc(count ? count : 1, sizeof *self->schemes);
  if (!self->schemes)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %llu tensors",
                    (unsigned long long)count);
  for (uint64_t i = 0; i < count; i++) {
    const iso_file_tensor *tensor = iso_gguf_tensor_at(self->input, i);
    int64_t columns = tensor->dims[tensor->n_dims - 1];
    if (tensor->scheme >= ISO_SCHEME_COUNT)
      return iso_fail(ISO_ERROR_UNSUPPORTED, "%s is stored as %s, which Isomer cannot read",
                      tensor->name, tensor->type_name);
    self->schemes[i] = tensor->scheme;
    if (is_matrix(tensor)) {
      iso_scheme wanted =
          iso_scheme_recipe_want(recipe, tensor->name, config->n_layers, config->tied_embeddings);
      self->schemes[i] = iso_scheme_recipe_fit(wanted, columns);
      iso_scheme_fallbacks_note(&self->fallbacks, wanted, self->schemes[i]);
    }
    ISO_TRY(iso_gguf_writer_add_tensor(self->output, tensor->name, self->schemes[i], tensor->n_dims,
                                       tensor->dims));
    uint64_t row_bytes, bytes = 1;
    ISO_TRY(iso_scheme_row_bytes(self->schemes[i], columns, &row_bytes));
    for (int d = 0; d + 1 < tensor->n_dims; d++)
      bytes *= (uint64_t)tensor->dims[d];
    self->bytes += bytes * row_bytes;
  }
  return ISO_OK;
}

static iso_status convert_all(conversion *self, const iso_scheme_recipe *recipe,
                              const iso_model_config *config) {
  ISO_TRY(add_metadata(self, recipe));
  ISO_TRY(add_tensors(self, recipe, config));
  iso_scheme_fallbacks_print(&self->fallbacks);
  iso_progress_bar_begin(&self->bar, stderr);
  for (uint64_t i = 0; i < iso_gguf_tensor_count(self->input); i++) {
    const iso_file_tensor *tensor = iso_gguf_tensor_at(self->input, i);
    if (self->schemes[i] == tensor->scheme)
      ISO_TRY(append(self, tensor->data, tensor->bytes));
    else
      ISO_TRY(convert_tensor(self, tensor, self->schemes[i]));
  }
  return iso_gguf_writer_finish(self->output);
}

static iso_status print_result(const iso_options *options, const conversion *self,
                               uint64_t input_bytes, const char *path) {
  char from[16], to[16];
  if (options->json) {
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "path", path);
    cJSON_AddStringToObject(root, "scheme", options->scheme);
    cJSON_AddNumberToObject(root, "input_bytes", (double)input_bytes);
    cJSON_AddNumberToObject(root, "tensor_bytes", (double)self->bytes);
    return iso_json_output_print(root);
  }
  printf("%s: %s, %s of tensors from %s\n", path, options->scheme,
         iso_tool_format_bytes(self->bytes, to, sizeof to),
         iso_tool_format_bytes(input_bytes, from, sizeof from));
  return ISO_OK;
}

static iso_status quantize(const iso_options *options, const iso_model *model, const char *path) {
  iso_scheme_recipe recipe;
  ISO_TRY(iso_scheme_recipe_parse(options->scheme, &recipe));
  if (!model->gguf)
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    "only GGUF files can be quantized; a Hugging Face folder "
                    "has to be converted to GGUF first");
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  conversion self = {.input = model->gguf,
                     .n_threads = options->threads > 0 ? (int)options->threads : (int)online};
  self.n_threads = self.n_threads < 1             ? 1
                   : self.n_threads > MAX_THREADS ? MAX_THREADS
                                                  : self.n_threads;
  uint64_t input_bytes = 0;
  for (uint64_t i = 0; i < iso_gguf_tensor_count(model->gguf); i++)
    input_bytes += iso_gguf_tensor_at(model->gguf, i)->bytes;
  ISO_TRY(iso_gguf_writer_create(path, &self.output));
  iso_status status = convert_all(&self, &recipe, &model->config);
  iso_gguf_writer_destroy(self.output);
  free(self.schemes);
  if (status == ISO_OK)
    status = print_result(options, &self, input_bytes, path);
  return status;
}

iso_status iso_command_quantize(iso_options *options, int *out_exit) {
  (void)out_exit;
  int first = options->model ? 0 : 1;
  if (options->words.n != first + 1)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "quantize takes a model and an output, as in: isomer quantize model.gguf "
                    "smaller.gguf --scheme q4_k_m");
  iso_tool_catch_end();
  iso_model *model;
  ISO_TRY(iso_tool_open_model(options, true, &model));
  iso_status status = quantize(options, model, options->words.items[first]);
  iso_model_close(model);
  return status;
}
