#include "core/names.h"
#include <stdlib.h>
#include <string.h>

/* FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint64_t hash(const char *name) {
  uint64_t h = UINT64_C(14695981039346656037);
  for (; *name; name++)
    h = (h ^ (uint8_t)*name) * UINT64_C(1099511628211);
  return h;
}

/* The slot that holds the name, or the free one where it belongs. At most half the slots are in
 * use, so there is always a free one. */
static struct iso_name_slot *slot_of(const iso_names *names, const char *name) {
  for (uint64_t i = hash(name);; i++) {
    struct iso_name_slot *slot = &names->slots[i & (names->capacity - 1)];
    if (!slot->name || strcmp(slot->name, name) == 0)
      return slot;
  }
}

int32_t iso_names_find(const iso_names *names, const char *name) {
  if (names->capacity == 0)
    return -1;
  const struct iso_name_slot *slot = slot_of(names, name);
  return slot->name ? slot->number : -1;
}

iso_status iso_names_add(iso_names *names, const char *name, int32_t number) {
  if (names->count * 2 >= names->capacity) {
    iso_names grown = {.capacity = names->capacity ? names->capacity * 2 : 64,
                       .count = names->count};
    grown.slots = calloc(grown.capacity, sizeof *grown.slots);
    if (!grown.slots)
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %u names", grown.capacity);
    for (uint32_t i = 0; i < names->capacity; i++)
      if (names->slots[i].name)
        *slot_of(&grown, names->slots[i].name) = names->slots[i];
    free(names->slots);
    *names = grown;
  }
  struct iso_name_slot *slot = slot_of(names, name);
  slot->name = name;
  slot->number = number;
  names->count++;
  return ISO_OK;
}

void iso_names_free(iso_names *names) {
  free(names->slots);
  *names = (iso_names){0};
}
