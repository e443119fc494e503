/* Tensors of a model that its graph does not read: a bias, a norm or a whole layer left out gives
 * fluent text of another model, so they are refused. */
#include "models/builder.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
  uintptr_t left = (uintptr_t) * (const void *const *)a,
            right = (uintptr_t) * (const void *const *)b;
  return left < right ? -1 : left > right;
}

/* The tensors that the graph's weights come from, in order. */
static iso_status list_read(const iso_model *model, const iso_graph *graph,
                            const iso_file_tensor ***out_list, size_t *out_count) {
  int32_t values = iso_graph_value_count(graph);
  const iso_file_tensor **list = calloc((size_t)values + 1, sizeof *list);
  if (!list)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to look through the model's tensors");
  size_t count = 0;
  for (int32_t i = 0; i < values; i++) {
    const iso_value_info *value = iso_graph_get_value(graph, i);
    const iso_file_tensor *tensor =
        value->role == ISO_VALUE_WEIGHT ? iso_model_find_tensor(model, value->name) : NULL;
    const iso_quantized_tensor *quantized = iso_quantized_of(&model->quantized, tensor);
    if (tensor)
      list[count++] = quantized ? quantized->codes.tensor : tensor;
  }
  qsort(list, count, sizeof *list, compare);
  *out_list = list;
  *out_count = count;
  return ISO_OK;
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), end_length = strlen(end);
  return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* A name without the longest of the prefixes that folders give the decoder. */
static const char *in_decoder(const char *name) {
  size_t longest = 0;
  for (size_t i = 0; iso_weight_hf_prefix(i); i++) {
    size_t length = strlen(iso_weight_hf_prefix(i));
    if (length > longest && strncmp(name, iso_weight_hf_prefix(i), length) == 0)
      longest = length;
  }
  return name + longest;
}

/* Whether a name is of a weight that the model's result depends on, as far as names tell: files
 * carry tables, counters and scales of activations beside them. */
static bool is_weight(const iso_model *model, const char *name) {
  static const char *const layers[2] = {"layers.", "blk."};
  static const char *const others[] = {"norm.bias", "lm_head.bias", "output.bias",
                                       "output_norm.bias", "embed_tokens.bias"};
  const char *rest = model->gguf ? name : in_decoder(name);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strcmp(rest, others[i]) == 0)
      return true;
  const char *start = layers[model->gguf != NULL];
  if (strncmp(rest, start, strlen(start)) != 0 || strstr(rest, "rot"))
    return false;
  return ends_with(rest, ".weight") || ends_with(rest, ".bias") || ends_with(rest, ".scale");
}

iso_status iso_model_check_all_read(const iso_model *model, const iso_graph *graph) {
  const iso_file_tensor **list = NULL;
  size_t count = 0;
  ISO_TRY(list_read(model, graph, &list, &count));
  const iso_file_tensor *unread = NULL;
  for (uint64_t i = 0; i < iso_model_file_tensor_count(model) && !unread; i++) {
    const iso_file_tensor *tensor = iso_model_file_tensor(model, i);
    if (is_weight(model, tensor->name) && !bsearch(&tensor, list, count, sizeof *list, compare))
      unread = tensor;
  }
  free(list);
  return unread ? iso_fail(ISO_ERROR_UNSUPPORTED,
                           "tensor %s is no part of %s as it is known here: without it the model "
                           "would be another one",
                           unread->name, model->config.architecture)
                : ISO_OK;
}
