/* options.def and commands.def as rows; only parsing, files of options and help look at them. */
#ifndef ISOMER_TOOLS_OPTION_TABLE_H
#define ISOMER_TOOLS_OPTION_TABLE_H

#include "tools/options.h"

typedef enum iso_option_type {
  ISO_OPTION_STRING,
  ISO_OPTION_INT,
  ISO_OPTION_FLOAT,
  ISO_OPTION_FLAG,
  ISO_OPTION_LIST
} iso_option_type;

typedef struct iso_option_row {
  iso_option_type type;
  char short_name; /* 0: none */
  const char *long_name, *alias, *argument, *default_value, *help;
  double min, max;
  uint32_t commands; /* bit i: command i takes it */
  size_t offset;     /* of the field in iso_options */
} iso_option_row;

typedef struct iso_command_row {
  const char *name, *positional, *summary, *description;
} iso_command_row;

extern const iso_option_row iso_option_rows[];
extern const int iso_option_row_count;
extern const iso_command_row iso_command_rows[ISO_COMMAND_COUNT];

/* The row of a long name, or alias, that `command` takes. INVALID_ARGUMENT, naming the nearest,
 * where it takes none of this name. */
ISO_MUST_CHECK iso_status iso_options_find(iso_command command, const char *long_name,
                                           const iso_option_row **out_row);

#endif
