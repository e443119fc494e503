#include "engine/answer.h"

#include <stdlib.h>
#include <string.h>

iso_status iso_answer_create(const int32_t *prompt, int32_t n_prompt,
                             const iso_tokenizer *tokenizer, const iso_request *request,
                             engine_answer *out_answer) {
  bool searches = request->beam_width > 0 || request->best_of > request->n;
  engine_answer answer = {.n_prompt = n_prompt,
                          .n_top = request->n_top_logprobs,
                          .has_logprobs = request->logprobs || searches,
                          .has_text = tokenizer != NULL,
                          .is_deferred = searches,
                          .reason = ISO_STOP_LENGTH};
  /* The first tokens of the output find room, so that a short answer grows nothing. */
  ISO_TRY(iso_array_grow((void **)&answer.tokens, &answer.token_capacity, (size_t)n_prompt + 64,
                         sizeof *answer.tokens));
  memcpy(answer.tokens, prompt, (size_t)n_prompt * sizeof *prompt);
  answer.n_tokens = (size_t)n_prompt;
  if (tokenizer)
    iso_detokenizer_init(&answer.detokenizer, tokenizer,
                         request->show_special ? 0 : ISO_DETOKENIZE_SKIP_SPECIAL);
  if (tokenizer && request->goes_on)
    iso_detokenizer_go_on(&answer.detokenizer, prompt, (size_t)n_prompt);
  iso_stop_strings_init(&answer.stop, request->stop, request->n_stop);
  iso_status status =
      request->grammar ? iso_grammar_start(request->grammar, &answer.grammar) : ISO_OK;
  *out_answer = answer;
  return status;
}

void iso_answer_destroy(engine_answer *answer) {
  iso_grammar_stop(&answer->grammar);
  free(answer->tokens);
  free(answer->ends);
  free(answer->logprobs);
  iso_stop_strings_destroy(&answer->stop);
  iso_text_free(&answer->text);
  *answer = (engine_answer){0};
}

/* Copies elements from `first` on. */
static iso_status copy_array(void **target, size_t *capacity, const void *source, size_t first,
                             size_t count, size_t element) {
  if (count <= first)
    return ISO_OK;
  ISO_TRY(iso_array_grow(target, capacity, count, element));
  memcpy((char *)*target + first * element, (const char *)source + first * element,
         (count - first) * element);
  return ISO_OK;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static iso_status copy_arrays(const engine_answer *answer, size_t n_common, engine_answer *copy) {
  size_t n_output = (size_t)iso_answer_n_output(answer), n_prompt = (size_t)answer->n_prompt;
  size_t first = n_common > n_prompt ? n_common - n_prompt : 0; /* of the output */
  ISO_TRY(copy_array((void **)&copy->tokens, &copy->token_capacity, answer->tokens, n_common,
                     answer->n_tokens, sizeof *answer->tokens));
  if (answer->ends)
    ISO_TRY(copy_array((void **)&copy->ends, &copy->end_capacity, answer->ends, first, n_output,
                       sizeof *answer->ends));
  /* With the entry after the last, where a beam keeps what it has noted for its next token. */
  size_t each = 1 + (size_t)answer->n_top, n_logprobs = (n_output + 1) * each;
  if (n_logprobs > answer->logprob_capacity)
    n_logprobs = answer->logprobs ? n_output * each : 0;
  ISO_TRY(copy_array((void **)&copy->logprobs, &copy->logprob_capacity, answer->logprobs,
                     first * each, n_logprobs, sizeof *answer->logprobs));
  ISO_TRY(iso_grammar_clone(&answer->grammar, &copy->grammar));
  ISO_TRY(copy_array((void **)&copy->stop.held, &copy->stop.capacity, answer->stop.held, 0,
                     answer->stop.length, 1));
  size_t said = first > 0 ? answer->ends[first - 1] : 0;
  copy->text.length = smaller(said, smaller(copy->text.length, answer->text.length));
  size_t n_bytes = answer->text.length - copy->text.length;
  return n_bytes > 0 ? iso_text_append(&copy->text, answer->text.data + copy->text.length, n_bytes)
                     : ISO_OK;
}

iso_status iso_answer_become(engine_answer *target, const engine_answer *answer, size_t n_common) {
  engine_answer copy = *answer;
  iso_grammar_stop(&target->grammar);
  copy.grammar = (iso_grammar_state){0};
  copy.tokens = target->tokens;
  copy.token_capacity = target->token_capacity;
  copy.ends = target->ends;
  copy.end_capacity = target->end_capacity;
  copy.logprobs = target->logprobs;
  copy.logprob_capacity = target->logprob_capacity;
  copy.stop.held = target->stop.held;
  copy.stop.capacity = target->stop.capacity;
  copy.text = target->text;
  iso_status status = copy_arrays(answer, n_common, &copy);
  if (status != ISO_OK)
    iso_answer_destroy(&copy);
  *target = copy;
  return status;
}

iso_status iso_answer_copy_output(const engine_answer *answer, engine_answer *out_copy) {
  engine_answer output = *answer;
  output.tokens += answer->n_prompt;
  output.n_tokens -= (size_t)answer->n_prompt;
  output.n_prompt = 0;
  *out_copy = (engine_answer){0};
  return iso_answer_become(out_copy, &output, 0);
}

iso_status iso_answer_append(engine_answer *answer, int32_t token,
                             const iso_token_logprob *logprobs) {
  size_t n_output = (size_t)iso_answer_n_output(answer);
  ISO_TRY(iso_array_grow((void **)&answer->tokens, &answer->token_capacity, answer->n_tokens + 1,
                         sizeof *answer->tokens));
  ISO_TRY(iso_array_grow((void **)&answer->ends, &answer->end_capacity, n_output + 1,
                         sizeof *answer->ends));
  if (logprobs) {
    size_t each = 1 + (size_t)answer->n_top;
    ISO_TRY(iso_array_grow((void **)&answer->logprobs, &answer->logprob_capacity,
                           (n_output + 1) * each, sizeof *answer->logprobs));
    memcpy(answer->logprobs + n_output * each, logprobs, each * sizeof *logprobs);
    answer->cumulative_logprob += (double)logprobs->logprob;
  }
  answer->tokens[answer->n_tokens++] = token;
  answer->ends[n_output] = answer->n_bytes;
  return ISO_OK;
}

/* Moves what is ready to where deferred answers collect it. */
static iso_status collect(engine_answer *answer) {
  if (!answer->is_deferred)
    return ISO_OK;
  ISO_TRY(iso_text_append(&answer->text, answer->stop.held, answer->n_ready));
  iso_stop_strings_shown(&answer->stop, answer->n_ready);
  answer->n_ready = 0;
  return ISO_OK;
}

static const char *matched(const engine_answer *answer) {
  const iso_stop_strings *stop = &answer->stop;
  const char *at = stop->held + answer->n_ready;
  size_t left = stop->length - answer->n_ready;
  for (int32_t i = 0; i < stop->n_strings; i++) {
    size_t n = strlen(stop->strings[i]);
    if (n > 0 && n <= left && memcmp(at, stop->strings[i], n) == 0)
      return stop->strings[i];
  }
  return "";
}

iso_status iso_answer_append_text(engine_answer *answer, bool ignore_stops, iso_text *piece,
                                  bool *out_stopped) {
  int32_t token = answer->tokens[answer->n_tokens - 1];
  *out_stopped = false;
  /* Embedding tables may have padding rows that no token stands for. */
  if (!answer->has_text || token >= iso_tokenizer_vocabulary_size(answer->detokenizer.tokenizer))
    return ISO_OK;
  piece->length = 0;
  ISO_TRY(iso_detokenizer_push(&answer->detokenizer, token, piece));
  int32_t n_strings = answer->stop.n_strings;
  answer->stop.n_strings = ignore_stops ? 0 : n_strings;
  iso_status status = iso_stop_strings_add(&answer->stop, piece->data, piece->length,
                                           &answer->n_ready, out_stopped);
  answer->stop.n_strings = n_strings;
  ISO_TRY(status);
  answer->n_bytes += piece->length;
  answer->ends[iso_answer_n_output(answer) - 1] = answer->n_bytes;
  if (*out_stopped) {
    answer->reason = ISO_STOP_STRING;
    answer->stop_string = matched(answer);
  }
  return collect(answer);
}

iso_status iso_answer_finish(engine_answer *answer, iso_text *piece) {
  if (!answer->has_text || answer->reason == ISO_STOP_STRING)
    return ISO_OK;
  piece->length = 0;
  ISO_TRY(iso_detokenizer_finish(&answer->detokenizer, piece));
  bool stopped;
  ISO_TRY(
      iso_stop_strings_add(&answer->stop, piece->data, piece->length, &answer->n_ready, &stopped));
  answer->n_bytes += piece->length;
  if (!stopped)
    answer->n_ready = answer->stop.length;
  return collect(answer);
}
