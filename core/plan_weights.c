/* Which weights lie on which devices, in which layouts. */
#include "core/kernel_select.h"
#include "core/plan.h"
#include <stdlib.h>

/* One operand of one node that is a weight, or a view of one. */
typedef struct weight_use {
  iso_value weight;
  uint32_t device;
  int32_t node;
  uint32_t operand;
  bool may_pack; /* else only PLAIN will do */
} weight_use;

static int compare_uses(const void *a_pointer, const void *b_pointer) {
  const weight_use *a = a_pointer, *b = b_pointer;
  if (a->weight != b->weight)
    return a->weight < b->weight ? -1 : 1;
  if (a->device != b->device)
    return a->device < b->device ? -1 : 1;
  if (a->node != b->node)
    return a->node < b->node ? -1 : 1;
  return a->operand < b->operand ? -1 : a->operand > b->operand;
}

static iso_status find_uses(const iso_planner *planner, weight_use **out_uses,
                            uint32_t *out_count) {
  const iso_graph *graph = planner->graph;
  size_t capacity = (size_t)iso_graph_node_count(graph) * ISO_MAX_INPUTS + 1;
  weight_use *uses = malloc(capacity * sizeof *uses);
  if (!uses)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for planning");
  uint32_t count = 0;
  for (int32_t n = 0; n < iso_graph_node_count(graph); n++) {
    const iso_node_info *node = iso_graph_get_node(graph, n);
    for (uint32_t i = 0; i < ISO_MAX_INPUTS; i++) {
      planner->nodes[n].weights[i] = -1;
      const iso_value_info *value =
          i < node->n_inputs ? iso_graph_get_value(graph, node->inputs[i]) : NULL;
      if (!value || iso_graph_get_value(graph, value->storage)->role != ISO_VALUE_WEIGHT)
        continue;
      uses[count++] = (weight_use){value->storage, planner->nodes[n].device, n, i,
                                   value->storage == node->inputs[i] &&
                                       (int32_t)i == iso_op_weight_operand(node->op)};
    }
  }
  qsort(uses, count, sizeof *uses, compare_uses);
  *out_uses = uses;
  *out_count = count;
  return ISO_OK;
}

/* The layouts that a use takes, the best one first. */
static const plan_layout *offers(const iso_planner *planner, const weight_use *use,
                                 uint32_t *out_count) {
  static const plan_layout plain = {.layout = ISO_LAYOUT_PLAIN};
  const plan_support *support = &planner->nodes[use->node].support;
  *out_count = use->may_pack ? support->n_layouts : 1;
  return use->may_pack ? support->layouts : &plain;
}

static const plan_layout *find_offer(const iso_planner *planner, const weight_use *use,
                                     uint32_t layout) {
  uint32_t count = 0;
  const plan_layout *list = offers(planner, use, &count);
  for (uint32_t i = 0; i < count; i++)
    if (list[i].layout == layout)
      return &list[i];
  return NULL;
}

/* The layout that all uses take, of the highest sum of ranks, then of the lowest number. False
 * when there is none. */
static bool find_shared_layout(const iso_planner *planner, const weight_use *uses, uint32_t count,
                               uint32_t *out_layout) {
  uint32_t n_layouts;
  const plan_layout *list = offers(planner, &uses[0], &n_layouts);
  bool found = false;
  int64_t best = 0;
  for (uint32_t i = 0; i < n_layouts; i++) {
    int64_t sum = 0;
    uint32_t takers = 0;
    for (const plan_layout *o; takers < count; takers++) {
      if (!(o = find_offer(planner, &uses[takers], list[i].layout)))
        break;
      sum += o->rank;
    }
    if (takers == count &&
        (!found || sum > best || (sum == best && list[i].layout < *out_layout))) {
      found = true;
      best = sum;
      *out_layout = list[i].layout;
    }
  }
  return found;
}

/* Finds the weight in this layout among those from `first` on, or appends it. */
static int32_t add_weight(iso_plan *plan, uint32_t first, const weight_use *use,
                          const plan_layout *layout) {
  for (uint32_t i = first; i < plan->n_weights; i++)
    if (plan->weights[i].layout == layout->layout)
      return (int32_t)i;
  plan->weights[plan->n_weights] =
      (iso_plan_weight){use->weight, use->device, layout->layout, layout->packer};
  return (int32_t)plan->n_weights++;
}

/* Uses of one weight on one device share one copy where one layout suits all of them; otherwise
 * each takes the layout it likes best. */
static void choose(iso_planner *planner, const weight_use *uses, uint32_t count) {
  uint32_t shared = 0, first = planner->plan->n_weights;
  bool has_shared = find_shared_layout(planner, uses, count, &shared);
  for (uint32_t u = 0; u < count; u++) {
    plan_node *node = &planner->nodes[uses[u].node];
    uint32_t n_layouts;
    const plan_layout *layout =
        has_shared ? find_offer(planner, &uses[u], shared) : offers(planner, &uses[u], &n_layouts);
    node->weights[uses[u].operand] = add_weight(planner->plan, first, &uses[u], layout);
  }
}

iso_status iso_plan_choose_weights(iso_planner *planner) {
  weight_use *uses = NULL;
  uint32_t count = 0;
  ISO_TRY(find_uses(planner, &uses, &count));
  planner->plan->weights = calloc((size_t)count + 1, sizeof *planner->plan->weights);
  if (!planner->plan->weights) {
    free(uses);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for planning");
  }
  for (uint32_t begin = 0, end; begin < count; begin = end) {
    for (end = begin + 1; end < count && uses[end].weight == uses[begin].weight &&
                          uses[end].device == uses[begin].device;)
      end++;
    choose(planner, &uses[begin], end - begin);
  }
  free(uses);
  return ISO_OK;
}
