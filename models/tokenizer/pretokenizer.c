#include "models/tokenizer/pretokenizer.h"
#include "models/tokenizer/byte_level.h"

#include <string.h>

void iso_pretokenizer_free(iso_pretokenizer *pretokenizer) {
  iso_regex_destroy(pretokenizer->regex);
  *pretokenizer = (iso_pretokenizer){0};
}

/* A piece on its way from one step to the next. */
typedef struct piece {
  const char *text; /* the text that the step splits; pieces are ranges of it */
  size_t start, end;
  bool match, pending;
  iso_text_place place; /* of `text` */
} piece;

static iso_status run_step(const iso_pretokenizer_run *run, size_t step, iso_text_place place,
                           const char *text, size_t length);

static iso_status emit(const iso_pretokenizer_run *run, size_t next_step, const piece *p) {
  if (p->start == p->end)
    return ISO_OK;
  /* A later step that always prepends does so to every piece; only "first" is lost. */
  iso_text_place place = p->start == 0 ? p->place : ISO_TEXT_AFTER_TOKEN;
  return run_step(run, next_step, place, p->text + p->start, p->end - p->start);
}

/* Takes one range of the text, a match or what lies between two, and emits what it completes. */
static iso_status add_range(const iso_pretokenizer_run *run, size_t next_step,
                            iso_split_behavior behavior, piece *p, size_t start, size_t end,
                            bool match) {
  bool join = false; /* with the pending piece */
  switch (behavior) {
  case ISO_SPLIT_REMOVED:
    if (match)
      return ISO_OK;
    break;
  case ISO_SPLIT_ISOLATED:
    break;
  case ISO_SPLIT_MERGED_WITH_PREVIOUS:
    join = match && !p->match;
    break;
  case ISO_SPLIT_MERGED_WITH_NEXT:
    join = !match && p->match;
    break;
  case ISO_SPLIT_CONTIGUOUS:
    join = match == p->match;
    break;
  }
  if (p->pending && join) {
    p->end = end;
  } else {
    if (p->pending)
      ISO_TRY(emit(run, next_step, p));
    p->start = start;
    p->end = end;
    p->pending = true;
  }
  p->match = match;
  return ISO_OK;
}

static iso_status split(const iso_pretokenizer_run *run, size_t next_step, const iso_regex *regex,
                        iso_split_behavior behavior, bool invert, iso_text_place place,
                        const char *text, size_t length) {
  piece p = {.text = text, .place = place};
  size_t done = 0;
  iso_match match = {0};
  for (;;) {
    ISO_TRY(iso_regex_next(regex, run->matcher, text, length, &match));
    size_t gap_end = match.found ? match.start : length;
    if (done != gap_end)
      ISO_TRY(add_range(run, next_step, behavior, &p, done, gap_end, invert));
    if (!match.found)
      break;
    ISO_TRY(add_range(run, next_step, behavior, &p, match.start, match.end, !invert));
    done = match.end;
  }
  return p.pending ? emit(run, next_step, &p) : ISO_OK;
}

static bool wants_prefix(const iso_pretokenizer *step, iso_text_place place) {
  return place != ISO_TEXT_CONTINUED &&
         (step->prefix == ISO_PREPEND_ALWAYS ||
          (step->prefix == ISO_PREPEND_FIRST && place == ISO_TEXT_FIRST));
}

/* The byte alphabet, as the last part of a BYTE_LEVEL step: run with the step's own scratch. */
static iso_status map_bytes(const iso_pretokenizer_run *run, size_t step, iso_text_place place,
                            const char *text, size_t length) {
  iso_text *mapped = &run->scratch[2 * step];
  mapped->length = 0;
  ISO_TRY(iso_byte_level_encode(text, length, mapped));
  return run_step(run, step + 1, place, mapped->data, mapped->length);
}

typedef struct byte_level_pieces {
  const iso_pretokenizer_run *run;
  size_t step;
} byte_level_pieces;

static iso_status map_piece(void *context, const char *text, size_t length) {
  byte_level_pieces *pieces = context;
  return map_bytes(pieces->run, pieces->step, ISO_TEXT_AFTER_TOKEN, text, length);
}

static iso_status run_byte_level(const iso_pretokenizer_run *run, size_t step, iso_text_place place,
                                 const char *text, size_t length) {
  const iso_pretokenizer *s = &run->steps[step];
  if (wants_prefix(s, place) && text[0] != ' ') {
    iso_text *prefixed = &run->scratch[2 * step + 1];
    prefixed->length = 0;
    ISO_TRY(iso_text_append(prefixed, " ", 1));
    ISO_TRY(iso_text_append(prefixed, text, length));
    text = prefixed->data;
    length = prefixed->length;
  }
  if (!s->regex)
    return map_bytes(run, step, place, text, length);
  byte_level_pieces pieces = {run, step};
  iso_pretokenizer_run inner = {
      .matcher = run->matcher, .sink = map_piece, .sink_context = &pieces};
  return split(&inner, 0, s->regex, ISO_SPLIT_ISOLATED, false, place, text, length);
}

static iso_status run_metaspace(const iso_pretokenizer_run *run, size_t step, iso_text_place place,
                                const char *text, size_t length) {
  const iso_pretokenizer *s = &run->steps[step];
  iso_text *out = &run->scratch[2 * step];
  out->length = 0;
  bool starts = text[0] == ' ' || (length >= s->replacement_length &&
                                   memcmp(text, s->replacement, s->replacement_length) == 0);
  if (wants_prefix(s, place) && !starts)
    ISO_TRY(iso_text_append(out, s->replacement, s->replacement_length));
  for (size_t i = 0; i < length; i++) {
    if (text[i] == ' ')
      ISO_TRY(iso_text_append(out, s->replacement, s->replacement_length));
    else
      ISO_TRY(iso_text_append(out, text + i, 1));
  }
  if (s->regex)
    return split(run, step + 1, s->regex, ISO_SPLIT_MERGED_WITH_NEXT, false, place, out->data,
                 out->length);
  return run_step(run, step + 1, place, out->data, out->length);
}

static iso_status run_step(const iso_pretokenizer_run *run, size_t step, iso_text_place place,
                           const char *text, size_t length) {
  if (step >= run->count)
    return run->sink(run->sink_context, text, length);
  const iso_pretokenizer *s = &run->steps[step];
  switch (s->kind) {
  case ISO_PRETOKENIZER_SPLIT:
    return split(run, step + 1, s->regex, s->behavior, s->invert, place, text, length);
  case ISO_PRETOKENIZER_BYTE_LEVEL:
    return run_byte_level(run, step, place, text, length);
  case ISO_PRETOKENIZER_METASPACE:
    return run_metaspace(run, step, place, text, length);
  }
  return iso_fail(ISO_ERROR_INTERNAL, "tokenizer: pre-tokenizer %d", (int)s->kind);
}

iso_status iso_pretokenize(const iso_pretokenizer_run *run, iso_text_place place, const char *text,
                           size_t length) {
  return length ? run_step(run, 0, place, text, length) : ISO_OK;
}
