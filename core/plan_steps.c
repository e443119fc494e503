/* The list of steps: each node launched in graph order, each value copied to another device just
 * before the first node there that reads it. Operands in arenas hold their item's number in `index`
 * until offsets are known. */
#include "core/plan.h"
#include <stdlib.h>
#include <string.h>

static iso_status out_of_memory(void) {
  return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for planning");
}

static const iso_value_info *storage_of(const iso_planner *planner, iso_value value) {
  return iso_graph_get_value(planner->graph, iso_graph_get_value(planner->graph, value)->storage);
}

/* ---- Inputs and states ------------------------------------------------------------------- */

static iso_status lay_out_inputs(iso_planner *planner) {
  uint32_t alignment = 1;
  for (uint32_t d = 0; d < planner->options->n_devices; d++)
    if (planner->options->devices[d].alignment_bytes > alignment)
      alignment = planner->options->devices[d].alignment_bytes;
  uint64_t used = 0;
  for (iso_value v = 0; v < iso_graph_value_count(planner->graph); v++) {
    const iso_value_info *value = iso_graph_get_value(planner->graph, v);
    if (value->role != ISO_VALUE_INPUT)
      continue;
    uint64_t bytes;
    ISO_TRY(iso_shape_bytes(&value->shape, value->scheme, &bytes));
    planner->input_offsets[v] = used;
    if (__builtin_add_overflow(used, bytes, &used) || !iso_align_up(used, alignment, &used) ||
        used > INT64_MAX)
      return iso_fail(ISO_ERROR_LIMIT, "the inputs are larger than 2^63 bytes");
  }
  planner->plan->input_bytes = used;
  return ISO_OK;
}

/* Every state lies on the device of the nodes that touch it; one that none touches is nowhere. */
static iso_status lay_out_states(iso_planner *planner) {
  iso_plan *plan = planner->plan;
  int32_t n_values = iso_graph_value_count(planner->graph);
  plan->states = calloc((size_t)n_values + 1, sizeof *plan->states);
  if (!plan->states)
    return out_of_memory();
  for (iso_value v = 0; v < n_values; v++)
    planner->state_index[v] = -1;
  for (int32_t n = 0; n < iso_graph_node_count(planner->graph); n++) {
    const iso_node_info *node = iso_graph_get_node(planner->graph, n);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
      const iso_value_info *value = iso_graph_get_value(planner->graph, node->inputs[i]);
      if (!value || storage_of(planner, node->inputs[i])->role != ISO_VALUE_STATE ||
          planner->state_index[value->storage] >= 0)
        continue;
      planner->state_index[value->storage] = (int32_t)plan->n_states;
      plan->states[plan->n_states++] = (iso_plan_state){value->storage, planner->nodes[n].device};
    }
  }
  return ISO_OK;
}

/* ---- Arena items ------------------------------------------------------------------------- */

static iso_status add_item(iso_planner *planner, uint32_t device, uint64_t bytes,
                           int32_t *out_item) {
  if (planner->n_items == planner->item_capacity) {
    uint32_t capacity = planner->item_capacity ? planner->item_capacity * 2 : 256;
    plan_item *grown = realloc(planner->items, capacity * sizeof *grown);
    if (!grown)
      return out_of_memory();
    planner->items = grown;
    planner->item_capacity = capacity;
  }
  int32_t step = (int32_t)planner->plan->n_steps; /* the one being made */
  planner->items[planner->n_items] =
      (plan_item){.device = device, .first = step, .last = step, .bytes = bytes};
  *out_item = (int32_t)planner->n_items++;
  return ISO_OK;
}

static int32_t *item_of(iso_planner *planner, iso_value storage, uint32_t device) {
  return &planner->value_items[(size_t)storage * planner->options->n_devices + device];
}

/* ---- Steps ------------------------------------------------------------------------------- */

static iso_plan_step *new_step(iso_planner *planner) {
  iso_plan *plan = planner->plan;
  if (plan->n_steps == planner->step_capacity) {
    uint32_t capacity = planner->step_capacity ? planner->step_capacity * 2 : 256;
    iso_plan_step *steps = realloc(plan->steps, capacity * sizeof *steps);
    if (steps)
      plan->steps = steps;
    int32_t *items = realloc(planner->workspace_items, capacity * sizeof *items);
    if (items)
      planner->workspace_items = items;
    if (!steps || !items)
      return NULL;
    planner->step_capacity = capacity;
  }
  iso_plan_step *step = &plan->steps[plan->n_steps];
  *step = (iso_plan_step){.node = -1};
  for (uint32_t i = 0; i < ISO_MAX_INPUTS; i++)
    step->inputs[i] = (iso_plan_operand){ISO_NO_VALUE, ISO_STORAGE_ABSENT, 0, 0};
  for (uint32_t i = 0; i < ISO_MAX_OUTPUTS; i++)
    step->outputs[i] = (iso_plan_operand){ISO_NO_VALUE, ISO_STORAGE_ABSENT, 0, 0};
  planner->workspace_items[plan->n_steps] = -1;
  return step;
}

static iso_plan_operand arena_operand(iso_planner *planner, iso_value value, int32_t item) {
  plan_item *used = &planner->items[item];
  used->last = (int32_t)planner->plan->n_steps;
  return (iso_plan_operand){value, ISO_STORAGE_ARENA, (uint32_t)item,
                            iso_graph_get_value(planner->graph, value)->storage_offset};
}

/* Copies a whole storage to `device`, unless it is there. */
static iso_status bring(iso_planner *planner, iso_value storage, uint32_t device) {
  if (*item_of(planner, storage, device) >= 0)
    return ISO_OK;
  const iso_value_info *info = iso_graph_get_value(planner->graph, storage);
  uint32_t source = planner->nodes[info->producer].device;
  iso_plan_step *step = new_step(planner);
  if (!step)
    return out_of_memory();
  step->kind = ISO_STEP_COPY;
  step->device = device;
  step->source_device = source;
  ISO_TRY(iso_shape_bytes(&info->shape, info->scheme, &step->copy_bytes));
  int32_t *item = item_of(planner, storage, device);
  ISO_TRY(add_item(planner, device, step->copy_bytes, item));
  step->inputs[0] = arena_operand(planner, storage, *item_of(planner, storage, source));
  step->outputs[0] = arena_operand(planner, storage, *item);
  if (__builtin_add_overflow(planner->plan->copy_bytes_total, step->copy_bytes,
                             &planner->plan->copy_bytes_total))
    return iso_fail(ISO_ERROR_LIMIT, "more than 2^64 bytes are copied in one step");
  planner->plan->n_steps++;
  return ISO_OK;
}

static bool is_in_arena(const iso_planner *planner, iso_value value) {
  return storage_of(planner, value)->role == ISO_VALUE_TEMPORARY;
}

/* Where a node on `device` finds an operand, or puts an output whose item exists. */
static iso_plan_operand locate(iso_planner *planner, iso_value value, uint32_t device,
                               int32_t weight) {
  if (value == ISO_NO_VALUE)
    return (iso_plan_operand){ISO_NO_VALUE, ISO_STORAGE_ABSENT, 0, 0};
  const iso_value_info *info = iso_graph_get_value(planner->graph, value);
  uint64_t offset = info->storage_offset;
  switch (storage_of(planner, value)->role) {
  case ISO_VALUE_INPUT:
    planner->plan->reads_inputs[device] = true;
    return (iso_plan_operand){value, ISO_STORAGE_INPUT, 0,
                              planner->input_offsets[info->storage] + offset};
  case ISO_VALUE_WEIGHT:
    return (iso_plan_operand){value, ISO_STORAGE_WEIGHT, (uint32_t)weight, offset};
  case ISO_VALUE_STATE:
    return (iso_plan_operand){value, ISO_STORAGE_STATE,
                              (uint32_t)planner->state_index[info->storage], offset};
  default:
    return arena_operand(planner, value, *item_of(planner, info->storage, device));
  }
}

/* Of the value that an operand is in some steps; NULL where it is always the same one. */
static plan_item *otherwise_item(iso_planner *planner, iso_value value, uint32_t device) {
  const iso_value_info *info = iso_graph_get_value(planner->graph, value);
  return info && info->otherwise != ISO_NO_VALUE
             ? &planner->items[*item_of(planner, info->otherwise, device)]
             : NULL;
}

static iso_status add_outputs(iso_planner *planner, const iso_node_info *info, uint32_t device) {
  for (uint32_t i = 0; i < info->n_outputs; i++) {
    const iso_value_info *value = iso_graph_get_value(planner->graph, info->outputs[i]);
    if (value->storage != info->outputs[i])
      continue; /* an update in place */
    uint64_t bytes;
    ISO_TRY(iso_shape_bytes(&value->shape, value->scheme, &bytes));
    ISO_TRY(add_item(planner, device, bytes, item_of(planner, info->outputs[i], device)));
  }
  return ISO_OK;
}

static iso_status launch(iso_planner *planner, int32_t node) {
  const iso_node_info *info = iso_graph_get_node(planner->graph, node);
  const plan_node *placed = &planner->nodes[node];
  for (uint32_t i = 0; i < info->n_inputs; i++)
    if (info->inputs[i] != ISO_NO_VALUE && is_in_arena(planner, info->inputs[i])) {
      const iso_value_info *value = iso_graph_get_value(planner->graph, info->inputs[i]);
      ISO_TRY(bring(planner, value->storage, placed->device));
      if (value->otherwise != ISO_NO_VALUE)
        ISO_TRY(bring(planner, value->otherwise, placed->device));
    }
  iso_plan_step *step = new_step(planner);
  if (!step)
    return out_of_memory();
  step->kind = ISO_STEP_LAUNCH;
  step->device = placed->device;
  step->node = node;
  /* Without a packed weight every record is PLAIN. */
  uint32_t layout = ISO_LAYOUT_PLAIN;
  for (uint32_t i = 0; i < info->n_inputs; i++) {
    int32_t weight = placed->weights[i];
    if (weight >= 0 && planner->plan->weights[weight].layout != ISO_LAYOUT_PLAIN)
      layout = planner->plan->weights[weight].layout;
  }
  iso_plan_candidates(planner->graph, node, &planner->options->devices[placed->device], layout,
                      step);
  ISO_TRY(add_outputs(planner, info, placed->device));
  for (uint32_t i = 0; i < info->n_inputs; i++) {
    step->inputs[i] = locate(planner, info->inputs[i], placed->device, placed->weights[i]);
    plan_item *other = otherwise_item(planner, info->inputs[i], placed->device);
    if (other)
      other->last = (int32_t)planner->plan->n_steps;
  }
  for (uint32_t i = 0; i < info->n_outputs; i++)
    step->outputs[i] = locate(planner, info->outputs[i], placed->device, -1);
  if (step->workspace_bytes > 0)
    ISO_TRY(add_item(planner, placed->device, step->workspace_bytes,
                     &planner->workspace_items[planner->plan->n_steps]));
  planner->plan->n_steps++;
  return ISO_OK;
}

/* Keeps what the host reads in place until the end, and says where it lies. */
static void settle_values(iso_planner *planner) {
  iso_plan *plan = planner->plan;
  for (iso_value v = 0; v < iso_graph_value_count(planner->graph); v++) {
    const iso_value_info *value = iso_graph_get_value(planner->graph, v);
    const iso_value_info *storage = storage_of(planner, v);
    iso_plan_operand *operand = &plan->value_operand[v];
    *operand = (iso_plan_operand){ISO_NO_VALUE, ISO_STORAGE_ABSENT, 0, 0};
    plan->value_device[v] = -1;
    if (storage->role == ISO_VALUE_INPUT) {
      *operand = (iso_plan_operand){v, ISO_STORAGE_INPUT, 0,
                                    planner->input_offsets[value->storage] + value->storage_offset};
    } else if (storage->role == ISO_VALUE_STATE) {
      int32_t index = planner->state_index[value->storage];
      if (index < 0)
        continue;
      *operand = (iso_plan_operand){v, ISO_STORAGE_STATE, (uint32_t)index, value->storage_offset};
      plan->value_device[v] = (int32_t)plan->states[index].device;
    } else if (storage->role == ISO_VALUE_TEMPORARY &&
               (value->is_output || planner->options->keep_all)) {
      /* What may be another value is read as itself: by who knows that the step made it. */
      uint32_t device = planner->nodes[storage->producer].device;
      *operand = arena_operand(planner, v, *item_of(planner, value->storage, device));
      plan->value_device[v] = (int32_t)device;
    }
  }
  for (uint32_t w = plan->n_weights; w-- > 0;)
    if (plan->weights[w].layout == ISO_LAYOUT_PLAIN) {
      iso_value v = plan->weights[w].value;
      plan->value_operand[v] = (iso_plan_operand){v, ISO_STORAGE_WEIGHT, w, 0};
      plan->value_device[v] = (int32_t)plan->weights[w].device;
    }
}

static void resolve(const iso_planner *planner, iso_plan_operand *operand) {
  if (operand->storage != ISO_STORAGE_ARENA)
    return;
  operand->offset += planner->items[operand->index].offset;
  operand->index = 0;
}

static void resolve_all(iso_planner *planner) {
  iso_plan *plan = planner->plan;
  for (uint32_t s = 0; s < plan->n_steps; s++) {
    iso_plan_step *step = &plan->steps[s];
    for (uint32_t i = 0; i < ISO_MAX_INPUTS; i++) {
      const plan_item *other = otherwise_item(planner, step->inputs[i].value, step->device);
      if (other)
        step->otherwise_offsets[i] =
            other->offset +
            iso_graph_get_value(planner->graph, step->inputs[i].value)->storage_offset;
    }
    for (uint32_t i = 0; i < ISO_MAX_INPUTS; i++)
      resolve(planner, &plan->steps[s].inputs[i]);
    for (uint32_t i = 0; i < ISO_MAX_OUTPUTS; i++)
      resolve(planner, &plan->steps[s].outputs[i]);
    if (planner->workspace_items[s] >= 0)
      plan->steps[s].workspace_offset = planner->items[planner->workspace_items[s]].offset;
  }
  for (iso_value v = 0; v < iso_graph_value_count(planner->graph); v++)
    resolve(planner, &plan->value_operand[v]);
}

iso_status iso_plan_list_steps(iso_planner *planner) {
  ISO_TRY(lay_out_inputs(planner));
  ISO_TRY(lay_out_states(planner));
  for (int32_t n = 0; n < iso_graph_node_count(planner->graph); n++)
    ISO_TRY(launch(planner, n));
  settle_values(planner);
  ISO_TRY(iso_plan_assign_offsets(planner));
  resolve_all(planner);
  return ISO_OK;
}
