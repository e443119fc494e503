/* Pieces of answers that several APIs share. */
#include "server/job.h"

#include "models/tokenizer/tokenizer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void iso_sse_begin(iso_json_writer *writer) {
  iso_printer_append(&writer->text, "data: ", 6);
  writer->needs_comma = false;
}

void iso_sse_end(iso_json_writer *writer) { iso_printer_append(&writer->text, "\n\n", 2); }

void iso_sse_done(iso_json_writer *writer) {
  iso_printer_append(&writer->text, "data: [DONE]\n\n", 14);
}

const char *iso_token_bytes(const iso_model *model, int32_t token, size_t *out_length) {
  const iso_tokenizer *tokenizer = iso_model_get_tokenizer(model);
  const char *bytes = iso_tokenizer_token_bytes(tokenizer, token, out_length);
  if (!bytes || *out_length == 0)
    bytes = iso_tokenizer_token_text(tokenizer, token, out_length);
  if (!bytes)
    *out_length = 0;
  return bytes ? bytes : "";
}

void iso_write_token(const iso_model *model, iso_json_writer *writer, const char *key,
                     int32_t token) {
  size_t length;
  const char *bytes = iso_token_bytes(model, token, &length);
  iso_json_text(writer, key, bytes, length);
}

void iso_write_logprob(iso_json_writer *writer, const char *key, float logprob) {
  iso_json_number(writer, key, logprob <= -9999.0F ? -9999.0 : (double)logprob);
}

const char *iso_finish_reason(iso_stop_reason reason) {
  switch (reason) {
  case ISO_STOP_LENGTH:
    return "length";
  case ISO_STOP_CANCELLED:
    return "cancelled";
  case ISO_STOP_END:
  case ISO_STOP_STRING:
    break;
  }
  return "stop";
}

void iso_write_usage(const iso_job *job, iso_json_writer *w) {
  const iso_usage *usage = &job->usage;
  iso_json_begin(w, "usage", '{');
  iso_json_int(w, "prompt_tokens", usage->n_prompt);
  iso_json_int(w, "total_tokens", (int64_t)usage->n_prompt + usage->n_output);
  if (!job->request.embed) {
    iso_json_int(w, "completion_tokens", usage->n_output);
    iso_json_begin(w, "prompt_tokens_details", '{');
    iso_json_int(w, "cached_tokens", usage->n_cached);
    iso_json_end(w, '}');
  }
  iso_json_end(w, '}');
}

static void write_usage_so_far(const iso_job *job, iso_json_writer *w) {
  int64_t n_prompt = 0, n_output = 0;
  for (int i = 0; i < job->n_prompts; i++)
    n_prompt += job->prompts[i].count;
  for (int i = 0; i < job->n_answers; i++)
    n_output += job->answers[i].n_tokens;
  iso_json_begin(w, "usage", '{');
  iso_json_int(w, "prompt_tokens", n_prompt);
  iso_json_int(w, "total_tokens", n_prompt + n_output);
  iso_json_int(w, "completion_tokens", n_output);
  iso_json_end(w, '}');
}

void iso_begin_object(const iso_job *job, const char *object, iso_json_writer *w) {
  iso_json_begin(w, NULL, '{');
  iso_json_string(w, "id", job->id);
  iso_json_string(w, "object", object);
  iso_json_int(w, "created", (int64_t)job->created);
  iso_json_string(w, "model", iso_served_name(job->server, job->adapter));
  iso_json_string(w, "system_fingerprint", "isomer-" ISO_VERSION_STRING);
}

void iso_begin_chunk(const iso_job *job, const iso_answer *answer, iso_json_writer *w) {
  iso_sse_begin(w);
  iso_begin_object(job, job->format->chunk_object, w);
  iso_json_begin(w, "choices", '[');
  iso_json_begin(w, NULL, '{');
  iso_json_int(w, "index", answer->index);
}

void iso_end_chunk(const iso_job *job, const char *finish, iso_json_writer *w) {
  iso_json_string(w, "finish_reason", finish);
  iso_json_end(w, '}');
  iso_json_end(w, ']');
  if (job->include_usage && job->usage_in_each)
    write_usage_so_far(job, w);
  else if (job->include_usage)
    iso_json_null(w, "usage");
  iso_json_end(w, '}');
  iso_sse_end(w);
}

void iso_write_last(iso_job *job, iso_json_writer *w) {
  if (job->include_usage) {
    iso_sse_begin(w);
    iso_begin_object(job, job->format->chunk_object, w);
    iso_json_begin(w, "choices", '[');
    iso_json_end(w, ']');
    iso_write_usage(job, w);
    iso_json_end(w, '}');
    iso_sse_end(w);
  }
  iso_sse_done(w);
}

const iso_prompt *iso_answer_prompt(const iso_job *job, const iso_answer *answer) {
  return &job->prompts[answer->index / (job->n_answers / job->n_prompts)];
}

void iso_write_answer_text(const iso_job *job, const iso_answer *answer, const char *key,
                           iso_json_writer *writer) {
  const iso_prompt *prompt = iso_answer_prompt(job, answer);
  iso_printer text = {0};
  if (prompt->text)
    iso_printer_append(&text, prompt->text, prompt->text_length);
  for (const iso_event_letter *at = answer->first; at; at = at->next)
    if (at->event.kind == ISO_EVENT_TEXT)
      iso_printer_append(&text, at->event.text, at->event.length);
  writer->text.failed |= text.failed;
  iso_json_text(writer, key, text.data ? text.data : "", text.size);
  free(text.data);
}
