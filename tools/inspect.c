#include "tools/json_output.h"
#include "tools/tool.h"

#include <isomer/graph.h>
#include <isomer/ops.h>

#include <stdio.h>
#include <stdlib.h>

/* Memory that a model needs, in bytes. */
typedef struct memory_need {
  uint64_t weights, cache, cache_per_token;
  int32_t context;
} memory_need;

static iso_status measure(const iso_options *options, const iso_model *model,
                          memory_need *out_need) {
  const iso_model_config *config = iso_model_get_config(model);
  iso_scheme scheme = ISO_SCHEME_F32;
  if (options->kv_type && (!iso_scheme_from_name(options->kv_type, &scheme) ||
                           !(iso_operand_schemes(ISO_OPERAND_KV) & ISO_SCHEME_BIT(scheme))))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "--kv-type %s is none of f32, f16, bf16, q8_0, f8_g128", options->kv_type);
  *out_need = (memory_need){.context = (int32_t)options->context};
  if (out_need->context == 0)
    out_need->context = config->context_length;
  for (uint32_t i = 0; i < iso_model_tensor_count(model); i++) {
    iso_model_tensor tensor;
    iso_model_get_tensor(model, i, &tensor);
    out_need->weights += tensor.bytes;
  }
  uint64_t row;
  ISO_TRY(iso_scheme_row_bytes(scheme, config->head_dim, &row));
  out_need->cache_per_token = 2 * row * (uint64_t)config->n_kv_heads * (uint64_t)config->n_layers;
  out_need->cache =
      out_need->cache_per_token * (uint64_t)out_need->context * (uint64_t)options->sequences;
  return ISO_OK;
}

typedef struct scheme_total {
  uint32_t tensors;
  uint64_t bytes, elements;
} scheme_total;

static void total_schemes(const iso_model *model, scheme_total *out_totals) {
  for (uint32_t i = 0; i < iso_model_tensor_count(model); i++) {
    iso_model_tensor tensor;
    iso_model_get_tensor(model, i, &tensor);
    if (tensor.scheme >= ISO_SCHEME_COUNT)
      continue;
    uint64_t elements = 1;
    for (uint32_t d = 0; d < tensor.n_dims; d++)
      elements *= (uint64_t)tensor.dims[d];
    out_totals[tensor.scheme].tensors++;
    out_totals[tensor.scheme].bytes += tensor.bytes;
    out_totals[tensor.scheme].elements += elements;
  }
}

static void print_tensors(const iso_model *model) {
  puts("\nTensors");
  for (uint32_t i = 0; i < iso_model_tensor_count(model); i++) {
    iso_model_tensor tensor;
    char bytes[16];
    iso_model_get_tensor(model, i, &tensor);
    const iso_scheme_info *scheme = iso_scheme_get_info(tensor.scheme);
    printf("  %-44s %-7s %9s  [", tensor.name, scheme ? scheme->name : "?",
           iso_tool_format_bytes(tensor.bytes, bytes, sizeof bytes));
    for (uint32_t d = 0; d < tensor.n_dims; d++)
      printf("%s%lld", d ? ", " : "", (long long)tensor.dims[d]);
    puts("]");
  }
}

static void print_text(const iso_options *options, const iso_model *model,
                       const memory_need *need) {
  const iso_model_config *config = iso_model_get_config(model);
  char bytes[4][16];
  printf("%s\n  architecture       %s\n  layers             %d\n  hidden size        %d\n"
         "  intermediate size  %d\n  attention heads    %d (kv %d), %d wide\n"
         "  vocabulary         %d%s\n  trained context    %d tokens\n  rope theta         %g\n",
         config->name[0] ? config->name : options->model, config->architecture, config->n_layers,
         config->hidden_size, config->intermediate_size, config->n_heads, config->n_kv_heads,
         config->head_dim, config->vocabulary_size,
         config->tied_embeddings ? ", head tied to the embedding" : "", config->context_length,
         (double)config->rope.theta);
  if (config->sliding_window)
    printf("  sliding window     %d tokens\n", config->sliding_window);
  scheme_total totals[ISO_SCHEME_COUNT] = {{0}};
  total_schemes(model, totals);
  puts("\nWeights");
  uint64_t parameters = 0;
  for (int i = 0; i < ISO_SCHEME_COUNT; i++) {
    parameters += totals[i].elements;
    if (totals[i].tensors)
      printf("  %-8s %4u tensors  %9s  %.1f M elements\n", iso_scheme_get_info((iso_scheme)i)->name,
             totals[i].tensors, iso_tool_format_bytes(totals[i].bytes, bytes[0], sizeof bytes[0]),
             (double)totals[i].elements / 1e6);
  }
  printf("  %.1f M parameters\n", (double)parameters / 1e6);
  printf("\nMemory for %lld sequence%s of %d tokens, cache in %s\n  weights  %9s\n"
         "  cache    %9s (%s a token)\n  total    %9s\n",
         (long long)options->sequences, options->sequences == 1 ? "" : "s", need->context,
         options->kv_type ? options->kv_type : "f32",
         iso_tool_format_bytes(need->weights, bytes[0], sizeof bytes[0]),
         iso_tool_format_bytes(need->cache, bytes[1], sizeof bytes[1]),
         iso_tool_format_bytes(need->cache_per_token, bytes[2], sizeof bytes[2]),
         iso_tool_format_bytes(need->weights + need->cache, bytes[3], sizeof bytes[3]));
  if (options->tensors)
    print_tensors(model);
}

/* Whether the model can be run, as far as headers tell: its tensors are those of its architecture.
 */
static iso_status check_tensors(const iso_model *model) {
  enum { PAGE = 64 }; /* a graph of one page is enough to look for weights */
  const iso_model_graph_options options = {.max_tokens = 1,
                                           .max_sequences = 1,
                                           .max_logit_rows = 1,
                                           .n_pages = 1,
                                           .page_size = PAGE,
                                           .max_context = PAGE,
                                           .kv_scheme = ISO_SCHEME_F32,
                                           .activation = ISO_SCHEME_F32};
  iso_graph *graph;
  ISO_TRY(iso_model_build_graph(model, &options, &graph));
  iso_graph_destroy(graph);
  return ISO_OK;
}

/* `problem`: why the model cannot be run; NULL: it can. */
static iso_status print_json(const iso_options *options, const iso_model *model,
                             const memory_need *need, const char *problem) {
  const iso_model_config *config = iso_model_get_config(model);
  const struct {
    const char *name;
    double value;
  } numbers[] = {{"n_layers", config->n_layers},
                 {"hidden_size", config->hidden_size},
                 {"intermediate_size", config->intermediate_size},
                 {"n_heads", config->n_heads},
                 {"n_kv_heads", config->n_kv_heads},
                 {"head_dim", config->head_dim},
                 {"vocabulary_size", config->vocabulary_size},
                 {"context_length", config->context_length},
                 {"rope_theta", (double)config->rope.theta},
                 {"sliding_window", config->sliding_window},
                 {"weight_bytes", (double)need->weights},
                 {"cache_bytes", (double)need->cache},
                 {"cache_bytes_per_token", (double)need->cache_per_token}};
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "name", config->name);
  cJSON_AddStringToObject(root, "architecture", config->architecture);
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    cJSON_AddNumberToObject(root, numbers[i].name, numbers[i].value);
  cJSON_AddBoolToObject(root, "tied_embeddings", config->tied_embeddings);
  if (problem)
    cJSON_AddStringToObject(root, "problem", problem);
  else
    cJSON_AddNullToObject(root, "problem");
  cJSON *tensors = options->tensors ? cJSON_AddArrayToObject(root, "tensors") : NULL;
  for (uint32_t i = 0; tensors && i < iso_model_tensor_count(model); i++) {
    iso_model_tensor tensor;
    iso_model_get_tensor(model, i, &tensor);
    const iso_scheme_info *scheme = iso_scheme_get_info(tensor.scheme);
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(tensors, item);
    cJSON_AddStringToObject(item, "name", tensor.name);
    cJSON_AddStringToObject(item, "scheme", scheme ? scheme->name : "unsupported");
    cJSON *dims = cJSON_AddArrayToObject(item, "dims");
    for (uint32_t d = 0; d < tensor.n_dims; d++)
      cJSON_AddItemToArray(dims, cJSON_CreateNumber((double)tensor.dims[d]));
    cJSON_AddNumberToObject(item, "bytes", (double)tensor.bytes);
  }
  return iso_json_output_print(root);
}

static iso_status inspect(const iso_options *options, const iso_model *model) {
  memory_need need = {0};
  char sentence[512];
  ISO_TRY(measure(options, model, &need));
  iso_status problem = check_tensors(model);
  snprintf(sentence, sizeof sentence, "%s", iso_status_message());
  if (options->json)
    ISO_TRY(print_json(options, model, &need, problem == ISO_OK ? NULL : sentence));
  else
    print_text(options, model, &need);
  return problem == ISO_OK ? ISO_OK : iso_fail(problem, "it cannot be run: %s", sentence);
}

iso_status iso_command_inspect(iso_options *options, int *out_exit) {
  (void)out_exit;
  iso_model *model;
  ISO_TRY(iso_tool_open_model(options, true, &model));
  iso_status status = inspect(options, model);
  iso_model_close(model);
  return status;
}
