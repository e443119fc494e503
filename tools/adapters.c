#include "tools/adapters.h"

#include <string.h>

iso_text_view iso_tool_name(const char *path) {
  size_t length = strlen(path), start;
  while (length > 1 && path[length - 1] == '/')
    length--;
  for (start = length; start > 0 && path[start - 1] != '/';)
    start--;
  if (length - start > 5 && strncmp(path + length - 5, ".gguf", 5) == 0)
    length -= 5;
  return (iso_text_view){path + start, length - start};
}

/* The '=' of NAME=PATH; NULL in a path alone, whose folders may have one. */
static const char *find_mark(const char *word) {
  const char *mark = strchr(word, '=');
  return mark && mark > word && !memchr(word, '/', (size_t)(mark - word)) ? mark : NULL;
}

iso_text_view iso_tool_adapter_name(const iso_options *options, int index) {
  const char *word = options->lora.items[index], *mark = find_mark(word);
  return mark ? (iso_text_view){word, (size_t)(mark - word)} : iso_tool_name(word);
}

static iso_status check_names(const iso_options *options) {
  for (int i = 0; i < options->lora.n; i++)
    for (int k = 0; k < i; k++) {
      iso_text_view a = iso_tool_adapter_name(options, i), b = iso_tool_adapter_name(options, k);
      if (a.length == b.length && memcmp(a.data, b.data, a.length) == 0)
        return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                        "two adapters are called \"%.*s\"; give them names, as --lora NAME=PATH",
                        (int)a.length, a.data);
    }
  return ISO_OK;
}

iso_status iso_tool_open_adapters(const iso_model *model, const iso_options *options,
                                  iso_adapter_list *out_list) {
  *out_list = (iso_adapter_list){0};
  ISO_TRY(check_names(options));
  for (int i = 0; i < options->lora.n; i++) {
    const char *word = options->lora.items[i], *mark = find_mark(word);
    iso_status status =
        iso_adapter_open(model, mark ? mark + 1 : word, &out_list->items[out_list->n]);
    if (status != ISO_OK) {
      iso_tool_close_adapters(out_list);
      return status;
    }
    out_list->n++;
  }
  return ISO_OK;
}

void iso_tool_close_adapters(iso_adapter_list *list) {
  while (list->n > 0)
    iso_adapter_close(list->items[--list->n]);
}

iso_status iso_tool_need_one_adapter(const iso_options *options) {
  return options->lora.n <= 1
             ? ISO_OK
             : iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                        "this command takes one adapter; serve and batch take several, of which "
                        "each request names one");
}
