/* A graph as text: one line a value from outside, one line a node, views where they appear. */
#include "core/c_locale.h"
#include "core/printer.h"
#include <isomer/graph.h>
#include <string.h>

static void add_type(iso_printer *text, const iso_value_info *value) {
  char shape[128];
  iso_printer_add(text, "%s %s", iso_scheme_get_info(value->scheme)->name,
               iso_shape_format(&value->shape, shape, sizeof shape));
}

/* Attributes that differ from the default. */
static void add_attributes(iso_printer *text, const iso_op_info *op, const void *attributes) {
  const char *separator = " {";
  for (uint32_t i = 0; i < op->n_attributes; i++) {
    const iso_attribute_info *info = &op->attributes[i];
    const char *at = (const char *)attributes + info->offset;
    double value;
    if (strcmp(info->type, "float") == 0) {
      float f;
      memcpy(&f, at, sizeof f);
      if (f == (float)info->default_value)
        continue;
      value = f;
    } else if (strcmp(info->type, "int32_t") == 0) {
      int32_t number;
      memcpy(&number, at, sizeof number);
      value = number;
    } else {
      uint32_t number;
      memcpy(&number, at, sizeof number);
      value = number;
    }
    if (value == info->default_value)
      continue;
    iso_printer_add(text, "%s%s=%.9g", separator, info->name, value);
    separator = ", ";
  }
  if (*separator == ',')
    iso_printer_add(text, "}");
}

static void add_node(iso_printer *text, const iso_graph *graph, const iso_node_info *node) {
  const iso_op_info *op = iso_op_get_info(node->op);
  for (uint32_t i = 0; i < node->n_outputs; i++)
    iso_printer_add(text, "%s%%%d", i ? ", " : "  ", node->outputs[i]);
  iso_printer_add(text, " = %s(", op->name);
  for (uint32_t i = 0; i < node->n_inputs; i++) {
    iso_printer_add(text, i ? ", " : "");
    if (node->inputs[i] == ISO_NO_VALUE)
      iso_printer_add(text, "-");
    else
      iso_printer_add(text, "%%%d", node->inputs[i]);
  }
  iso_printer_add(text, ")");
  add_attributes(text, op, node->attributes);
  for (uint32_t i = 0; i < node->n_outputs; i++) {
    iso_printer_add(text, i ? ", " : " : ");
    add_type(text, iso_graph_get_value(graph, node->outputs[i]));
  }
  iso_printer_add(text, "\n");
}

static void add_view(iso_printer *text, iso_value index, const iso_value_info *value) {
  iso_printer_add(text, "  %%%d = view %%%d", index, value->storage);
  if (value->otherwise != ISO_NO_VALUE)
    iso_printer_add(text, ", otherwise %%%d,", value->otherwise);
  iso_printer_add(text, " + %llu strides [", (unsigned long long)value->storage_offset);
  for (uint32_t i = 0; i < value->shape.n_dims; i++)
    iso_printer_add(text, "%s%lld", i ? ", " : "", (long long)value->strides[i]);
  iso_printer_add(text, "] : ");
  add_type(text, value);
  iso_printer_add(text, "\n");
}

iso_status iso_graph_print(const iso_graph *graph, char **out_text) {
  static const char *const roles[] = {"input", "weight", "state"};
  iso_c_locale locale = iso_c_locale_enter();
  iso_printer text = {0};
  int32_t layer = -1;
  for (iso_value v = 0; v < iso_graph_value_count(graph); v++) {
    const iso_value_info *value = iso_graph_get_value(graph, v);
    if (value->role != ISO_VALUE_TEMPORARY) {
      iso_printer_add(&text, "%s %%%d %s : ", roles[value->role], v, value->name);
      add_type(&text, value);
      iso_printer_add(&text, "\n");
    } else if (value->producer < 0) {
      add_view(&text, v, value);
    } else {
      const iso_node_info *node = iso_graph_get_node(graph, value->producer);
      if (node->layer != layer)
        iso_printer_add(&text, "layer %d\n", node->layer);
      layer = node->layer;
      if (node->outputs[0] == v)
        add_node(&text, graph, node);
    }
  }
  for (iso_value v = 0; v < iso_graph_value_count(graph); v++)
    if (iso_graph_get_value(graph, v)->is_output)
      iso_printer_add(&text, "output %%%d %s\n", v, iso_graph_get_value(graph, v)->name);
  iso_c_locale_leave(locale);
  return iso_printer_take(&text, out_text);
}
