/* A set of names, each with a number. Not thread safe while names are added. */
#ifndef ISOMER_CORE_NAMES_H
#define ISOMER_CORE_NAMES_H

#include <isomer/status.h>

typedef struct iso_names {
  struct iso_name_slot {
    const char *name; /* NULL: free */
    int32_t number;
  } * slots;
  uint32_t capacity; /* a power of two, or 0 */
  uint32_t count;
} iso_names;

/* The number of a name, or -1. */
int32_t iso_names_find(const iso_names *names, const char *name);
/* Adds a name that is not in the set; the string must outlive it. */
ISO_MUST_CHECK iso_status iso_names_add(iso_names *names, const char *name, int32_t number);
void iso_names_free(iso_names *names);

#endif
