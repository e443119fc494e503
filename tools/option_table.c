#include "tools/option_table.h"

#define C(NAME) (1u << ISO_COMMAND_##NAME)
#define C_ALL 0xffffffffu
#define C_GENERATE (C(RUN) | C(CHAT) | C(BATCH))
#define C_ENGINE (C(SERVE) | C(BATCH))
#define C_RUNTIME (C_GENERATE | C_ENGINE | C(BENCH) | C(VERIFY) | C(PERPLEXITY))
#define C_MODEL (C_RUNTIME | C(INSPECT) | C(TOKENIZE))

const iso_option_row iso_option_rows[] = {
#define ISO_OPTION(field, TYPE, short_letter, long_text, alias_text, argument_text, default_text,  \
                   min_value, max_value, command_mask, help_text)                                  \
  {.type = ISO_OPTION_##TYPE,                                                                      \
   .short_name = short_letter,                                                                     \
   .long_name = long_text,                                                                         \
   .alias = alias_text,                                                                            \
   .argument = argument_text,                                                                      \
   .default_value = default_text,                                                                  \
   .help = help_text,                                                                              \
   .min = (double)(min_value),                                                                     \
   .max = (double)(max_value),                                                                     \
   .commands = command_mask,                                                                       \
   .offset = offsetof(iso_options, field)},
#include "tools/options.def"
#undef ISO_OPTION
};
const int iso_option_row_count = (int)(sizeof iso_option_rows / sizeof iso_option_rows[0]);

const iso_command_row iso_command_rows[ISO_COMMAND_COUNT] = {
#define ISO_COMMAND(name, NAME, positional, summary, description) \
  {#name, positional, summary, description},
#include "tools/commands.def"
#undef ISO_COMMAND
};
