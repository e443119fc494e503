/* Regular expressions as Hugging Face tokenizers write them, run by PCRE2.
 *
 * Their dialect is Oniguruma's Ruby syntax over Unicode. PCRE2 with UTF and UCP agrees on most of
 * it; where it does not, the pattern is rewritten, and what has no rewriting is refused with the
 * construct's name:
 *
 *   \s \S          Unicode White_Space (PCRE2 would add U+180E)
 *   \w \b          Alphabetic, M, Nd, Pc, and outside of a class ² ³ ¹ ¼ ½ ¾ (PCRE2
 *                  10.42 takes L, N, "_")
 *   \p{Han} ...    the script itself (PCRE2 takes script extensions)
 *   \v \uHHHH      the vertical tab, a code point
 *   ^ $            at every line
 *   (?m            the dot matches newlines
 *   [a[bc]]        the union
 *   refused        [a[^b]], "&&", POSIX classes, {n,m}+, {n,m}?, {,n}, \h, \X, \K, \G, \R, back
 *                  references, \W and anchors in a class
 *
 * The Unicode version is that of the PCRE2 in use: characters that it does not know yet fall in
 * no letter class. */
#ifndef ISOMER_MODELS_TOKENIZER_REGEX_H
#define ISOMER_MODELS_TOKENIZER_REGEX_H

#include "models/tokenizer/text.h"

/* A compiled pattern, immutable: any number of threads can match with it. */
typedef struct iso_regex iso_regex;
/* What matching needs beside the pattern; one thread at a time. */
typedef struct iso_matcher iso_matcher;

/* UNSUPPORTED with the construct's name, or CORRUPT_DATA where the pattern is broken. */
ISO_MUST_CHECK iso_status iso_regex_compile(const char *pattern, size_t length,
                                            iso_regex **out_regex);
/* Matches exactly `text`, which must not be empty. */
ISO_MUST_CHECK iso_status iso_regex_compile_literal(const char *text, size_t length,
                                                    iso_regex **out_regex);
void iso_regex_destroy(iso_regex *regex);

ISO_MUST_CHECK iso_status iso_matcher_create(iso_matcher **out_matcher);
void iso_matcher_destroy(iso_matcher *matcher);

typedef struct iso_match {
  size_t start, end; /* bytes */
  bool found;
} iso_match;

/* Finds the next match after `previous` (the first one where previous->found is false) in well
 * formed UTF-8, with the rules of Oniguruma's iterator: an empty match right at the end of the
 * previous one is passed over. LIMIT when a bound on steps or stack is reached. */
ISO_MUST_CHECK iso_status iso_regex_next(const iso_regex *regex, iso_matcher *matcher,
                                         const char *text, size_t length, iso_match *match);

#endif
