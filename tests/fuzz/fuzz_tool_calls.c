/* Any bytes as a model's answer, in pieces: what is made of them is JSON, and nothing is lost where
 * no call was found. */
#include "core/json.h"
#include "server/tool_calls.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const formats[] = {"hermes", "mistral", "llama3", "phi4"};
  static char name[] = "f";
  char *names[] = {name};
  const iso_tool_names offered = {.names = names, .count = 1};
  if (size < 2)
    return 0;
  iso_tool_scan scan = {
      .format = iso_tool_format_find(formats[data[0] % 4]), .names = &offered, .seed = "seed"};
  size_t step = 1 + data[1];
  iso_printer content = {0};
  iso_json_writer calls = {0};
  cJSON *root = NULL;
  iso_json_begin(&calls, NULL, '[');
  for (size_t at = 2; at < size; at += step)
    iso_tool_scan_push(&scan, (const char *)data + at, step < size - at ? step : size - at, false,
                       true, &content, &calls);
  iso_tool_scan_push(&scan, "", 0, true, true, &content, &calls);
  iso_json_end(&calls, ']');
  if (iso_json_parse(calls.text.data, calls.text.size, 40, &root) != ISO_OK ||
      cJSON_GetArraySize(root) != scan.n_calls)
    abort();
  if (scan.n_calls == 0 &&
      (content.size != size - 2 || (size > 2 && memcmp(content.data, data + 2, size - 2) != 0)))
    abort();
  cJSON_Delete(root);
  free(content.data);
  free(calls.text.data);
  iso_tool_scan_free(&scan);
  return 0;
}
