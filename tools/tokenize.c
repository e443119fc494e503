#include "tools/json_output.h"
#include "tools/tool.h"

#include "models/tokenizer/tokenizer.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Ids as words, separated by spaces, commas or brackets. */
static iso_status decode(const iso_tokenizer *tokenizer, const char *text, bool json) {
  size_t count = 0, capacity = 64;
  int32_t *ids = malloc(capacity * sizeof *ids);
  iso_status status = ids ? ISO_OK : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for ids");
  for (const char *at = text; status == ISO_OK;) {
    while (*at == ' ' || *at == ',' || *at == '[' || *at == ']' || *at == '\n')
      at++;
    if (!*at)
      break;
    char *end;
    errno = 0;
    long long id = strtoll(at, &end, 10);
    if (errno || end == at || id < 0 || id > INT32_MAX) {
      status = iso_fail(ISO_ERROR_INVALID_ARGUMENT, "\"%.20s\" is not a token id", at);
      break;
    }
    if (count == capacity) {
      int32_t *grown = realloc(ids, 2 * capacity * sizeof *ids);
      if (!grown) {
        status = iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %zu ids", 2 * capacity);
        break;
      }
      ids = grown;
      capacity *= 2;
    }
    ids[count++] = (int32_t)id;
    at = end;
  }
  char *decoded = NULL;
  size_t length = 0;
  if (status == ISO_OK)
    status = iso_tokenizer_decode(tokenizer, ids, count, 0, &decoded, &length);
  if (status == ISO_OK && json) {
    status = iso_json_output_print(cJSON_CreateString(decoded));
  } else if (status == ISO_OK) {
    fwrite(decoded, 1, length, stdout);
    putchar('\n');
  }
  free(decoded);
  free(ids);
  return status;
}

static iso_status encode(const iso_options *options, const iso_tokenizer *tokenizer,
                         const char *text, size_t length) {
  uint32_t flags = (options->no_bos ? 0 : ISO_TOKENIZE_ADD_SPECIAL) |
                   (options->special ? ISO_TOKENIZE_PARSE_SPECIAL : 0);
  int32_t *ids;
  size_t count;
  ISO_TRY(iso_tokenizer_encode(tokenizer, text, length, flags, &ids, &count));
  if (options->json)
    putchar('[');
  for (size_t i = 0; i < count; i++) {
    size_t token_length = 0;
    const char *token = iso_tokenizer_token_text(tokenizer, ids[i], &token_length);
    if (options->json)
      printf("%s%d", i ? ", " : "", ids[i]);
    else
      printf("%6d  %.*s\n", ids[i], (int)token_length, token ? token : "");
  }
  if (options->json)
    puts("]");
  free(ids);
  return ISO_OK;
}

iso_status iso_command_tokenize(iso_options *options, int *out_exit) {
  (void)out_exit;
  iso_model *model;
  ISO_TRY(iso_tool_open_model(options, false, &model));
  char *text = NULL;
  size_t length = 0;
  iso_status status = iso_tool_read_text(options, 0, &text, &length);
  if (status == ISO_OK && !text)
    status = iso_fail(ISO_ERROR_INVALID_ARGUMENT, "no text: give it after the model, with -p, -f "
                                                  "or on standard input");
  const iso_tokenizer *tokenizer = iso_model_get_tokenizer(model);
  if (status == ISO_OK)
    status = options->decode ? decode(tokenizer, text, options->json)
                             : encode(options, tokenizer, text, length);
  free(text);
  iso_model_close(model);
  return status;
}
