/* The engine's parts and what they share.
 *
 *   engine.c     life, the thread, one step from end to end
 *   queue.c      the way in: submissions, cancellations and resumptions, from any thread
 *   request.c    a request: checked, copied, ended
 *   scheduler.c  which rows run in a step, and whose pages make room
 *   sequence.c   a sequence's pages: taken, shared, copied on write, swapped, let go
 *   sampler.c    the next token of a row
 *   thread_pool.c  threads for what the host draws
 *   choices.c    what a step's rows mean: prompts done, tokens taken, choices ended
 *   beam.c       beam search
 *   speculation.c  how many drafts are worth it, and drafts from a sequence's own tokens
 *   ngrams.c     where a sequence has said before what it ends in
 *   drafter.c    drafts from a smaller model
 *   answer.c     tokens and text on their way out, stop strings
 *   grammar/     answers that are held to a JSON schema
 *   event.c      events
 *
 * A sequence is a row of tokens; those whose keys and values are in its pages are cached, the rest
 * is what it has to run. A prompt, a decode step and a restart after preemption differ in nothing
 * but the number of tokens not cached.
 *
 * Where the device works beside the host, one step is under way while the next is planned: as if
 * its rows were cached and its tokens drawn, which the device hands from step to step. A sequence
 * that turns out to have ended has had a row too many, which is dropped. So are the rows behind a
 * token that the device drew and the host, which knows the penalties or the grammar, draws
 * otherwise. Steps that bring beams, choices of one prompt or drafts are not left under way.
 *
 * Everything here runs on the thread that steps, except queue.c and the checks of request.c. */
#ifndef ISOMER_ENGINE_ENGINE_H
#define ISOMER_ENGINE_ENGINE_H

#include <isomer/engine.h>
#include <pthread.h>

#include "engine/answer.h"
#include "engine/drafter.h"
#include "engine/grammar/grammar.h"
#include "engine/kv_pages.h"
#include "engine/ngrams.h"
#include "engine/page_pool.h"
#include "engine/runtime.h"
#include "engine/swap.h"
#include "engine/thread_pool.h"
#include "ops/sampling.h"

typedef struct engine_request engine_request;

enum {
  ENGINE_MAX_CHOICES = 128, /* n, best_of, beam_width */
  ENGINE_MAX_TOP_LOGPROBS = 20,
  ENGINE_MAX_STOPS = 64,
  ENGINE_MAX_DRAFTS = 32,
  ENGINE_DRAFT_KINDS = 7
};
/* A priority of p counts as coming p times this later, an hour at most: so nobody waits for ever.
 */
#define ENGINE_PRIORITY_US INT64_C(10000000)
enum { ENGINE_MOST_PRIORITY = 360 };

typedef enum engine_sequence_state {
  SEQUENCE_BLOCKED, /* waits for the first sequence to run the prompt that they share */
  SEQUENCE_READY,   /* has tokens to run */
  SEQUENCE_HELD,    /* a beam that waits for the others of its step */
  SEQUENCE_ENDED
} engine_sequence_state;

/* A continuation of a beam. */
typedef struct beam_candidate {
  int32_t token;
  float logprob;  /* of the token */
  double sum;     /* of the beam with it */
  int32_t parent; /* index of the beam */
} beam_candidate;

/* What rows beyond the first add to a step, as shares of a step of one row: on some devices a few
 * rows more are nearly free but for other kernels that they take, on others each has its price. */
typedef struct engine_row_price {
  double first; /* of the second row, besides its own: once */
  double each;
  double spared; /* less than that, of each of the first three beyond one */
} engine_row_price;

/* Of a model: what its rows cost goes by these. */
typedef struct engine_weights {
  uint64_t bytes, elements;
} engine_weights;

/* How often a kind of draft was right when those before it were; lately. */
typedef struct engine_draft_chance {
  float n_right, n_tried; /* n_tried 0: nothing is known */
} engine_draft_chance;

typedef struct engine_speculation {
  int kind;          /* of the drafts of this step */
  iso_ngrams ngrams; /* of the sequence's tokens, where drafts come from them */
  engine_draft_chance chances[ENGINE_DRAFT_KINDS];
} engine_speculation;

/* What the host drew from a sequence's row, ahead of looking at it. Of a beam it says only that its
 * candidates have been found. */
typedef struct engine_drawn {
  bool is_there;
  int32_t token;
  iso_token_logprob logprobs[1 + ENGINE_MAX_TOP_LOGPROBS]; /* where the request wants any */
} engine_drawn;

/* What a sequence has in one step. */
typedef struct engine_rows {
  int32_t n, n_drafts;             /* rows; those of them that are drafts */
  int32_t first_row;               /* in the step */
  int32_t logit_row, n_logit_rows; /* the first of them */
  bool is_last;                    /* nothing is left to run behind them */
  bool draws_on_device;
  bool is_guess;    /* the device draws, and the host says from the logits whether that is right */
  bool draws_ahead; /* the token is the next row's, though the host does not know it yet */
  bool is_void;     /* runs behind a wrong guess, and counts for nothing */
} engine_rows;

/* What steps under way will add to a sequence. */
typedef struct engine_ahead {
  int32_t n_rows;    /* to its cache */
  int32_t n_tokens;  /* drawn and not known; at most 1 where a further row is planned */
  int32_t logit_row; /* the last one's, of the latest step */
} engine_ahead;

struct engine_sequence {
  engine_request *request;
  int32_t index; /* in the request; also the stream of its draws */
  engine_sequence_state state;
  engine_answer answer;
  int32_t n_cached; /* tokens in pages */
  int32_t n_pages;
  int32_t *pages;
  int32_t n_offered;         /* full pages offered to the prefix cache */
  iso_page_entry entry;      /* of the last of them; 0: none */
  iso_swapped swapped;       /* pages in host memory, while preempted */
  bool is_placed;            /* has rows in the step that is planned */
  engine_rows rows;          /* of the step that is planned or looked at */
  const engine_drawn *drawn; /* of the step that is looked at; NULL: nothing */
  engine_ahead ahead;
  float miss_rate; /* share of its guesses that were wrong, lately */
  int32_t drafts[ENGINE_MAX_DRAFTS];
  int32_t n_proposed;    /* of them by the draft model */
  iso_draft_cache draft; /* of the draft model */
  engine_speculation speculation;
  beam_candidate *candidates; /* beams: what may follow, best first; 2 * beam_width */
};

struct engine_request {
  iso_request_id id;
  iso_request asked; /* what it points to is owned, but for `context` */
  int64_t order;     /* lower runs first: arrival and priority */
  double submitted_us, started_us, first_token_us; /* started_us 0: waits */
  double deadline_us;                              /* 0: none */
  int32_t n_sequences, n_choices;
  engine_sequence *sequences;
  int32_t length_limit; /* tokens of a sequence, prompt and output */
  bool is_paused, is_cancelled, is_prompt_done, in_batch;
  int32_t n_under_way; /* row sets in steps under way */
  bool is_deferred;    /* choices are delivered at the end: best_of, beams */
  bool is_delivered;   /* all choices have been ended */
  iso_status status;
  char *message; /* of a failure; owned */
  iso_usage usage;
  engine_answer *finished; /* beams that ended, best first; beam_width + 1 */
  int32_t n_finished;
  double *embedding; /* sum of hidden rows */
  float *pooled;
  iso_token_logprob *prompt_logprobs;       /* 1 + n_top_logprobs a token */
  engine_request *next;                     /* in the inbox; lingering */
  engine_request *next_live, *next_command; /* the queue's, as the next is */
  uint32_t commands;
};

/* What a request has been told since the engine last looked; bits. */
enum { COMMAND_CANCEL = 1, COMMAND_RESUME = 2 };

enum { ENGINE_LIVE_BUCKETS = 1024 };

/* What other threads touch, under `mutex`. */
typedef struct engine_queue {
  pthread_mutex_t stopping; /* held, and taken before the other, by whoever ends the thread */
  pthread_mutex_t mutex;
  pthread_cond_t wake; /* of the engine's thread: something came in */
  pthread_cond_t idle; /* of iso_engine_drain(): nothing is at hand */
  engine_request *first, **last;
  engine_request *live[ENGINE_LIVE_BUCKETS]; /* submitted and not done, by id; next_live */
  engine_request *commanded;                 /* those with commands; next_command */
  iso_request_id last_id;
  int32_t n_waiting;   /* submitted and not started */
  int32_t n_preempted; /* started, and waiting again for pages */
  int32_t n_live;      /* submitted and not done */
  bool exists, is_closed, must_stop, has_thread;
  iso_status failure;
  char failure_message[512];
  iso_engine_stats stats;
} engine_queue;

/* Scratch of one thread that draws. */
typedef struct engine_sampler {
  float *logits;                    /* one row, where a request changes it */
  iso_sample_candidate *candidates; /* one row */
} engine_sampler;

enum { ENGINE_MAX_SAMPLERS = 16 };

/* The rows of one step. */
typedef struct engine_batch {
  iso_batch_sequence *entries;
  engine_sequence **sequences;
  engine_rows *rows;   /* of each sequence */
  int32_t *drawn_rows; /* of each: logit row of the step before that draws its token; -1: known */
  engine_drawn *drawn; /* of each, once the step is done */
  bool *drops;         /* of each, once the step is done: nobody wants its rows */
  int32_t *tokens;     /* of rows with drafts: max_tokens */
  int32_t *host_rows;  /* logit rows that the host looks at, ascending: max_logit_rows */
  int32_t n, n_tokens, n_token_copies, n_logit_rows, n_host_rows;
  float n_missed;    /* guesses that will be wrong, as far as one knows */
  bool decides_more; /* the host finds more in its logits than tokens that were guessed */
  bool wants_hidden, has_drafts;
  bool is_under_way; /* submitted, and not yet over */
  double start_us;
} engine_batch;

/* Whether the host must look at a step before the next one can be planned, or had better: a wrong
 * guess costs its sequence a step, waiting costs everyone about a sixteenth of one. */
static inline bool iso_batch_needs_host(const engine_batch *batch) {
  return batch->decides_more || batch->wants_hidden || batch->has_drafts ||
         16 * batch->n_missed > (float)batch->n;
}

struct iso_engine {
  const iso_model *model;
  iso_engine_options options; /* in force; strings are not kept */
  iso_runtime *runtime;
  int32_t n_vocabulary, context, page_size, max_tokens, max_sequences, max_logit_rows;
  int32_t mixed_tokens; /* rows of a step in which sequences decode and few prompts wait */
  int32_t row_multiple; /* of the rows of steps whose prompts have more to run */
  iso_kv_pages kv;
  iso_page_pool pool;
  iso_swap_space swap;
  iso_drafter drafter;
  iso_grammar_shelf grammars;
  engine_queue queue;
  pthread_t thread;
  engine_request **requests; /* at hand, in order */
  size_t n_requests, request_capacity;
  engine_request *lingering; /* done, with rows in steps under way; linked by `next` */
  engine_batch batch;        /* being planned */
  engine_batch running;      /* under way: n is 0 when none is */
  bool overlaps;             /* a step is planned and submitted while one is under way */
  bool must_wait;            /* the plan needs what only the step under way can tell */
  engine_sampler samplers[ENGINE_MAX_SAMPLERS]; /* the first is the engine's own thread's */
  int32_t n_samplers;                           /* that may be made: one a CPU */
  iso_thread_pool *threads;      /* NULL until several rows are drawn by the host at once */
  iso_text piece;                /* scratch: what a token completed */
  iso_event_token *event_tokens; /* scratch of events */
  size_t event_token_capacity;
  engine_row_price row_price;  /* for judging drafts */
  int32_t n_decoding;          /* sequences that decode in the step being planned */
  int64_t n_prompt_rows;       /* that those who may join them have still to run */
  int32_t n_drafting;          /* drafts in it so far */
  double us_per_token;         /* cost of a row, running average */
  iso_flush_callback on_flush; /* NULL: nobody asked */
  void *flush_context;
  bool has_events;         /* since on_flush was called */
  double last_step_end_us; /* 0: nothing ran just before */
  double busy_seen_us;     /* when the device was last seen at work */
  int32_t n_started;       /* since the queue was last told */
  int32_t n_done;
  iso_engine_stats stats;
};

double iso_engine_now_us(void);

/* ---- queue.c ------------------------------------------------------------------------------- */

ISO_MUST_CHECK iso_status iso_engine_queue_create(iso_engine *engine);
void iso_engine_queue_destroy(iso_engine *engine);
/* Takes what came in since the last call; applies cancellations and resumptions. A request that
 * finds no memory ends at once. */
void iso_engine_take_in(iso_engine *engine);
/* No command reaches the request any more, which is about to end. */
void iso_engine_forget(iso_engine *engine, engine_request *request);
/* Tells waiting threads what this step changed, and that its events are all given. */
void iso_engine_publish(iso_engine *engine);

/* ---- request.c ----------------------------------------------------------------------------- */

/* Checks and copies. */
ISO_MUST_CHECK iso_status iso_engine_request_create(const iso_engine *engine,
                                                    const iso_request *asked,
                                                    engine_request **out_request);
void iso_engine_request_destroy(engine_request *request);
/* Ends a request that has not ended by itself, with this thread's sentence for a failure. */
void iso_engine_request_fail(engine_request *request, iso_status status);
bool iso_engine_request_is_over(const engine_request *request);
/* The sequences of which any can run or hold something: one until the prompt is through. */
static inline int32_t iso_engine_request_width(const engine_request *request) {
  return request->is_prompt_done ? request->n_sequences : 1;
}

/* ---- scheduler.c --------------------------------------------------------------------------- */

/* Fills engine->batch, behind the step under way if there is one. Nothing can run when batch.n is
 * 0: at all, or with must_wait until that step has been looked at. */
ISO_MUST_CHECK iso_status iso_engine_schedule(iso_engine *engine);

/* Whether a sequence can run in the coming step and has one token to run, of its answer. */
bool iso_scheduler_decodes(const iso_engine *engine, const engine_sequence *sequence);

/* ---- sequence.c ---------------------------------------------------------------------------- */

static inline int32_t iso_sequence_pending(const engine_sequence *sequence) {
  return (int32_t)sequence->answer.n_tokens + sequence->ahead.n_tokens - sequence->n_cached -
         sequence->ahead.n_rows;
}
/* Position of the next row. */
static inline int32_t iso_sequence_next(const engine_sequence *sequence) {
  return sequence->n_cached + sequence->ahead.n_rows;
}
/* Shares what the prefix cache has of the sequence's tokens, all but the last of them. The sequence
 * holds no pages. */
void iso_sequence_find_prefix(iso_engine *engine, engine_sequence *sequence);
/* Pages that must be taken before `n_tokens` tokens are cached: new ones, and a copy of one that
 * is shared and will be written. */
int32_t iso_sequence_pages_missing(const iso_engine *engine, const engine_sequence *sequence,
                                   int32_t n_tokens);
/* Takes them; there are enough. */
ISO_MUST_CHECK iso_status iso_sequence_take_pages(iso_engine *engine, engine_sequence *sequence,
                                                  int32_t n_tokens);
/* Offers full pages to the prefix cache. */
void iso_sequence_offer_pages(iso_engine *engine, engine_sequence *sequence);
/* Lets go of all pages and what was swapped. */
void iso_sequence_drop_pages(iso_engine *engine, engine_sequence *sequence);
/* Takes the pages of a sequence that is to go on later: swapped out, or forgotten, whichever
 * costs less. */
ISO_MUST_CHECK iso_status iso_sequence_preempt(iso_engine *engine, engine_sequence *sequence);
/* Brings back what was swapped out, into pages that are available. */
ISO_MUST_CHECK iso_status iso_sequence_restore(iso_engine *engine, engine_sequence *sequence);
/* Makes `child` go on from where `parent`, of the same request, is; pages are shared. What both
 * have had in common since they parted is not looked at again: the longer ago, the more is copied.
 */
ISO_MUST_CHECK iso_status iso_sequence_fork(iso_engine *engine, const engine_sequence *parent,
                                            engine_sequence *child);
void iso_sequence_end(iso_engine *engine, engine_sequence *sequence);

/* ---- sampler.c ----------------------------------------------------------------------------- */

ISO_MUST_CHECK iso_status iso_sampler_create(const iso_engine *engine, engine_sampler *out_sampler);
void iso_sampler_destroy(engine_sampler *sampler);
/* Draws the token behind `logits`, one row, for a sequence. Threads need a sampler each. */
ISO_MUST_CHECK iso_status iso_sampler_draw(const iso_engine *engine, engine_sampler *sampler,
                                           engine_sequence *sequence, const float *logits,
                                           int32_t *out_token);
/* Finds the tokens that grammars allow in the step under way, while it is. */
void iso_sampler_prepare(iso_engine *engine);
/* Draws from the rows of the step that was running that the host must draw from, on several threads
 * where there are several. What fails is left to be drawn again. */
void iso_sampler_draw_ahead(iso_engine *engine);
/* Whether drafts of a sequence are right when its filters leave them (ISO_ACCEPT_WINDOW). */
bool iso_sampler_has_window(const iso_engine *engine, const engine_sequence *sequence);
/* Whether the filters leave `token` of a row, for a sequence that has a window. */
bool iso_sampler_leaves(iso_engine *engine, const engine_sequence *sequence, const float *logits,
                        int32_t token);
/* Says who draws the tokens of this step's rows: the device alone, where there are no penalties,
 * bias, grammar and probabilities; else the host, which the device guesses ahead of where steps
 * overlap. The sequence's rows are in the batch. */
void iso_sampler_place(iso_engine *engine, engine_sequence *sequence);
/* Has a device draw behind logit row `row` of its next step what this sequence would draw there,
 * `ahead` tokens after the next one. Without penalties and bias. */
void iso_sampler_set_row(iso_runtime *runtime, const engine_sequence *sequence, int32_t row,
                         int32_t ahead);
/* Fails where there is no token (-1): for the request's own fault if it forbids all that `logits`,
 * which may be NULL, has; else as there is no finite logit. */
ISO_MUST_CHECK iso_status iso_sampler_check(const iso_engine *engine,
                                            const engine_sequence *sequence, const float *logits,
                                            int32_t token);
/* The token that the device drew from logit row `row` of the step. */
ISO_MUST_CHECK iso_status iso_sampler_take(const iso_engine *engine,
                                           const engine_sequence *sequence, int32_t row,
                                           int32_t *out_token);
/* The row with the request's bias, and without tokens that may not come yet. `logits` itself when
 * it needs neither, else the sampler's scratch. */
const float *iso_sampler_adjust(const iso_engine *engine, engine_sampler *sampler,
                                const engine_sequence *sequence, const float *logits);
/* The token's logprob and those of the likeliest: 1 + n_top entries. */
void iso_sampler_logprobs(const iso_engine *engine, const float *logits, int32_t token,
                          int32_t n_top, iso_token_logprob *out);
/* log of the sum of exp(logits): what to subtract for logprobs. */
double iso_log_sum_exp(const float *logits, int32_t n);
/* The n likeliest tokens, most likely first, the lowest token among equals; n is filled up with
 * token -1 where there are no more finite ones. */
void iso_top_logprobs(const float *logits, int32_t n_logits, double log_sum, int32_t n,
                      iso_token_logprob *out_top);

/* ---- choices.c ----------------------------------------------------------------------------- */

/* Draws from the rows of the step that was running, for every sequence of its batch. */
ISO_MUST_CHECK iso_status iso_engine_distribute(iso_engine *engine);

/* ---- beam.c -------------------------------------------------------------------------------- */

/* Finds what may follow a beam whose logits are there. Different beams in different threads, each
 * with a sampler of its own. */
void iso_beam_look(const iso_engine *engine, engine_sampler *sampler, engine_sequence *sequence,
                   const float *logits);
/* Has a beam wait for the others, once what may follow has been found: here, if not ahead. */
ISO_MUST_CHECK iso_status iso_beam_note(iso_engine *engine, engine_sequence *sequence,
                                        const float *logits);
/* Chooses the beams of the next step once all have been noted. */
ISO_MUST_CHECK iso_status iso_beam_advance(iso_engine *engine, engine_request *request);

/* ---- speculation.c ------------------------------------------------------------------------- */

engine_row_price iso_speculation_price(const iso_device_list *devices, engine_weights weights);
/* How many drafts, at most `most`, are worth trying for a sequence in this step. */
int32_t iso_speculation_wanted(const iso_engine *engine, engine_sequence *sequence, int32_t most);
/* Proposes up to `most` drafts in sequence->drafts; returns how many. */
int32_t iso_speculation_propose(const iso_engine *engine, engine_sequence *sequence, int32_t most);
/* The first n_accepted of the drafts were right. */
void iso_speculation_learn(engine_sequence *sequence, int32_t n_accepted);

/* ---- event.c ------------------------------------------------------------------------------- */

/* Shows what an answer has ready; `is_last`: all of it. */
ISO_MUST_CHECK iso_status iso_event_text(iso_engine *engine, engine_request *request,
                                         int32_t choice, engine_answer *answer, bool is_last);
void iso_event_choice(iso_engine *engine, engine_request *request, int32_t choice,
                      const engine_answer *answer);
ISO_MUST_CHECK iso_status iso_event_prompt(iso_engine *engine, engine_request *request);
void iso_event_done(iso_engine *engine, engine_request *request);
/* Tells whoever asked to be told that there were events, if there were. */
void iso_event_flush(iso_engine *engine);

#endif
