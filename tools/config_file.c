#include "tools/config_file.h"

#include "core/json.h"
#include "tools/option_table.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_CONFIG_BYTES = 1 << 20, MAX_CONFIG_DEPTH = 4 };

static iso_status add(iso_config_file *list, char *text) {
  if (!text || list->n == list->capacity) {
    int wanted = 2 * list->capacity + 16;
    char **grown = text ? realloc(list->arguments, (size_t)wanted * sizeof *grown) : NULL;
    if (!grown)
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for the options of a file");
    list->arguments = grown;
    list->capacity = wanted;
  }
  list->arguments[list->n++] = text;
  return ISO_OK;
}

/* "--name=value", as on the command line, so that the same checks and sentences apply. */
static iso_status add_option(iso_config_file *list, const char *name, const char *value) {
  size_t bytes = strlen(name) + (value ? strlen(value) : 0) + 4;
  char *text = malloc(bytes);
  if (text)
    snprintf(text, bytes, value ? "--%s=%s" : "--%s", name, value);
  iso_status status = add(list, text);
  if (status != ISO_OK)
    free(text);
  list->n_owned = list->n;
  return status;
}

static iso_status add_value(iso_config_file *list, const iso_option_row *row, const cJSON *value) {
  char number[40];
  if (cJSON_IsNull(value))
    return ISO_OK;
  if (cJSON_IsString(value))
    return add_option(list, row->long_name, value->valuestring);
  if (cJSON_IsNumber(value)) {
    /* As people write it where that is the same number: 0.1, not 0.10000000000000001. */
    snprintf(number, sizeof number, "%.15g", value->valuedouble);
    if (strtod(number, NULL) != value->valuedouble || strchr(number, 'e'))
      snprintf(number, sizeof number, "%.17g", value->valuedouble);
    return add_option(list, row->long_name, number);
  }
  if (!cJSON_IsBool(value))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "\"%s\" must be a string, a number, true or false%s", row->long_name,
                    row->type == ISO_OPTION_LIST ? ", or an array of strings" : "");
  /* Alone, "--port" would take the argument that comes next as its value. */
  if (row->type != ISO_OPTION_FLAG)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "\"%s\" needs a value, not true or false: %s",
                    row->long_name, row->argument);
  return cJSON_IsTrue(value) ? add_option(list, row->long_name, NULL) : ISO_OK;
}

/* The name is looked up before it is written as an argument: "" would end the options there. */
static iso_status add_member(iso_config_file *list, const cJSON *member) {
  const iso_option_row *row;
  ISO_TRY(iso_options_find(list->command, member->string, &row));
  if (strcmp(row->long_name, "config") == 0 || strcmp(row->long_name, "help") == 0)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "\"%s\" belongs on the command line alone",
                    row->long_name);
  if (!cJSON_IsArray(member) || row->type != ISO_OPTION_LIST)
    return add_value(list, row, member);
  for (const cJSON *item = member->child; item; item = item->next)
    ISO_TRY(add_value(list, row, item));
  return ISO_OK;
}

static iso_status add_members(iso_config_file *list, const cJSON *root) {
  if (!cJSON_IsObject(root))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "must hold a JSON object of options");
  for (const cJSON *item = root->child; item; item = item->next)
    ISO_TRY(add_member(list, item));
  return ISO_OK;
}

iso_status iso_config_file_apply(iso_command command, iso_options *options,
                                 iso_config_file *out_file) {
  cJSON *root = NULL;
  iso_options parsed;
  const char *path = options->config;
  *out_file = (iso_config_file){.command = command};
  if (!path)
    return ISO_OK;
  ISO_TRY(iso_json_read_file(path, MAX_CONFIG_BYTES, MAX_CONFIG_DEPTH, &root));
  iso_status status = add_members(out_file, root);
  cJSON_Delete(root);
  if (status == ISO_OK)
    status = iso_options_parse(command, out_file->n, out_file->arguments, &parsed);
  ISO_TRY(iso_fail_context(status, "%s", path));
  for (int i = 0; i < options->argc; i++)
    ISO_TRY(add(out_file, options->argv[i]));
  return iso_options_parse(command, out_file->n, out_file->arguments, options);
}

void iso_config_file_destroy(iso_config_file *file) {
  for (int i = 0; i < file->n_owned; i++)
    free(file->arguments[i]);
  free(file->arguments);
}

static void print_value(cJSON *root, const iso_option_row *row, const iso_options *options) {
  const void *field = (const char *)options + row->offset;
  bool secret = strcmp(row->long_name, "api-key") == 0;
  switch (row->type) {
  case ISO_OPTION_STRING:
    if (*(const char *const *)field)
      cJSON_AddStringToObject(root, row->long_name, *(const char *const *)field);
    else
      cJSON_AddNullToObject(root, row->long_name);
    break;
  case ISO_OPTION_INT:
    cJSON_AddNumberToObject(root, row->long_name, (double)*(const int64_t *)field);
    break;
  case ISO_OPTION_FLOAT:
    cJSON_AddNumberToObject(root, row->long_name, *(const double *)field);
    break;
  case ISO_OPTION_FLAG:
    cJSON_AddBoolToObject(root, row->long_name, *(const bool *)field);
    break;
  case ISO_OPTION_LIST: {
    const iso_option_list *list = field;
    cJSON *array = cJSON_AddArrayToObject(root, row->long_name);
    for (int i = 0; i < list->n; i++)
      cJSON_AddItemToArray(array,
                           cJSON_CreateString(secret ? ISO_CONFIG_NOT_SHOWN : list->items[i]));
    break;
  }
  }
}

void iso_config_print(iso_command command, const iso_options *options, FILE *stream) {
  cJSON *root = cJSON_CreateObject();
  for (int i = 0; i < iso_option_row_count; i++) {
    const iso_option_row *row = &iso_option_rows[i];
    if ((row->commands >> command & 1) && strcmp(row->long_name, "help") != 0 &&
        strcmp(row->long_name, "config") != 0)
      print_value(root, row, options);
  }
  char *text = cJSON_Print(root);
  fprintf(stream, "%s\n", text ? text : "{}");
  free(text);
  cJSON_Delete(root);
}
