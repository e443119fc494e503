/* Command line options, parsed by the tables commands.def and options.def. */
#ifndef ISOMER_TOOLS_OPTIONS_H
#define ISOMER_TOOLS_OPTIONS_H

#include <isomer/status.h>

typedef enum iso_command {
#define ISO_COMMAND(name, NAME, positional, summary, description) ISO_COMMAND_##NAME,
#include "tools/commands.def"
#undef ISO_COMMAND
  ISO_COMMAND_COUNT
} iso_command;

enum { ISO_MAX_LIST = 32 };

typedef struct iso_option_list {
  const char *items[ISO_MAX_LIST];
  int n;
} iso_option_list;

/* One field an option; strings are borrowed from argv. */
typedef struct iso_options {
#define ISO_FIELD_STRING(field) const char *field;
#define ISO_FIELD_INT(field) int64_t field;
#define ISO_FIELD_FLOAT(field) double field;
#define ISO_FIELD_FLAG(field) bool field;
#define ISO_FIELD_LIST(field) iso_option_list field;
#define ISO_OPTION(field, TYPE, short_name, long_name, alias, argument, default_value, min, max,   \
                   commands, help)                                                                 \
  ISO_FIELD_##TYPE(field)
#include "tools/options.def"
#undef ISO_OPTION
#undef ISO_FIELD_STRING
#undef ISO_FIELD_INT
#undef ISO_FIELD_FLOAT
#undef ISO_FIELD_FLAG
#undef ISO_FIELD_LIST
  bool seed_given, device_given, devices_given, sequences_given;
  iso_option_list words; /* what is not an option, in order */
  int argc;              /* what was parsed; borrowed */
  char **argv;
} iso_options;

/* Fills defaults, then argv[0 .. argc) of a command. INVALID_ARGUMENT with one sentence that says
 * which option and what it takes. */
ISO_MUST_CHECK iso_status iso_options_parse(iso_command command, int argc, char **argv,
                                            iso_options *out_options);
/* Refuses words beyond those that the command takes. */
ISO_MUST_CHECK iso_status iso_options_check_words(iso_command command, const iso_options *options);
/* Takes the first word as the model when -m was not given. Fails when there is neither. */
ISO_MUST_CHECK iso_status iso_options_take_model(iso_options *options);

/* Finds a subcommand; ISO_COMMAND_COUNT when unknown. */
iso_command iso_command_find(const char *name);
/* The name closest to a mistyped one, NULL when none is close. */
const char *iso_command_nearest(const char *name);

/* Help of the program (ISO_COMMAND_COUNT) or of a command, as text or as a man page (roff). */
void iso_help_print(iso_command command);
void iso_man_print(iso_command command);

#endif
