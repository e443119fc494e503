#include "models/tokenizer/normalizer.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Code points under construction, with the start of the run of non-starters at the end. */
typedef struct code_points {
  int32_t *data;
  size_t length, capacity;
} code_points;

static iso_status push_decomposition(code_points *points, int32_t code_point, int options) {
  int32_t parts[32]; /* the longest decomposition has 18 */
  int boundary = 0;
  utf8proc_ssize_t count =
      utf8proc_decompose_char(code_point, parts, 32, (utf8proc_option_t)options, &boundary);
  if (count < 0 || count > 32) {
    parts[0] = code_point; /* not assigned: stays */
    count = 1;
  }
  ISO_TRY(iso_array_grow((void **)&points->data, &points->capacity, points->length + (size_t)count,
                         sizeof *points->data));
  memcpy(points->data + points->length, parts, (size_t)count * sizeof *parts);
  points->length += (size_t)count;
  return ISO_OK;
}

static uint8_t combining_class(int32_t code_point) {
  return (uint8_t)utf8proc_get_property(code_point)->combining_class;
}

/* Sorts one run of non-starters by combining class, keeping equal ones in order. */
static iso_status sort_run(int32_t *run, size_t length, code_points *scratch) {
  if (length < 2)
    return ISO_OK;
  size_t starts[257] = {0};
  for (size_t i = 0; i < length; i++)
    starts[combining_class(run[i]) + 1]++;
  if (starts[combining_class(run[0]) + 1] == length)
    return ISO_OK;
  for (size_t i = 1; i < 257; i++)
    starts[i] += starts[i - 1];
  ISO_TRY(iso_array_grow((void **)&scratch->data, &scratch->capacity, length, sizeof *run));
  for (size_t i = 0; i < length; i++)
    scratch->data[starts[combining_class(run[i])]++] = run[i];
  memcpy(run, scratch->data, length * sizeof *run);
  return ISO_OK;
}

static iso_status order_canonically(code_points *points) {
  code_points scratch = {0};
  iso_status status = ISO_OK;
  for (size_t i = 0; i < points->length && status == ISO_OK;) {
    size_t end = i;
    while (end < points->length && combining_class(points->data[end]) != 0)
      end++;
    status = sort_run(points->data + i, end - i, &scratch);
    i = end + 1;
  }
  free(scratch.data);
  return status;
}

static iso_status normalize(const char *text, size_t length, bool compatible, bool compose,
                            code_points *points) {
  int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  for (size_t at = 0; at < length;) {
    uint32_t code_point;
    at += iso_utf8_decode(text + at, length - at, &code_point);
    ISO_TRY(push_decomposition(points, (int32_t)code_point, options));
  }
  ISO_TRY(order_canonically(points));
  if (!compose || points->length == 0)
    return ISO_OK;
  utf8proc_ssize_t composed =
      utf8proc_normalize_utf32(points->data, (utf8proc_ssize_t)points->length,
                               (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (composed < 0)
    return iso_fail(ISO_ERROR_INTERNAL, "Unicode composition: %s", utf8proc_errmsg(composed));
  points->length = (size_t)composed;
  return ISO_OK;
}

static bool is_ascii(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    if ((uint8_t)text[i] >= 0x80)
      return false;
  return true;
}

iso_status iso_unicode_normalize(const char *text, size_t length, bool compatible, bool compose,
                                 iso_text *out) {
  if (is_ascii(text, length))
    return iso_text_append(out, text, length);
  code_points points = {0};
  iso_status status = normalize(text, length, compatible, compose, &points);
  for (size_t i = 0; i < points.length && status == ISO_OK; i++)
    status = iso_text_append_code_point(out, (uint32_t)points.data[i]);
  free(points.data);
  return status;
}
