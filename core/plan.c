#include "core/plan.h"
#include "core/graph.h"
#include <stdio.h>
#include <stdlib.h>

static iso_status check_options(const iso_graph *graph, const iso_plan_options *options) {
  if (!iso_graph_is_finished(graph))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the graph is not finished");
  if (options->n_devices < 1 || options->n_devices > ISO_MAX_DEVICES)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "a plan has 1 to %d devices, not %u",
                    ISO_MAX_DEVICES, options->n_devices);
  if (options->fallback < -1 || options->fallback >= (int32_t)options->n_devices)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the fallback is device %d of %u",
                    options->fallback, options->n_devices);
  if (options->n_devices > 1 && !options->split)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%u devices, and no split of the layers",
                    options->n_devices);
  for (uint32_t d = 0; d < options->n_devices; d++) {
    uint32_t alignment = options->devices[d].alignment_bytes;
    if (alignment == 0 || (alignment & (alignment - 1)))
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s: an alignment of %u is not a power of two",
                      options->devices[d].name, alignment);
    if (d > 1 && options->split[d - 1] < options->split[d - 2])
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the split goes back from layer %d to %d",
                      options->split[d - 2], options->split[d - 1]);
  }
  return ISO_OK;
}

static iso_status allocate(iso_planner *planner) {
  size_t n_nodes = (size_t)iso_graph_node_count(planner->graph) + 1;
  size_t n_values = (size_t)iso_graph_value_count(planner->graph) + 1;
  size_t n_items = n_values * planner->options->n_devices;
  iso_plan *plan = planner->plan;
  planner->nodes = calloc(n_nodes, sizeof *planner->nodes);
  planner->value_items = malloc(n_items * sizeof *planner->value_items);
  planner->state_index = calloc(n_values, sizeof *planner->state_index);
  planner->input_offsets = calloc(n_values, sizeof *planner->input_offsets);
  plan->value_device = calloc(n_values, sizeof *plan->value_device);
  plan->value_operand = calloc(n_values, sizeof *plan->value_operand);
  if (!planner->nodes || !planner->value_items || !planner->state_index ||
      !planner->input_offsets || !plan->value_device || !plan->value_operand)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for planning");
  for (size_t i = 0; i < n_items; i++)
    planner->value_items[i] = -1;
  return ISO_OK;
}

static iso_status make(iso_planner *planner) {
  ISO_TRY(allocate(planner));
  ISO_TRY(iso_plan_place(planner));
  ISO_TRY(iso_plan_choose_weights(planner));
  return iso_plan_list_steps(planner);
}

iso_status iso_plan_create(const iso_graph *graph, const iso_plan_options *options,
                           iso_plan **out_plan) {
  ISO_TRY(check_options(graph, options));
  iso_planner planner = {.graph = graph, .options = options};
  planner.plan = calloc(1, sizeof *planner.plan);
  if (!planner.plan)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for planning");
  planner.plan->graph = graph;
  planner.plan->n_devices = options->n_devices;
  for (uint32_t d = 0; d < options->n_devices; d++)
    snprintf(planner.plan->device_names[d], sizeof planner.plan->device_names[d], "%s",
             options->devices[d].name);
  iso_status status = make(&planner);
  free(planner.nodes);
  free(planner.items);
  free(planner.value_items);
  free(planner.workspace_items);
  free(planner.state_index);
  free(planner.input_offsets);
  if (status != ISO_OK) {
    iso_plan_destroy(planner.plan);
    return status;
  }
  *out_plan = planner.plan;
  return ISO_OK;
}

void iso_plan_destroy(iso_plan *plan) {
  if (!plan)
    return;
  free(plan->steps);
  free(plan->weights);
  free(plan->states);
  free(plan->fallbacks);
  free(plan->value_device);
  free(plan->value_operand);
  free(plan);
}
