/* One line of a batch file: what it asks, and what it got. */
#ifndef ISOMER_TOOLS_BATCH_LINE_H
#define ISOMER_TOOLS_BATCH_LINE_H

#include <cjson/cJSON.h>
#include <isomer/engine.h>

#include "models/tokenizer/text.h"
#include "tools/options.h"

enum { ISO_BATCH_MAX_STOPS = 64 };

typedef struct iso_batch_choice {
  iso_text text;
  iso_stop_reason reason;
} iso_batch_choice;

typedef struct iso_batch_line {
  int64_t index; /* of the line, from 0 */
  uint64_t hash; /* of the line, iso_batch_line_hash() */
  cJSON *root;
  int32_t *ids;
  const char *stops[ISO_BATCH_MAX_STOPS];
  iso_request request; /* all but its callback */
  iso_batch_choice *choices;
  iso_usage usage;
} iso_batch_line;

/* Reads a line: an object with `prompt` (text to be continued), `src` (one message of a user) or
 * `messages` (a conversation), and what it asks otherwise than the options do. Failures are the
 * line's; `line` can be answered and must be destroyed after one, too. */
ISO_MUST_CHECK iso_status iso_batch_line_read(iso_engine *engine, const iso_options *options,
                                              const iso_sampling *sampling, const char *text,
                                              size_t length, int64_t index,
                                              iso_batch_line *out_line);
void iso_batch_line_destroy(iso_batch_line *line);

/* Of a line's text but for white space behind it: tells whether an answer is this line's. */
uint64_t iso_batch_line_hash(const char *text, size_t length);

/* The line of the output, without its newline; malloc'ed. `error` is NULL for an answer. */
ISO_MUST_CHECK iso_status iso_batch_line_print(const iso_batch_line *line, const char *error,
                                               char **out_text);

#endif
