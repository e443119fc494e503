/* Stable sorting of values, whose comparison can fail. */
#ifndef ISOMER_MODELS_CHAT_JINJA_SORT_H
#define ISOMER_MODELS_CHAT_JINJA_SORT_H

#include "models/chat/jinja/value.h"

typedef struct iso_jinja_sort_item {
  iso_jinja_value key, value;
} iso_jinja_sort_item;

/* Sorts by key, stably; `descending` keeps equal keys in order too, as Python's reverse=True. */
iso_status iso_jinja_sort(iso_jinja_session *session, iso_jinja_sort_item *items, uint32_t count,
                          bool descending);
/* A dict's (key, value) tuples in order of key. */
iso_status iso_jinja_sorted_items(iso_jinja_session *session, const iso_jinja_dict *dict,
                                  iso_jinja_list **out_list);
/* A (first, second) tuple. */
iso_status iso_jinja_pair(iso_jinja_session *session, iso_jinja_value first, iso_jinja_value second,
                          iso_jinja_value *out_tuple);

#endif
