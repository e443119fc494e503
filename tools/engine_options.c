#include "tools/engine_options.h"

#include <string.h>

#include "tools/adapters.h"

static iso_status read_words(const iso_options *options, iso_engine_options *out) {
  if (strcmp(options->batching, "static") == 0)
    out->batching = ISO_BATCHING_STATIC;
  else if (strcmp(options->batching, "continuous") != 0)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--batching %s is neither continuous nor static",
                    options->batching);
  if (strcmp(options->speculation, "ngram") == 0)
    out->speculation = ISO_SPECULATION_NGRAM;
  else if (strcmp(options->speculation, "draft") == 0)
    out->speculation = ISO_SPECULATION_DRAFT;
  else if (strcmp(options->speculation, "none") != 0)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--speculation %s is none of none, ngram, draft",
                    options->speculation);
  if (strcmp(options->draft_acceptance, "window") == 0)
    out->acceptance = ISO_ACCEPT_WINDOW;
  else if (strcmp(options->draft_acceptance, "exact") != 0)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--draft-acceptance %s is neither exact nor window",
                    options->draft_acceptance);
  if (out->speculation == ISO_SPECULATION_NONE &&
      (options->draft_tokens > 0 || out->acceptance != ISO_ACCEPT_EXACT))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "--draft-tokens and --draft-acceptance are for --speculation ngram or draft");
  bool drafts = out->speculation == ISO_SPECULATION_DRAFT;
  if (drafts != (options->draft_model != NULL))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "--draft-model and --speculation draft go together");
  return ISO_OK;
}

iso_status iso_tool_create_engine(const iso_model *model, const iso_options *options,
                                  iso_progress_bar *bar, iso_model **out_draft,
                                  iso_engine **out_engine) {
  iso_engine_options engine = {.runtime = {.devices = options->device,
                                           .split = options->split,
                                           .n_threads = (int32_t)options->threads,
                                           .cpu_affinity = options->cpu_affinity,
                                           .allow_fallback = options->allow_fallback,
                                           .context = (int32_t)options->context,
                                           .max_tokens = (int32_t)options->batch_size,
                                           .max_sequences = (int32_t)options->max_sequences,
                                           .page_size = (int32_t)options->page_size,
                                           .activation = options->activation,
                                           .kv_type = options->kv_type,
                                           .progress = iso_progress_bar_update,
                                           .progress_context = bar},
                               .kv_memory_bytes = (uint64_t)options->kv_memory << 20,
                               .memory_utilization = (float)options->memory_utilization,
                               .swap_memory_bytes = (uint64_t)options->swap_memory << 20,
                               .no_prefix_cache = options->no_prefix_cache,
                               .max_queue = (int32_t)options->max_queue,
                               .max_draft_tokens = (int32_t)options->draft_tokens};
  *out_draft = NULL;
  ISO_TRY(read_words(options, &engine));
  if (options->draft_model)
    ISO_TRY(iso_model_open(options->draft_model, NULL, out_draft));
  engine.draft_model = *out_draft;
  iso_adapter_list adapters;
  ISO_TRY(iso_tool_open_adapters(model, options, &adapters));
  engine.runtime.adapters = (const iso_adapter *const *)adapters.items;
  engine.runtime.n_adapters = adapters.n;
  iso_status status = iso_engine_create(model, &engine, out_engine);
  iso_tool_close_adapters(&adapters);
  return status;
}
