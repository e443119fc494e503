#include "tools/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/spelling.h"
#include "tools/option_table.h"

iso_command iso_command_find(const char *name) {
  for (int i = 0; i < ISO_COMMAND_COUNT; i++)
    if (strcmp(name, iso_command_rows[i].name) == 0)
      return (iso_command)i;
  return ISO_COMMAND_COUNT;
}

const char *iso_command_nearest(const char *name) {
  const char *nearest = NULL;
  int best = ISO_SPELLING_NEAR;
  for (int i = 0; i < ISO_COMMAND_COUNT; i++) {
    int distance = iso_spelling_distance(name, iso_command_rows[i].name);
    if (distance < best) {
      best = distance;
      nearest = iso_command_rows[i].name;
    }
  }
  return nearest;
}

static bool takes(const iso_option_row *row, iso_command command) {
  return (row->commands >> command & 1) != 0;
}

static const iso_option_row *find_long(iso_command command, const char *name, size_t length) {
  for (int i = 0; i < iso_option_row_count; i++) {
    const iso_option_row *row = &iso_option_rows[i];
    const char *names[2] = {row->long_name, row->alias};
    for (int k = 0; k < 2; k++)
      if (takes(row, command) && names[k] && strlen(names[k]) == length &&
          memcmp(names[k], name, length) == 0)
        return row;
  }
  return NULL;
}

static const iso_option_row *find_short(iso_command command, char letter) {
  for (int i = 0; i < iso_option_row_count; i++)
    if (takes(&iso_option_rows[i], command) && iso_option_rows[i].short_name == letter)
      return &iso_option_rows[i];
  return NULL;
}

static iso_status unknown_option(iso_command command, const char *argument) {
  const char *name = argument + strspn(argument, "-"), *nearest = NULL;
  char word[64];
  snprintf(word, sizeof word, "%.*s", (int)strcspn(name, "="), name);
  int best = ISO_SPELLING_NEAR;
  for (int i = 0; i < iso_option_row_count; i++) {
    const char *names[2] = {iso_option_rows[i].long_name, iso_option_rows[i].alias};
    for (int k = 0; takes(&iso_option_rows[i], command) && k < 2; k++)
      if (names[k] && iso_spelling_distance(word, names[k]) < best) {
        best = iso_spelling_distance(word, names[k]);
        nearest = names[k];
      }
  }
  if (nearest)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "unknown option \"%s\"; did you mean --%s?",
                    argument, nearest);
  return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "unknown option \"%s\"; see isomer %s --help",
                  argument, iso_command_rows[command].name);
}

iso_status iso_options_find(iso_command command, const char *long_name,
                            const iso_option_row **out_row) {
  *out_row = find_long(command, long_name, strlen(long_name));
  return *out_row ? ISO_OK : unknown_option(command, long_name);
}

static iso_status store(const iso_option_row *row, const char *text, iso_options *options) {
  void *field = (char *)options + row->offset;
  char *end = NULL;
  errno = 0;
  switch (row->type) {
  case ISO_OPTION_STRING:
    *(const char **)field = text;
    return ISO_OK;
  case ISO_OPTION_FLAG:
    *(bool *)field = true;
    return ISO_OK;
  case ISO_OPTION_LIST: {
    iso_option_list *list = field;
    if (list->n == ISO_MAX_LIST)
      return iso_fail(ISO_ERROR_LIMIT, "--%s is given more than %d times", row->long_name,
                      ISO_MAX_LIST);
    list->items[list->n++] = text;
    return ISO_OK;
  }
  case ISO_OPTION_INT: {
    long long value = strtoll(text, &end, 10);
    char most[32]; /* 2^63 - 1 is none of the doubles that the table has */
    snprintf(most, sizeof most, row->max >= 0x1p63 ? "2^63 - 1" : "%.0f", row->max);
    if (errno || end == text || *end || (double)value < row->min || (double)value > row->max)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "--%s takes a whole number from %.0f to %s, not \"%s\"", row->long_name,
                      row->min, most, text);
    *(int64_t *)field = value;
    return ISO_OK;
  }
  case ISO_OPTION_FLOAT: {
    double value = strtod(text, &end);
    if (errno || end == text || *end || !(value >= row->min && value <= row->max))
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--%s takes a number from %g to %g, not \"%s\"",
                      row->long_name, row->min, row->max, text);
    *(double *)field = value;
    return ISO_OK;
  }
  }
  return ISO_OK;
}

iso_status iso_options_parse(iso_command command, int argc, char **argv, iso_options *out_options) {
  *out_options = (iso_options){.argc = argc, .argv = argv};
  for (int i = 0; i < iso_option_row_count; i++)
    if (iso_option_rows[i].default_value)
      ISO_TRY(store(&iso_option_rows[i], iso_option_rows[i].default_value, out_options));
  bool options_over = false;
  for (int i = 0; i < argc; i++) {
    const char *argument = argv[i];
    if (options_over || argument[0] != '-' || argument[1] == 0) {
      if (out_options->words.n == ISO_MAX_LIST)
        return iso_fail(ISO_ERROR_LIMIT, "more than %d words; quote the text", ISO_MAX_LIST);
      out_options->words.items[out_options->words.n++] = argument;
      continue;
    }
    if (strcmp(argument, "--") == 0) {
      options_over = true;
      continue;
    }
    const char *value = NULL;
    const iso_option_row *row;
    if (argument[1] == '-') {
      size_t length = strcspn(argument + 2, "=");
      row = find_long(command, argument + 2, length);
      value = argument[2 + length] ? argument + 2 + length + 1 : NULL;
    } else {
      row = argument[2] == 0 ? find_short(command, argument[1]) : NULL;
    }
    if (!row)
      return unknown_option(command, argument);
    if (row->type == ISO_OPTION_FLAG && value)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--%s takes no value", row->long_name);
    if (row->type != ISO_OPTION_FLAG && !value) {
      if (i + 1 >= argc)
        return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--%s needs a value: %s", row->long_name,
                        row->argument);
      value = argv[++i];
    }
    ISO_TRY(store(row, value, out_options));
    out_options->seed_given |= strcmp(row->long_name, "seed") == 0;
    out_options->device_given |= strcmp(row->long_name, "device") == 0;
    out_options->devices_given |= strcmp(row->long_name, "devices") == 0;
    out_options->sequences_given |= strcmp(row->long_name, "sequences") == 0;
  }
  return ISO_OK;
}

iso_status iso_options_check_words(iso_command command, const iso_options *options) {
  const char *positional = iso_command_rows[command].positional;
  if (strstr(positional, "..."))
    return ISO_OK;
  int most = *positional != 0;
  for (const char *at = positional; *at; at++)
    most += *at == ' ';
  if (options->model && strncmp(positional, "[MODEL]", 7) == 0)
    most--;
  return options->words.n <= most
             ? ISO_OK
             : iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                        "\"%s\" is a word too many; see isomer %s --help",
                        options->words.items[most], iso_command_rows[command].name);
}

iso_status iso_options_take_model(iso_options *options) {
  if (options->model)
    return ISO_OK;
  if (options->words.n == 0)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "no model: give a GGUF file or a Hugging Face "
                                                "folder as the first word or with -m");
  options->model = options->words.items[0];
  options->words.n--;
  memmove(options->words.items, options->words.items + 1,
          (size_t)options->words.n * sizeof options->words.items[0]);
  return ISO_OK;
}
