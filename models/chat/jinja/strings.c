#include "models/chat/jinja/strings.h"
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/text.h"

static bool in_set(uint32_t codepoint, const iso_jinja_value *set) {
  if (!set)
    return iso_jinja_is_space(codepoint);
  for (size_t at = 0; at < set->length;) {
    uint32_t member;
    at += iso_jinja_decode(set->string + at, set->length - at, &member);
    if (member == codepoint)
      return true;
  }
  return false;
}

iso_status iso_jinja_strip(iso_jinja_call *call, iso_jinja_value text, iso_jinja_strip_side side,
                           iso_jinja_value *out_text) {
  iso_jinja_value set;
  iso_jinja_allow_none(call, 0);
  ISO_TRY(iso_jinja_string_argument(call, 0, NULL, &set));
  bool given = iso_jinja_given(call, 0);
  uint32_t codepoint;
  size_t start = 0, end = text.length;
  while ((side & ISO_JINJA_STRIP_LEFT) && start < end) {
    ISO_TRY(iso_jinja_spend(call->session, set.length / 8));
    size_t taken = iso_jinja_decode(text.string + start, end - start, &codepoint);
    if (!in_set(codepoint, given ? &set : NULL))
      break;
    start += taken;
  }
  while ((side & ISO_JINJA_STRIP_RIGHT) && end > start) {
    ISO_TRY(iso_jinja_spend(call->session, set.length / 8));
    size_t last = end - 1;
    while (last > start && end - last < 4 && ((unsigned char)text.string[last] & 0xC0) == 0x80)
      last--;
    if (iso_jinja_decode(text.string + last, end - last, &codepoint) != end - last)
      last = end - 1, codepoint = ISO_JINJA_INVALID_BYTE + (unsigned char)text.string[last];
    if (!in_set(codepoint, given ? &set : NULL))
      break;
    end = last;
  }
  *out_text = iso_jinja_part(text, start, end);
  return iso_jinja_spend(call->session, (text.length - (end - start)) / 64);
}

iso_status iso_jinja_replace(iso_jinja_session *session, iso_jinja_value text,
                             iso_jinja_value old_text, iso_jinja_value new_text, int64_t count,
                             iso_jinja_value *out_text) {
  iso_jinja_buffer buffer = {0};
  size_t at = 0;
  ISO_TRY(iso_jinja_spend(session, text.length / 64));
  for (; count != 0; count -= count > 0) {
    size_t found = iso_jinja_find(text, old_text, at);
    if (found == SIZE_MAX)
      break;
    ISO_TRY(iso_jinja_spend(session, 1));
    ISO_TRY(iso_jinja_append(session, &buffer, text.string + at, found - at));
    ISO_TRY(iso_jinja_print(session, &buffer, new_text));
    at = found + old_text.length;
    if (old_text.length == 0) { /* the new text goes between all characters */
      if (found == text.length)
        break;
      uint32_t codepoint;
      at += iso_jinja_decode(text.string + found, text.length - found, &codepoint);
      ISO_TRY(iso_jinja_append(session, &buffer, text.string + found, at - found));
    }
  }
  ISO_TRY(iso_jinja_append(session, &buffer, text.string + at, text.length - at));
  *out_text = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}

iso_status iso_jinja_pad(iso_jinja_session *session, iso_jinja_value text, int64_t width,
                         iso_jinja_value fill, iso_jinja_pad_side side, iso_jinja_value *out_text) {
  int64_t length;
  iso_jinja_buffer buffer = {0};
  ISO_TRY(iso_jinja_length(session, text, &length));
  int64_t missing = width > length ? width - length : 0;
  int64_t left = side == ISO_JINJA_PAD_LEFT    ? missing
                 : side == ISO_JINJA_PAD_RIGHT ? 0
                                               : missing / 2 + (missing & width & 1);
  for (int64_t i = 0; i < missing; i++) {
    ISO_TRY(iso_jinja_spend(session, 1));
    if (i == left)
      ISO_TRY(iso_jinja_print(session, &buffer, text));
    ISO_TRY(iso_jinja_print(session, &buffer, fill));
  }
  if (left == missing)
    ISO_TRY(iso_jinja_print(session, &buffer, text));
  *out_text = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}
