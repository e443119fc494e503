/* Drafts, and how many are worth it. */
#include "engine/engine.h"

#include <string.h>

enum { LONGEST_MATCH = 4, SHORTEST_MATCH = 2, FIRST_LIMIT = 4, LONGEST_BACKOFF = 64 };

/* What followed the latest earlier place that ends as the sequence does; longer endings first. */
static int32_t look_up(const int32_t *tokens, int32_t n, int32_t *drafts, int32_t most) {
  for (int32_t length = LONGEST_MATCH; length >= SHORTEST_MATCH; length--) {
    const int32_t *ending = tokens + n - length;
    for (int32_t at = n - length - 1; at >= 0; at--) {
      if (tokens[at] != ending[0] ||
          memcmp(tokens + at, ending, (size_t)length * sizeof *tokens) != 0)
        continue;
      int32_t follow = at + length, count = n - follow < most ? n - follow : most;
      memcpy(drafts, tokens + follow, (size_t)count * sizeof *drafts);
      return count;
    }
  }
  return 0;
}

int32_t iso_speculation_wanted(const iso_engine *engine, engine_sequence *sequence, int32_t most) {
  engine_speculation *self = &sequence->speculation;
  if (self->pause > 0) {
    self->pause--;
    return 0;
  }
  if (self->limit == 0)
    self->limit = FIRST_LIMIT;
  most = self->limit < most ? self->limit : most;
  return engine->options.max_draft_tokens < most ? engine->options.max_draft_tokens : most;
}

int32_t iso_speculation_propose(const iso_engine *engine, engine_sequence *sequence, int32_t most) {
  if (engine->options.speculation == ISO_SPECULATION_DRAFT)
    return sequence->n_proposed < most ? sequence->n_proposed : most;
  return look_up(sequence->answer.tokens, (int32_t)sequence->answer.n_tokens, sequence->drafts,
                 iso_speculation_wanted(engine, sequence, most));
}

/* All right: twice as many next time. None: a pause that doubles. */
void iso_speculation_learn(const iso_engine *engine, engine_sequence *sequence,
                           int32_t n_accepted) {
  engine_speculation *self = &sequence->speculation;
  iso_drafter_learn(sequence, n_accepted);
  if (n_accepted == 0) {
    self->backoff = self->backoff == 0 ? 1 : 2 * self->backoff;
    self->backoff = self->backoff > LONGEST_BACKOFF ? LONGEST_BACKOFF : self->backoff;
    self->pause = self->backoff;
    self->limit = 1;
    return;
  }
  self->backoff = 0;
  self->limit = n_accepted == sequence->rows.n_drafts ? 2 * self->limit : n_accepted + 1;
  if (self->limit > engine->options.max_draft_tokens)
    self->limit = engine->options.max_draft_tokens;
}
