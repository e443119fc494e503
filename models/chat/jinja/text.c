#include "models/chat/jinja/text.h"
#include "models/chat/jinja/session.h"
#include <string.h>
#include <utf8proc.h>

uint32_t iso_jinja_decode(const char *bytes, size_t available, uint32_t *out_codepoint) {
  unsigned char first = (unsigned char)bytes[0];
  if (first < 0x80) {
    *out_codepoint = first;
    return 1;
  }
  utf8proc_int32_t codepoint;
  utf8proc_ssize_t taken = utf8proc_iterate(
      (const utf8proc_uint8_t *)bytes, available < 4 ? (utf8proc_ssize_t)available : 4, &codepoint);
  if (taken < 1) {
    *out_codepoint = ISO_JINJA_INVALID_BYTE + first;
    return 1;
  }
  *out_codepoint = (uint32_t)codepoint;
  return (uint32_t)taken;
}

uint32_t iso_jinja_encode(uint32_t codepoint, char out_bytes[4]) {
  if (codepoint >= ISO_JINJA_INVALID_BYTE + 0x80 && codepoint <= ISO_JINJA_INVALID_BYTE + 0xFF) {
    out_bytes[0] = (char)(codepoint - ISO_JINJA_INVALID_BYTE);
    return 1;
  }
  utf8proc_uint8_t encoded[4];
  utf8proc_ssize_t length = utf8proc_encode_char((utf8proc_int32_t)codepoint, encoded);
  memcpy(out_bytes, encoded, (size_t)length);
  return (uint32_t)length;
}

size_t iso_jinja_count_codepoints(const char *bytes, size_t length) {
  size_t count = 0;
  uint32_t codepoint;
  for (size_t at = 0; at < length; count++)
    at += iso_jinja_decode(bytes + at, length - at, &codepoint);
  return count;
}

size_t iso_jinja_codepoint_offset(const char *bytes, size_t length, size_t index) {
  size_t at = 0;
  uint32_t codepoint;
  for (; index > 0 && at < length; index--)
    at += iso_jinja_decode(bytes + at, length - at, &codepoint);
  return at;
}

bool iso_jinja_is_space(uint32_t c) {
  if (c < 0x80)
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool iso_jinja_is_line_break(uint32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

static bool has_category(uint32_t codepoint, uint32_t category_bits) {
  return category_bits >> utf8proc_category((utf8proc_int32_t)codepoint) & 1;
}

bool iso_jinja_is_printable(uint32_t codepoint) {
  if (codepoint < 0x7F)
    return codepoint >= ' ';
  return !has_category(codepoint, 1u << UTF8PROC_CATEGORY_CC | 1u << UTF8PROC_CATEGORY_CF |
                                      1u << UTF8PROC_CATEGORY_CS | 1u << UTF8PROC_CATEGORY_CO |
                                      1u << UTF8PROC_CATEGORY_CN | 1u << UTF8PROC_CATEGORY_ZL |
                                      1u << UTF8PROC_CATEGORY_ZP | 1u << UTF8PROC_CATEGORY_ZS);
}

size_t iso_jinja_leading_space(const char *bytes, size_t length) {
  size_t at = 0;
  while (at < length) {
    uint32_t codepoint, taken = iso_jinja_decode(bytes + at, length - at, &codepoint);
    if (!iso_jinja_is_space(codepoint))
      break;
    at += taken;
  }
  return at;
}

size_t iso_jinja_length_before_trailing_space(const char *bytes, size_t length) {
  while (length > 0) {
    /* A character starts at most four bytes back and must end exactly here. */
    size_t start = length - 1;
    while (start > 0 && length - start < 4 && ((unsigned char)bytes[start] & 0xC0) == 0x80)
      start--;
    uint32_t codepoint;
    if (iso_jinja_decode(bytes + start, length - start, &codepoint) != length - start ||
        !iso_jinja_is_space(codepoint))
      break;
    length = start;
  }
  return length;
}

size_t iso_jinja_find(iso_jinja_value text, iso_jinja_value needle, size_t start) {
  if (start > text.length || needle.length > text.length - start)
    return SIZE_MAX;
  if (needle.length == 0)
    return start;
  const char *found =
      memmem(text.string + start, text.length - start, needle.string, needle.length);
  return found ? (size_t)(found - text.string) : SIZE_MAX;
}

size_t iso_jinja_find_last(iso_jinja_value text, iso_jinja_value needle, size_t end) {
  if (needle.length > end)
    return SIZE_MAX;
  for (size_t at = end - needle.length + 1; at-- > 0;)
    if (memcmp(text.string + at, needle.string, needle.length) == 0)
      return at;
  return SIZE_MAX;
}

iso_jinja_value iso_jinja_part(iso_jinja_value text, size_t start, size_t end) {
  return iso_jinja_string(text.string + start, end - start);
}

iso_status iso_jinja_split_lines(iso_jinja_session *session, iso_jinja_value text, bool keep_ends,
                                 iso_jinja_value *out_list) {
  ISO_TRY(iso_jinja_list_create(session, ISO_JINJA_LIST, 0, out_list));
  ISO_TRY(iso_jinja_spend(session, text.length / 8));
  size_t line = 0;
  for (size_t at = 0; at < text.length;) {
    uint32_t codepoint;
    size_t end = at;
    at += iso_jinja_decode(text.string + at, text.length - at, &codepoint);
    if (!iso_jinja_is_line_break(codepoint))
      continue;
    if (codepoint == '\r' && at < text.length && text.string[at] == '\n')
      at++;
    ISO_TRY(iso_jinja_list_append(session, out_list->list,
                                  iso_jinja_part(text, line, keep_ends ? at : end)));
    line = at;
  }
  if (line < text.length)
    ISO_TRY(
        iso_jinja_list_append(session, out_list->list, iso_jinja_part(text, line, text.length)));
  return ISO_OK;
}
