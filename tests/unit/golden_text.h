/* Texts of the golden vectors of tokenizers. */
#ifndef ISOMER_TESTS_UNIT_GOLDEN_TEXT_H
#define ISOMER_TESTS_UNIT_GOLDEN_TEXT_H

#include "check.h"

#include "core/json.h"
#include "models/tokenizer/tokenizer.h"
#include <string.h>

/* Texts come with U+E000 in place of NUL. */
static iso_text text_of(const cJSON *item) {
  iso_text text = {0};
  const char *from = item->valuestring, *mark;
  CHECK(iso_text_reserve(&text, 1));
  for (; (mark = strstr(from, "\xEE\x80\x80")); from = mark + 3) {
    CHECK(iso_text_append(&text, from, (size_t)(mark - from)));
    CHECK(iso_text_append(&text, "", 1));
  }
  CHECK(iso_text_append(&text, from, strlen(from)));
  return text;
}

#endif
