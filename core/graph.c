/* Building and reading graphs. Values and nodes are kept in the order they were appended, which
 * is the order they run in. */
#include "core/graph.h"
#include "core/names.h"
#include "ops/rules.h"
#include "ops/shape.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct iso_graph {
  iso_value_info *values;
  iso_node_info *nodes;
  int32_t n_values, value_capacity;
  int32_t n_nodes, node_capacity;
  iso_names names; /* of inputs, weights, states and outputs */
  int64_t bounds[ISO_SYMBOL_COUNT];
  int32_t layer;
  int32_t op_counts[ISO_OP_COUNT]; /* in this layer; numbers the temporaries */
  iso_status status;               /* the first failure */
  char *message;                   /* its sentence; NULL when memory was out for it */
  bool finished;
};

const char *iso_symbol_name(iso_symbol symbol) {
  static const char *const names[ISO_SYMBOL_COUNT] = {"", "T", "S", "R", "A"};
  return (unsigned)symbol < ISO_SYMBOL_COUNT ? names[symbol] : "?";
}

static iso_status out_of_memory(void) {
  return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for the graph");
}

iso_status iso_graph_create(iso_graph **out_graph) {
  iso_graph *graph = calloc(1, sizeof *graph);
  if (!graph)
    return out_of_memory();
  graph->layer = -1;
  *out_graph = graph;
  return ISO_OK;
}

void iso_graph_destroy(iso_graph *graph) {
  if (!graph)
    return;
  for (int32_t i = 0; i < graph->n_values; i++)
    free((void *)graph->values[i].name);
  for (int32_t i = 0; i < graph->n_nodes; i++)
    free((void *)graph->nodes[i].attributes);
  free(graph->values);
  free(graph->nodes);
  iso_names_free(&graph->names);
  free(graph->message);
  free(graph);
}

/* Keeps the first failure. */
static iso_value stick(iso_graph *graph, iso_status status) {
  if (status != ISO_OK && graph->status == ISO_OK) {
    graph->status = status;
    graph->message = strdup(iso_status_message());
  }
  return ISO_NO_VALUE;
}

static bool is_closed(const iso_graph *graph) { return graph->finished || graph->status != ISO_OK; }

/* Makes room for one more element; doubles. */
static iso_status grow(void **array, int32_t count, int32_t *capacity, size_t element_bytes) {
  if (count < *capacity)
    return ISO_OK;
  int32_t wanted;
  size_t bytes;
  if (__builtin_mul_overflow(*capacity ? *capacity : 32, 2, &wanted) ||
      __builtin_mul_overflow((size_t)wanted, element_bytes, &bytes))
    return out_of_memory();
  void *grown = realloc(*array, bytes);
  if (!grown)
    return out_of_memory();
  *array = grown;
  *capacity = wanted;
  return ISO_OK;
}

/* Sizes are at least 1; a symbol stands first, so that strides do not depend on the binding, and
 * has one bound in the whole graph. */
static iso_status check_shape(iso_graph *graph, iso_scheme scheme, const iso_shape *shape) {
  uint64_t bytes;
  ISO_TRY(iso_shape_bytes(shape, scheme, &bytes));
  for (uint32_t i = 0; i < shape->n_dims; i++) {
    iso_dim dim = shape->dims[i];
    if (dim.size < 1)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "dimension %u has size %lld; at least 1 is needed", i, (long long)dim.size);
    if (dim.symbol == ISO_SYMBOL_NONE)
      continue;
    if ((unsigned)dim.symbol >= ISO_SYMBOL_COUNT)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "dimension %u has the unknown symbol %d", i,
                      (int)dim.symbol);
    if (i > 0)
      return iso_fail(ISO_ERROR_UNSUPPORTED,
                      "dimension %u is %s; only the first one may be a symbol", i,
                      iso_symbol_name(dim.symbol));
    int64_t *bound = &graph->bounds[dim.symbol];
    if (*bound != 0 && *bound != dim.size)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s is bounded by %lld here and by %lld before",
                      iso_symbol_name(dim.symbol), (long long)dim.size, (long long)*bound);
    *bound = dim.size;
  }
  return ISO_OK;
}

static iso_status dense_strides(const iso_shape *shape, iso_scheme scheme, int64_t *out_strides) {
  int64_t dims[ISO_MAX_DIMS] = {0};
  for (uint32_t i = 0; i < shape->n_dims; i++)
    dims[i] = shape->dims[i].size;
  return iso_dense_strides(scheme, shape->n_dims, dims, out_strides);
}

/* Strides of dimensions of size 1 do not matter. */
static bool is_dense(const iso_value_info *value) {
  int64_t dense[ISO_MAX_DIMS];
  if (dense_strides(&value->shape, value->scheme, dense) != ISO_OK)
    return false;
  for (uint32_t i = 0; i + 1 < value->shape.n_dims; i++)
    if (value->strides[i] != dense[i] && value->shape.dims[i].size != 1)
      return false;
  return true;
}

/* Appends a dense value of its own storage, which the caller may turn into a view. */
static iso_status add_value(iso_graph *graph, const char *name, iso_value_role role,
                            iso_scheme scheme, const iso_shape *shape, iso_value *out_value) {
  ISO_TRY(check_shape(graph, scheme, shape));
  ISO_TRY(grow((void **)&graph->values, graph->n_values, &graph->value_capacity,
               sizeof *graph->values));
  iso_value_info value = {.role = role,
                          .scheme = scheme,
                          .shape = *shape,
                          .producer = -1,
                          .storage = graph->n_values,
                          .otherwise = ISO_NO_VALUE};
  ISO_TRY(dense_strides(shape, scheme, value.strides));
  value.name = strdup(name);
  if (!value.name)
    return out_of_memory();
  graph->values[graph->n_values] = value;
  *out_value = graph->n_values++;
  return ISO_OK;
}

static iso_status add_name(iso_graph *graph, const char *name, iso_value value) {
  if (iso_names_find(&graph->names, name) >= 0)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the name is already taken");
  return iso_names_add(&graph->names, name, value);
}

static iso_value add_named(iso_graph *graph, const char *name, iso_value_role role,
                           iso_scheme scheme, const iso_shape *shape) {
  if (is_closed(graph))
    return ISO_NO_VALUE;
  iso_value value = ISO_NO_VALUE;
  iso_status status = ISO_OK;
  if (role != ISO_VALUE_INPUT && shape->n_dims > 0 && shape->dims[0].symbol != ISO_SYMBOL_NONE)
    status = iso_fail(ISO_ERROR_INVALID_ARGUMENT, "only inputs may have a symbol in their shape");
  if (status == ISO_OK)
    status = add_value(graph, name, role, scheme, shape, &value);
  if (status == ISO_OK)
    status = add_name(graph, graph->values[value].name, value);
  if (status == ISO_OK)
    return value;
  return stick(graph, iso_fail_context(status, "value %s", name));
}

iso_value iso_graph_input(iso_graph *graph, const char *name, iso_scheme scheme, iso_shape shape) {
  return add_named(graph, name, ISO_VALUE_INPUT, scheme, &shape);
}

iso_value iso_graph_weight(iso_graph *graph, const char *name, iso_scheme scheme, iso_shape shape) {
  return add_named(graph, name, ISO_VALUE_WEIGHT, scheme, &shape);
}

iso_value iso_graph_state(iso_graph *graph, const char *name, iso_scheme scheme, iso_shape shape) {
  return add_named(graph, name, ISO_VALUE_STATE, scheme, &shape);
}

void iso_graph_set_layer(iso_graph *graph, int32_t layer) {
  if (layer == graph->layer)
    return;
  graph->layer = layer;
  memset(graph->op_counts, 0, sizeof graph->op_counts);
}

/* ---- Nodes ------------------------------------------------------------------------------- */

static iso_status check_operand(const iso_graph *graph, const iso_operand_info *operand,
                                iso_value input) {
  if (input == ISO_NO_VALUE)
    return operand->optional
               ? ISO_OK
               : iso_fail(ISO_ERROR_INVALID_ARGUMENT, "operand %s is missing", operand->name);
  if (input < 0 || input >= graph->n_values)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "operand %s is not a value of this graph",
                    operand->name);
  if (operand->kind != ISO_OPERAND_ACTIVATION && !is_dense(&graph->values[input]))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "operand %s must be dense, %s is a strided view",
                    operand->name, graph->values[input].name);
  return ISO_OK;
}

/* A whole attribute struct of this version's size; NULL when memory is out. */
static void *copy_attributes(const iso_op_info *info, iso_op op, const void *attributes) {
  iso_any_attributes full;
  iso_op_read_attributes(op, attributes, &full);
  void *copy = malloc(info->attributes_bytes);
  if (copy)
    memcpy(copy, &full, info->attributes_bytes);
  return copy;
}

/* An updated operand must be a state: a temporary may have been copied to another device, where
 * the update would not show. */
static iso_status alias_output(iso_graph *graph, const iso_operand_info *operand,
                               const iso_node_info *node, iso_value output) {
  const iso_value_info *source = &graph->values[node->inputs[operand->alias_of]];
  if (graph->values[source->storage].role != ISO_VALUE_STATE)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s is updated in place and must be a state",
                    source->name);
  iso_value_info *value = &graph->values[output];
  value->storage = source->storage;
  value->storage_offset = source->storage_offset;
  memcpy(value->strides, source->strides, sizeof value->strides);
  return ISO_OK;
}

static iso_status add_outputs(iso_graph *graph, const iso_op_info *info, iso_node_info *node,
                              iso_scheme activation) {
  const iso_shape *shapes[ISO_MAX_INPUTS] = {NULL};
  iso_scheme schemes[ISO_MAX_INPUTS];
  for (uint32_t i = 0; i < info->n_inputs; i++) {
    schemes[i] = ISO_SCHEME_COUNT;
    if (node->inputs[i] != ISO_NO_VALUE) {
      shapes[i] = &graph->values[node->inputs[i]].shape;
      schemes[i] = graph->values[node->inputs[i]].scheme;
    }
  }
  iso_shape out_shapes[ISO_MAX_OUTPUTS] = {{0}};
  iso_scheme out_schemes[ISO_MAX_OUTPUTS] = {0};
  ISO_TRY(iso_op_infer(node->op, shapes, schemes, node->attributes, activation, out_shapes,
                       out_schemes));
  int32_t number = graph->op_counts[node->op]++;
  for (uint32_t i = 0; i < info->n_outputs; i++) {
    char name[128];
    snprintf(name, sizeof name, "%d.%s.%d%s%s", graph->layer, info->name, number,
             info->n_outputs > 1 ? "." : "", info->n_outputs > 1 ? info->outputs[i].name : "");
    ISO_TRY(add_value(graph, name, ISO_VALUE_TEMPORARY, out_schemes[i], &out_shapes[i],
                      &node->outputs[i]));
    graph->values[node->outputs[i]].producer = graph->n_nodes;
    if (info->outputs[i].alias_of >= 0)
      ISO_TRY(alias_output(graph, &info->outputs[i], node, node->outputs[i]));
  }
  return ISO_OK;
}

static iso_status append(iso_graph *graph, iso_op op, const iso_value *inputs,
                         const void *attributes, iso_scheme activation, iso_value *out_values) {
  const iso_op_info *info = iso_op_get_info(op);
  if (!info)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "there is no op %d", (int)op);
  iso_node_info node = {
      .op = op, .layer = graph->layer, .n_inputs = info->n_inputs, .n_outputs = info->n_outputs};
  for (uint32_t i = 0; i < ISO_MAX_INPUTS; i++)
    node.inputs[i] = i < info->n_inputs ? inputs[i] : ISO_NO_VALUE;
  for (uint32_t i = 0; i < ISO_MAX_OUTPUTS; i++)
    node.outputs[i] = ISO_NO_VALUE;
  for (uint32_t i = 0; i < info->n_inputs; i++)
    ISO_TRY(check_operand(graph, &info->inputs[i], node.inputs[i]));
  ISO_TRY(grow((void **)&graph->nodes, graph->n_nodes, &graph->node_capacity, sizeof node));
  void *copy = copy_attributes(info, op, attributes);
  if (!copy)
    return out_of_memory();
  node.attributes = copy;
  iso_status status = add_outputs(graph, info, &node, activation);
  if (status != ISO_OK) {
    free(copy);
    return status;
  }
  graph->nodes[graph->n_nodes++] = node;
  if (out_values)
    memcpy(out_values, node.outputs, info->n_outputs * sizeof *out_values);
  return ISO_OK;
}

void iso_graph_append(iso_graph *graph, iso_op op, const iso_value *inputs, const void *attributes,
                      iso_scheme activation, iso_value *out_values) {
  const iso_op_info *info = iso_op_get_info(op);
  for (uint32_t i = 0; out_values && info && i < info->n_outputs; i++)
    out_values[i] = ISO_NO_VALUE;
  if (is_closed(graph))
    return;
  iso_status status = append(graph, op, inputs, attributes, activation, out_values);
  if (status != ISO_OK)
    stick(graph, iso_fail_context(status, "node %d (%s in layer %d)", graph->n_nodes,
                                  info ? info->name : "?", graph->layer));
}

iso_value iso_graph_apply(iso_graph *graph, iso_op op, const void *attributes,
                          iso_scheme activation, uint32_t n_inputs, ...) {
  if (is_closed(graph))
    return ISO_NO_VALUE;
  const iso_op_info *info = iso_op_get_info(op);
  if (!info || info->n_outputs != 1 || n_inputs > info->n_inputs)
    return stick(graph, iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                                 "node %d: op %s does not take %u inputs and give one output",
                                 graph->n_nodes, info ? info->name : "?", n_inputs));
  iso_value inputs[ISO_MAX_INPUTS];
  va_list list;
  va_start(list, n_inputs);
  for (uint32_t i = 0; i < ISO_MAX_INPUTS; i++)
    inputs[i] = i < n_inputs ? va_arg(list, iso_value) : ISO_NO_VALUE;
  va_end(list);
  iso_value output;
  iso_graph_append(graph, op, inputs, attributes, activation, &output);
  return output;
}

/* ---- Views ------------------------------------------------------------------------------- */

static iso_status check_source(const iso_graph *graph, iso_value source) {
  if (source < 0 || source >= graph->n_values)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the source is not a value of this graph");
  return ISO_OK;
}

static iso_status add_view(iso_graph *graph, iso_value source, const char *kind,
                           const iso_shape *shape, iso_value *out_value) {
  char name[192];
  snprintf(name, sizeof name, "%s.%s", graph->values[source].name, kind);
  ISO_TRY(
      add_value(graph, name, ISO_VALUE_TEMPORARY, graph->values[source].scheme, shape, out_value));
  iso_value_info *view = &graph->values[*out_value];
  view->storage = graph->values[source].storage;
  view->storage_offset = graph->values[source].storage_offset;
  view->otherwise = graph->values[source].otherwise;
  return ISO_OK;
}

/* Leading dimensions that both shapes share. */
static uint32_t shared_dims(const iso_shape *a, const iso_shape *b) {
  uint32_t n = 0;
  while (n < a->n_dims && n < b->n_dims && a->dims[n].symbol == b->dims[n].symbol &&
         a->dims[n].size == b->dims[n].size)
    n++;
  return n;
}

/* Whether dimensions from `first` on hold equally many elements, none of them by a symbol. */
static bool same_count(const iso_shape *a, const iso_shape *b, uint32_t first) {
  int64_t counts[2] = {1, 1};
  const iso_shape *shapes[2] = {a, b};
  for (int s = 0; s < 2; s++)
    for (uint32_t i = first; i < shapes[s]->n_dims; i++)
      if (shapes[s]->dims[i].symbol != ISO_SYMBOL_NONE ||
          __builtin_mul_overflow(counts[s], shapes[s]->dims[i].size, &counts[s]))
        return false;
  return counts[0] == counts[1];
}

/* What a function that makes views returns: the view, or nothing where the graph is stuck. */
static iso_value end_view(iso_graph *graph, iso_status status, const char *kind, iso_value view) {
  return status == ISO_OK ? view
                          : stick(graph, iso_fail_context(status, "%s before node %d (layer %d)",
                                                          kind, graph->n_nodes, graph->layer));
}

static iso_status reshape(iso_graph *graph, iso_value source, const iso_shape *shape,
                          iso_value *out_value) {
  ISO_TRY(check_source(graph, source));
  if (shape->n_dims < 1 || shape->n_dims > ISO_MAX_DIMS)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "a tensor of %u dimensions, 1 to %d can be",
                    shape->n_dims, ISO_MAX_DIMS);
  iso_value_info from = graph->values[source];
  uint32_t shared = shared_dims(&from.shape, shape);
  /* Into one or more: a last dimension of one element that is dropped leaves rows that are apart. */
  bool splits_last = shared == from.shape.n_dims - 1 && shared < shape->n_dims;
  char texts[2][128];
  if (!same_count(&from.shape, shape, shared))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s has other elements than %s",
                    iso_shape_format(shape, texts[0], sizeof texts[0]),
                    iso_shape_format(&from.shape, texts[1], sizeof texts[1]));
  if (shared < from.shape.n_dims && !splits_last && !is_dense(&from))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "%s is strided: only its last dimension can be split", from.name);
  ISO_TRY(add_view(graph, source, "reshape", shape, out_value));
  /* Dense strides below the shared dimensions, the source's own in them. */
  iso_value_info *view = &graph->values[*out_value];
  memcpy(view->strides, from.strides, shared * sizeof *view->strides);
  view->strides[shape->n_dims - 1] = from.strides[from.shape.n_dims - 1];
  return ISO_OK;
}

iso_value iso_graph_reshape(iso_graph *graph, iso_value source, iso_shape shape) {
  if (is_closed(graph))
    return ISO_NO_VALUE;
  iso_value value = ISO_NO_VALUE;
  iso_status status = reshape(graph, source, &shape, &value);
  return end_view(graph, status, "reshape", value);
}

static iso_status columns(iso_graph *graph, iso_value source, int64_t start, int64_t count,
                          iso_value *out_value) {
  ISO_TRY(check_source(graph, source));
  iso_value_info from = graph->values[source];
  const iso_scheme_info *scheme = iso_scheme_get_info(from.scheme);
  iso_dim *last = &from.shape.dims[from.shape.n_dims - 1];
  if (scheme->kind == ISO_SCHEME_KIND_BLOCK || last->symbol != ISO_SYMBOL_NONE)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s (%s) has no columns to pick", from.name,
                    scheme->name);
  if (start < 0 || count < 1 || start > last->size || count > last->size - start)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s has columns 0 to %lld, not %lld from %lld",
                    from.name, (long long)last->size, (long long)count, (long long)start);
  last->size = count;
  ISO_TRY(add_view(graph, source, "columns", &from.shape, out_value));
  iso_value_info *view = &graph->values[*out_value];
  view->storage_offset += (uint64_t)start * scheme->block_bytes;
  memcpy(view->strides, from.strides, sizeof view->strides);
  return ISO_OK;
}

iso_value iso_graph_columns(iso_graph *graph, iso_value source, int64_t start, int64_t count) {
  if (is_closed(graph))
    return ISO_NO_VALUE;
  iso_value value = ISO_NO_VALUE;
  iso_status status = columns(graph, source, start, count, &value);
  return end_view(graph, status, "columns", value);
}

/* A view with the same strides. */
static iso_status add_like(iso_graph *graph, iso_value source, const char *kind,
                           const iso_shape *shape, iso_value *out_value) {
  ISO_TRY(add_view(graph, source, kind, shape, out_value));
  memcpy(graph->values[*out_value].strides, graph->values[source].strides,
         sizeof graph->values[source].strides);
  return ISO_OK;
}

static iso_status recount(iso_graph *graph, iso_value source, iso_symbol symbol,
                          iso_value *out_value) {
  ISO_TRY(check_source(graph, source));
  iso_shape shape = graph->values[source].shape;
  if (shape.dims[0].symbol == ISO_SYMBOL_NONE)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "no symbol counts the rows of %s",
                    graph->values[source].name);
  shape.dims[0].symbol = symbol;
  return add_like(graph, source, "recount", &shape, out_value);
}

iso_value iso_graph_recount(iso_graph *graph, iso_value source, iso_symbol symbol) {
  if (is_closed(graph))
    return ISO_NO_VALUE;
  iso_value value = ISO_NO_VALUE;
  iso_status status = recount(graph, source, symbol, &value);
  return end_view(graph, status, "recount", value);
}

static bool is_whole_temporary(const iso_graph *graph, iso_value value) {
  return graph->values[value].role == ISO_VALUE_TEMPORARY && graph->values[value].storage == value;
}

static iso_status otherwise(iso_graph *graph, iso_value value, iso_value other,
                            iso_value *out_value) {
  ISO_TRY(check_source(graph, value));
  ISO_TRY(check_source(graph, other));
  const iso_value_info *a = &graph->values[value], *b = &graph->values[other];
  iso_shape shape = a->shape;
  shape.dims[0].symbol = b->shape.dims[0].symbol;
  bool fits = is_whole_temporary(graph, value) && is_whole_temporary(graph, other) &&
              a->shape.dims[0].symbol != ISO_SYMBOL_NONE &&
              shape.dims[0].symbol != ISO_SYMBOL_NONE && a->scheme == b->scheme &&
              shape.n_dims == b->shape.n_dims && shared_dims(&shape, &b->shape) == shape.n_dims;
  if (!fits)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s cannot stand for %s", b->name, a->name);
  ISO_TRY(add_like(graph, value, "otherwise", &shape, out_value));
  graph->values[*out_value].otherwise = other;
  return ISO_OK;
}

iso_value iso_graph_otherwise(iso_graph *graph, iso_value value, iso_value other) {
  if (is_closed(graph))
    return ISO_NO_VALUE;
  iso_value result = ISO_NO_VALUE;
  iso_status status = otherwise(graph, value, other, &result);
  return end_view(graph, status, "otherwise", result);
}

/* ---- Ends -------------------------------------------------------------------------------- */

static iso_status mark_output(iso_graph *graph, iso_value value, const char *name) {
  ISO_TRY(check_source(graph, value));
  iso_value_info *info = &graph->values[value];
  if (info->is_output || info->role != ISO_VALUE_TEMPORARY)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s already has a name", info->name);
  if (info->otherwise != ISO_NO_VALUE)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s does not always lie in the same place",
                    info->name);
  char *copy = strdup(name);
  if (!copy)
    return out_of_memory();
  iso_status status = add_name(graph, copy, value);
  if (status != ISO_OK) {
    free(copy);
    return status;
  }
  free((void *)info->name);
  info->name = copy;
  info->is_output = true;
  return ISO_OK;
}

void iso_graph_output(iso_graph *graph, iso_value value, const char *name) {
  if (is_closed(graph))
    return;
  iso_status status = mark_output(graph, value, name);
  if (status != ISO_OK)
    stick(graph, iso_fail_context(status, "output %s", name));
}

iso_status iso_graph_finish(iso_graph *graph) {
  if (graph->status != ISO_OK)
    return iso_fail(graph->status, "%s",
                    graph->message ? graph->message : "no host memory for the graph");
  graph->finished = true;
  return ISO_OK;
}

int32_t iso_graph_value_count(const iso_graph *graph) { return graph->n_values; }
int32_t iso_graph_node_count(const iso_graph *graph) { return graph->n_nodes; }

const iso_value_info *iso_graph_get_value(const iso_graph *graph, iso_value value) {
  return value >= 0 && value < graph->n_values ? &graph->values[value] : NULL;
}

const iso_node_info *iso_graph_get_node(const iso_graph *graph, int32_t node) {
  return node >= 0 && node < graph->n_nodes ? &graph->nodes[node] : NULL;
}

iso_value iso_graph_find(const iso_graph *graph, const char *name) {
  return iso_names_find(&graph->names, name);
}

bool iso_graph_is_finished(const iso_graph *graph) { return graph->finished; }

int64_t iso_graph_symbol_bound(const iso_graph *graph, iso_symbol symbol) {
  return (unsigned)symbol < ISO_SYMBOL_COUNT ? graph->bounds[symbol] : 0;
}

const char *iso_graph_describe_node(const iso_graph *graph, int32_t node, char *out_text,
                                    size_t capacity) {
  const iso_node_info *info = iso_graph_get_node(graph, node);
  snprintf(out_text, capacity, "node %d (%s in layer %d)", node,
           info ? iso_op_get_info(info->op)->name : "?", info ? info->layer : -1);
  return out_text;
}
