#include "tools/json_output.h"

#include <stdio.h>
#include <stdlib.h>

/* Of the process, as standard output is. */
static enum { NOTHING, ARRAY, WHOLE } printed;

/* Frees `root`. */
static iso_status print(cJSON *root, const char *before, const char *after) {
  char *text = cJSON_Print(root);
  cJSON_Delete(root);
  if (!text)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for the JSON text");
  printf("%s%s%s", before, text, after);
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
