/* Facts of graphs that only the core needs. */
#ifndef ISOMER_CORE_GRAPH_H
#define ISOMER_CORE_GRAPH_H

#include <isomer/graph.h>

/* Whether iso_graph_finish() has succeeded. */
bool iso_graph_is_finished(const iso_graph *graph);

/* The bound of a symbol in this graph, 0 when no shape uses it. */
int64_t iso_graph_symbol_bound(const iso_graph *graph, iso_symbol symbol);

/* "node 12 (matmul in layer 3)" into `out_text`, which is returned. */
const char *iso_graph_describe_node(const iso_graph *graph, int32_t node, char *out_text,
                                    size_t capacity);

/* "T", "S", "R". */
const char *iso_symbol_name(iso_symbol symbol);

#endif
