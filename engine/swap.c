#include "engine/swap.h"

#include <stdlib.h>

iso_status iso_swap_create(uint64_t bytes, uint64_t page_bytes, iso_swap_space *out_space) {
  *out_space = (iso_swap_space){.slot_bytes = page_bytes};
  uint64_t n = bytes / page_bytes;
  if (n > INT32_MAX)
    n = INT32_MAX;
  if (n == 0)
    return ISO_OK;
  out_space->free_slots = malloc(n * sizeof *out_space->free_slots);
  out_space->memory = malloc(n * page_bytes);
  if (!out_space->free_slots || !out_space->memory) {
    iso_swap_destroy(out_space);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "the host has no %llu bytes to swap pages to",
                    (unsigned long long)bytes);
  }
  out_space->n_slots = (int32_t)n;
  for (int32_t i = 0; i < (int32_t)n; i++)
    out_space->free_slots[out_space->n_free++] = (int32_t)n - 1 - i;
  return ISO_OK;
}

void iso_swap_destroy(iso_swap_space *space) {
  free(space->free_slots);
  free(space->memory);
  *space = (iso_swap_space){0};
}

void iso_swap_take(iso_swap_space *space, iso_swapped *swapped) {
  swapped->slots[swapped->n_slots++] = space->free_slots[--space->n_free];
}

void iso_swap_release(iso_swap_space *space, iso_swapped *swapped) {
  while (swapped->n_slots > 0)
    space->free_slots[space->n_free++] = swapped->slots[--swapped->n_slots];
  swapped->n_tokens = 0;
}
