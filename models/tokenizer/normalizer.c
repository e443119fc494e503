#include "models/tokenizer/normalizer.h"
#include "models/tokenizer/byte_level.h"

#include <string.h>
#include <utf8proc.h>

void iso_normalizer_free(iso_normalizer *normalizer) {
  iso_text_free(&normalizer->content);
  iso_regex_destroy(normalizer->regex);
  iso_charsmap_free(&normalizer->charsmap);
  iso_trie_free(&normalizer->symbols);
  *normalizer = (iso_normalizer){0};
}

iso_status iso_text_replace(const iso_regex *regex, iso_matcher *matcher,
                            const iso_text *replacement, const char *text, size_t length,
                            iso_text *out) {
  size_t done = 0;
  iso_match match = {0};
  for (;;) {
    ISO_TRY(iso_regex_next(regex, matcher, text, length, &match));
    if (!match.found)
      return iso_text_append(out, text + done, length - done);
    ISO_TRY(iso_text_append(out, text + done, match.start - done));
    ISO_TRY(iso_text_append(out, replacement->data, replacement->length));
    done = match.end;
  }
}

static iso_status lowercase(const char *text, size_t length, iso_text *out) {
  for (size_t at = 0; at < length;) {
    uint32_t code_point;
    at += iso_utf8_decode(text + at, length - at, &code_point);
    /* The one code point whose full lower case is longer than its simple one. */
    if (code_point == 0x130)
      ISO_TRY(iso_text_append(out, "i\xCC\x87", 3));
    else
      ISO_TRY(iso_text_append_code_point(out, (uint32_t)utf8proc_tolower((int32_t)code_point)));
  }
  return ISO_OK;
}

static iso_status strip_accents(const char *text, size_t length, iso_text *out) {
  for (size_t at = 0; at < length;) {
    uint32_t code_point;
    size_t size = iso_utf8_decode(text + at, length - at, &code_point);
    utf8proc_category_t category = utf8proc_category((int32_t)code_point);
    if (category != UTF8PROC_CATEGORY_MN && category != UTF8PROC_CATEGORY_MC &&
        category != UTF8PROC_CATEGORY_ME)
      ISO_TRY(iso_text_append(out, text + at, size));
    at += size;
  }
  return ISO_OK;
}

static iso_status strip(const iso_normalizer *normalizer, const char *text, size_t length,
                        iso_text *out) {
  size_t start = 0;
  uint32_t code_point;
  while (normalizer->left && start < length) {
    size_t size = iso_utf8_decode(text + start, length - start, &code_point);
    if (!iso_code_point_is_space(code_point))
      break;
    start += size;
  }
  while (normalizer->right && length > start) {
    size_t previous = iso_utf8_previous(text, length);
    (void)iso_utf8_decode(text + previous, length - previous, &code_point);
    if (!iso_code_point_is_space(code_point))
      break;
    length = previous;
  }
  return iso_text_append(out, text + start, length - start);
}

/* The cleaning that SentencePiece's nmt rules share with Hugging Face's Nmt. */
static iso_status clean_nmt(const char *text, size_t length, iso_text *out) {
  for (size_t at = 0; at < length;) {
    uint32_t c;
    at += iso_utf8_decode(text + at, length - at, &c);
    if ((c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
        c == 0x9F)
      continue;
    if (c == 9 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
        (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
        c == 0xFFFD)
      c = ' ';
    ISO_TRY(iso_text_append_code_point(out, c));
  }
  return ISO_OK;
}

/* One code point or a short grapheme by the map. Hugging Face takes the replacement of the
 * SHORTEST prefix in the map for the whole of it. */
static iso_status map_whole(const iso_charsmap *map, const char *text, size_t length, iso_text *out,
                            bool *out_mapped) {
  iso_charsmap_match match = iso_charsmap_find(map, text, length, false);
  *out_mapped = match.length > 0;
  return iso_text_append(out, match.replacement, match.replacement_length);
}

static iso_status map_grapheme(const iso_charsmap *map, const char *text, size_t length,
                               iso_text *out) {
  bool mapped = false;
  if (length < 6)
    ISO_TRY(map_whole(map, text, length, out, &mapped));
  for (size_t at = 0; at < length && !mapped;) {
    uint32_t code_point;
    size_t size = iso_utf8_decode(text + at, length - at, &code_point);
    bool part_mapped;
    ISO_TRY(map_whole(map, text + at, size, out, &part_mapped));
    if (!part_mapped)
      ISO_TRY(iso_text_append(out, text + at, size));
    at += size;
  }
  return ISO_OK;
}

static iso_status map_graphemes(const iso_charsmap *map, const char *text, size_t length,
                                iso_text *out) {
  size_t start = 0;
  int32_t previous = -1, state = 0;
  for (size_t at = 0; at < length;) {
    uint32_t code_point;
    size_t size = iso_utf8_decode(text + at, length - at, &code_point);
    if (previous >= 0 && utf8proc_grapheme_break_stateful(previous, (int32_t)code_point, &state)) {
      ISO_TRY(map_grapheme(map, text + start, at - start, out));
      start = at;
    }
    previous = (int32_t)code_point;
    at += size;
  }
  return map_grapheme(map, text + start, length - start, out);
}

/* The next unit of SentencePiece's normalization: a user-defined symbol as it is, the longest
 * mapped prefix, or one code point. */
typedef struct unit {
  size_t length; /* bytes of text taken */
  const char *text;
  size_t text_length;
} unit;

static unit next_unit(const iso_normalizer *normalizer, const char *text, size_t length) {
  size_t size;
  if (iso_trie_longest(&normalizer->symbols, text, length, &size) >= 0)
    return (unit){.length = size, .text = text, .text_length = size};
  iso_charsmap_match match = iso_charsmap_find(&normalizer->charsmap, text, length, true);
  if (match.length > 0)
    return (unit){match.length, match.replacement, match.replacement_length};
  uint32_t code_point;
  size = iso_utf8_decode(text, length, &code_point);
  return (unit){.length = size, .text = text, .text_length = size};
}

static iso_status append_escaped(const char *text, size_t length, iso_text *out) {
  for (size_t i = 0; i < length; i++) {
    if (text[i] == ' ')
      ISO_TRY(iso_text_append(out, ISO_METASPACE, 3));
    else
      ISO_TRY(iso_text_append(out, text + i, 1));
  }
  return ISO_OK;
}

static bool ends_with_metaspace(const iso_text *text, size_t start) {
  return text->length >= start + 3 && memcmp(text->data + text->length - 3, ISO_METASPACE, 3) == 0;
}

static iso_status normalize_sentencepiece(const iso_normalizer *normalizer, iso_text_place place,
                                          const char *text, size_t length, iso_text *out) {
  const bool trim = normalizer->remove_extra_whitespace && place != ISO_TEXT_CONTINUED;
  const size_t start = out->length;
  size_t at = 0;
  while (trim && at < length) {
    unit u = next_unit(normalizer, text + at, length - at);
    if (u.text_length != 1 || u.text[0] != ' ')
      break;
    at += u.length;
  }
  if (at == length)
    return ISO_OK;
  bool prefixed =
      place == ISO_TEXT_FIRST || (place == ISO_TEXT_AFTER_TOKEN && !normalizer->only_first);
  if (normalizer->dummy_prefix && prefixed)
    ISO_TRY(iso_text_append(out, ISO_METASPACE, 3));
  bool after_space = trim;
  while (at < length) {
    unit u = next_unit(normalizer, text + at, length - at);
    at += u.length;
    while (after_space && u.text_length > 0 && u.text[0] == ' ') {
      u.text++;
      u.text_length--;
    }
    ISO_TRY(append_escaped(u.text, u.text_length, out));
    if (u.text_length > 0)
      after_space = normalizer->remove_extra_whitespace && u.text[u.text_length - 1] == ' ';
  }
  while (normalizer->remove_extra_whitespace && ends_with_metaspace(out, start))
    out->length -= 3;
  return ISO_OK;
}

iso_status iso_normalizer_apply(const iso_normalizer *normalizer, iso_matcher *matcher,
                                iso_text_place place, const char *text, size_t length,
                                iso_text *out) {
  if (length == 0)
    return ISO_OK;
  switch (normalizer->kind) {
  case ISO_NORMALIZER_NFC:
    return iso_unicode_normalize(text, length, false, true, out);
  case ISO_NORMALIZER_NFD:
    return iso_unicode_normalize(text, length, false, false, out);
  case ISO_NORMALIZER_NFKC:
    return iso_unicode_normalize(text, length, true, true, out);
  case ISO_NORMALIZER_NFKD:
    return iso_unicode_normalize(text, length, true, false, out);
  case ISO_NORMALIZER_LOWERCASE:
    return lowercase(text, length, out);
  case ISO_NORMALIZER_STRIP_ACCENTS:
    return strip_accents(text, length, out);
  case ISO_NORMALIZER_STRIP:
    return strip(normalizer, text, length, out);
  case ISO_NORMALIZER_NMT:
    return clean_nmt(text, length, out);
  case ISO_NORMALIZER_PREPEND:
    if (place != ISO_TEXT_CONTINUED)
      ISO_TRY(iso_text_append(out, normalizer->content.data, normalizer->content.length));
    return iso_text_append(out, text, length);
  case ISO_NORMALIZER_REPLACE:
    return iso_text_replace(normalizer->regex, matcher, &normalizer->content, text, length, out);
  case ISO_NORMALIZER_PRECOMPILED:
    return map_graphemes(&normalizer->charsmap, text, length, out);
  case ISO_NORMALIZER_BYTE_LEVEL:
    return iso_byte_level_encode(text, length, out);
  case ISO_NORMALIZER_SENTENCEPIECE:
    return normalize_sentencepiece(normalizer, place, text, length, out);
  }
  return iso_fail(ISO_ERROR_INTERNAL, "tokenizer: normalizer %d", (int)normalizer->kind);
}
