/* What devices say about nodes, derived from their kernel records. */
#include "core/kernel_select.h"
#include "core/plan.h"
#include <stdio.h>
#include <string.h>

static const iso_bindings one_of_each = {{1, 1, 1, 1, 1}};
_Static_assert(ISO_SYMBOL_COUNT == 5, "one_of_each has an entry a symbol");

static void fill_tensor(const iso_graph *graph, iso_value value, const iso_bindings *bindings,
                        iso_tensor *out_tensor) {
  const iso_value_info *info = iso_graph_get_value(graph, value);
  if (!info)
    return; /* an absent operand */
  out_tensor->scheme = info->scheme;
  out_tensor->layout = ISO_LAYOUT_PLAIN;
  out_tensor->n_dims = info->shape.n_dims;
  for (uint32_t i = 0; i < info->shape.n_dims; i++)
    out_tensor->dims[i] = iso_dim_size(info->shape.dims[i], bindings);
  memcpy(out_tensor->strides, info->strides, sizeof out_tensor->strides);
}

void iso_plan_arguments(const iso_graph *graph, int32_t node, const iso_bindings *bindings,
                        iso_op_arguments *out_arguments) {
  const iso_node_info *info = iso_graph_get_node(graph, node);
  *out_arguments = (iso_op_arguments){.size = sizeof *out_arguments,
                                      .op = info->op,
                                      .n_inputs = info->n_inputs,
                                      .n_outputs = info->n_outputs,
                                      .attributes = info->attributes};
  for (uint32_t i = 0; i < info->n_inputs; i++)
    fill_tensor(graph, info->inputs[i], bindings, &out_arguments->inputs[i]);
  for (uint32_t i = 0; i < info->n_outputs; i++)
    fill_tensor(graph, info->outputs[i], bindings, &out_arguments->outputs[i]);
}

/* Whether the op's weight may be packed: only a whole weight of the model, not a view of one. */
static bool may_pack(const iso_graph *graph, int32_t node, int32_t *out_operand) {
  const iso_node_info *info = iso_graph_get_node(graph, node);
  *out_operand = iso_op_weight_operand(info->op);
  if (*out_operand < 0)
    return false;
  iso_value value = info->inputs[*out_operand];
  const iso_value_info *weight = iso_graph_get_value(graph, value);
  return weight && weight->role == ISO_VALUE_WEIGHT && weight->storage == value;
}

/* The node's arguments at both ends of its range of sizes. */
typedef struct plan_question {
  iso_op_arguments bound, one;
  int32_t weight; /* operand, -1: none */
  bool may_pack;
} plan_question;

static void pose(const iso_graph *graph, int32_t node, plan_question *out_question) {
  iso_plan_arguments(graph, node, NULL, &out_question->bound);
  iso_plan_arguments(graph, node, &one_of_each, &out_question->one);
  out_question->may_pack = may_pack(graph, node, &out_question->weight);
}

/* Checks a record at both ends. */
static void ask(plan_question *question, const iso_plan_device *device, const iso_kernel *kernel,
                iso_refusal *out_bound, iso_refusal *out_one) {
  *out_bound = *out_one = ISO_REFUSED_LAYOUT;
  if (kernel->layout != ISO_LAYOUT_PLAIN && !question->may_pack)
    return;
  if (question->weight >= 0) {
    question->bound.inputs[question->weight].layout = kernel->layout;
    question->one.inputs[question->weight].layout = kernel->layout;
  }
  const char *detail;
  *out_bound = iso_kernel_check(device->device, kernel, &question->bound, &detail);
  *out_one = iso_kernel_check(device->device, kernel, &question->one, &detail);
}

/* Adds what a record says to its layout's entry. */
static void note_layout(plan_support *support, const iso_kernel *kernel, bool takes_bound,
                        bool takes_one) {
  plan_layout *entry = support->layouts, *end = entry + support->n_layouts;
  while (entry < end && entry->layout != kernel->layout)
    entry++;
  if (entry == end) {
    if (support->n_layouts == ISO_PLAN_MAX_LAYOUTS)
      return;
    *entry = (plan_layout){.layout = kernel->layout, .rank = INT32_MIN};
    support->n_layouts++;
  }
  if (takes_bound && kernel->rank > entry->rank)
    entry->rank = kernel->rank;
  entry->takes_bound |= takes_bound;
  entry->takes_one |= takes_one;
  if (!entry->packer && kernel->pack && kernel->layout != ISO_LAYOUT_PLAIN)
    entry->packer = kernel;
}

static bool is_before(const plan_layout *a, const plan_layout *b) {
  return a->rank != b->rank ? a->rank > b->rank : a->layout < b->layout;
}

/* Keeps the layouts that work at both ends, best first. */
static void keep_whole_layouts(plan_support *support) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < support->n_layouts; i++) {
    plan_layout entry = support->layouts[i];
    if (!entry.takes_bound || !entry.takes_one ||
        (entry.layout != ISO_LAYOUT_PLAIN && !entry.packer))
      continue;
    uint32_t at = kept++;
    for (; at > 0 && is_before(&entry, &support->layouts[at - 1]); at--)
      support->layouts[at] = support->layouts[at - 1];
    support->layouts[at] = entry;
  }
  support->n_layouts = kept;
}

static void explain(const plan_question *question, const iso_plan_device *device,
                    plan_support *support) {
  if (iso_kernel_select(device, &question->bound, ISO_LAYOUT_ANY, &support->refusal,
                        support->reason, sizeof support->reason) &&
      iso_kernel_select(device, &question->one, ISO_LAYOUT_ANY, &support->refusal, support->reason,
                        sizeof support->reason)) {
    support->refusal = ISO_REFUSED_LAYOUT;
    snprintf(support->reason, sizeof support->reason,
             "%s has no one layout of the weight in which %s runs at every size", device->name,
             iso_op_get_info(question->bound.op)->name);
  }
}

void iso_plan_ask(const iso_graph *graph, int32_t node, const iso_plan_device *device,
                  plan_support *out_support) {
  plan_question question;
  pose(graph, node, &question);
  *out_support = (plan_support){0};
  for (uint32_t i = 0; i < device->kernel_count; i++) {
    const iso_kernel *kernel = &device->kernels[i];
    if (kernel->op != question.bound.op)
      continue;
    iso_refusal bound, one;
    ask(&question, device, kernel, &bound, &one);
    if (bound == ISO_ACCEPTED || one == ISO_ACCEPTED)
      note_layout(out_support, kernel, bound == ISO_ACCEPTED, one == ISO_ACCEPTED);
  }
  keep_whole_layouts(out_support);
  if (out_support->n_layouts == 0)
    explain(&question, device, out_support);
}

/* ---- Candidates -------------------------------------------------------------------------- */

/* Which candidates matter most when there are more than ISO_MAX_CANDIDATES. */
typedef enum plan_importance {
  NEEDED,   /* the best at the bound, or at one of everything */
  ACCEPTED, /* takes one of both ends */
  POSSIBLE, /* takes neither; may take a size between */
  USELESS   /* refuses whatever the size */
} plan_importance;

typedef struct candidate {
  const iso_kernel *kernel;
  plan_importance importance;
} candidate;

static bool depends_on_size(iso_refusal refusal) {
  return refusal == ISO_REFUSED_SHAPE || refusal == ISO_REFUSED_STRIDE ||
         refusal == ISO_REFUSED_SIZE;
}

/* Records of one array: the earlier one goes first among equals. */
static bool ranks_before(const iso_kernel *a, const iso_kernel *b) {
  return a->rank != b->rank ? a->rank > b->rank : a < b;
}

static bool matters_more(const candidate *a, const candidate *b) {
  return a->importance != b->importance ? a->importance < b->importance
                                        : ranks_before(a->kernel, b->kernel);
}

/* Inserts into a list kept in order of importance, whose end falls off when it is full. */
static void insert(candidate *list, uint32_t *count, candidate added) {
  uint32_t at = *count;
  if (at == ISO_MAX_CANDIDATES && !matters_more(&added, &list[--at]))
    return;
  for (; at > 0 && matters_more(&added, &list[at - 1]); at--)
    list[at] = list[at - 1];
  list[at] = added;
  *count += *count < ISO_MAX_CANDIDATES;
}

/* The records of highest rank at either end. */
static void find_needed(plan_question *question, const iso_plan_device *device, uint32_t layout,
                        const iso_kernel *out_needed[2]) {
  out_needed[0] = out_needed[1] = NULL;
  for (uint32_t i = 0; i < device->kernel_count; i++) {
    const iso_kernel *kernel = &device->kernels[i];
    if (kernel->op != question->bound.op || kernel->layout != layout)
      continue;
    iso_refusal refusals[2];
    ask(question, device, kernel, &refusals[0], &refusals[1]);
    for (int end = 0; end < 2; end++)
      if (refusals[end] == ISO_ACCEPTED &&
          (!out_needed[end] || ranks_before(kernel, out_needed[end])))
        out_needed[end] = kernel;
  }
}

/* Writes the candidates by rank, and the largest of their workspaces. */
static void store(plan_question *question, const iso_plan_device *device, uint32_t layout,
                  const candidate *list, uint32_t count, iso_plan_step *step) {
  step->n_candidates = 0;
  step->workspace_bytes = 0;
  if (question->weight >= 0)
    question->bound.inputs[question->weight].layout = layout;
  for (uint32_t i = 0; i < count; i++) {
    const iso_kernel *kernel = list[i].kernel;
    uint32_t at = step->n_candidates++;
    for (; at > 0 && ranks_before(kernel, step->candidates[at - 1]); at--)
      step->candidates[at] = step->candidates[at - 1];
    step->candidates[at] = kernel;
    uint64_t bytes = kernel->workspace ? kernel->workspace(device->device, &question->bound) : 0;
    if (bytes > step->workspace_bytes)
      step->workspace_bytes = bytes;
  }
}

void iso_plan_candidates(const iso_graph *graph, int32_t node, const iso_plan_device *device,
                         uint32_t layout, iso_plan_step *step) {
  plan_question question;
  pose(graph, node, &question);
  const iso_kernel *needed[2];
  find_needed(&question, device, layout, needed);
  candidate list[ISO_MAX_CANDIDATES];
  uint32_t count = 0;
  for (uint32_t i = 0; i < device->kernel_count; i++) {
    const iso_kernel *kernel = &device->kernels[i];
    if (kernel->op != question.bound.op || kernel->layout != layout)
      continue;
    iso_refusal bound, one;
    ask(&question, device, kernel, &bound, &one);
    plan_importance importance = USELESS;
    if (kernel == needed[0] || kernel == needed[1])
      importance = NEEDED;
    else if (bound == ISO_ACCEPTED || one == ISO_ACCEPTED)
      importance = ACCEPTED;
    else if (depends_on_size(bound) && depends_on_size(one))
      importance = POSSIBLE;
    if (importance != USELESS)
      insert(list, &count, (candidate){kernel, importance});
  }
  store(&question, device, layout, list, count, step);
}
