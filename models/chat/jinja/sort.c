#include "models/chat/jinja/sort.h"
#include "models/chat/jinja/session.h"
#include <string.h>

iso_status iso_jinja_sort(iso_jinja_session *session, iso_jinja_sort_item *items, uint32_t count,
                          bool descending) {
  if (count < 2)
    return ISO_OK;
  iso_jinja_sort_item *merged;
  ISO_JINJA_NEW(session, merged, count);
  for (size_t width = 1; width < count; width *= 2) {
    for (size_t start = 0; start < count; start += 2 * width) {
      size_t middle = start + width < count ? start + width : count;
      size_t end = start + 2 * width < count ? start + 2 * width : count;
      size_t left = start, right = middle;
      for (size_t out = start; out < end; out++) {
        int order = 0;
        if (left < middle && right < end)
          ISO_TRY(iso_jinja_order(session, items[right].key, items[left].key, "<", &order));
        bool take_right = left == middle || (right < end && (descending ? order > 0 : order < 0));
        merged[out] = items[take_right ? right++ : left++];
      }
      ISO_TRY(iso_jinja_spend(session, end - start));
    }
    memcpy(items, merged, count * sizeof *items);
  }
  return ISO_OK;
}

iso_status iso_jinja_pair(iso_jinja_session *session, iso_jinja_value first, iso_jinja_value second,
                          iso_jinja_value *out_tuple) {
  ISO_TRY(iso_jinja_list_create(session, ISO_JINJA_TUPLE, 2, out_tuple));
  ISO_TRY(iso_jinja_list_append(session, out_tuple->list, first));
  return iso_jinja_list_append(session, out_tuple->list, second);
}

iso_status iso_jinja_sorted_items(iso_jinja_session *session, const iso_jinja_dict *dict,
                                  iso_jinja_list **out_list) {
  iso_jinja_sort_item *items;
  iso_jinja_value list, pair;
  ISO_JINJA_NEW(session, items, dict->count);
  for (uint32_t i = 0; i < dict->count; i++)
    items[i] = (iso_jinja_sort_item){dict->entries[i].key, dict->entries[i].value};
  ISO_TRY(iso_jinja_sort(session, items, dict->count, false));
  ISO_TRY(iso_jinja_list_create(session, ISO_JINJA_LIST, dict->count, &list));
  for (uint32_t i = 0; i < dict->count; i++) {
    ISO_TRY(iso_jinja_pair(session, items[i].key, items[i].value, &pair));
    ISO_TRY(iso_jinja_list_append(session, list.list, pair));
  }
  *out_list = list.list;
  return ISO_OK;
}
