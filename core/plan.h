/* The planner's parts and what they hand each other. In order: place nodes on devices (plan_place),
 * choose layouts of weights (plan_weights), list the steps with their copies (plan_steps), give
 * offsets (plan_memory). Everything is pure; nothing here asks a device but through check() and
 * workspace() of its kernel records. */
#ifndef ISOMER_CORE_PLAN_H
#define ISOMER_CORE_PLAN_H

#include <isomer/plan.h>

/* Layouts that one device offers for one node; more are not looked at. */
#define ISO_PLAN_MAX_LAYOUTS 16

typedef struct plan_layout {
  uint32_t layout;
  int32_t rank;             /* of the best record that takes the bound */
  const iso_kernel *packer; /* a record that packs this layout; NULL for PLAIN */
  bool takes_bound, takes_one;
} plan_layout;

/* What a device says about a node. */
typedef struct plan_support {
  uint32_t n_layouts;                        /* 0: refused */
  plan_layout layouts[ISO_PLAN_MAX_LAYOUTS]; /* highest rank first, then lowest number */
  iso_refusal refusal;
  char reason[160];
} plan_support;

typedef struct plan_node {
  uint32_t wanted, device;
  int32_t group; /* the first node of those that share states with this one */
  int32_t next;  /* the next node of the group, or -1 */
  plan_support support;
  bool fell_back; /* `wanted` refused this node, or one of its group, for the reason below */
  iso_refusal refusal;
  char reason[160];
  int32_t weights[ISO_MAX_INPUTS]; /* index into the plan's weights, -1 for other operands */
} plan_node;

/* A stretch of a device's arena that is in use from step `first` to step `last`, both included. */
typedef struct plan_item {
  uint32_t device;
  int32_t first, last;
  uint64_t bytes, offset;
} plan_item;

typedef struct iso_planner {
  const iso_graph *graph;
  const iso_plan_options *options;
  iso_plan *plan;
  plan_node *nodes;
  plan_item *items;
  uint32_t n_items, item_capacity;
  int32_t *value_items;     /* [value * n_devices + device]: item or -1 */
  int32_t *workspace_items; /* [step]: item or -1 */
  int32_t *state_index;     /* [value]: index into the plan's states or -1 */
  uint64_t *input_offsets;  /* [value] */
  uint32_t step_capacity;
} iso_planner;

/* Arguments of a node without buffers or offsets, weights as PLAIN; at the bounds when `bindings`
 * is NULL. Attributes point into the graph. */
void iso_plan_arguments(const iso_graph *graph, int32_t node, const iso_bindings *bindings,
                        iso_op_arguments *out_arguments);

/* Asks device `device` about a node, at its bound and at one of everything. */
void iso_plan_ask(const iso_graph *graph, int32_t node, const iso_plan_device *device,
                  plan_support *out_support);

/* Fills a step's candidates of one layout, and its workspace_bytes. */
void iso_plan_candidates(const iso_graph *graph, int32_t node, const iso_plan_device *device,
                         uint32_t layout, iso_plan_step *step);

ISO_MUST_CHECK iso_status iso_plan_place(iso_planner *planner);
ISO_MUST_CHECK iso_status iso_plan_choose_weights(iso_planner *planner);
ISO_MUST_CHECK iso_status iso_plan_list_steps(iso_planner *planner);
/* Gives every item an offset so that items in use at the same step never overlap, and sets the
 * plan's arena_bytes. */
ISO_MUST_CHECK iso_status iso_plan_assign_offsets(iso_planner *planner);

/* `value` rounded up to a power of two; false on overflow. */
static inline bool iso_align_up(uint64_t value, uint64_t alignment, uint64_t *out_value) {
  if (__builtin_add_overflow(value, alignment - 1, out_value))
    return false;
  *out_value &= ~(alignment - 1);
  return true;
}

#endif
