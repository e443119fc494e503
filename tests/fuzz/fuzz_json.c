/* Any bytes: a tree or an error. What is accepted prints and parses again. */
#include "core/json.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  cJSON *root, *again;
  iso_status status = iso_json_parse((const char *)data, size, 64, &root);
  if (status == ISO_ERROR_OUT_OF_MEMORY)
    abort(); /* the check accepted what cJSON refuses */
  if (status != ISO_OK)
    return 0;
  int64_t integer = 0;
  double number = 0;
  bool flag = false;
  const char *text = NULL;
  const cJSON *node = NULL;
  (void)!iso_json_get_optional_int(root, "a", -1000, INT64_MAX, &integer);
  (void)!iso_json_get_optional_float(root, "a", -1e9, 1e9, &number);
  (void)!iso_json_get_optional_bool(root, "b", &flag);
  (void)!iso_json_get_optional_string(root, "c", &text);
  (void)!iso_json_get_optional_array(root, "d", &node);
  (void)!iso_json_get_optional_object(root, "e", &node);
  char *printed = cJSON_PrintUnformatted(root);
  if (!printed || iso_json_parse(printed, strlen(printed), 64, &again) != ISO_OK)
    abort();
  if (!cJSON_Compare(root, again, true))
    abort();
  cJSON_free(printed);
  cJSON_Delete(again);
  cJSON_Delete(root);
  return 0;
}
