#include "models/tokenizer/byte_level.h"

/* Bytes that stand for themselves. */
static bool is_printable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

static uint32_t code_point_of(uint8_t byte) {
  if (is_printable(byte))
    return byte;
  if (byte <= 0x20)
    return 0x100u + byte;
  return byte == 0xAD ? 0x143u : 0x121u + (byte - 0x7Fu);
}

/* -1: not in the alphabet. */
static int byte_of(uint32_t code_point) {
  if (code_point < 0x100)
    return is_printable(code_point) ? (int)code_point : -1;
  if (code_point <= 0x120)
    return (int)(code_point - 0x100);
  if (code_point <= 0x142)
    return (int)(code_point - 0x121 + 0x7F);
  return code_point == 0x143 ? 0xAD : -1;
}

iso_status iso_byte_level_encode(const char *bytes, size_t length, iso_text *out) {
  size_t room;
  if (__builtin_mul_overflow(length, (size_t)2, &room))
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "tokenizer: a text of %zu bytes", length);
  ISO_TRY(iso_text_reserve(out, room));
  for (size_t i = 0; i < length; i++)
    out->length += iso_utf8_encode(code_point_of((uint8_t)bytes[i]), out->data + out->length);
  return ISO_OK;
}

iso_status iso_byte_level_decode(const char *text, size_t length, iso_text *out,
                                 bool *out_decoded) {
  const size_t start = out->length;
  ISO_TRY(iso_text_reserve(out, length));
  *out_decoded = true;
  for (size_t at = 0; at < length;) {
    uint32_t code_point;
    size_t size = iso_utf8_decode(text + at, length - at, &code_point);
    int byte = size ? byte_of(code_point) : -1;
    if (byte < 0) {
      out->length = start;
      *out_decoded = false;
      return ISO_OK;
    }
    out->data[out->length++] = (char)byte;
    at += size;
  }
  return ISO_OK;
}
