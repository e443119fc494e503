/* Which device runs each node. */
#include "core/graph.h"
#include "core/plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What comes before the first layer goes with it, what comes after the last with the last device.
 */
static uint32_t device_of_layer(const iso_plan_options *options, int32_t layer) {
  uint32_t device = 0;
  layer = layer < 0 ? 0 : layer;
  while (device + 1 < options->n_devices && layer >= options->split[device])
    device++;
  return device;
}

static int32_t group_of(const iso_planner *planner, int32_t node) {
  while (planner->nodes[node].group != node)
    node = planner->nodes[node].group;
  return node;
}

/* The state that a node's operand lies in, or ISO_NO_VALUE. */
static iso_value state_of(const iso_graph *graph, iso_value value) {
  const iso_value_info *info = iso_graph_get_value(graph, value);
  if (!info || iso_graph_get_value(graph, info->storage)->role != ISO_VALUE_STATE)
    return ISO_NO_VALUE;
  return info->storage;
}

/* Joins the groups of two nodes; the earlier leader leads. */
static void join(iso_planner *planner, int32_t a, int32_t b) {
  a = group_of(planner, a);
  b = group_of(planner, b);
  planner->nodes[a > b ? a : b].group = a < b ? a : b;
}

/* Nodes that touch one state form a group, led by the first of them, because the state's pages
 * lie on one device. */
static iso_status make_groups(iso_planner *planner) {
  int32_t n_nodes = iso_graph_node_count(planner->graph);
  int32_t n_values = iso_graph_value_count(planner->graph);
  int32_t *toucher = malloc(((size_t)n_values + 1) * sizeof *toucher);
  if (!toucher)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for planning");
  for (int32_t v = 0; v < n_values; v++)
    toucher[v] = -1;
  for (int32_t n = 0; n < n_nodes; n++) {
    const iso_node_info *info = iso_graph_get_node(planner->graph, n);
    planner->nodes[n].group = n;
    planner->nodes[n].next = -1;
    for (uint32_t i = 0; i < info->n_inputs; i++) {
      iso_value state = state_of(planner->graph, info->inputs[i]);
      if (state == ISO_NO_VALUE)
        continue;
      if (toucher[state] < 0)
        toucher[state] = n;
      join(planner, toucher[state], n);
    }
  }
  free(toucher);
  /* From the last node to the first, each becomes the head of its group's list behind the
   * leader. */
  for (int32_t n = n_nodes - 1; n >= 0; n--) {
    int32_t leader = planner->nodes[n].group = group_of(planner, n);
    if (leader == n)
      continue;
    planner->nodes[n].next = planner->nodes[leader].next;
    planner->nodes[leader].next = n;
  }
  return ISO_OK;
}

/* Puts a group on a device. Returns the first node that the device refuses, or -1. */
static int32_t put_group(iso_planner *planner, int32_t leader, uint32_t device) {
  for (int32_t n = leader; n >= 0; n = planner->nodes[n].next) {
    plan_node *node = &planner->nodes[n];
    node->device = device;
    iso_plan_ask(planner->graph, n, &planner->options->devices[device], &node->support);
    if (node->support.n_layouts == 0)
      return n;
  }
  return -1;
}

static iso_status refuse(const iso_planner *planner, int32_t node, const char *advice) {
  char text[128];
  return iso_fail(ISO_ERROR_UNSUPPORTED, "%s: %s%s",
                  iso_graph_describe_node(planner->graph, node, text, sizeof text),
                  planner->nodes[node].support.reason, advice);
}

static iso_status place_group(iso_planner *planner, int32_t leader) {
  uint32_t wanted = planner->nodes[leader].wanted;
  int32_t refused = put_group(planner, leader, wanted);
  if (refused < 0)
    return ISO_OK;
  int32_t fallback = planner->options->fallback;
  if (fallback < 0)
    return refuse(planner, refused, "; allow a fallback, or choose another device");
  if ((uint32_t)fallback == wanted)
    return refuse(planner, refused, ", and it is the last resort");
  iso_refusal refusal = planner->nodes[refused].support.refusal;
  char reason[160];
  memcpy(reason, planner->nodes[refused].support.reason, sizeof reason);
  int32_t hopeless = put_group(planner, leader, (uint32_t)fallback);
  if (hopeless >= 0)
    return iso_fail_context(refuse(planner, hopeless, ", and it is the last resort"), "%s", reason);
  for (int32_t n = leader; n >= 0; n = planner->nodes[n].next) {
    plan_node *node = &planner->nodes[n];
    node->fell_back = true;
    node->refusal = refusal;
    if (n == refused)
      memcpy(node->reason, reason, sizeof node->reason);
    else
      snprintf(node->reason, sizeof node->reason, "shares a state with node %d: %s", refused,
               reason);
  }
  return ISO_OK;
}

static iso_status record_fallbacks(iso_planner *planner) {
  iso_plan *plan = planner->plan;
  int32_t n_nodes = iso_graph_node_count(planner->graph);
  for (int32_t n = 0; n < n_nodes; n++)
    plan->n_fallbacks += planner->nodes[n].fell_back;
  plan->fallbacks = calloc((size_t)plan->n_fallbacks + 1, sizeof *plan->fallbacks);
  if (!plan->fallbacks)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for planning");
  iso_plan_fallback *fallback = plan->fallbacks;
  for (int32_t n = 0; n < n_nodes; n++) {
    const plan_node *node = &planner->nodes[n];
    if (!node->fell_back)
      continue;
    *fallback = (iso_plan_fallback){n, node->wanted, node->device, node->refusal, ""};
    memcpy(fallback->reason, node->reason, sizeof fallback->reason);
    fallback++;
  }
  return ISO_OK;
}

iso_status iso_plan_place(iso_planner *planner) {
  int32_t n_nodes = iso_graph_node_count(planner->graph);
  for (int32_t n = 0; n < n_nodes; n++)
    planner->nodes[n].wanted =
        device_of_layer(planner->options, iso_graph_get_node(planner->graph, n)->layer);
  ISO_TRY(make_groups(planner));
  for (int32_t n = 0; n < n_nodes; n++)
    if (planner->nodes[n].group == n)
      ISO_TRY(place_group(planner, n));
  return record_fallbacks(planner);
}
