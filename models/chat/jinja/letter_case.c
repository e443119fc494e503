/* Case, and the classes of characters that Python tells apart. */
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/text.h"
#include <string.h>
#include <utf8proc.h>

typedef struct range {
  uint32_t first, last;
} range;

/* Unicode's Other_Uppercase, Other_Lowercase, and the digits that are no decimals (PropList.txt and
 * the Numeric_Type of DerivedNumericType.txt). */
static const range other_upper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
static const range other_lower[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},    {0x2E0, 0x2E4},
    {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},   {0x1D78, 0x1D78},  {0x1D9B, 0x1DBF},
    {0x2071, 0x2071},   {0x207F, 0x207F},   {0x2090, 0x209C},   {0x2170, 0x217F},  {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},  {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
static const range other_digits[] = {
    {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
    {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
    {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

static bool is_in(uint32_t codepoint, const range *ranges, size_t count) {
  for (size_t i = 0; i < count && ranges[i].first <= codepoint; i++)
    if (codepoint <= ranges[i].last)
      return true;
  return false;
}

static bool has_category(uint32_t codepoint, uint32_t category_bits) {
  return category_bits >> utf8proc_category((utf8proc_int32_t)codepoint) & 1;
}

enum {
  LETTERS = 1u << UTF8PROC_CATEGORY_LU | 1u << UTF8PROC_CATEGORY_LL | 1u << UTF8PROC_CATEGORY_LT |
            1u << UTF8PROC_CATEGORY_LM | 1u << UTF8PROC_CATEGORY_LO,
  NUMBERS = 1u << UTF8PROC_CATEGORY_ND | 1u << UTF8PROC_CATEGORY_NL | 1u << UTF8PROC_CATEGORY_NO
};

bool iso_jinja_is_letter(uint32_t codepoint) { return has_category(codepoint, LETTERS); }

bool iso_jinja_is_decimal(uint32_t codepoint) {
  return has_category(codepoint, 1u << UTF8PROC_CATEGORY_ND);
}

bool iso_jinja_is_digit(uint32_t codepoint) {
  return iso_jinja_is_decimal(codepoint) ||
         is_in(codepoint, other_digits, sizeof other_digits / sizeof *other_digits);
}

bool iso_jinja_is_letter_or_number(uint32_t codepoint) {
  return has_category(codepoint, LETTERS | NUMBERS);
}

bool iso_jinja_is_upper(uint32_t codepoint) {
  return has_category(codepoint, 1u << UTF8PROC_CATEGORY_LU) ||
         is_in(codepoint, other_upper, sizeof other_upper / sizeof *other_upper);
}

bool iso_jinja_is_lower(uint32_t codepoint) {
  return has_category(codepoint, 1u << UTF8PROC_CATEGORY_LL) ||
         is_in(codepoint, other_lower, sizeof other_lower / sizeof *other_lower);
}

static bool is_title(uint32_t codepoint) {
  return has_category(codepoint, 1u << UTF8PROC_CATEGORY_LT);
}

static bool is_cased(uint32_t codepoint) {
  return iso_jinja_is_upper(codepoint) || iso_jinja_is_lower(codepoint) || is_title(codepoint);
}

iso_status iso_jinja_has_case(iso_jinja_session *session, iso_jinja_value text, bool upper,
                              iso_jinja_value *out_boolean) {
  bool found = false, other = false;
  ISO_TRY(iso_jinja_spend(session, text.length / 4));
  for (size_t at = 0; at < text.length && !other;) {
    uint32_t codepoint;
    at += iso_jinja_decode(text.string + at, text.length - at, &codepoint);
    bool is_upper = iso_jinja_is_upper(codepoint), is_lower = iso_jinja_is_lower(codepoint);
    found |= upper ? is_upper : is_lower;
    other = (upper ? is_lower : is_upper) || is_title(codepoint);
  }
  *out_boolean = iso_jinja_boolean(found && !other);
  return ISO_OK;
}

/* What a capital sigma is looked through to for another letter: marks, modifiers, format
 * characters, and punctuation within words (Unicode's Case_Ignorable). */
static bool is_case_ignorable(uint32_t codepoint) {
  static const uint16_t punctuation[] = {'\'',   '.',    ':',    0xB7,   0x387,  0x55F,
                                         0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                         0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  for (size_t i = 0; i < sizeof punctuation / sizeof *punctuation; i++)
    if (codepoint == punctuation[i])
      return true;
  return has_category(codepoint, 1u << UTF8PROC_CATEGORY_MN | 1u << UTF8PROC_CATEGORY_ME |
                                     1u << UTF8PROC_CATEGORY_CF | 1u << UTF8PROC_CATEGORY_LM |
                                     1u << UTF8PROC_CATEGORY_SK);
}

/* Whether the sigma before `at` ends a word: a letter is before it, and none behind. */
static bool ends_word(iso_jinja_value text, size_t at, bool after_letter) {
  uint32_t codepoint = 0;
  bool found = false;
  while (after_letter && at < text.length && !found) {
    at += iso_jinja_decode(text.string + at, text.length - at, &codepoint);
    found = !is_case_ignorable(codepoint);
  }
  return after_letter && !(found && is_cased(codepoint));
}

/* Appends a code point whose upper or title case is several: that of its case folding. */
static iso_status append_several(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                 const utf8proc_int32_t *folded, int count, bool title) {
  bool raised = false;
  for (int i = 0; i < count; i++) {
    utf8proc_int32_t c = folded[i];
    if (!title || !raised)
      c = utf8proc_toupper(c);
    else if (c == 0x3B9)
      c = 0x345; /* an iota stays below its letter */
    raised |= c != folded[i];
    ISO_TRY(iso_jinja_append_codepoint(session, buffer, (uint32_t)c));
  }
  return ISO_OK;
}

typedef enum letter_case { KEPT, UPPER, LOWER, TITLE, FOLDED } letter_case;

static iso_status append_case(iso_jinja_session *session, iso_jinja_buffer *buffer,
                              uint32_t codepoint, letter_case to) {
  utf8proc_int32_t c = (utf8proc_int32_t)codepoint, folded[8];
  bool invalid = codepoint >= ISO_JINJA_INVALID_BYTE && codepoint <= ISO_JINJA_INVALID_BYTE + 0xFF;
  if (to == KEPT || invalid)
    return iso_jinja_append_codepoint(session, buffer, codepoint);
  if (to == LOWER && codepoint == 0x130)
    return iso_jinja_append(session, buffer, "i\xCC\x87", 3);
  if (to == LOWER || codepoint < 0x80)
    return iso_jinja_append_codepoint(
        session, buffer,
        (uint32_t)(to == LOWER || to == FOLDED ? utf8proc_tolower(c) : utf8proc_toupper(c)));
  int boundary = 0;
  int count = (int)utf8proc_decompose_char(c, folded, 8, UTF8PROC_CASEFOLD, &boundary);
  for (int i = 0; to == FOLDED && i < count; i++)
    ISO_TRY(iso_jinja_append_codepoint(session, buffer, (uint32_t)folded[i]));
  if (to == FOLDED)
    return ISO_OK;
  bool raised = has_category(codepoint, 1u << UTF8PROC_CATEGORY_LU) ||
                (to == TITLE && (is_title(codepoint) || (utf8proc_totitle(c) != c && c != 0xDF)));
  if (count > 1 && !raised)
    return append_several(session, buffer, folded, count, to == TITLE);
  return iso_jinja_append_codepoint(
      session, buffer, (uint32_t)(to == UPPER ? utf8proc_toupper(c) : utf8proc_totitle(c)));
}

/* The case of a code point; `inside`: after a letter, `first`: the text's first. */
static letter_case choose(iso_jinja_case to, uint32_t codepoint, bool inside, bool first) {
  switch (to) {
  case ISO_JINJA_UPPER:
    return UPPER;
  case ISO_JINJA_LOWER:
    return LOWER;
  case ISO_JINJA_FOLDED:
    return FOLDED;
  case ISO_JINJA_TITLE:
    return inside ? LOWER : TITLE;
  case ISO_JINJA_CAPITALIZED:
    return first ? TITLE : LOWER;
  default:
    return iso_jinja_is_upper(codepoint) ? LOWER : iso_jinja_is_lower(codepoint) ? UPPER : KEPT;
  }
}

iso_status iso_jinja_change_case(iso_jinja_session *session, iso_jinja_value text,
                                 iso_jinja_case to, iso_jinja_value *out_text) {
  iso_jinja_buffer buffer = {0};
  bool inside = false, after_letter = false;
  ISO_TRY(iso_jinja_spend(session, text.length / 4));
  for (size_t at = 0; at < text.length;) {
    uint32_t codepoint;
    size_t start = at;
    at += iso_jinja_decode(text.string + at, text.length - at, &codepoint);
    letter_case chosen = choose(to, codepoint, inside, start == 0);
    if (codepoint == 0x3A3 && chosen == LOWER)
      ISO_TRY(iso_jinja_append_codepoint(session, &buffer,
                                         ends_word(text, at, after_letter) ? 0x3C2 : 0x3C3));
    else
      ISO_TRY(append_case(session, &buffer, codepoint, chosen));
    inside = is_cased(codepoint);
    after_letter = inside || (after_letter && is_case_ignorable(codepoint));
  }
  *out_text = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}
