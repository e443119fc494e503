/* Drafts, and how many are worth it. A draft costs a row and is right with some chance; a chain of
 * k drafts brings as many tokens as are right before the first wrong one. The chance is learned,
 * for each sequence and kind of draft, the price of a row is set by the kind of device, and as many
 * are tried as bring most tokens in the time they take. Nothing here asks what steps did take:
 * where kernels round otherwise for other numbers of rows, a request would draw another text each
 * time. */
#include "engine/engine.h"

/* Chances before anything is known, worth four drafts: of continuations of 1, 2, 3 and 4, 5 to 8
 * and more tokens that repeat, from the second kind on; each counts as one kind less where most
 * places that end alike go on otherwise; and of a draft model's tokens. As seen in 71 answers. */
static const float first_chances[ENGINE_DRAFT_KINDS] = {0.12f, 0.25f, 0.53f, 0.75f,
                                                        0.87f, 0.96f, 0.8f};
enum { DRAFT_MODEL_KIND = ENGINE_DRAFT_KINDS - 1 };
static const float first_tries = 4, kept = 0.9f;
/* What was learned of a kind fades while it is not tried, so that it is some day. */
static const float faded = 0.01f;

static int kind_of_match(iso_ngram_match match) {
  int32_t length = match.length;
  int kind = length < 3 ? length : length < 5 ? 3 : length < 9 ? 4 : 5;
  return match.is_disputed ? kind - 1 : kind;
}

/* ---- How many ------------------------------------------------------------------------------ */

/* Measured: a processor's second to fourth row are 0.05 to 0.15 of a step each for a model of 135M
 * with two threads (AVX-512, Q4_1), which wait for its weights anyway, the next ones 0.15 to 0.3;
 * on AVX2 0.07 to 0.5; all 0.25 to 0.4 with one thread, and of large models, which do little else
 * than multiply. On an H200 the second is 0.15 (8B, BF16) and the next ones are 0.02; of codes that
 * are decoded for each row (8B, Q4_0), the second is 0.39 and the next are 0.17 to 0.25. There a
 * row alone also has kernels that begin before others end: more take 1.1 steps longer (135M, Q4_1),
 * as long as it takes to read some 70 MB more. */
engine_row_price iso_speculation_price(const iso_device_list *devices, engine_weights weights) {
  static const engine_row_price of_cpu = {0, 0.25, 0.11}, of_floats = {0.12, 0.03, 0},
                                of_codes = {0.2, 0.2, 0};
  static const double LAUNCH_BYTES = 70e6;
  for (uint32_t i = 0; i < devices->n_named; i++)
    if (devices->devices[i]->info.kind == ISO_DEVICE_CPU)
      return of_cpu;
  double bytes = (double)weights.bytes;
  engine_row_price price = bytes < 1.5 * (double)weights.elements ? of_codes : of_floats;
  price.first += bytes > LAUNCH_BYTES ? LAUNCH_BYTES / bytes : 1;
  return price;
}

/* A step of n_rows, in steps of one. */
static double price_of(const engine_row_price *price, int32_t n_rows) {
  int32_t more = n_rows - 1, cheaper = more < 3 ? more : 3;
  return more > 0 ? 1 + price->first + more * price->each - cheaper * price->spared : 1;
}

static engine_draft_chance *chance_of(engine_sequence *sequence, int kind) {
  engine_draft_chance *chance = &sequence->speculation.chances[kind];
  if (chance->n_tried == 0)
    *chance = (engine_draft_chance){first_chances[kind] * first_tries, first_tries};
  return chance;
}

/* The number of drafts of a kind, at most `most`, that makes the step's tokens a second most. */
static int32_t choose(const iso_engine *engine, engine_sequence *sequence, int kind, int32_t most) {
  engine_draft_chance *chance = chance_of(sequence, kind);
  const engine_row_price *price = &engine->row_price;
  int32_t n_rows = (engine->n_decoding > 0 ? engine->n_decoding : 1) + engine->n_drafting;
  double now = price_of(price, n_rows);
  double draft = kind == DRAFT_MODEL_KIND ? engine->drafter.price * now / n_rows : 0;
  double right = (double)chance->n_right / (double)chance->n_tried, all_right = 1, tokens = n_rows;
  double best = tokens / now;
  int32_t n = 0;
  most = most < engine->options.max_draft_tokens ? most : engine->options.max_draft_tokens;
  for (int32_t k = 1; k <= most; k++) {
    all_right *= right;
    tokens += all_right;
    double rate = tokens / (price_of(price, n_rows + k) + k * draft);
    if (rate > best) {
      best = rate;
      n = k;
    }
  }
  if (n == 0) {
    chance->n_right += faded * (first_chances[kind] * first_tries - chance->n_right);
    chance->n_tried += faded * (first_tries - chance->n_tried);
  }
  return n;
}

int32_t iso_speculation_wanted(const iso_engine *engine, engine_sequence *sequence, int32_t most) {
  return choose(engine, sequence, DRAFT_MODEL_KIND, most);
}

void iso_speculation_learn(engine_sequence *sequence, int32_t n_accepted) {
  engine_draft_chance *chance = chance_of(sequence, sequence->speculation.kind);
  iso_drafter_learn(sequence, n_accepted);
  chance->n_right = kept * chance->n_right + (float)n_accepted;
  chance->n_tried = kept * chance->n_tried + (float)n_accepted +
                    (n_accepted < sequence->rows.n_drafts ? 1.0f : 0.0f);
}

/* ---- From the sequence's own tokens -------------------------------------------------------- */

int32_t iso_speculation_propose(const iso_engine *engine, engine_sequence *sequence, int32_t most) {
  iso_ngrams *ngrams = &sequence->speculation.ngrams;
  const int32_t *tokens = sequence->answer.tokens;
  int32_t n = (int32_t)sequence->answer.n_tokens;
  if (engine->options.speculation == ISO_SPECULATION_DRAFT) {
    sequence->speculation.kind = DRAFT_MODEL_KIND;
    return sequence->n_proposed < most ? sequence->n_proposed : most;
  }
  if (iso_ngrams_add(ngrams, tokens, n) != ISO_OK)
    return 0; /* without memory for drafts there are none */
  iso_ngram_match match = iso_ngrams_find(ngrams, tokens);
  int32_t from = match.place;
  if (from == 0)
    return 0;
  sequence->speculation.kind = kind_of_match(match);
  int32_t n_drafts = choose(engine, sequence, sequence->speculation.kind, most);
  /* What would follow behind the end is what is drafted: text that repeats itself goes on so. */
  for (int32_t i = 0; i < n_drafts; i++)
    sequence->drafts[i] = from + i < n ? tokens[from + i] : sequence->drafts[from + i - n];
  return n_drafts;
}
