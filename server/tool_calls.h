/* Calls of tools that a model writes into its answer, taken out of the text.
 *
 * Models are trained to write calls in one of a few formats; which one is seen by having the chat
 * template write a conversation in which a tool was called. What looks like a call and is none (no
 * JSON, or a name that was not offered) stays text: nothing that the model wrote is lost. */
#ifndef ISOMER_SERVER_TOOL_CALLS_H
#define ISOMER_SERVER_TOOL_CALLS_H

#include "server/json_writer.h"

#include <cjson/cJSON.h>
#include <isomer/model.h>

typedef struct iso_tool_format {
  const char *name;
  const char *begin; /* mark before a call; NULL: only where calls are forced, without a mark */
  const char *end;   /* mark after it; NULL: the rest of the answer is calls */
  bool bare;         /* an answer that begins with '{' is a call too, without a mark */
  const char *key;   /* of a call's arguments */
  bool is_list;      /* calls stand in a list */
  bool special;      /* `begin` is a special token, which texts leave out unless asked */
  const char *sign;  /* what only such a template writes */
} iso_tool_format;

/* By name; NULL: there is none. */
const iso_tool_format *iso_tool_format_find(const char *name);
/* Names of all, for messages: "hermes, llama3, ...". */
const char *iso_tool_format_names(void);
/* That of the model's chat template; NULL: it has none that is known. */
const iso_tool_format *iso_tool_format_of(const iso_model *model);

/* Names of the functions in a request's "tools": a copy. */
typedef struct iso_tool_names {
  char **names;
  int count;
} iso_tool_names;
/* false: out of memory. */
bool iso_tool_names_copy(const cJSON *tools, iso_tool_names *out_names);
void iso_tool_names_free(iso_tool_names *names);

/* One answer while it is read. Zero but for the first members, up to `has_one`. */
typedef struct iso_tool_scan {
  const iso_tool_format *format;
  const iso_tool_names *names;
  const char *seed; /* ids of calls are made from it and from `choice` */
  int choice;
  bool has_one;     /* calls after the first are left out */
  iso_printer held; /* what may yet be a mark or a call */
  size_t body;      /* in a call: where it begins, after blank space and its mark */
  size_t searched;  /* bytes that hold no end mark */
  bool in_call, is_bare, begun;
  int n_calls;
} iso_tool_scan;

/* The answer is a call, from its first byte to its end. */
void iso_tool_scan_force(iso_tool_scan *scan);
/* Takes the answer's next bytes; `ended`: there are no more. Appends to `content` what is text, and
 * to `calls` OpenAI's call objects (with "index" where `indexed`), all of them whole. Blank space
 * around calls is dropped. */
void iso_tool_scan_push(iso_tool_scan *scan, const char *text, size_t length, bool ended,
                        bool indexed, iso_printer *content, iso_json_writer *calls);
void iso_tool_scan_free(iso_tool_scan *scan);

#endif
