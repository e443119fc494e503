#include "tools/verify_run.h"

#include "core/plan.h"
#include "ops/shape.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A runtime under examination. */
typedef struct subject {
  const char *device;
  const iso_verify_prompt *prompt;
  const iso_verify_visitor *visitor;
  uint32_t n_threads;
  bool is_reference;
  iso_runtime *runtime;
  iso_executor *executor;
  const iso_graph *graph;
  int32_t n_values, n_nodes;
  iso_weight_provider weights;
  const iso_kernel **kernels; /* [node]: what ran in the latest step; NULL where nothing did */
  iso_bindings sizes;         /* of the latest step */
  uint8_t **before, **after;  /* [value]: states around the latest step; NULL for other values */
  int32_t *pages;
  uint32_t step;
} subject;

static iso_status no_memory(void) {
  return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory to look at a step");
}

/* ---- Values ---------------------------------------------------------------------------------- */

static iso_status value_bytes(const subject *s, iso_value value, uint64_t *out_bytes) {
  const iso_value_info *info = iso_graph_get_value(s->graph, value);
  iso_shape shape = info->shape;
  for (uint32_t d = 0; d < shape.n_dims; d++)
    shape.dims[d] = iso_dim_constant(iso_dim_size(shape.dims[d], &s->sizes));
  return iso_shape_bytes(&shape, info->scheme, out_bytes);
}

static bool is_state(const subject *s, iso_value value) {
  iso_value storage = iso_graph_get_value(s->graph, value)->storage;
  return iso_graph_get_value(s->graph, storage)->role == ISO_VALUE_STATE;
}

/* Copies a value to the host, dense; malloc'ed. */
static iso_status read_value(const subject *s, iso_value value, uint8_t **out_bytes) {
  uint64_t bytes;
  ISO_TRY(value_bytes(s, value, &bytes));
  *out_bytes = malloc((size_t)bytes + 1);
  return *out_bytes ? iso_executor_read(s->executor, value, *out_bytes, bytes) : no_memory();
}

/* Copies all states. */
static iso_status read_states(const subject *s, uint8_t **states) {
  for (iso_value v = 0; v < s->n_values; v++) {
    free(states[v]);
    states[v] = NULL;
    if (iso_graph_get_value(s->graph, v)->role == ISO_VALUE_STATE)
      ISO_TRY(read_value(s, v, &states[v]));
  }
  return ISO_OK;
}

/* ---- One node -------------------------------------------------------------------------------- */

/* The operands of a node in host memory. Some are the subject's or the model's. */
typedef struct node_operands {
  iso_verify_launch launch;
  uint8_t *owned[ISO_MAX_INPUTS + ISO_MAX_OUTPUTS];
  const char *weight; /* borrowed from the model; NULL: none */
} node_operands;

static iso_status make_dense(iso_tensor *tensor) {
  if (tensor->n_dims == 0)
    return ISO_OK;
  return iso_dense_strides(tensor->scheme, tensor->n_dims, tensor->dims, tensor->strides);
}

static iso_status gather_input(const subject *s, iso_value value, uint32_t i, node_operands *out) {
  const iso_value_info *info = iso_graph_get_value(s->graph, value);
  ISO_TRY(make_dense(&out->launch.arguments.inputs[i]));
  if (is_state(s, value)) {
    out->launch.inputs[i] = (info->producer < 0 ? s->before : s->after)[info->storage];
    return ISO_OK;
  }
  if (info->role == ISO_VALUE_WEIGHT) {
    iso_host_weight weight = {.size = sizeof weight};
    bool stays;
    ISO_TRY(s->weights.get(s->weights.context, info->name, &weight, &stays));
    out->launch.inputs[i] = weight.data;
    return ISO_OK;
  }
  ISO_TRY(read_value(s, value, &out->owned[i]));
  out->launch.inputs[i] = out->owned[i];
  return ISO_OK;
}

static iso_status gather_output(const subject *s, iso_value value, uint32_t i, node_operands *out) {
  ISO_TRY(make_dense(&out->launch.arguments.outputs[i]));
  if (is_state(s, value)) {
    out->launch.outputs[i] = s->after[iso_graph_get_value(s->graph, value)->storage];
    return ISO_OK;
  }
  ISO_TRY(read_value(s, value, &out->owned[ISO_MAX_INPUTS + i]));
  out->launch.outputs[i] = out->owned[ISO_MAX_INPUTS + i];
  return ISO_OK;
}

static iso_status gather(const subject *s, int32_t node, node_operands *out) {
  const iso_node_info *info = iso_graph_get_node(s->graph, node);
  *out = (node_operands){0};
  iso_plan_arguments(s->graph, node, &s->sizes, &out->launch.arguments);
  for (uint32_t i = 0; i < info->n_inputs && !s->is_reference; i++)
    if (info->inputs[i] != ISO_NO_VALUE)
      ISO_TRY(gather_input(s, info->inputs[i], i, out));
  for (uint32_t i = 0; i < info->n_outputs; i++)
    ISO_TRY(gather_output(s, info->outputs[i], i, out));
  return ISO_OK;
}

static void release(const subject *s, int32_t node, node_operands *operands) {
  const iso_node_info *info = iso_graph_get_node(s->graph, node);
  for (uint32_t i = 0; i < info->n_inputs && s->weights.done; i++) {
    const iso_value_info *value =
        info->inputs[i] == ISO_NO_VALUE ? NULL : iso_graph_get_value(s->graph, info->inputs[i]);
    if (value && value->role == ISO_VALUE_WEIGHT && operands->launch.inputs[i])
      s->weights.done(s->weights.context, value->name);
  }
  for (size_t i = 0; i < sizeof operands->owned / sizeof operands->owned[0]; i++)
    free(operands->owned[i]);
}

/* "[48, 576] q8_0 [1536, 576] -> [48, 1536]" of the activations and the weight. */
static void format_shapes(const iso_op_arguments *arguments, char *out, size_t capacity) {
  const iso_op_info *info = iso_op_get_info(arguments->op);
  size_t used = 0;
  out[0] = 0;
  for (uint32_t i = 0; i <= arguments->n_inputs && used < capacity; i++) {
    bool is_output = i == arguments->n_inputs;
    const iso_tensor *tensor = is_output ? &arguments->outputs[0] : &arguments->inputs[i];
    iso_operand_kind kind = is_output ? ISO_OPERAND_ACTIVATION : info->inputs[i].kind;
    if (tensor->n_dims == 0 || kind == ISO_OPERAND_INDEX || kind == ISO_OPERAND_PARAMETER)
      continue;
    iso_shape shape = {.n_dims = tensor->n_dims};
    for (uint32_t d = 0; d < tensor->n_dims; d++)
      shape.dims[d] = iso_dim_constant(tensor->dims[d]);
    char text[96];
    int length =
        snprintf(out + used, capacity - used, "%s%s%s%s", used ? " " : "", is_output ? "-> " : "",
                 kind == ISO_OPERAND_ACTIVATION ? "" : iso_scheme_get_info(tensor->scheme)->name,
                 iso_shape_format(&shape, text, sizeof text));
    used += length > 0 ? (size_t)length : capacity;
  }
}

static iso_status show_output(const subject *s, const node_operands *operands, uint32_t i,
                              iso_verify_value *value) {
  const iso_node_info *info = iso_graph_get_node(s->graph, value->node);
  const iso_tensor *tensor = &operands->launch.arguments.outputs[i];
  snprintf(value->info.name, sizeof value->info.name, "%s",
           iso_graph_get_value(s->graph, info->outputs[i])->name);
  value->info.n_columns = tensor->dims[tensor->n_dims - 1];
  value->info.n_rows = 1;
  for (uint32_t d = 0; d + 1 < tensor->n_dims; d++)
    value->info.n_rows *= tensor->dims[d];
  value->is_index = tensor->scheme == ISO_SCHEME_I32;
  if (is_state(s, info->outputs[i])) {
    value->rows = NULL;
    return s->visitor->value(s->visitor->context, value);
  }
  float *rows =
      malloc(((size_t)value->info.n_rows * (size_t)value->info.n_columns + 1) * sizeof *rows);
  if (!rows)
    return no_memory();
  iso_scheme_decode_row(tensor->scheme, operands->launch.outputs[i], rows,
                        value->info.n_rows * value->info.n_columns);
  value->rows = rows;
  iso_status status = s->visitor->value(s->visitor->context, value);
  free(rows);
  return status;
}

static iso_status look_at(const subject *s, int32_t node, const node_operands *operands) {
  const iso_node_info *info = iso_graph_get_node(s->graph, node);
  iso_verify_local local = {0};
  if (!s->is_reference)
    ISO_TRY(iso_verify_check(&operands->launch, s->n_threads, &local));
  iso_verify_value value = {.step = s->step, .node = node, .local = &local};
  value.info.layer = info->layer;
  value.info.rounding = isfinite(local.rounding) ? local.rounding : 0;
  snprintf(value.info.op, sizeof value.info.op, "%s", iso_op_get_info(info->op)->name);
  snprintf(value.info.kernel, sizeof value.info.kernel, "%s", s->kernels[node]->name);
  format_shapes(&operands->launch.arguments, value.shapes, sizeof value.shapes);
  for (uint32_t i = 0; i < info->n_outputs; i++) {
    ISO_TRY(show_output(s, operands, i, &value));
    local = (iso_verify_local){0}; /* the node's, told once */
    value.info.rounding = 0;
  }
  return ISO_OK;
}

/* ---- One step -------------------------------------------------------------------------------- */

static void note_kernel(void *context, const iso_plan_step *step, const iso_kernel *kernel,
                        double microseconds) {
  subject *s = context;
  (void)microseconds;
  if (step->kind == ISO_STEP_LAUNCH)
    s->kernels[step->node] = kernel;
}

static void show_progress(const subject *s, int32_t node) {
  if (!isatty(STDERR_FILENO))
    return;
  if (node < 0)
    fprintf(stderr, "\r\033[K");
  else if (node % 8 == 0)
    fprintf(stderr, "\r\033[K%s: step %u, op %d of %d", s->device, s->step + 1, node, s->n_nodes);
}

static iso_status run_rows(subject *s, const int32_t *tokens, int32_t position, int32_t n_tokens) {
  const iso_runtime_options *options = iso_runtime_get_options(s->runtime);
  iso_batch_sequence sequence = {.n_tokens = n_tokens,
                                 .tokens = tokens,
                                 .position = position,
                                 .pages = s->pages,
                                 .n_pages = options->n_pages,
                                 .all_logits = true,
                                 .adapter = s->prompt->adapters->n > 0};
  if (iso_tool_interrupted())
    return iso_fail(ISO_ERROR_CANCELLED, "stopped");
  s->sizes = (iso_bindings){{0}};
  s->sizes.size[ISO_SYMBOL_TOKENS] = n_tokens;
  s->sizes.size[ISO_SYMBOL_SEQUENCES] = 1;
  s->sizes.size[ISO_SYMBOL_LOGIT_ROWS] = n_tokens;
  s->sizes.size[ISO_SYMBOL_ADAPTED_ROWS] = sequence.adapter > 0 ? n_tokens : 0;
  return iso_runtime_step(s->runtime, &sequence, 1);
}

/* Runs tokens of the prompt and shows all values. */
static iso_status examine_step(subject *s, int32_t first, int32_t n_tokens) {
  ISO_TRY(s->visitor->step(s->visitor->context, first, n_tokens));
  if (!s->is_reference)
    ISO_TRY(read_states(s, s->before));
  iso_executor_observe(s->executor, note_kernel, s);
  ISO_TRY(run_rows(s, s->prompt->tokens + first, first, n_tokens));
  iso_executor_observe(s->executor, NULL, NULL);
  ISO_TRY(read_states(s, s->after));
  for (int32_t node = 0; node < s->n_nodes; node++) {
    if (iso_tool_interrupted())
      return iso_fail(ISO_ERROR_CANCELLED, "stopped");
    if (!s->kernels[node])
      continue;
    show_progress(s, node);
    node_operands operands;
    iso_status status = gather(s, node, &operands);
    if (status == ISO_OK)
      status = look_at(s, node, &operands);
    release(s, node, &operands);
    ISO_TRY(status);
  }
  s->step++;
  return ISO_OK;
}

/* ---- The whole ------------------------------------------------------------------------------- */

iso_trace_output iso_verify_likeliest(const float *logits, int32_t n) {
  int32_t best = 0;
  float next = -INFINITY;
  for (int32_t i = 1; i < n; i++)
    if (logits[i] > logits[best]) {
      next = logits[best];
      best = i;
    } else if (logits[i] > next) {
      next = logits[i];
    }
  return (iso_trace_output){best, logits[best] - next};
}

static iso_status generate(subject *s, int32_t last_row) {
  int32_t n = s->prompt->n_output;
  int32_t vocabulary = iso_model_get_config(iso_runtime_get_model(s->runtime))->vocabulary_size;
  iso_trace_output *output = calloc((size_t)n + 1, sizeof *output);
  if (!output)
    return no_memory();
  iso_status status = ISO_OK;
  for (int32_t i = 0; i < n && status == ISO_OK; i++) {
    output[i] = iso_verify_likeliest(iso_runtime_logits(s->runtime, last_row), vocabulary);
    last_row = 0;
    if (i + 1 < n)
      status = run_rows(s, &output[i].token, s->prompt->n_tokens + i, 1);
  }
  if (status == ISO_OK)
    status = s->visitor->output(s->visitor->context, output, n);
  free(output);
  return status;
}

static iso_status examine(subject *s) {
  const iso_verify_prompt *prompt = s->prompt;
  int32_t n_tokens = 1;
  ISO_TRY(s->visitor->begin(s->visitor->context, s->runtime));
  for (int32_t first = 0; first < prompt->n_tokens; first += n_tokens) {
    int32_t left = prompt->n_tokens - 1 - first; /* but for the last */
    n_tokens = left < 1 ? 1 : left < prompt->max_rows ? left : prompt->max_rows;
    ISO_TRY(examine_step(s, first, n_tokens));
  }
  return generate(s, n_tokens - 1);
}

static iso_status prepare(subject *s, const iso_model *model, const iso_options *options) {
  int32_t context = s->prompt->n_tokens + s->prompt->n_output;
  const iso_adapter_list *adapters = s->prompt->adapters;
  iso_runtime_options base = {.devices = s->device,
                              .context = context,
                              .max_tokens = s->prompt->max_rows,
                              .max_logit_rows = s->prompt->max_rows,
                              .keep_all = true,
                              .activation = options->activation ? options->activation : "f32"};
  ISO_TRY(iso_tool_create_runtime(model, options, &base, &s->runtime));
  const iso_runtime_options *real = iso_runtime_get_options(s->runtime);
  iso_model_graph_options graph_options = {.max_tokens = real->max_tokens,
                                           .max_sequences = real->max_sequences,
                                           .max_logit_rows = real->max_logit_rows,
                                           .n_pages = real->n_pages,
                                           .page_size = real->page_size,
                                           .max_context = real->context,
                                           .adapters = (const iso_adapter *const *)adapters->items,
                                           .n_adapters = adapters->n};
  (void)iso_scheme_from_name(real->kv_type, &graph_options.kv_scheme);
  (void)iso_scheme_from_name(real->activation, &graph_options.activation);
  ISO_TRY(iso_model_weights(model, &graph_options, &s->weights));
  s->executor = iso_runtime_get_executor(s->runtime);
  s->graph = iso_runtime_get_plan(s->runtime)->graph;
  s->n_values = iso_graph_value_count(s->graph);
  s->n_nodes = iso_graph_node_count(s->graph);
  s->kernels = calloc((size_t)s->n_nodes + 1, sizeof *s->kernels);
  s->before = calloc((size_t)s->n_values + 1, sizeof *s->before);
  s->after = calloc((size_t)s->n_values + 1, sizeof *s->after);
  s->pages = calloc((size_t)real->n_pages + 1, sizeof *s->pages);
  if (!s->kernels || !s->before || !s->after || !s->pages)
    return no_memory();
  for (int32_t i = 0; i < real->n_pages; i++)
    s->pages[i] = real->n_pages - 1 - i; /* not in order: a block table that is ignored shows */
  return ISO_OK;
}

static void dismiss(subject *s) {
  for (iso_value v = 0; v < s->n_values && s->before && s->after; v++) {
    free(s->before[v]);
    free(s->after[v]);
  }
  free(s->before);
  free(s->after);
  free(s->kernels);
  free(s->pages);
  if (s->weights.context)
    iso_model_weights_release(&s->weights);
  iso_runtime_destroy(s->runtime);
}

bool iso_verify_is_reference(const char *device) {
  return strcmp(device, "host") == 0 || strcmp(device, "host:0") == 0;
}

iso_status iso_verify_run(const iso_model *model, const iso_options *options, const char *device,
                          const iso_verify_prompt *prompt, const iso_verify_visitor *visitor) {
  long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
  subject s = {.device = device,
               .prompt = prompt,
               .visitor = visitor,
               .n_threads = options->threads > 0 ? (uint32_t)options->threads
                            : n_cpus > 0         ? (uint32_t)n_cpus
                                                 : 1,
               .is_reference = iso_verify_is_reference(device)};
  iso_status status = prepare(&s, model, options);
  if (status == ISO_OK)
    status = examine(&s);
  show_progress(&s, -1);
  dismiss(&s);
  return iso_fail_context(status, "%s", device);
}
