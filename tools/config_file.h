/* Options in a JSON file, by their long names. */
#ifndef ISOMER_TOOLS_CONFIG_FILE_H
#define ISOMER_TOOLS_CONFIG_FILE_H

#include <stdio.h>

#include "tools/options.h"

/* Parses options->config, where there is one, and then the command line again, which overrides it
 * (lists add up). What the file holds lives as long as the process. */
ISO_MUST_CHECK iso_status iso_config_file_apply(iso_command command, iso_options *options);
/* All options in force, as a file that could be given back; keys are not shown. */
void iso_config_print(iso_command command, const iso_options *options, FILE *stream);

#endif
