/* The engine: requests become batches of one model. */
#ifndef ISOMER_ENGINE_H
#define ISOMER_ENGINE_H

#include <isomer/runtime.h>

ISO_BEGIN_DECLS

/* ---- Sampling ------------------------------------------------------------------------------ */

/* Order: penalties, temperature, top-k, top-p, min-p, draw. See docs/sampling.md. */
typedef struct iso_sampling {
  float temperature;        /* 0: greedy */
  int32_t top_k;            /* 0: off */
  float top_p;              /* 1: off */
  float min_p;              /* 0: off */
  float repetition_penalty; /* 1: off; over prompt and output */
  float presence_penalty;   /* 0: off; over the output */
  float frequency_penalty;  /* 0: off; over the output */
  uint64_t seed;
} iso_sampling;
/* Greedy, everything off. */
ISO_API iso_sampling iso_sampling_default(void);

/* Why an answer ended. */
typedef enum iso_stop_reason {
  ISO_STOP_END,      /* the model ended its answer */
  ISO_STOP_LENGTH,   /* max_tokens or the context limit */
  ISO_STOP_STRING,   /* a stop string */
  ISO_STOP_CANCELLED /* the caller ended it; no event says so, but DONE's status */
} iso_stop_reason;

/* ---- The engine: many requests, one model --------------------------------------------------- */

/* Requests become ragged batches: decode rows and prompt chunks of many sequences share each step,
 * their keys and values live in one pool of pages with reference counts, and prompts that begin
 * alike share pages. Functions that take an iso_engine may be called from any thread unless they
 * say otherwise. */
typedef struct iso_engine iso_engine;

typedef enum iso_batching {
  ISO_BATCHING_CONTINUOUS, /* a sequence joins and leaves at any step */
  ISO_BATCHING_STATIC      /* a batch runs until its last sequence ends; for comparison */
} iso_batching;

typedef enum iso_speculation {
  ISO_SPECULATION_NONE,
  ISO_SPECULATION_NGRAM, /* drafts are what followed the same words earlier in the sequence */
  ISO_SPECULATION_DRAFT  /* drafts come from a smaller model with the same vocabulary */
} iso_speculation;

/* When a draft counts as right. */
typedef enum iso_acceptance {
  ISO_ACCEPT_EXACT, /* it is what would have been drawn: the output is the same as without drafts */
  /* For requests that filter what they draw from (top_k up to 128, top_p, min_p) and have no
   * penalties: it is one of those that the filters leave, any of which could have been drawn. More
   * drafts are right; the output depends on them and has no longer the model's distribution. */
  ISO_ACCEPT_WINDOW
} iso_acceptance;

typedef struct iso_engine_options {
  /* Devices, threads, context, KV scheme, page size. max_sequences 0: 64 that run at once;
   * n_pages 0: as kv_memory_bytes or memory_utilization say. */
  iso_runtime_options runtime;
  uint64_t kv_memory_bytes;   /* of the KV pool; 0: by memory_utilization */
  float memory_utilization;   /* share of the memory left by the weights; 0: 0.9, of a CPU's memory
                                 0.25; never more than max_sequences full contexts */
  uint64_t swap_memory_bytes; /* host memory for pages of preempted requests; 0: they recompute */
  bool no_prefix_cache;
  iso_batching batching;
  int32_t max_queue; /* requests that wait, for the first time or again, beyond which new ones are
                        refused; 0: 1,024 */
  iso_speculation speculation;
  int32_t max_draft_tokens;     /* a step; adapts below it to the acceptance seen; 0: 8 */
  const iso_model *draft_model; /* DRAFT only; outlives the engine */
  iso_acceptance acceptance;    /* of drafts */
} iso_engine_options;

/* Plans, loads and allocates. `model` outlives the engine; `options` may be NULL. */
ISO_MUST_CHECK ISO_API iso_status iso_engine_create(const iso_model *model,
                                                    const iso_engine_options *options,
                                                    iso_engine **out_engine);
/* Stops the thread, ends every request as cancelled (their last events are delivered), frees. */
ISO_API void iso_engine_destroy(iso_engine *engine);

/* Names a request; never 0 and never used again. */
typedef uint64_t iso_request_id;

typedef enum iso_event_kind {
  ISO_EVENT_TEXT,   /* more of a choice: whole UTF-8, or tokens alone where they complete none */
  ISO_EVENT_CHOICE, /* a choice ended, for `reason` */
  ISO_EVENT_DONE    /* the request's last event; its id is free of everything afterwards */
} iso_event_kind;

typedef struct iso_token_logprob {
  int32_t token;
  float logprob; /* natural, of the model's distribution before temperature and truncation */
} iso_token_logprob;

typedef struct iso_event_token {
  iso_token_logprob chosen;
  const iso_token_logprob *top; /* most likely first; n_top_logprobs of the request, or 0 */
  int32_t n_top;
} iso_event_token;

typedef struct iso_usage {
  int32_t n_prompt, n_cached; /* tokens of the prompt; those of them found in the prefix cache */
  int32_t n_output;           /* of all choices */
  int32_t n_drafted, n_accepted;
  int32_t n_preempted;
  double queue_us, first_token_us, total_us; /* since submission */
} iso_usage;

/* Everything a pointer names lives until the callback returns. */
typedef struct iso_event {
  iso_event_kind kind;
  iso_request_id request;
  int32_t choice; /* 0 .. n - 1 */
  /* TEXT: none of a stop string ever appears, nothing before it is lost. */
  const char *text;
  size_t length;
  const iso_event_token *tokens; /* those behind `text`, in order */
  int32_t n_tokens;
  bool is_prompt;            /* TEXT of prompt_logprobs: the prompt's own tokens, `text` empty */
  iso_stop_reason reason;    /* CHOICE */
  const char *stop;          /* CHOICE with ISO_STOP_STRING: the string that matched */
  double cumulative_logprob; /* CHOICE, where logprobs, best_of or beams ask for it; else 0 */
  iso_status status;         /* DONE: ISO_OK, or why the request failed; ISO_ERROR_CANCELLED,
                                ISO_ERROR_LIMIT past its deadline */
  const char *message;       /* DONE: the sentence of a failure, or "" */
  iso_usage usage;           /* CHOICE and DONE */
  const float *embedding;    /* DONE of an embedding request */
  int32_t n_embedding;
} iso_event;

typedef enum iso_flow {
  ISO_FLOW_CONTINUE,
  ISO_FLOW_PAUSE, /* the reader is slow: no more steps for this request until iso_engine_resume() */
  ISO_FLOW_CANCEL
} iso_flow;

/* Called by the thread that steps the engine; must not block, must not call iso_engine_destroy().
 * Submitting, cancelling and resuming from it are allowed. */
typedef iso_flow (*iso_event_callback)(void *context, const iso_event *event);

/* Called like the above, after the events of a step, however many these are. A reader on another
 * thread is woken by it, once a step, rather than by every event. */
typedef void (*iso_flush_callback)(void *context);

typedef struct iso_logit_bias {
  int32_t token;
  float bias; /* added to the logit; -INFINITY forbids */
} iso_logit_bias;

/* What holds an answer to JSON that a schema takes. Made once, used by any number of requests of
 * the engine that it was made for, from any thread. */
typedef struct iso_grammar iso_grammar;
/* From a JSON schema, "{}" for any JSON; docs/structured-output.md says what is supported.
 * UNSUPPORTED names the keyword that is not, INVALID_ARGUMENT and CORRUPT_DATA what is wrong, LIMIT
 * a schema too large. Those made lately are kept, and found again by their text. */
ISO_MUST_CHECK ISO_API iso_status iso_grammar_create(iso_engine *engine, const char *schema,
                                                     size_t length, iso_grammar **out_grammar);
/* Where the schema holds in an answer that is else free text. */
typedef struct iso_marks {
  const char *begin; /* what comes before; also where a special token writes it */
  const char *end;   /* what comes after; NULL: the answer ends there */
  bool is_bare;      /* an answer that begins with '{' is all held, too */
} iso_marks;
ISO_MUST_CHECK ISO_API iso_status iso_grammar_create_marked(iso_engine *engine,
                                                            const iso_marks *marks,
                                                            const char *schema, size_t length,
                                                            iso_grammar **out_grammar);
/* Requests that were submitted with it go on. `grammar` may be NULL. */
ISO_API void iso_grammar_release(iso_grammar *grammar);

/* One request. Zero is the default of every field but `sampling`, which starts from
 * iso_sampling_default(), and the prompt. Choice i of several draws with its own stream of
 * `seed`. */
typedef struct iso_request {
  const int32_t *prompt;
  int32_t n_prompt; /* >= 1 */
  iso_sampling sampling;
  int32_t max_tokens;   /* of each choice; 0: up to the context limit */
  int32_t min_tokens;   /* before, end tokens cannot come and stop strings do not count */
  int32_t n;            /* choices returned; 0: 1 */
  int32_t best_of;      /* sequences tried; the n of best mean logprob are delivered, at the end */
  int32_t beam_width;   /* 0: no beam search; else n <= beam_width, sampling is not used, choices
                           are delivered at the end, best first */
  float length_penalty; /* beams score sum of logprobs / length^penalty; 0: 1 */
  bool early_stopping;  /* beams end once beam_width have ended */
  const char *const *stop;
  int32_t n_stop;
  const int32_t *stop_tokens; /* end an answer like the model's end token */
  int32_t n_stop_tokens;
  bool ignore_end;        /* go on after an end token */
  bool show_special;      /* special tokens' text is part of the answer */
  bool logprobs;          /* events carry tokens with the chosen one's logprob */
  int32_t n_top_logprobs; /* and this many of the likeliest, at most 20 */
  bool prompt_logprobs; /* first a TEXT event with the prompt's tokens (the first has logprob 0) */
  const iso_logit_bias *logit_bias;
  int32_t n_logit_bias;
  iso_grammar *grammar; /* the answer keeps to it, and ends where it does; NULL: none. Not with
                           beams, ignore_end or min_tokens; drafts are not used */
  int32_t priority;    /* lower runs first, by 10 s each, an hour at most; equal ones by arrival. No
                          request starves */
  uint64_t timeout_us; /* since submission; 0: none */
  uint64_t cache_key;  /* prefixes are shared only among equal keys: tenants */
  int32_t adapter;     /* which of the runtime's answers, counted from 1; 0: none. Prefixes are
                          shared only where it is the same; a draft model runs without */
  bool no_prefix_cache;
  bool continues; /* more of what was accepted before, such as the next of many prompts: a full
                     queue does not refuse it. It waits by arrival like others, and counts; the
                     caller bounds how many such are at hand */
  bool embed;     /* no generation: the final hidden rows of the prompt, pooled, length 1 */
  bool goes_on;   /* the answer's text goes on from the prompt's, and is none of its own as in a
                     chat: where words carry the space before them, the first one keeps it */
  iso_event_callback on_event;
  void *context;
} iso_request;

/* Queues a request; everything it points to is copied. `out_id` may be NULL. What can never run is
 * refused at once with ISO_ERROR_INVALID_ARGUMENT or ISO_ERROR_LIMIT (too long for the context or
 * the pool); a full queue is ISO_ERROR_BUSY, unless the request continues. Exactly one DONE event
 * follows a success. */
ISO_MUST_CHECK ISO_API iso_status iso_engine_submit(iso_engine *engine, const iso_request *request,
                                                    iso_request_id *out_id);
/* Ends a request at the next step at the latest, whatever its state; DONE follows with
 * ISO_ERROR_CANCELLED. Unknown ids, such as those already done, are ignored. */
ISO_API void iso_engine_cancel(iso_engine *engine, iso_request_id id);
/* Lets a paused request go on. */
ISO_API void iso_engine_resume(iso_engine *engine, iso_request_id id);

/* Runs one step on the calling thread. *out_busy is false when nothing can run. Not while the
 * engine has a thread of its own. A status other than ISO_OK means the engine can no longer run:
 * all requests have been ended with it. */
ISO_MUST_CHECK ISO_API iso_status iso_engine_step(iso_engine *engine, bool *out_busy);
/* Gives the engine a thread that steps while there is work and sleeps otherwise. */
ISO_MUST_CHECK ISO_API iso_status iso_engine_start(iso_engine *engine);
/* Before the first request. */
ISO_API void iso_engine_on_flush(iso_engine *engine, iso_flush_callback on_flush, void *context);
/* No new requests (ISO_ERROR_BUSY); not from a callback. Waits up to timeout_us for those at hand,
 * then cancels the rest, and ends the thread; steps in its place where there is none, so that
 * nobody else may then. Several threads may drain at once: the first whose time is over ends the
 * rest. */
ISO_API void iso_engine_drain(iso_engine *engine, uint64_t timeout_us);

/* A snapshot; counters run since creation. */
typedef struct iso_engine_stats {
  int32_t n_running, n_waiting, n_paused, n_swapped; /* requests */
  int32_t n_pages, n_pages_used, n_pages_cached; /* cached: kept for prefixes only, free to take */
  int32_t page_size;
  uint64_t n_steps, n_requests, n_finished, n_cancelled, n_failed, n_preempted, n_swapped_pages;
  uint64_t n_prompt_tokens, n_output_tokens, n_prefix_hit_tokens, n_drafted, n_accepted;
  uint64_t n_host_rows;    /* rows of logits that the host looked at; only those come to it */
  double step_us, idle_us; /* time in steps; time the device waited for the host between steps */
} iso_engine_stats;
ISO_API void iso_engine_get_stats(iso_engine *engine, iso_engine_stats *out_stats);
/* ISO_OK, or the device's failure, whose sentence becomes this thread's iso_status_message(). */
ISO_MUST_CHECK ISO_API iso_status iso_engine_health(iso_engine *engine);

ISO_API const iso_model *iso_engine_get_model(const iso_engine *engine);
/* The options in force and one line that names what really runs where. */
ISO_API const iso_engine_options *iso_engine_get_options(const iso_engine *engine);
ISO_API const char *iso_engine_describe(const iso_engine *engine);

/* Ids of a text with the tokens that the model wants around it, for iso_request.prompt; the text of
 * a special token is text. malloc'ed, NULL when empty. INVALID_ARGUMENT for a model opened without
 * its tokenizer. */
ISO_MUST_CHECK ISO_API iso_status iso_engine_tokenize(const iso_engine *engine, const char *text,
                                                      size_t length, int32_t **out_ids,
                                                      int32_t *out_count);

ISO_END_DECLS
#endif
