/* Host memory for the pages of preempted sequences: slots of one page each. */
#ifndef ISOMER_ENGINE_SWAP_H
#define ISOMER_ENGINE_SWAP_H

#include <isomer/status.h>

typedef struct iso_swap_space {
  int32_t n_slots, n_free;
  int32_t *free_slots;
  uint64_t slot_bytes;
  char *memory;       /* touched only when used */
  double us_per_page; /* measured, both ways; 0: not yet */
} iso_swap_space;

/* A sequence's pages in order. */
typedef struct iso_swapped {
  int32_t n_slots, n_tokens; /* cached when it was swapped out */
  int32_t *slots;
} iso_swapped;

/* `bytes` 0: no slots. */
ISO_MUST_CHECK iso_status iso_swap_create(uint64_t bytes, uint64_t page_bytes,
                                          iso_swap_space *out_space);
void iso_swap_destroy(iso_swap_space *space);
static inline char *iso_swap_address(const iso_swap_space *space, int32_t slot) {
  return space->memory + (uint64_t)slot * space->slot_bytes;
}
/* Takes a slot for the next page; there is one. */
void iso_swap_take(iso_swap_space *space, iso_swapped *swapped);
/* Gives all slots back. */
void iso_swap_release(iso_swap_space *space, iso_swapped *swapped);

#endif
