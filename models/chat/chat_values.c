#include "models/chat/chat_values.h"
#include "models/chat/chat_template.h"
#include "models/chat/jinja/session.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static iso_status string_value(iso_jinja_session *session, const char *text,
                               iso_jinja_value *out_value) {
  size_t length = text ? strlen(text) : 0;
  if (length > UINT32_MAX)
    return iso_jinja_fail(session, ISO_ERROR_LIMIT, "a string has %zu bytes", length);
  *out_value = iso_jinja_string(text ? text : "", length);
  return ISO_OK;
}

static iso_jinja_value number_value(const cJSON *item) {
  const char *spelling = item->valuestring;
  if (spelling && !strpbrk(spelling, ".eE")) {
    errno = 0;
    long long integer = strtoll(spelling, NULL, 10);
    if (errno == 0)
      return iso_jinja_integer(integer);
  }
  bool whole = item->valuedouble == floor(item->valuedouble) &&
               fabs(item->valuedouble) <= 9007199254740992.0;
  return whole && !spelling ? iso_jinja_integer((int64_t)item->valuedouble)
                            : iso_jinja_float(item->valuedouble);
}

static iso_status list_value(iso_jinja_session *session, const cJSON *item,
                             iso_jinja_value *out_value) {
  ISO_TRY(iso_jinja_list_create(session, ISO_JINJA_LIST, 0, out_value));
  for (const cJSON *child = item->child; child; child = child->next) {
    iso_jinja_value value;
    ISO_TRY(iso_chat_value_from_json(session, child, &value));
    ISO_TRY(iso_jinja_list_append(session, out_value->list, value));
  }
  return ISO_OK;
}

static iso_status dict_value(iso_jinja_session *session, const cJSON *item,
                             iso_jinja_value *out_value) {
  ISO_TRY(iso_jinja_dict_create(session, ISO_JINJA_DICT, out_value));
  for (const cJSON *child = item->child; child; child = child->next) {
    iso_jinja_value key, value;
    ISO_TRY(string_value(session, child->string, &key));
    ISO_TRY(iso_chat_value_from_json(session, child, &value));
    ISO_TRY(iso_jinja_dict_set(session, out_value->dict, key, value));
  }
  return ISO_OK;
}

static iso_status convert(iso_jinja_session *session, const cJSON *item,
                          iso_jinja_value *out_value) {
  switch (item->type & 0xFF) {
  case cJSON_NULL:
    *out_value = iso_jinja_none();
    return ISO_OK;
  case cJSON_True:
  case cJSON_False:
    *out_value = iso_jinja_boolean((item->type & 0xFF) == cJSON_True);
    return ISO_OK;
  case cJSON_Number:
    *out_value = number_value(item);
    return ISO_OK;
  case cJSON_String:
    return string_value(session, item->valuestring, out_value);
  case cJSON_Array:
    return list_value(session, item, out_value);
  case cJSON_Object:
    return dict_value(session, item, out_value);
  default:
    return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "the input has raw JSON");
  }
}

iso_status iso_chat_value_from_json(iso_jinja_session *session, const cJSON *item,
                                    iso_jinja_value *out_value) {
  if (!item) {
    *out_value = iso_jinja_none();
    return ISO_OK;
  }
  ISO_TRY(iso_jinja_enter(session));
  ISO_TRY(convert(session, item, out_value));
  iso_jinja_leave(session);
  return ISO_OK;
}

/* The next number in JSON text at or after `*at`: its length, and `*at` its start; 0 if none. */
static size_t next_number(const char *json, size_t length, size_t *at) {
  static const char number[] = "+-0123456789.eE";
  for (size_t i = *at; i < length; i++) {
    if (json[i] == '"') {
      for (i++; i < length && json[i] != '"'; i++)
        i += json[i] == '\\';
    } else if (json[i] == '-' || (json[i] >= '0' && json[i] <= '9')) {
      *at = i;
      while (i < length && json[i] && strchr(number, json[i]))
        i++;
      return i - *at;
    }
  }
  return 0;
}

static iso_status keep_spelling(cJSON *item, const char *json, size_t length, size_t *at) {
  size_t bytes = next_number(json, length, at);
  char *spelling = bytes ? cJSON_malloc(bytes + 1) : NULL;
  if (!spelling)
    return bytes ? iso_fail(ISO_ERROR_OUT_OF_MEMORY, "JSON: the system has no memory left")
                 : iso_fail(ISO_ERROR_INVALID_ARGUMENT, "JSON: the text is not that of the values");
  memcpy(spelling, json + *at, bytes);
  spelling[bytes] = 0;
  *at += bytes;
  cJSON_free(item->valuestring);
  item->valuestring = spelling;
  return ISO_OK;
}

/* Visits the tree in the order of its text. cJSON bounds the depth of what it parses. */
static iso_status keep_spellings(cJSON *item, const char *json, size_t length, size_t *at) {
  if (cJSON_IsNumber(item))
    return keep_spelling(item, json, length, at);
  for (cJSON *child = item->child; child; child = child->next)
    ISO_TRY(keep_spellings(child, json, length, at));
  return ISO_OK;
}

iso_status iso_chat_keep_number_spelling(cJSON *root, const char *json, size_t length) {
  size_t at = 0;
  if (!root || !json)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "JSON: nothing to read numbers from");
  return keep_spellings(root, json, length, &at);
}
