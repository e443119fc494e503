#include "tools/verify_beside.h"

#include "core/plan.h"
#include "engine/runtime.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  DEFAULT_SEQUENCES = 16,
  DRAWN = 8,       /* tokens that each draws after its prompt */
  FEW_ROWS = 8,    /* of prompts in a step, and those of all that decode */
  MOST_ROWS = 256, /* of a step */
  MOST_CONTEXT = 4096,
  UNDER_WAY = 2 /* steps at once, where they overlap */
};

/* Prompts of one row, of few, of pages and tiles that are just full and of more than one; in the
 * batch, prompts come before, between and behind sequences that decode. */
static const struct {
  int32_t n_prompt; /* 0: as many as the prompt that devices are compared on */
  int32_t arrival;  /* step */
} sequence_plan[] = {{0, 0},  {5, 0}, {1, 0},   {70, 2}, {17, 0}, {33, 3}, {2, 1},  {130, 4},
                     {64, 5}, {9, 0}, {100, 7}, {48, 9}, {3, 1},  {65, 6}, {24, 8}, {12, 2}};
enum { PLANNED = sizeof sequence_plan / sizeof sequence_plan[0] };

typedef struct sequence {
  int32_t *tokens; /* the prompt, then what was drawn alone */
  int32_t n_prompt, arrival, n_run;
  int32_t *pages;
  int32_t n_pages, adapter;
  float *logits; /* [n_drawn, vocabulary]: alone */
  bool is_apart; /* drew another token, so that nothing later can be compared */
} sequence;

/* A step: which sequences have a row of logits in it, and which of their rows that is. */
typedef struct turn {
  int32_t n_sequences, n_rows, n_logit_rows;
  int32_t sequences[ISO_VERIFY_MOST_SEQUENCES], outputs[ISO_VERIFY_MOST_SEQUENCES];
} turn;

typedef struct subject {
  const char *device;
  const iso_verify_prompt *prompt;
  iso_verify_beside *found;
  iso_runtime *runtime;
  int32_t vocabulary, n_drawn;
  sequence *sequences;
  int32_t n_sequences;
  int32_t *all_pages;
  turn under_way[UNDER_WAY];
  int32_t n_under_way;
} subject;

static iso_status no_memory(void) {
  return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for sequences beside each other");
}

/* ---- Alone ----------------------------------------------------------------------------------- */

static int32_t n_to_run(const subject *s, const sequence *one) {
  return one->n_prompt + s->n_drawn - 1; /* what is drawn last is not run */
}

/* The next `n` tokens of a sequence as a part of a batch. */
static iso_batch_sequence part_of(const sequence *one, int32_t n) {
  return (iso_batch_sequence){.n_tokens = n,
                              .tokens = one->tokens + one->n_run,
                              .position = one->n_run,
                              .pages = one->pages,
                              .n_pages = one->n_pages,
                              .no_logits = one->n_run + n < one->n_prompt,
                              .adapter = one->adapter};
}

static iso_status run_alone(subject *s, sequence *one) {
  while (one->n_run < n_to_run(s, one)) {
    int32_t left = one->n_prompt - one->n_run;
    iso_batch_sequence part = part_of(one, left < 1 ? 1 : left < MOST_ROWS ? left : MOST_ROWS);
    if (iso_tool_interrupted())
      return iso_fail(ISO_ERROR_CANCELLED, "stopped");
    ISO_TRY(iso_runtime_step(s->runtime, &part, 1));
    one->n_run += part.n_tokens;
    if (part.no_logits)
      continue;
    const float *logits = iso_runtime_logits(s->runtime, 0);
    int32_t output = one->n_run - one->n_prompt;
    memcpy(one->logits + (size_t)output * (size_t)s->vocabulary, logits,
           (size_t)s->vocabulary * sizeof *logits);
    one->tokens[one->n_run] = iso_verify_likeliest(logits, s->vocabulary).token;
  }
  return ISO_OK;
}

/* ---- Beside each other ----------------------------------------------------------------------- */

/* "sequence 3 at position 9, behind a prompt of 9 tokens, in a step of 8 sequences and 24 rows" */
static void format_place(const subject *s, const turn *at, int32_t row,
                         char out[ISO_VERIFY_PLACE]) {
  int32_t index = at->sequences[row], output = at->outputs[row];
  int32_t n_prompt = s->sequences[index].n_prompt;
  snprintf(out, ISO_VERIFY_PLACE,
           "sequence %d at position %d, %s a prompt of %d tokens, in a step of %d sequences and %d "
           "rows",
           index + 1, n_prompt + output - 1, output > 0 ? "behind" : "at the end of", n_prompt,
           at->n_sequences, at->n_rows);
}

static void note_wrong(subject *s, const turn *at, int32_t row, const char *what) {
  char place[ISO_VERIFY_PLACE];
  if (s->found->n_wrong++ > 0)
    return;
  format_place(s, at, row, place);
  snprintf(s->found->detail, sizeof s->found->detail, "%s: %s", place, what);
}

/* Compares a row of logits with that of the sequence alone, and what the device drew from it. */
static void compare_row(subject *s, const turn *at, int32_t row) {
  iso_verify_beside *found = s->found;
  sequence *one = &s->sequences[at->sequences[row]];
  const float *got = iso_runtime_logits(s->runtime, row);
  const float *want = one->logits + (size_t)at->outputs[row] * (size_t)s->vocabulary;
  int32_t drawn = iso_runtime_token(s->runtime, row);
  int32_t likeliest = iso_verify_likeliest(got, s->vocabulary).token;
  int32_t alone = one->tokens[one->n_prompt + at->outputs[row]];
  char what[128];
  if (one->is_apart)
    return;
  double error = iso_verify_row_error(got, want, s->vocabulary);
  found->n_rows++;
  found->n_agree += likeliest == alone;
  if (found->n_rows == 1 || error > found->error) {
    found->error = error;
    format_place(s, at, row, found->worst);
  }
  if (!(error <= found->tolerance)) {
    snprintf(what, sizeof what, "logits are %.2e from those that it has alone, tolerance %.2e",
             error, found->tolerance);
    note_wrong(s, at, row, what);
  } else if (iso_runtime_samples(s->runtime) &&
             (drawn < 0 || drawn >= s->vocabulary || got[drawn] < got[likeliest])) {
    snprintf(what, sizeof what, "token %d was drawn where %d is the likeliest", drawn, likeliest);
    note_wrong(s, at, row, what);
  }
  one->is_apart = iso_runtime_overlaps(s->runtime) && drawn != alone;
}

/* Waits for the step submitted first and compares it. */
static iso_status finish_turn(subject *s) {
  turn at = s->under_way[0];
  ISO_TRY(iso_runtime_wait(s->runtime));
  if (!iso_runtime_overlaps(s->runtime))
    ISO_TRY(iso_runtime_fetch_logits(s->runtime));
  for (int32_t row = 0; row < at.n_logit_rows; row++)
    compare_row(s, &at, row);
  s->under_way[0] = s->under_way[1];
  s->n_under_way--;
  return ISO_OK;
}

/* Where steps overlap, a sequence that decodes goes on with what the step before drew. */
static int32_t drawn_row(const subject *s, int32_t index) {
  const turn *before = s->n_under_way > 0 ? &s->under_way[s->n_under_way - 1] : NULL;
  for (int32_t row = 0; before && row < before->n_logit_rows; row++)
    if (before->sequences[row] == index)
      return row;
  return -1;
}

static iso_status submit_turn(subject *s, const iso_batch_sequence *parts, const int32_t *drawn,
                              const turn *at) {
  int32_t rows[ISO_VERIFY_MOST_SEQUENCES];
  if (iso_tool_interrupted())
    return iso_fail(ISO_ERROR_CANCELLED, "stopped");
  bool overlaps = iso_runtime_overlaps(s->runtime);
  ISO_TRY(iso_runtime_submit(s->runtime, parts, overlaps ? drawn : NULL, at->n_sequences));
  s->under_way[s->n_under_way++] = *at;
  s->found->n_steps += at->n_sequences > 1;
  for (int32_t row = 0; row < at->n_logit_rows; row++)
    rows[row] = row;
  if (overlaps && at->n_logit_rows > 0)
    ISO_TRY(iso_runtime_keep_logits(s->runtime, rows, at->n_logit_rows));
  return s->n_under_way == (overlaps ? UNDER_WAY : 1) ? finish_turn(s) : ISO_OK;
}

static bool is_at_work(const subject *s, const sequence *one, int32_t step) {
  return one->arrival <= step && one->n_run < n_to_run(s, one);
}

/* One step: all that decode, and of prompts what rows are left for. */
static iso_status run_turn(subject *s, int32_t step, int32_t n_rows) {
  iso_batch_sequence parts[ISO_VERIFY_MOST_SEQUENCES];
  int32_t drawn[ISO_VERIFY_MOST_SEQUENCES], left = n_rows;
  turn at = {0};
  for (int32_t i = 0; i < s->n_sequences; i++)
    left -=
        is_at_work(s, &s->sequences[i], step) && s->sequences[i].n_run >= s->sequences[i].n_prompt;
  for (int32_t i = 0; i < s->n_sequences; i++) {
    sequence *one = &s->sequences[i];
    int32_t pending = one->n_prompt - one->n_run, n = 1;
    if (!is_at_work(s, one, step) || (pending > 0 && left == 0))
      continue;
    if (pending > 0) {
      n = pending < left ? pending : left;
      left -= n;
    }
    drawn[at.n_sequences] = pending > 0 ? -1 : drawn_row(s, i);
    parts[at.n_sequences] = part_of(one, n);
    one->n_run += n;
    if (!parts[at.n_sequences++].no_logits) {
      at.sequences[at.n_logit_rows] = i;
      at.outputs[at.n_logit_rows++] = one->n_run - one->n_prompt;
    }
    at.n_rows += n;
  }
  return at.n_sequences > 0 ? submit_turn(s, parts, drawn, &at) : ISO_OK;
}

static bool are_done(const subject *s) {
  for (int32_t i = 0; i < s->n_sequences; i++)
    if (s->sequences[i].n_run < n_to_run(s, &s->sequences[i]))
      return false;
  return true;
}

/* Forgets what all sequences ran: what nobody writes again is no number. */
static iso_status start_again(subject *s) {
  for (int32_t i = 0; i < s->n_sequences; i++) {
    s->sequences[i].n_run = 0;
    s->sequences[i].is_apart = false;
  }
  return iso_executor_fill_states(iso_runtime_get_executor(s->runtime), 0xFF);
}

static iso_status run_beside(subject *s, int32_t n_rows) {
  ISO_TRY(start_again(s));
  for (int32_t step = 0; !are_done(s); step++)
    ISO_TRY(run_turn(s, step, n_rows));
  while (s->n_under_way > 0)
    ISO_TRY(finish_turn(s));
  return ISO_OK;
}

/* ---- The tolerance --------------------------------------------------------------------------- */

/* What an op was found to round by, in the step where that is most. */
static double measured_rounding(const iso_verify_result *result, const char *value) {
  double rounding = 0;
  for (uint32_t i = 0; i < result->n_entries; i++)
    if (strcmp(result->entries[i].name, value) == 0 && isfinite(result->entries[i].local.rounding))
      rounding = fmax(rounding, result->entries[i].local.rounding);
  return rounding;
}

/* Of both runs, over all ops, which may store in other types here. */
static double tolerance_of(const iso_runtime *runtime, const iso_verify_result *result) {
  const iso_graph *graph = iso_runtime_get_plan(runtime)->graph;
  iso_bindings sizes;
  double rounding2 = 0;
  for (uint32_t i = 0; i < ISO_SYMBOL_COUNT; i++)
    sizes.size[i] = 1;
  for (int32_t node = 0; node < iso_graph_node_count(graph); node++) {
    const iso_node_info *info = iso_graph_get_node(graph, node);
    iso_op_arguments arguments = {0};
    double rounding = measured_rounding(result, iso_graph_get_value(graph, info->outputs[0])->name);
    if (rounding == 0)
      continue; /* nothing that leads to logits */
    iso_plan_arguments(graph, node, &sizes, &arguments);
    rounding = fmax(rounding, iso_verify_storage_rounding(&arguments));
    rounding2 += 2 * rounding * rounding;
  }
  return fmin(ISO_VERIFY_ALLOWANCE * sqrt(rounding2), ISO_VERIFY_MOST);
}

/* Nobody looked at the steps of a sequence alone either: the first has the whole prompt, whose
 * logits are known. */
static void compare_alone(subject *s, const iso_verify_result *result) {
  const sequence *one = &s->sequences[0];
  if (one->n_prompt < s->prompt->n_tokens)
    return; /* cut off by the context */
  double error = iso_verify_row_error(one->logits, result->last_logits, s->vocabulary);
  if (error <= s->found->tolerance)
    return;
  s->found->n_wrong++;
  snprintf(s->found->detail, sizeof s->found->detail,
           "the prompt alone: logits are %.2e from those of the steps whose ops were looked at, "
           "tolerance %.2e",
           error, s->found->tolerance);
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* The tokens of sequence `index`: the prompt's first, then the rest from another one on, around. */
static iso_status make_sequence(subject *s, int32_t index, int32_t context) {
  const iso_verify_prompt *prompt = s->prompt;
  sequence *one = &s->sequences[index];
  int32_t wanted = sequence_plan[index % PLANNED].n_prompt, n = prompt->n_tokens;
  wanted = wanted > 0 ? wanted : n;
  one->n_prompt = wanted < context - s->n_drawn ? wanted : context - s->n_drawn;
  one->arrival = sequence_plan[index % PLANNED].arrival + index / PLANNED;
  one->adapter = prompt->adapters->n > 0 && index % 2 == 0;
  one->tokens = malloc((size_t)(one->n_prompt + s->n_drawn) * sizeof *one->tokens);
  one->logits = malloc((size_t)s->n_drawn * (size_t)s->vocabulary * sizeof *one->logits);
  if (!one->tokens || !one->logits)
    return no_memory();
  for (int32_t i = 0; i < one->n_prompt; i++)
    one->tokens[i] = prompt->tokens[i == 0 ? 0 : (i + 7 * index) % n];
  iso_verify_beside *found = s->found;
  found->shortest = index == 0 || one->n_prompt < found->shortest ? one->n_prompt : found->shortest;
  found->longest = one->n_prompt > found->longest ? one->n_prompt : found->longest;
  return ISO_OK;
}

static int32_t pages_of(const subject *s, const sequence *one, int32_t page_size) {
  return (one->n_prompt + s->n_drawn + page_size - 1) / page_size;
}

/* Pages in turn, from the last on: no sequence has neighbours, none is in order. */
static iso_status deal_pages(subject *s) {
  const iso_runtime_options *options = iso_runtime_get_options(s->runtime);
  int32_t next = options->n_pages, most = 0;
  for (int32_t i = 0; i < s->n_sequences; i++) {
    int32_t n = pages_of(s, &s->sequences[i], options->page_size);
    most = n > most ? n : most;
  }
  s->all_pages = malloc((size_t)most * (size_t)s->n_sequences * sizeof *s->all_pages);
  if (!s->all_pages)
    return no_memory();
  for (int32_t i = 0; i < s->n_sequences; i++)
    s->sequences[i].pages = s->all_pages + (size_t)i * (size_t)most;
  for (int32_t page = 0; page < most; page++)
    for (int32_t i = 0; i < s->n_sequences; i++)
      if (page < pages_of(s, &s->sequences[i], options->page_size))
        s->sequences[i].pages[s->sequences[i].n_pages++] = --next;
  return ISO_OK;
}

/* What a runtime has where nobody asks for more: how attention is split goes by it. */
static int32_t context_of(const iso_model *model, const iso_options *options) {
  int32_t context = iso_model_get_config(model)->context_length;
  context = context < MOST_CONTEXT ? context : MOST_CONTEXT;
  return options->context > 0 && options->context < context ? (int32_t)options->context : context;
}

static iso_status prepare(subject *s, const iso_model *model, const iso_options *options) {
  enum { PAGE_SIZE = 64 };
  int32_t context = context_of(model, options);
  s->vocabulary = iso_model_get_config(model)->vocabulary_size;
  s->n_drawn = DRAWN < context / 2 ? DRAWN : context / 2;
  s->sequences = calloc((size_t)s->n_sequences, sizeof *s->sequences);
  if (!s->sequences)
    return no_memory();
  iso_runtime_options base = {.devices = s->device,
                              .context = context,
                              .max_tokens = MOST_ROWS,
                              .max_sequences = s->n_sequences,
                              .page_size = PAGE_SIZE};
  for (int32_t i = 0; i < s->n_sequences; i++) {
    ISO_TRY(make_sequence(s, i, context));
    base.n_pages += pages_of(s, &s->sequences[i], PAGE_SIZE);
  }
  ISO_TRY(iso_tool_create_runtime(model, options, &base, &s->runtime));
  return deal_pages(s);
}

static iso_status examine(subject *s, const iso_verify_result *result) {
  iso_verify_beside *found = s->found;
  ISO_TRY(start_again(s));
  for (int32_t i = 0; i < s->n_sequences; i++)
    ISO_TRY(run_alone(s, &s->sequences[i]));
  found->tolerance = tolerance_of(s->runtime, result);
  compare_alone(s, result);
  ISO_TRY(run_beside(s, s->n_sequences + FEW_ROWS)); /* prompts in small pieces */
  ISO_TRY(run_beside(s, MOST_ROWS));                 /* and most of them whole */
  found->n_sequences = s->n_sequences;
  found->is_checked = true;
  return ISO_OK;
}

static void dismiss(subject *s) {
  for (int32_t i = 0; s->sequences && i < s->n_sequences; i++) {
    free(s->sequences[i].tokens);
    free(s->sequences[i].logits);
  }
  free(s->sequences);
  free(s->all_pages);
  iso_runtime_destroy(s->runtime);
}

iso_status iso_verify_run_beside(const iso_model *model, const iso_options *options,
                                 const char *device, const iso_verify_prompt *prompt,
                                 iso_verify_result *result) {
  subject s = {.device = device,
               .prompt = prompt,
               .found = &result->beside,
               .n_sequences =
                   options->sequences_given ? (int32_t)options->sequences : DEFAULT_SEQUENCES};
  if (s.n_sequences < 2 || context_of(model, options) < 2)
    return ISO_OK;
  if (isatty(STDERR_FILENO))
    fprintf(stderr, "\r\033[K%s: sequences beside each other", device);
  iso_status status = prepare(&s, model, options);
  if (status == ISO_OK)
    status = examine(&s, result);
  if (isatty(STDERR_FILENO))
    fprintf(stderr, "\r\033[K");
  dismiss(&s);
  return iso_fail_context(status, "%s", device);
}
