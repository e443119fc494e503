/* Drafts from a smaller model of the same vocabulary, which keeps a cache of its own. */
#ifndef ISOMER_ENGINE_DRAFTER_H
#define ISOMER_ENGINE_DRAFTER_H

#include "engine/page_pool.h"
#include "engine/runtime.h"

typedef struct engine_sequence engine_sequence;

typedef struct iso_drafter {
  iso_runtime *runtime; /* NULL: no draft model */
  iso_page_pool pool;
  int32_t context, max_tokens, max_sequences;
  engine_sequence **sequences; /* those that get drafts in this step, and how many */
  int32_t *wanted;
  int32_t n_sequences;
  iso_batch_sequence *entries; /* of one run */
  engine_sequence **rows;      /* whose logit row it is */
  int32_t n_entries, n_tokens, n_rows;
  uint64_t n_hit_tokens; /* of prompts, found in the prefix cache */
  double price;          /* of a run that drafts a token a sequence, in steps of the model */
} iso_drafter;

/* What the draft model has cached of a sequence. */
typedef struct iso_draft_cache {
  int32_t n_cached; /* of the sequence's tokens */
  int32_t n_fed;    /* with drafts behind them that may yet prove right */
  int32_t n_pages;
  int32_t *pages;
  int32_t n_offered;    /* full pages offered to the prefix cache of the draft model */
  iso_page_entry entry; /* of the last of them; 0: none */
} iso_draft_cache;

ISO_MUST_CHECK iso_status iso_drafter_create(const iso_engine *engine, iso_drafter *out_drafter);
void iso_drafter_destroy(iso_drafter *drafter);
/* Drafts for every sequence that will decode in the coming step: sequence->drafts and n_proposed.
 */
ISO_MUST_CHECK iso_status iso_drafter_run(iso_engine *engine);
/* The first n_accepted of the drafts have become tokens. */
void iso_drafter_learn(engine_sequence *sequence, int32_t n_accepted);
void iso_drafter_release(iso_drafter *drafter, engine_sequence *sequence);

#endif
