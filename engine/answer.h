/* What one sequence says: its tokens with what is known of them, and their text on the way out. */
#ifndef ISOMER_ENGINE_ANSWER_H
#define ISOMER_ENGINE_ANSWER_H

#include <isomer/engine.h>

#include "engine/grammar/grammar.h"
#include "engine/stop_strings.h"
#include "models/tokenizer/tokenizer.h"

typedef struct engine_answer {
  int32_t *tokens; /* prompt and output */
  size_t n_tokens, token_capacity;
  int32_t n_prompt;
  size_t *ends; /* of output token i: bytes of text, from the start, up to its end */
  size_t end_capacity;
  iso_token_logprob *logprobs; /* 1 + n_top an output token, where asked for: it, the likeliest */
  size_t logprob_capacity;
  int32_t n_top;
  bool has_logprobs;
  double cumulative_logprob;
  bool has_text, is_deferred;
  iso_grammar_state grammar; /* that it keeps to, if any */
  iso_detokenizer detokenizer;
  iso_stop_strings stop; /* text that may become a stop string, or is ready and not yet shown */
  size_t n_ready;        /* bytes of it that may be shown */
  iso_text text;         /* deferred: what is ready */
  size_t n_bytes, n_shown_bytes; /* of text, from the start */
  int32_t n_shown;               /* output tokens given in events */
  iso_stop_reason reason;
  bool hides_last;         /* the last token ended the answer, and is no part of it */
  const char *stop_string; /* that matched */
} engine_answer;

static inline int32_t iso_answer_n_output(const engine_answer *answer) {
  return (int32_t)answer->n_tokens - answer->n_prompt;
}

/* An empty answer to a prompt. `tokenizer` may be NULL: then there is no text. */
ISO_MUST_CHECK iso_status iso_answer_create(const int32_t *prompt, int32_t n_prompt,
                                            const iso_tokenizer *tokenizer,
                                            const iso_request *request, engine_answer *out_answer);
void iso_answer_destroy(engine_answer *answer);
/* Makes `target` a deep copy of `answer`. The first n_common tokens of both are the same, and of
 * their text, ends and logprobs: these stay where they are. A zero-initialised target has none. It
 * holds nothing after a failure. */
ISO_MUST_CHECK iso_status iso_answer_become(engine_answer *target, const engine_answer *answer,
                                            size_t n_common);
/* A copy without the prompt. */
ISO_MUST_CHECK iso_status iso_answer_copy_output(const engine_answer *answer,
                                                 engine_answer *out_copy);

/* Appends a token without its text; logprobs are 1 + n_top entries or NULL. */
ISO_MUST_CHECK iso_status iso_answer_append(engine_answer *answer, int32_t token,
                                            const iso_token_logprob *logprobs);
/* Appends the text of the last token. *out_stopped: a stop string ends the answer; with
 * `ignore_stops` none can. `piece` is scratch. */
ISO_MUST_CHECK iso_status iso_answer_append_text(engine_answer *answer, bool ignore_stops,
                                                 iso_text *piece, bool *out_stopped);
/* Makes the rest of the text ready. */
ISO_MUST_CHECK iso_status iso_answer_finish(engine_answer *answer, iso_text *piece);

#endif
