/* One answer at a time through an engine, for run and chat. */
#ifndef ISOMER_TOOLS_GENERATE_H
#define ISOMER_TOOLS_GENERATE_H

#include <isomer/engine.h>

#include "tools/options.h"

typedef struct iso_generation {
  /* Whole UTF-8 pieces as they appear, not NUL-terminated. Return false to stop. */
  bool (*on_text)(void *context, const char *text, size_t length);
  void *context;
  bool goes_on;          /* the text is the rest of the prompt's; of iso_request */
  iso_sampling sampling; /* that was used */
  iso_stop_reason reason;
  iso_usage usage;
} iso_generation;

/* An engine for one request at a time; prompts that go on from earlier ones start from what is
 * cached of them. *out_draft is the draft model or NULL, and outlives the engine. */
ISO_MUST_CHECK iso_status iso_tool_create_single_engine(const iso_model *model,
                                                        const iso_options *options,
                                                        iso_model **out_draft,
                                                        iso_engine **out_engine);
/* Generates as the options ask. Ctrl-C, once caught, ends the answer with ISO_STOP_CANCELLED. */
ISO_MUST_CHECK iso_status iso_tool_generate(iso_engine *engine, const iso_options *options,
                                            const int32_t *ids, size_t n_ids,
                                            iso_generation *generation);

/* Microseconds until the first token, the queue apart, and from there to the end. */
double iso_generation_prompt_us(const iso_generation *generation);
double iso_generation_output_us(const iso_generation *generation);

#endif
