/* Offsets in the arenas. Items are placed from the largest to the smallest, each at the lowest
 * offset where it meets no placed item that is in use at the same time. */
#include "core/plan.h"
#include <stdlib.h>
#include <string.h>

static int larger_first(const void *a_pointer, const void *b_pointer) {
  const plan_item *a = *(plan_item *const *)a_pointer, *b = *(plan_item *const *)b_pointer;
  if (a->bytes != b->bytes)
    return a->bytes > b->bytes ? -1 : 1;
  return a < b ? -1 : a > b; /* in the order they were made */
}

/* `delay`: steps that must lie between the last use of one and the first of the other. */
static bool in_use_together(const plan_item *a, const plan_item *b, int64_t delay) {
  return a->first <= b->last + delay && b->first <= a->last + delay;
}

/* Finds the lowest offset for `item` among `placed`, which are sorted by offset. */
static bool find_offset(plan_item *const *placed, uint32_t count, const plan_item *item,
                        const iso_plan_device *device, uint64_t *out_offset) {
  uint64_t offset = 0;
  for (uint32_t i = 0; i < count; i++) {
    const plan_item *other = placed[i];
    if (!in_use_together(item, other, device->reuse_delay) ||
        other->offset + other->bytes <= offset)
      continue;
    if (other->offset >= offset && other->offset - offset >= item->bytes)
      break;
    if (!iso_align_up(other->offset + other->bytes, device->alignment_bytes, &offset))
      return false;
  }
  *out_offset = offset;
  return true;
}

static iso_status assign(iso_planner *planner, uint32_t device, plan_item **sorted,
                         plan_item **placed) {
  uint32_t count = 0;
  uint64_t *arena = &planner->plan->arena_bytes[device];
  for (uint32_t i = 0; i < planner->n_items; i++) {
    plan_item *item = sorted[i];
    if (item->device != device)
      continue;
    uint64_t end;
    if (!find_offset(placed, count, item, &planner->options->devices[device], &item->offset) ||
        __builtin_add_overflow(item->offset, item->bytes, &end) || end > INT64_MAX)
      return iso_fail(ISO_ERROR_LIMIT, "the scratch memory of %s would be above 2^63 bytes",
                      planner->plan->device_names[device]);
    uint32_t at = count++;
    for (; at > 0 && placed[at - 1]->offset > item->offset; at--)
      placed[at] = placed[at - 1];
    placed[at] = item;
    if (end > *arena)
      *arena = end;
  }
  return ISO_OK;
}

iso_status iso_plan_assign_offsets(iso_planner *planner) {
  uint32_t n = planner->n_items;
  plan_item **pointers = malloc(((size_t)n + 1) * 2 * sizeof *pointers);
  if (!pointers)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for planning");
  for (uint32_t i = 0; i < n; i++)
    pointers[i] = &planner->items[i];
  qsort(pointers, n, sizeof *pointers, larger_first);
  iso_status status = ISO_OK;
  for (uint32_t d = 0; d < planner->options->n_devices && status == ISO_OK; d++)
    status = assign(planner, d, pointers, pointers + n + 1);
  free(pointers);
  return status;
}
