#include "core/json.h"
#include "core/file.h"
#include "core/json_scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Document order over a tree; the stack holds the containers above the current item. */
typedef struct walk {
  const cJSON *item; /* NULL at the end */
  const cJSON *parents[ISO_JSON_MAX_DEPTH];
  int depth;
} walk;

static void walk_next(walk *w) {
  if (w->item->child) {
    w->parents[w->depth++] = w->item;
    w->item = w->item->child;
    return;
  }
  while (!w->item->next) {
    if (w->depth == 0) {
      w->item = NULL;
      return;
    }
    w->item = w->parents[--w->depth];
  }
  w->item = w->item->next;
}

/* Of a value, or of its key where it has one and that is wanted. */
static size_t offset_of(const cJSON *root, const cJSON *item, const char *text, size_t length,
                        bool wants_key) {
  uint64_t ordinal = 0;
  walk w = {.item = root};
  for (; w.item != item; walk_next(&w))
    ordinal++;
  return iso_json_scan_find(text, length, ordinal, wants_key);
}

/* A key, with its first eight bytes as a big-endian number so that most comparisons stay out of
 * the string. Sorting, not hashing: no choice of keys makes it slow. */
typedef struct key_entry {
  uint64_t prefix;
  const cJSON *item;
  size_t index; /* in the object */
} key_entry;

static key_entry make_key_entry(const cJSON *item, size_t index) {
  key_entry entry = {.item = item, .index = index};
  const char *key = item->string;
  for (int shift = 56; shift >= 0 && *key; shift -= 8)
    entry.prefix |= (uint64_t)(uint8_t)*key++ << shift;
  return entry;
}

static int compare_keys(const key_entry *a, const key_entry *b) {
  if (a->prefix != b->prefix)
    return a->prefix < b->prefix ? -1 : 1;
  return strcmp(a->item->string, b->item->string);
}

static int compare_entries(const void *a, const void *b) {
  const key_entry *left = a, *right = b;
  int order = compare_keys(left, right);
  return order ? order : left->index < right->index ? -1 : 1;
}

/* *out_duplicate is the second member with the key of another, or NULL. */
static iso_status find_duplicate_key(const cJSON *object, const cJSON **out_duplicate) {
  *out_duplicate = NULL;
  size_t count = 0;
  for (const cJSON *item = object->child; item; item = item->next)
    count++;
  if (count < 2)
    return ISO_OK;
  key_entry few[16];
  key_entry *entries = few;
  if (count > sizeof few / sizeof *few && !(entries = calloc(count, sizeof *entries)))
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "JSON: no memory for %zu keys", count);
  size_t index = 0;
  for (const cJSON *item = object->child; item; item = item->next, index++)
    entries[index] = make_key_entry(item, index);
  qsort(entries, count, sizeof *entries, compare_entries);
  for (size_t i = 1; i < count && !*out_duplicate; i++)
    if (compare_keys(&entries[i - 1], &entries[i]) == 0)
      *out_duplicate = entries[i].item;
  if (entries != few)
    free(entries);
  return ISO_OK;
}

/* What only the tree shows: keys equal once their escapes are decoded, numbers too large. */
static iso_status check_tree(const cJSON *root, const char *text, size_t length) {
  walk w = {.item = root};
  for (; w.item; walk_next(&w)) {
    const char *fault = NULL;
    const cJSON *item = w.item;
    if (cJSON_IsNumber(item) && !isfinite(item->valuedouble))
      fault = "number out of range";
    if (cJSON_IsObject(item)) {
      const cJSON *duplicate;
      ISO_TRY(find_duplicate_key(item, &duplicate));
      if (duplicate) {
        fault = "duplicate key";
        item = duplicate;
      }
    }
    if (fault)
      return iso_json_fail(ISO_ERROR_CORRUPT_DATA, text,
                           offset_of(root, item, text, length, item != w.item), fault);
  }
  return ISO_OK;
}

iso_status iso_json_parse(const char *text, size_t length, int max_depth, cJSON **out_root) {
  uint64_t values = ISO_JSON_MAX_VALUES;
  return iso_json_parse_within(text, length, max_depth, &values, out_root);
}

iso_status iso_json_parse_within(const char *text, size_t length, int max_depth, uint64_t *values,
                                 cJSON **out_root) {
  *out_root = NULL;
  if (max_depth < 1 || max_depth > ISO_JSON_MAX_DEPTH)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "JSON: depth limit %d is not in 1..%d", max_depth,
                    ISO_JSON_MAX_DEPTH);
  if (length == 0)
    text = "";
  uint64_t value_count;
  ISO_TRY(iso_json_scan(text, length, max_depth, &value_count));
  if (value_count > *values) {
    uint64_t most = *values;
    *values = 0;
    return iso_fail(ISO_ERROR_LIMIT, "JSON: %llu values, at most %llu are read",
                    (unsigned long long)value_count, (unsigned long long)most);
  }
  *values -= value_count;
  size_t mark = iso_json_mark_length(text, length);
  cJSON *root = cJSON_ParseWithLength(text + mark, length - mark);
  if (!root)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "JSON: no memory for %llu values of %zu bytes of text",
                    (unsigned long long)value_count, length);
  iso_status status = check_tree(root, text, length);
  if (status != ISO_OK)
    cJSON_Delete(root);
  else
    *out_root = root;
  return status;
}

iso_status iso_json_read_file(const char *path, uint64_t limit, int max_depth, cJSON **out_root) {
  *out_root = NULL;
  char *text;
  size_t length;
  ISO_TRY(iso_file_read(path, limit, &text, &length));
  iso_status status = iso_json_parse(text, length, max_depth, out_root);
  free(text);
  return iso_fail_context(status, "%s", path);
}

/* *out_item is NULL when the key is absent, or null and optional. */
static iso_status get_member(const cJSON *object, const char *key, bool required,
                             const cJSON **out_item) {
  *out_item = cJSON_GetObjectItemCaseSensitive(object, key);
  if (*out_item && !required && cJSON_IsNull(*out_item))
    *out_item = NULL;
  if (!*out_item && required)
    return iso_fail(ISO_ERROR_NOT_FOUND, "JSON: key \"%s\" is missing", key);
  return ISO_OK;
}

static iso_status fail_type(const char *key, const char *wanted) {
  return iso_fail(ISO_ERROR_CORRUPT_DATA, "JSON: \"%s\" must be %s", key, wanted);
}

static iso_status get_int(const cJSON *object, const char *key, bool required, int64_t min,
                          int64_t max, int64_t *out_value) {
  const double limit = 9007199254740992.0; /* 2^53: every integer below it is exact */
  const cJSON *item;
  ISO_TRY(get_member(object, key, required, &item));
  if (!item)
    return ISO_OK;
  double value = item->valuedouble;
  if (!cJSON_IsNumber(item) || floor(value) != value)
    return fail_type(key, "an integer");
  if (fabs(value) > limit || (int64_t)value < min || (int64_t)value > max)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "JSON: \"%s\" is %.17g, not in %lld..%lld", key, value,
                    (long long)min, (long long)max);
  *out_value = (int64_t)value;
  return ISO_OK;
}

static iso_status get_float(const cJSON *object, const char *key, bool required, double min,
                            double max, double *out_value) {
  const cJSON *item;
  ISO_TRY(get_member(object, key, required, &item));
  if (!item)
    return ISO_OK;
  if (!cJSON_IsNumber(item))
    return fail_type(key, "a number");
  if (!(item->valuedouble >= min && item->valuedouble <= max))
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "JSON: \"%s\" is %.17g, not in %g..%g", key,
                    item->valuedouble, min, max);
  *out_value = item->valuedouble;
  return ISO_OK;
}

static iso_status get_bool(const cJSON *object, const char *key, bool required, bool *out_value) {
  const cJSON *item;
  ISO_TRY(get_member(object, key, required, &item));
  if (!item)
    return ISO_OK;
  if (!cJSON_IsBool(item))
    return fail_type(key, "true or false");
  *out_value = cJSON_IsTrue(item);
  return ISO_OK;
}

static iso_status get_string(const cJSON *object, const char *key, bool required,
                             const char **out_value) {
  const cJSON *item;
  ISO_TRY(get_member(object, key, required, &item));
  if (!item)
    return ISO_OK;
  if (!cJSON_IsString(item))
    return fail_type(key, "a string");
  *out_value = item->valuestring;
  return ISO_OK;
}

static iso_status get_container(const cJSON *object, const char *key, bool required, bool array,
                                const cJSON **out_value) {
  const cJSON *item;
  ISO_TRY(get_member(object, key, required, &item));
  if (!item)
    return ISO_OK;
  if (array ? !cJSON_IsArray(item) : !cJSON_IsObject(item))
    return fail_type(key, array ? "an array" : "an object");
  *out_value = item;
  return ISO_OK;
}

iso_status iso_json_get_int(const cJSON *object, const char *key, int64_t min, int64_t max,
                            int64_t *out_value) {
  return get_int(object, key, true, min, max, out_value);
}
iso_status iso_json_get_optional_int(const cJSON *object, const char *key, int64_t min, int64_t max,
                                     int64_t *out_value) {
  return get_int(object, key, false, min, max, out_value);
}
iso_status iso_json_get_float(const cJSON *object, const char *key, double min, double max,
                              double *out_value) {
  return get_float(object, key, true, min, max, out_value);
}
iso_status iso_json_get_optional_float(const cJSON *object, const char *key, double min, double max,
                                       double *out_value) {
  return get_float(object, key, false, min, max, out_value);
}
iso_status iso_json_get_bool(const cJSON *object, const char *key, bool *out_value) {
  return get_bool(object, key, true, out_value);
}
iso_status iso_json_get_optional_bool(const cJSON *object, const char *key, bool *out_value) {
  return get_bool(object, key, false, out_value);
}
iso_status iso_json_get_string(const cJSON *object, const char *key, const char **out_value) {
  return get_string(object, key, true, out_value);
}
iso_status iso_json_get_optional_string(const cJSON *object, const char *key,
                                        const char **out_value) {
  return get_string(object, key, false, out_value);
}
iso_status iso_json_get_array(const cJSON *object, const char *key, const cJSON **out_array) {
  return get_container(object, key, true, true, out_array);
}
iso_status iso_json_get_optional_array(const cJSON *object, const char *key,
                                       const cJSON **out_array) {
  return get_container(object, key, false, true, out_array);
}
iso_status iso_json_get_object(const cJSON *object, const char *key, const cJSON **out_object) {
  return get_container(object, key, true, false, out_object);
}
iso_status iso_json_get_optional_object(const cJSON *object, const char *key,
                                        const cJSON **out_object) {
  return get_container(object, key, false, false, out_object);
}
