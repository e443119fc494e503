/* Options in a JSON file, by their long names. */
#ifndef ISOMER_TOOLS_CONFIG_FILE_H
#define ISOMER_TOOLS_CONFIG_FILE_H

#include <stdio.h>

#include "tools/options.h"

/* What the options borrow from the file. */
typedef struct iso_config_file {
  iso_command command;
  char **arguments; /* those from the file are owned, those of the command line are not */
  int n, capacity, n_owned;
} iso_config_file;

/* Parses options->config, where there is one, and then the command line again, which overrides it
 * (lists add up). *out_file is to be destroyed after the options, on failure too. */
ISO_MUST_CHECK iso_status iso_config_file_apply(iso_command command, iso_options *options,
                                                iso_config_file *out_file);
void iso_config_file_destroy(iso_config_file *file);
/* What stands for a key where options are printed; no key, so that a file made of what was printed
 * does not let in whoever has read this. */
#define ISO_CONFIG_NOT_SHOWN "(not shown)"
/* All options in force, as a file that could be given back; keys are not shown. */
void iso_config_print(iso_command command, const iso_options *options, FILE *stream);

#endif
