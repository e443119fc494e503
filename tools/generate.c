#include "tools/generate.h"
#include "tools/adapters.h"
#include "tools/engine_options.h"
#include "tools/tool.h"

#include <stdio.h>

typedef struct run {
  iso_generation *generation;
  bool is_done, stopped_by_reader;
  iso_status status;
  char message[512];
} run;

static iso_flow on_event(void *context, const iso_event *event) {
  run *self = context;
  iso_generation *generation = self->generation;
  switch (event->kind) {
  case ISO_EVENT_TEXT:
    if (event->length > 0 && !generation->on_text(generation->context, event->text, event->length))
      self->stopped_by_reader = true;
    return self->stopped_by_reader || iso_tool_interrupted() ? ISO_FLOW_CANCEL : ISO_FLOW_CONTINUE;
  case ISO_EVENT_CHOICE:
    generation->reason = event->reason;
    break;
  case ISO_EVENT_DONE:
    generation->usage = event->usage;
    self->is_done = true;
    self->status = event->status;
    snprintf(self->message, sizeof self->message, "%s", event->message);
    break;
  }
  return ISO_FLOW_CONTINUE;
}

iso_status iso_tool_create_single_engine(const iso_model *model, const iso_options *options,
                                         iso_model **out_draft, iso_engine **out_engine) {
  iso_options single = *options;
  ISO_TRY(iso_tool_need_one_adapter(options));
  single.max_sequences = 1;
  single.memory_utilization = 1; /* of which one context is taken */
  iso_progress_bar bar;
  iso_progress_bar_begin(&bar, stderr);
  ISO_TRY(iso_tool_create_engine(model, &single, &bar, out_draft, out_engine));
  if (options->verbose)
    fprintf(stderr, "%s\n", iso_engine_describe(*out_engine));
  return ISO_OK;
}

iso_status iso_tool_generate(iso_engine *engine, const iso_options *options, const int32_t *ids,
                             size_t n_ids, iso_generation *generation) {
  if (n_ids > INT32_MAX)
    return iso_fail(ISO_ERROR_LIMIT, "the prompt has %zu tokens", n_ids);
  run self = {.generation = generation};
  generation->sampling = iso_tool_sampling(options);
  iso_request request = {.prompt = ids,
                         .n_prompt = (int32_t)n_ids,
                         .sampling = generation->sampling,
                         .max_tokens = iso_tool_max_tokens(options),
                         .stop = options->stop.items,
                         .adapter = options->lora.n > 0,
                         .n_stop = options->stop.n,
                         .goes_on = generation->goes_on,
                         .on_event = on_event,
                         .context = &self};
  iso_request_id id;
  ISO_TRY(iso_engine_submit(engine, &request, &id));
  for (bool is_busy = true; !self.is_done;) {
    if (iso_tool_interrupted())
      iso_engine_cancel(engine, id);
    ISO_TRY(iso_engine_step(engine, &is_busy));
  }
  if (self.status == ISO_ERROR_CANCELLED) {
    generation->reason = ISO_STOP_CANCELLED;
    return ISO_OK;
  }
  return self.status == ISO_OK ? ISO_OK : iso_fail(self.status, "%s", self.message);
}

double iso_generation_prompt_us(const iso_generation *generation) {
  const iso_usage *usage = &generation->usage;
  double end = usage->first_token_us > 0 ? usage->first_token_us : usage->total_us;
  return end - usage->queue_us;
}

double iso_generation_output_us(const iso_generation *generation) {
  const iso_usage *usage = &generation->usage;
  return usage->first_token_us > 0 ? usage->total_us - usage->first_token_us : 0;
}
