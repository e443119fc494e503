/* Names of a file's keys or tensors, findable: sorted once, searched by halves. */
#ifndef ISOMER_MODELS_FORMATS_NAME_INDEX_H
#define ISOMER_MODELS_FORMATS_NAME_INDEX_H

#include "models/formats/text_view.h"
#include <isomer/status.h>

typedef struct iso_name_index {
  char *bytes;        /* every name, NUL-terminated */
  const char **names; /* by ordinal, into bytes */
  uint32_t *order;    /* ordinals in name order */
  uint32_t count;
} iso_name_index;

/* Copies and sorts `count` names. *out_duplicate is UINT32_MAX, or with CORRUPT_DATA the ordinal of
 * a name that an earlier one equals. On failure *out_index is empty. O(n log n), whatever the
 * names. */
ISO_MUST_CHECK iso_status iso_name_index_build(const iso_text_view *names, uint32_t count,
                                               iso_name_index *out_index, uint32_t *out_duplicate);
void iso_name_index_clear(iso_name_index *index);

/* The ordinal of a name, or UINT32_MAX. Thread safe once built. */
uint32_t iso_name_index_find(const iso_name_index *index, const char *name);

#endif
