/* A job: one HTTP request that needs the engine, from its body to the end of its answer.
 *
 * Its body is read into prompts ("prepared") on the loop's thread, or on a worker when it is large.
 * Each prompt is one engine request, a part; events come back as letters. A job outlives its
 * exchange when the client leaves: its parts are cancelled, and it is freed after their last
 * events. What differs between the APIs is a format: how a body is read and an answer written. */
#ifndef ISOMER_SERVER_JOB_H
#define ISOMER_SERVER_JOB_H

#include "models/tokenizer/tokenizer.h"
#include "server/fields.h"
#include "server/tool_calls.h"

#include <stdatomic.h>

typedef struct iso_job iso_job;

/* An event of the engine, copied: what its pointers name is in the same allocation. */
typedef struct iso_event_letter {
  iso_letter letter;
  struct iso_part *part;
  struct iso_event_letter *next; /* of the same answer */
  iso_event event;
  size_t bytes;
} iso_event_letter;

typedef struct iso_part {
  iso_job *job;
  int index;
  iso_request_id id; /* 0: not submitted */
  bool done;
  atomic_bool asked_pause; /* the engine was told to wait, and not to go on since */
  iso_event_letter *last;  /* kept for DONE, so that it never needs memory it cannot get */
  iso_usage usage;
  float *embedding;
  int32_t n_embedding;
} iso_part;

typedef struct iso_prompt {
  int32_t *ids;
  int32_t count;
  char *text; /* with `echo`, and where the format says so; else NULL */
  size_t text_length;
} iso_prompt;

/* One choice of one prompt. */
typedef struct iso_answer {
  int index;                      /* in the answer as a whole: prompt * n + choice */
  iso_event_letter *first, *last; /* its events, unless they were streamed and dropped */
  bool begun;
  bool ended;        /* a search may end with fewer answers than were asked for: others never do */
  double last_token; /* iso_http_now() of the latest */
  iso_stop_reason reason;
  const char *stop; /* with ISO_STOP_STRING; belongs to the CHOICE event */
  int32_t n_tokens;
  iso_tool_scan *scan; /* takes calls out of the text; NULL: nobody asked */
  /* For completions: characters of tokens written so far, and what reads the first of them. */
  size_t text_offset;
  iso_detokenizer reader;
} iso_answer;

typedef struct iso_format {
  iso_body body;
  const char *id_prefix;
  const char *object, *chunk_object; /* OpenAI's names of an answer and of a piece of one */
  bool keep_events;                  /* also of streamed answers */
  /* Reads job->root and job->fields into job->request and prompts. Any thread. */
  bool (*prepare)(iso_job *job, iso_api_error *refusal);
  void (*write_result)(iso_job *job, iso_json_writer *writer);
  /* Frames of one event, perhaps none; CHOICE events too. */
  void (*write_event)(iso_job *job, iso_answer *answer, const iso_event *event,
                      iso_json_writer *writer);
  void (*write_last)(iso_job *job, iso_json_writer *writer);
} iso_format;

struct iso_job {
  iso_work work;
  iso_letter prepared;
  iso_server *server;
  iso_exchange *exchange; /* NULL once answered, or when the client has left */
  const iso_format *format;
  char *body;
  size_t body_length;
  cJSON *root; /* until submitted, and with it what `fields` borrows from it */
  iso_fields fields;
  bool always_stream, stream, base64;
  bool include_usage, usage_in_each; /* a last piece of the stream, or all of them */
  int32_t adapter;                   /* that "model" names; 0: the model alone */
  bool prompt_only;                  /* "max_tokens": 0: the prompt alone is answered */
  bool is_prepared;
  iso_api_error refusal;
  iso_request request; /* all but the prompt */
  const char **stop;
  int32_t *stop_tokens;
  iso_logit_bias *logit_bias;
  const iso_tool_format *tool_format;                          /* NULL: calls are not looked for */
  enum { FORCED_NOTHING, FORCED_ANY, FORCED_FUNCTION } forced; /* the answer is a call */
  iso_tool_names tool_names;
  iso_tool_scan *scans; /* n_answers, or NULL */
  iso_prompt *prompts;
  int n_prompts;
  iso_part *parts; /* n_prompts */
  iso_answer *answers;
  int n_answers; /* n_prompts * n */
  int n_submitted;
  int n_open;  /* parts submitted and not done */
  int longest; /* prompt */
  iso_usage usage;
  char id[64];
  time_t created;
  bool streaming; /* the answer's head is sent */
  atomic_bool blocked;
  atomic_size_t queued_bytes; /* in letters on their way */
};

/* Takes the exchange over. `always_stream`: whatever the body says. */
void iso_job_start(iso_server *server, iso_exchange *exchange, const iso_format *format,
                   bool always_stream);

/* The field that the prompt is in. */
const char *iso_job_prompt_name(const iso_job *job);
/* For prepare(). Any thread. */
bool iso_job_set_request(iso_job *job, iso_api_error *refusal);
bool iso_job_add_text(iso_job *job, const char *text, size_t length, uint32_t flags, bool keep_text,
                      iso_api_error *refusal);
bool iso_job_add_ids(iso_job *job, int32_t *ids, size_t count, bool keep_text,
                     iso_api_error *refusal);
/* A string, an array of strings, of ids, or of arrays of ids. */
bool iso_job_add_prompts(iso_job *job, const cJSON *prompt, const char *name, bool keep_text,
                         iso_api_error *refusal);
/* Ids from a JSON array, malloc'ed. */
bool iso_read_ids(const cJSON *array, const iso_model *model, const char *name, int32_t **out_ids,
                  size_t *out_count, iso_api_error *refusal);
/* What the answer is held to, after iso_job_set_request(): "response_format", TGI's "grammar", or a
 * call of the function `name`, of any where it is NULL. */
bool iso_job_set_response_format(iso_job *job, iso_api_error *refusal);
bool iso_job_set_tgi_grammar(iso_job *job, iso_api_error *refusal);
bool iso_job_force_call(iso_job *job, const char *name, iso_api_error *refusal);
/* Where a function is "strict", calls that the model chooses to make are held to their schemas. */
bool iso_job_hold_calls(iso_job *job, iso_api_error *refusal);
/* "stream_options" into job->include_usage and usage_in_each. */
bool iso_read_stream_options(iso_job *job, iso_api_error *refusal);
/* Ids of fields->messages through the chat template, with calls as `format` writes them where that
 * has no place for any; with `must_show_tools` refused where it says the same without
 * fields->tools. */
bool iso_chat_tokenize(const iso_model *model, const iso_tool_format *format,
                       const iso_fields *fields, bool must_show_tools, int32_t **out_ids,
                       size_t *out_count, iso_api_error *refusal);

/* For writers. */
void iso_sse_begin(iso_json_writer *writer);
void iso_sse_end(iso_json_writer *writer);
void iso_sse_done(iso_json_writer *writer);
/* What a token reads as; may be part of a code point. */
const char *iso_token_bytes(const iso_model *model, int32_t token, size_t *out_length);
void iso_write_token(const iso_model *model, iso_json_writer *writer, const char *key,
                     int32_t token);
/* A log probability that JSON can hold: what the model excludes is -9999, NaN is null. */
void iso_write_logprob(iso_json_writer *writer, const char *key, float logprob);
const char *iso_finish_reason(iso_stop_reason reason);
void iso_write_usage(const iso_job *job, iso_json_writer *writer);
/* Opens an answer, or a piece of one, with what OpenAI's all begin with. */
void iso_begin_object(const iso_job *job, const char *object, iso_json_writer *writer);
/* The two ends of a piece of OpenAI's streams with one choice, whose content comes between;
 * `finish` NULL: it goes on. */
void iso_begin_chunk(const iso_job *job, const iso_answer *answer, iso_json_writer *writer);
void iso_end_chunk(const iso_job *job, const char *finish, iso_json_writer *writer);
/* The end of OpenAI's streams: the usage where it was asked for, and [DONE]. */
void iso_write_last(iso_job *job, iso_json_writer *writer);
/* All text of an answer, escaped, after `prefix`. */
void iso_write_answer_text(const iso_job *job, const iso_answer *answer, const char *key,
                           iso_json_writer *writer);
const iso_prompt *iso_answer_prompt(const iso_job *job, const iso_answer *answer);

extern const iso_format iso_format_chat, iso_format_completion, iso_format_vllm, iso_format_tgi,
    iso_format_tgi_root, iso_format_embedding;

#endif
