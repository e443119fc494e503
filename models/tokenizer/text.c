#include "models/tokenizer/text.h"

#include <stdlib.h>
#include <string.h>

iso_status iso_array_grow(void **array, size_t *capacity, size_t count, size_t element) {
  if (count <= *capacity)
    return ISO_OK;
  size_t wanted = *capacity + *capacity / 2;
  if (wanted < count)
    wanted = count < 16 ? 16 : count;
  size_t bytes;
  void *grown = NULL;
  if (!__builtin_mul_overflow(wanted, element, &bytes))
    grown = realloc(*array, bytes);
  if (!grown)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "tokenizer: no memory for %zu elements of %zu bytes",
                    wanted, element);
  *array = grown;
  *capacity = wanted;
  return ISO_OK;
}

iso_status iso_text_reserve(iso_text *text, size_t extra) {
  size_t needed;
  if (__builtin_add_overflow(text->length, extra, &needed) || needed > ISO_MAX_TEXT_BYTES)
    return iso_fail(ISO_ERROR_LIMIT, "tokenizer: a text of more than %u bytes", ISO_MAX_TEXT_BYTES);
  if (needed <= text->capacity)
    return ISO_OK;
  return iso_array_grow((void **)&text->data, &text->capacity, needed, 1);
}

iso_status iso_text_append(iso_text *text, const void *data, size_t length) {
  ISO_TRY(iso_text_reserve(text, length));
  if (length > 0)
    memcpy(text->data + text->length, data, length);
  text->length += length;
  return ISO_OK;
}

iso_status iso_text_append_code_point(iso_text *text, uint32_t code_point) {
  char bytes[4];
  return iso_text_append(text, bytes, iso_utf8_encode(code_point, bytes));
}

void iso_text_free(iso_text *text) {
  free(text->data);
  *text = (iso_text){0};
}

/* The second byte's range is what excludes overlong forms, surrogates and values past U+10FFFF
 * (Unicode table 3-7). */
static void second_byte_range(uint8_t lead, uint8_t *low, uint8_t *high) {
  *low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  *high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
}

size_t iso_utf8_decode(const char *text, size_t length, uint32_t *out_code_point) {
  const uint8_t *bytes = (const uint8_t *)text;
  if (length == 0)
    return 0;
  if (bytes[0] < 0x80) {
    *out_code_point = bytes[0];
    return 1;
  }
  size_t size = iso_utf8_length_of(bytes[0]);
  uint8_t low, high;
  second_byte_range(bytes[0], &low, &high);
  if (size == 1 || size > length || bytes[1] < low || bytes[1] > high)
    return 0;
  uint32_t value = bytes[0] & (0x7Fu >> size);
  for (size_t i = 1; i < size; i++) {
    if ((bytes[i] & 0xC0) != 0x80)
      return 0;
    value = value << 6 | (bytes[i] & 0x3Fu);
  }
  *out_code_point = value;
  return size;
}

size_t iso_utf8_ill_formed(const char *text, size_t length, bool *out_cut) {
  const uint8_t *bytes = (const uint8_t *)text;
  *out_cut = false;
  size_t size = iso_utf8_length_of(bytes[0]);
  if (size == 1)
    return 1;
  uint8_t low, high;
  second_byte_range(bytes[0], &low, &high);
  for (size_t i = 1; i < size; i++) {
    if (i == length) {
      *out_cut = true;
      return i;
    }
    if (bytes[i] < (i == 1 ? low : 0x80) || bytes[i] > (i == 1 ? high : 0xBF))
      return i;
  }
  return 1; /* not reached where decoding failed */
}

size_t iso_utf8_encode(uint32_t code_point, char out_bytes[4]) {
  if (code_point < 0x80) {
    out_bytes[0] = (char)code_point;
    return 1;
  }
  size_t size = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
  for (size_t i = size - 1; i > 0; i--, code_point >>= 6)
    out_bytes[i] = (char)(0x80 | (code_point & 0x3F));
  out_bytes[0] = (char)((0xF00u >> size & 0xF0u) | code_point);
  return size;
}

size_t iso_utf8_valid_prefix(const char *text, size_t length) {
  size_t position = 0;
  while (position < length) {
    uint64_t word;
    if (length - position >= sizeof word) {
      memcpy(&word, text + position, sizeof word);
      if (!(word & UINT64_C(0x8080808080808080))) {
        position += sizeof word;
        continue;
      }
    }
    uint32_t code_point;
    size_t size = iso_utf8_decode(text + position, length - position, &code_point);
    if (size == 0)
      break;
    position += size;
  }
  return position;
}

size_t iso_utf8_previous(const char *text, size_t position) {
  for (size_t back = 1; back <= 4 && back <= position; back++) {
    uint32_t code_point;
    if (!iso_utf8_continues(text[position - back]))
      return iso_utf8_decode(text + position - back, back, &code_point) == back ? position - back
                                                                                : position - 1;
  }
  return position - 1;
}

bool iso_code_point_is_space(uint32_t code_point) {
  return (code_point >= 9 && code_point <= 13) || code_point == 0x20 || code_point == 0x85 ||
         code_point == 0xA0 || code_point == 0x1680 ||
         (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 ||
         code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F ||
         code_point == 0x3000;
}
