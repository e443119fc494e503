/* Graphs: what a model computes in one step, without a word about devices.
 *
 * A graph is built once, by append calls that check and infer shapes. The first failure sticks:
 * later calls return ISO_NO_VALUE and do nothing, and iso_graph_finish() reports it, so building
 * code reads straight down. A finished graph is immutable and may be shared by threads. */
#ifndef ISOMER_GRAPH_H
#define ISOMER_GRAPH_H

#include <isomer/ops.h>

ISO_BEGIN_DECLS

typedef struct iso_graph iso_graph;
/* Index of a value in its graph. */
typedef int32_t iso_value;
#define ISO_NO_VALUE ((iso_value)-1)

typedef enum iso_value_role {
  ISO_VALUE_INPUT,  /* written by the host before each step */
  ISO_VALUE_WEIGHT, /* constant, from the model's files, by name */
  ISO_VALUE_STATE,  /* lives across steps: KV pages */
  ISO_VALUE_TEMPORARY /* made by a node, or a view of another value */
} iso_value_role;

typedef struct iso_value_info {
  const char *name; /* for weights the tensor's name; temporaries "layer.op.n" */
  iso_value_role role;
  iso_scheme scheme;
  iso_shape shape;
  int32_t producer; /* node, or -1 */
  /* Storage: the value itself, or another value of which this one is a view or an update. */
  iso_value storage;
  uint64_t storage_offset;             /* bytes into it */
  iso_value otherwise; /* the storage in steps that leave out `storage`; ISO_NO_VALUE: none */
  int64_t strides[ISO_MAX_DIMS];       /* bytes, as in iso_tensor */
  bool is_output;
} iso_value_info;

typedef struct iso_node_info {
  iso_op op;
  int32_t layer; /* see iso_graph_set_layer() */
  uint32_t n_inputs, n_outputs;
  iso_value inputs[ISO_MAX_INPUTS]; /* ISO_NO_VALUE for an absent optional operand */
  iso_value outputs[ISO_MAX_OUTPUTS];
  const void *attributes;
} iso_node_info;

ISO_MUST_CHECK ISO_API iso_status iso_graph_create(iso_graph **out_graph);
ISO_API void iso_graph_destroy(iso_graph *graph);

/* The layer that following nodes belong to, for splitting a model over devices: 0 to n - 1, -1
 * before the first and n after the last. The trace of `isomer verify` groups by it. */
ISO_API void iso_graph_set_layer(iso_graph *graph, int32_t layer);

/* Values from outside. Names are copied and must be unique. Only the first dimension of an input
 * may be a symbol, whose bound is the same in the whole graph. */
ISO_API iso_value iso_graph_input(iso_graph *graph, const char *name, iso_scheme scheme,
                                  iso_shape shape);
ISO_API iso_value iso_graph_weight(iso_graph *graph, const char *name, iso_scheme scheme,
                                   iso_shape shape);
ISO_API iso_value iso_graph_state(iso_graph *graph, const char *name, iso_scheme scheme,
                                  iso_shape shape);

/* Appends an op. `inputs` has the op's n_inputs entries (ISO_NO_VALUE where optional and absent);
 * `attributes` may be NULL for the defaults; `activation` is the scheme of ACTIVATION outputs.
 * Writes n_outputs values to out_values (may be NULL for none wanted). Operands other than
 * ACTIVATION must be dense; one that the op updates in place must be a state. Nodes run in the
 * order they were appended. */
ISO_API void iso_graph_append(iso_graph *graph, iso_op op, const iso_value *inputs,
                              const void *attributes, iso_scheme activation,
                              iso_value *out_values);
/* The same for ops of one output, inputs listed (optional ones may be left off the end); returns
 * that output. */
ISO_API iso_value iso_graph_apply(iso_graph *graph, iso_op op, const void *attributes,
                                  iso_scheme activation, uint32_t n_inputs, ...);

/* A view with other dimensions over the same elements, in order: splits or joins dimensions.
 * The source must be dense unless only its last dimension is split. */
ISO_API iso_value iso_graph_reshape(iso_graph *graph, iso_value source, iso_shape shape);
/* A view of columns [start, start + count) of the last dimension of a plain-scheme value. */
ISO_API iso_value iso_graph_columns(iso_graph *graph, iso_value source, int64_t start,
                                    int64_t count);

/* Rows that only some steps run. A symbol may be bound to 0, and a node whose outputs have no rows
 * is left out. iso_graph_recount() views the rows of a value as counted by another symbol, of the
 * same bound and bound to as many or to 0. iso_graph_otherwise() is `value`, made by a node behind
 * such a view, in steps that ran it, and `otherwise` in those that did not; both are temporaries,
 * equal in all but their symbol, and the result counts its rows as `otherwise` does. */
ISO_API iso_value iso_graph_recount(iso_graph *graph, iso_value source, iso_symbol symbol);
ISO_API iso_value iso_graph_otherwise(iso_graph *graph, iso_value value, iso_value otherwise);

/* Marks a value made by a node, or a view of one, that the host reads after a step. It takes this
 * name, which must be unique too. */
ISO_API void iso_graph_output(iso_graph *graph, iso_value value, const char *name);

/* Ends building; returns the first failure, naming the node. */
ISO_MUST_CHECK ISO_API iso_status iso_graph_finish(iso_graph *graph);

ISO_API int32_t iso_graph_value_count(const iso_graph *graph);
ISO_API int32_t iso_graph_node_count(const iso_graph *graph);
ISO_API const iso_value_info *iso_graph_get_value(const iso_graph *graph, iso_value value);
ISO_API const iso_node_info *iso_graph_get_node(const iso_graph *graph, int32_t node);
/* Finds an input, weight, state or output by name; ISO_NO_VALUE when absent. */
ISO_API iso_value iso_graph_find(const iso_graph *graph, const char *name);
/* The graph as text, one line a node; for people and golden tests. Caller frees with free(). */
ISO_MUST_CHECK ISO_API iso_status iso_graph_print(const iso_graph *graph, char **out_text);

ISO_END_DECLS
#endif
