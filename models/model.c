#include "models/model.h"

#include "models/adapter.h"
#include "models/builder.h"
#include "models/tokenizer/tokenizer.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Views of no data are templates that there are not. "tool_use" beside the default is transformers'
 * name for the one that takes tools. */
static iso_status create_templates(iso_text_view text, iso_text_view of_tools, iso_model *model) {
  if (text.data)
    ISO_TRY(iso_chat_template_create(text.data, text.length, &model->chat_template));
  return text.data && of_tools.data
             ? iso_chat_template_create(of_tools.data, of_tools.length, &model->tool_template)
             : ISO_OK;
}

/* Files that people point at in place of the folder that they are in. */
static iso_status check_is_whole(const char *path) {
  static const char *const parts[] = {".safetensors", ".safetensors.index.json", "config.json"};
  size_t length = strlen(path);
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    size_t end = strlen(parts[i]);
    if (length >= end && strcmp(path + length - end, parts[i]) == 0)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "%s is a part of a Hugging Face folder; give the folder", path);
  }
  return ISO_OK;
}

static iso_status open_gguf(const char *path, const iso_model_options *options, iso_model *model) {
  ISO_TRY(check_is_whole(path));
  ISO_TRY(iso_gguf_open(path, &model->gguf));
  ISO_TRY(iso_config_read_gguf(model));
  if (options && options->no_tokenizer)
    return ISO_OK;
  ISO_TRY(iso_tokenizer_create_from_gguf(model->gguf, &model->tokenizer));
  iso_text_view text = {NULL, 0}, of_tools = {NULL, 0};
  ISO_TRY(iso_gguf_get_optional_string(model->gguf, "tokenizer.chat_template", &text));
  ISO_TRY(iso_gguf_get_optional_string(model->gguf, "tokenizer.chat_template.tool_use", &of_tools));
  return create_templates(text, of_tools, model);
}

static iso_status open_folder(const char *path, const iso_model_options *options,
                              iso_model *model) {
  bool need_tokenizer = !options || !options->no_tokenizer;
  ISO_TRY(iso_hf_folder_open(path, need_tokenizer, &model->folder));
  ISO_TRY(iso_quantized_open(model->folder, &model->quantized));
  ISO_TRY(iso_config_read_hf(model));
  if (!need_tokenizer)
    return ISO_OK;
  ISO_TRY(iso_tokenizer_create_from_folder(path, &model->tokenizer));
  const char *text = iso_hf_folder_chat_template(model->folder, NULL);
  const char *of_tools = iso_hf_folder_chat_template(model->folder, "tool_use");
  return create_templates((iso_text_view){text, text ? strlen(text) : 0},
                          (iso_text_view){of_tools, of_tools ? strlen(of_tools) : 0}, model);
}

iso_status iso_model_open(const char *path, const iso_model_options *options,
                          iso_model **out_model) {
  struct stat info;
  if (!*path)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the model's path is empty");
  if (stat(path, &info) != 0)
    return errno == ENOENT || errno == ENOTDIR
               ? iso_fail(ISO_ERROR_NOT_FOUND, "%s: no such file or folder", path)
               : iso_fail(ISO_ERROR_IO, "cannot open %s: %s", path, strerror(errno));
  iso_model *model = calloc(1, sizeof *model);
  if (!model)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to open %s", path);
  iso_status status =
      S_ISDIR(info.st_mode) ? open_folder(path, options, model) : open_gguf(path, options, model);
  if (status == ISO_OK && model->chat_template)
    status = iso_special_texts_create(model->tokenizer, &model->special_texts);
  if (status == ISO_OK)
    status = iso_model_list_tensors(model);
  if (status == ISO_OK)
    status = iso_model_load_parameters(model);
  if (status != ISO_OK) {
    iso_model_close(model);
    return strstr(iso_status_message(), path) ? status : iso_fail_context(status, "%s", path);
  }
  *out_model = model;
  return ISO_OK;
}

void iso_model_close(iso_model *model) {
  if (!model)
    return;
  for (uint32_t i = 0; i < model->n_parameters; i++)
    free(model->parameters[i].values);
  free(model->parameters);
  free(model->tensors);
  free(model->short_factors);
  free(model->long_factors);
  free(model->frequency_factors);
  iso_tokenizer_destroy(model->tokenizer);
  iso_chat_template_destroy(model->chat_template);
  iso_chat_template_destroy(model->tool_template);
  iso_special_texts_destroy(model->special_texts);
  iso_gguf_close(model->gguf);
  iso_quantized_close(&model->quantized);
  iso_hf_folder_close(model->folder);
  free(model);
}

const iso_model_config *iso_model_get_config(const iso_model *model) { return &model->config; }
const iso_tokenizer *iso_model_get_tokenizer(const iso_model *model) { return model->tokenizer; }
const iso_chat_template *iso_model_get_chat_template(const iso_model *model) {
  return model->chat_template;
}
const iso_chat_template *iso_model_template_for(const iso_model *model, bool has_tools) {
  return has_tools && model->tool_template ? model->tool_template : model->chat_template;
}
const iso_special_texts *iso_model_get_special_texts(const iso_model *model) {
  return model->special_texts;
}

/* Text of a special token, "" where the model has none; malloc'ed. */
static char *special_text(const iso_tokenizer *tokenizer, int32_t id) {
  size_t length = 0;
  const char *text = iso_tokenizer_token_text(tokenizer, id, &length);
  return strndup(text ? text : "", text ? length : 0);
}

iso_status iso_model_render_chat(const iso_model *model, const iso_chat_input *input,
                                 char **out_text, size_t *out_length) {
  char *bos = special_text(model->tokenizer, iso_tokenizer_bos_id(model->tokenizer));
  char *eos = special_text(model->tokenizer, iso_tokenizer_eos_id(model->tokenizer));
  iso_chat_input whole = *input;
  whole.bos_token = bos;
  whole.eos_token = eos;
  whole.now = time(NULL);
  iso_status status =
      bos && eos ? iso_chat_template_render(iso_model_template_for(model, input->tools != NULL),
                                            &whole, out_text, out_length)
                 : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a prompt");
  free(bos);
  free(eos);
  return status;
}

uint32_t iso_model_tensor_count(const iso_model *model) { return model->n_tensors; }

void iso_model_get_tensor(const iso_model *model, uint32_t index, iso_model_tensor *out) {
  const iso_file_tensor *tensor = model->tensors[index];
  *out = (iso_model_tensor){.name = tensor->name,
                            .scheme = tensor->scheme,
                            .n_dims = (uint32_t)tensor->n_dims,
                            .bytes = tensor->bytes};
  memcpy(out->dims, tensor->dims, sizeof out->dims);
}

uint64_t iso_model_weight_bytes(const iso_model *model) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < iso_model_tensor_count(model); i++) {
    iso_model_tensor tensor;
    iso_model_get_tensor(model, i, &tensor);
    bytes += tensor.bytes;
  }
  return bytes;
}

uint64_t iso_model_weight_elements(const iso_model *model) {
  uint64_t elements = 0;
  for (uint32_t i = 0; i < iso_model_tensor_count(model); i++) {
    iso_model_tensor tensor;
    iso_model_get_tensor(model, i, &tensor);
    uint64_t of_tensor = 1;
    for (uint32_t d = 0; d < tensor.n_dims; d++)
      of_tensor *= (uint64_t)tensor.dims[d];
    elements += of_tensor;
  }
  return elements;
}

static iso_status check_options(const iso_model_graph_options *options) {
  const struct {
    const char *name;
    int32_t value;
  } sizes[] = {
      {"max_tokens", options->max_tokens},         {"max_sequences", options->max_sequences},
      {"max_logit_rows", options->max_logit_rows}, {"n_pages", options->n_pages},
      {"page_size", options->page_size},           {"max_context", options->max_context}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    if (sizes[i].value <= 0)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "graph option %s must be positive, not %d",
                      sizes[i].name, sizes[i].value);
  /* Slots are page * page_size + row in an i32. */
  if ((int64_t)options->n_pages * options->page_size > INT32_MAX)
    return iso_fail(ISO_ERROR_LIMIT, "%d pages of %d tokens exceed 2^31 cache slots",
                    options->n_pages, options->page_size);
  return ISO_OK;
}

iso_status iso_model_build_graph(const iso_model *model, const iso_model_graph_options *options,
                                 iso_graph **out_graph) {
  ISO_TRY(check_options(options));
  ISO_TRY(iso_adapters_check(options->adapters, options->n_adapters, model));
  iso_graph *graph;
  ISO_TRY(iso_graph_create(&graph));
  iso_model_builder builder = {
      .model = model, .config = &model->config, .options = options, .graph = graph};
  iso_builder_begin(&builder);
  model->architecture->build(&builder);
  iso_status status = iso_graph_finish(graph);
  /* A missing tensor is the cause of whatever the graph then complains of. */
  if (builder.status != ISO_OK)
    status = builder.n_missing > 1
                 ? iso_fail(builder.status, "%s; %d tensors of its architecture are missing in all",
                            builder.message, builder.n_missing)
                 : iso_fail(builder.status, "%s", builder.message);
  if (status == ISO_OK)
    status = iso_model_check_all_read(model, graph);
  if (status != ISO_OK) {
    iso_graph_destroy(graph);
    return status;
  }
  *out_graph = graph;
  return ISO_OK;
}
