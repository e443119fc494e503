#include "models/tokenizer/tokenizer_internal.h"

#include <utf8proc.h>

/* \w of Hugging Face's added-token search: Alphabetic, M, Nd, Pc, Join_Control. Alphabetic beyond
 * the letter and letter-number categories is the circled and squared Latin letters. */
static bool is_word_character(uint32_t c) {
  switch (utf8proc_category((int32_t)c)) {
  case UTF8PROC_CATEGORY_LU:
  case UTF8PROC_CATEGORY_LL:
  case UTF8PROC_CATEGORY_LT:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_LO:
  case UTF8PROC_CATEGORY_MN:
  case UTF8PROC_CATEGORY_MC:
  case UTF8PROC_CATEGORY_ME:
  case UTF8PROC_CATEGORY_ND:
  case UTF8PROC_CATEGORY_NL:
  case UTF8PROC_CATEGORY_PC:
    return true;
  default:
    return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
           (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
           (c >= 0x1F170 && c <= 0x1F189);
  }
}

/* The code point that ends before `position`; false at the start or where it is ill-formed. */
static bool code_point_before(const char *text, size_t position, uint32_t *out, size_t *out_start) {
  if (position == 0)
    return false;
  *out_start = iso_utf8_previous(text, position);
  return iso_utf8_decode(text + *out_start, position - *out_start, out) > 0;
}

static bool stands_alone(const char *text, size_t length, size_t start, size_t end) {
  uint32_t code_point;
  size_t before;
  if (code_point_before(text, start, &code_point, &before) && is_word_character(code_point))
    return false;
  return iso_utf8_decode(text + end, length - end, &code_point) == 0 ||
         !is_word_character(code_point);
}

static void take_space(const char *text, size_t length, uint8_t flags, size_t done,
                       iso_added_match *match) {
  uint32_t code_point;
  size_t before, size;
  while ((flags & ISO_TOKEN_STRIP_LEFT) && match->start > done &&
         code_point_before(text, match->start, &code_point, &before) &&
         iso_code_point_is_space(code_point))
    match->start = before;
  while ((flags & ISO_TOKEN_STRIP_RIGHT) &&
         (size = iso_utf8_decode(text + match->end, length - match->end, &code_point)) > 0 &&
         iso_code_point_is_space(code_point))
    match->end += size;
}

bool iso_added_next(const iso_tokenizer *tokenizer, const iso_trie *trie, bool parse_special,
                    const char *text, size_t length, iso_added_walk *walk,
                    iso_added_match *out_match) {
  while (trie->node_count > 0 && walk->search < length) {
    size_t start = walk->search, size;
    int32_t id = iso_trie_longest(trie, text + start, length - start, &size);
    if (id < 0) {
      walk->search++;
      continue;
    }
    /* A token that is passed over still hides what overlaps it. */
    walk->search = start + size;
    uint8_t flags = tokenizer->vocabulary.tokens[id].flags;
    if (((flags & ISO_TOKEN_SPECIAL) && !parse_special) ||
        ((flags & ISO_TOKEN_SINGLE_WORD) && !stands_alone(text, length, start, start + size)))
      continue;
    if (start < walk->done)
      start = walk->done; /* it begins in the space that the token before took */
    *out_match = (iso_added_match){.start = start, .end = walk->search, .id = id};
    take_space(text, length, flags, walk->done, out_match);
    walk->done = out_match->end;
    return true;
  }
  return false;
}
