#include "tools/json_output.h"

#include "models/tokenizer/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the process, as standard output is. */
static enum { NOTHING, ARRAY, WHOLE } printed;

/* Names in files and of files may be any bytes; JSON is UTF-8. */
static void write_text(const char *text) {
  for (size_t left = strlen(text); left > 0;) {
    bool cut;
    size_t good = iso_utf8_valid_prefix(text, left);
    fwrite(text, 1, good, stdout);
    size_t bad = good < left ? iso_utf8_ill_formed(text + good, left - good, &cut) : 0;
    if (bad > 0)
      fputs("\xEF\xBF\xBD", stdout); /* U+FFFD */
    text += good + bad;
    left -= good + bad;
  }
}

/* Frees `root`. */
static iso_status print(cJSON *root, const char *before, const char *after) {
  char *text = cJSON_Print(root);
  cJSON_Delete(root);
  if (!text)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for the JSON text");
  fputs(before, stdout);
  write_text(text);
  fputs(after, stdout);
  free(text);
  return ISO_OK;
}

iso_status iso_json_output_print(cJSON *root) {
  ISO_TRY(print(root, "", "\n"));
  printed = WHOLE;
  return ISO_OK;
}

iso_status iso_json_output_add(cJSON *item) {
  ISO_TRY(print(item, printed == ARRAY ? ",\n" : "[\n", ""));
  printed = ARRAY;
  fflush(stdout);
  return ISO_OK;
}

void iso_json_output_end(void) {
  puts("\n]");
  printed = WHOLE;
}

void iso_json_output_fail(const char *sentence) {
  cJSON *error = printed == WHOLE ? NULL : cJSON_CreateObject();
  cJSON_AddStringToObject(error, "error", sentence);
  if (!error)
    return;
  iso_status status = printed == ARRAY ? iso_json_output_add(error) : iso_json_output_print(error);
  if (printed == ARRAY)
    iso_json_output_end();
  (void)status; /* the sentence is on standard error too */
}
