/* A plan as text: devices, steps, then weights, states, memory, copies and fallbacks. */
#include "core/printer.h"
#include <isomer/plan.h>
#include <string.h>

typedef unsigned long long u64;

static void add_operand(iso_printer *text, const iso_plan_operand *operand) {
  static const char *const kinds[] = {"arena", "input", "weight", "state", "-"};
  if (operand->storage == ISO_STORAGE_ABSENT) {
    iso_printer_add(text, "-");
    return;
  }
  iso_printer_add(text, "%%%d %s", operand->value, kinds[operand->storage]);
  bool numbered = operand->storage == ISO_STORAGE_WEIGHT || operand->storage == ISO_STORAGE_STATE;
  if (numbered)
    iso_printer_add(text, " %u", operand->index);
  if (!numbered || operand->offset)
    iso_printer_add(text, "+%llu", (u64)operand->offset);
}

static void add_launch(iso_printer *text, const iso_plan *plan, const iso_plan_step *step) {
  const iso_node_info *node = iso_graph_get_node(plan->graph, step->node);
  iso_printer_add(text, "%s %s(", plan->device_names[step->device], iso_op_get_info(node->op)->name);
  for (uint32_t i = 0; i < node->n_inputs; i++) {
    iso_printer_add(text, i ? ", " : "");
    add_operand(text, &step->inputs[i]);
  }
  iso_printer_add(text, ") -> ");
  for (uint32_t i = 0; i < node->n_outputs; i++) {
    iso_printer_add(text, i ? ", " : "");
    add_operand(text, &step->outputs[i]);
  }
  iso_printer_add(text, " by ");
  for (uint32_t i = 0; i < step->n_candidates; i++)
    iso_printer_add(text, "%s%s", i ? " or " : "", step->candidates[i]->name);
  if (step->workspace_bytes)
    iso_printer_add(text, ", workspace arena+%llu of %llu bytes", (u64)step->workspace_offset,
                 (u64)step->workspace_bytes);
}

static void add_copy(iso_printer *text, const iso_plan *plan, const iso_plan_step *step) {
  iso_printer_add(text, "copy %s ", plan->device_names[step->source_device]);
  add_operand(text, &step->inputs[0]);
  iso_printer_add(text, " -> %s ", plan->device_names[step->device]);
  add_operand(text, &step->outputs[0]);
  iso_printer_add(text, ", %llu bytes", (u64)step->copy_bytes);
}

static void add_tail(iso_printer *text, const iso_plan *plan) {
  for (uint32_t i = 0; i < plan->n_weights; i++) {
    const iso_plan_weight *weight = &plan->weights[i];
    iso_printer_add(text, "weight %u: %%%d %s on %s", i, weight->value,
                 iso_graph_get_value(plan->graph, weight->value)->name,
                 plan->device_names[weight->device]);
    if (weight->packer)
      iso_printer_add(text, ", layout %u packed by %s", weight->layout, weight->packer->name);
    iso_printer_add(text, "\n");
  }
  for (uint32_t i = 0; i < plan->n_states; i++)
    iso_printer_add(text, "state %u: %%%d %s on %s\n", i, plan->states[i].value,
                 iso_graph_get_value(plan->graph, plan->states[i].value)->name,
                 plan->device_names[plan->states[i].device]);
  for (uint32_t d = 0; d < plan->n_devices; d++)
    iso_printer_add(text, "memory of %s: arena %llu bytes, inputs %llu bytes\n", plan->device_names[d],
                 (u64)plan->arena_bytes[d], plan->reads_inputs[d] ? (u64)plan->input_bytes : 0);
  iso_printer_add(text, "copied: %llu bytes\n", (u64)plan->copy_bytes_total);
  for (uint32_t i = 0; i < plan->n_fallbacks; i++) {
    const iso_plan_fallback *fallback = &plan->fallbacks[i];
    iso_printer_add(text, "fallback: node %d (%s) from %s to %s: %s\n", fallback->node,
                 iso_op_get_info(iso_graph_get_node(plan->graph, fallback->node)->op)->name,
                 plan->device_names[fallback->wanted], plan->device_names[fallback->used],
                 fallback->reason);
  }
}

iso_status iso_plan_print(const iso_plan *plan, char **out_text) {
  iso_printer text = {0};
  for (uint32_t d = 0; d < plan->n_devices; d++)
    iso_printer_add(&text, "device %u: %s\n", d, plan->device_names[d]);
  for (uint32_t s = 0; s < plan->n_steps; s++) {
    iso_printer_add(&text, "step %u: ", s);
    if (plan->steps[s].kind == ISO_STEP_COPY)
      add_copy(&text, plan, &plan->steps[s]);
    else
      add_launch(&text, plan, &plan->steps[s]);
    iso_printer_add(&text, "\n");
  }
  add_tail(&text, plan);
  return iso_printer_take(&text, out_text);
}
