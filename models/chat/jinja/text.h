/* Text: UTF-8 as a sequence of code points, with Python's ideas of white space, lines and case.
 * A byte that is not part of valid UTF-8 counts as one code point and passes through unchanged. */
#ifndef ISOMER_MODELS_CHAT_JINJA_TEXT_H
#define ISOMER_MODELS_CHAT_JINJA_TEXT_H

#include "models/chat/jinja/value.h"

/* Stand for the invalid bytes 0x80 to 0xFF, as Python's surrogateescape does. */
enum { ISO_JINJA_INVALID_BYTE = 0xDC00 };

/* Decodes the code point at `bytes`, at least one byte; returns the bytes it takes, 1 to 4. */
uint32_t iso_jinja_decode(const char *bytes, size_t available, uint32_t *out_codepoint);
/* Encodes a code point, or a byte that iso_jinja_decode found invalid; returns 1 to 4. */
uint32_t iso_jinja_encode(uint32_t codepoint, char out_bytes[4]);
/* Code points in `length` bytes. */
size_t iso_jinja_count_codepoints(const char *bytes, size_t length);
/* Byte offset of code point `index`, or `length` when there are fewer. */
size_t iso_jinja_codepoint_offset(const char *bytes, size_t length, size_t index);

bool iso_jinja_is_space(uint32_t codepoint);            /* str.isspace */
bool iso_jinja_is_line_break(uint32_t codepoint);       /* where str.splitlines splits */
bool iso_jinja_is_letter(uint32_t codepoint);           /* str.isalpha */
bool iso_jinja_is_decimal(uint32_t codepoint);          /* str.isdecimal */
bool iso_jinja_is_digit(uint32_t codepoint);            /* str.isdigit: superscripts, too */
bool iso_jinja_is_letter_or_number(uint32_t codepoint); /* str.isalnum */
bool iso_jinja_is_printable(uint32_t codepoint);        /* str.isprintable */
bool iso_jinja_is_upper(uint32_t codepoint);
bool iso_jinja_is_lower(uint32_t codepoint);
/* str.isupper or str.islower: some letter has the case, and none another. */
iso_status iso_jinja_has_case(iso_jinja_session *session, iso_jinja_value text, bool upper,
                              iso_jinja_value *out_boolean);

/* Bytes of white space at the start, and the length without the white space at the end. */
size_t iso_jinja_leading_space(const char *bytes, size_t length);
size_t iso_jinja_length_before_trailing_space(const char *bytes, size_t length);

/* First occurrence of `needle` at or after byte `start`; SIZE_MAX if none. */
size_t iso_jinja_find(iso_jinja_value text, iso_jinja_value needle, size_t start);
/* Last occurrence that ends at or before byte `end`; SIZE_MAX if none. */
size_t iso_jinja_find_last(iso_jinja_value text, iso_jinja_value needle, size_t end);

typedef enum iso_jinja_case {
  ISO_JINJA_UPPER,
  ISO_JINJA_LOWER,
  ISO_JINJA_FOLDED,      /* for comparing without regard to case */
  ISO_JINJA_TITLE,       /* the first letter of each run of letters in title case, the rest lower */
  ISO_JINJA_CAPITALIZED, /* the first character in title case, the rest lower */
  ISO_JINJA_SWAPPED
} iso_jinja_case;

/* The string in another case, by Unicode's full mappings. */
iso_status iso_jinja_change_case(iso_jinja_session *session, iso_jinja_value text,
                                 iso_jinja_case to, iso_jinja_value *out_text);
/* A part of a string, sharing its bytes. */
iso_jinja_value iso_jinja_part(iso_jinja_value text, size_t start, size_t end);
/* The lines of a string, without their ends, as str.splitlines gives them; with them if
 * `keep_ends`. */
iso_status iso_jinja_split_lines(iso_jinja_session *session, iso_jinja_value text, bool keep_ends,
                                 iso_jinja_value *out_list);

#endif
