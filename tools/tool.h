/* What subcommands share. */
#ifndef ISOMER_TOOLS_TOOL_H
#define ISOMER_TOOLS_TOOL_H

#include <isomer/engine.h>
#include <stdio.h>
#include <sys/types.h>

#include "tools/options.h"

/* A command's body: fails with a sentence, or sets *out_exit (0 by default) for results that are
 * no error of the program, such as a failed check (1). */
typedef iso_status (*iso_command_function)(iso_options *options, int *out_exit);
#define ISO_COMMAND(name, NAME, positional, summary, description)                                  \
  iso_status iso_command_##name(iso_options *options, int *out_exit);
#include "tools/commands.def"
#undef ISO_COMMAND

/* Opens options->model (or the first word), with a progress bar on a terminal. */
ISO_MUST_CHECK iso_status iso_tool_open_model(iso_options *options, bool no_tokenizer,
                                              iso_model **out_model);
/* The runtime that the options ask for; `base` (may be NULL) gives what they do not. */
ISO_MUST_CHECK iso_status iso_tool_create_runtime(const iso_model *model,
                                                  const iso_options *options,
                                                  const iso_runtime_options *base,
                                                  iso_runtime **out_runtime);
/* Whether a prompt is a message, through the model's chat template, or a text that goes on. */
bool iso_tool_uses_template(const iso_options *options, const iso_model *model);
/* Sampling as the options ask; a fresh seed when none was given. */
iso_sampling iso_tool_sampling(const iso_options *options);
/* Of -n, as a request has it: 0 is up to the context's end. */
int32_t iso_tool_max_tokens(const iso_options *options);

/* Text of -p, the words from `first_word` on, -f, or standard input when it is no terminal;
 * malloc'ed. NULL text when there is none. */
ISO_MUST_CHECK iso_status iso_tool_read_text(const iso_options *options, int first_word,
                                             char **out_text, size_t *out_length);

/* Set by Ctrl-C once iso_tool_catch_interrupt() was called, and after iso_tool_catch_end() by
 * SIGTERM and by a terminal that closes too; a second signal ends the program, except while a
 * person is asked for a line: there is nothing to end then, and the terminal is the editor's. */
bool iso_tool_interrupted(void);
void iso_tool_clear_interrupt(void);
void iso_tool_set_asking(bool is_asking);
void iso_tool_catch_interrupt(void);
void iso_tool_catch_end(void);

/* As getline(), but no more than limit + 1 bytes of a line: so many say that it is longer, and its
 * rest is still to be read. */
ssize_t iso_tool_read_line(char **line, size_t *capacity, size_t limit, FILE *file);

/* "1.5 GB", "20.3 KB" into `out` (at least 16 bytes); returns it. */
const char *iso_tool_format_bytes(uint64_t bytes, char *out, size_t capacity);

#endif
