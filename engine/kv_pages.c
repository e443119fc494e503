#include "engine/kv_pages.h"
#include "core/backend_call.h"

#include <stdlib.h>

iso_status iso_kv_pages_create(iso_runtime *runtime, iso_kv_pages *out_pages) {
  const iso_plan *plan = iso_runtime_get_plan(runtime);
  const iso_device_list *devices = iso_runtime_devices(runtime);
  int32_t n_pages = iso_runtime_get_options(runtime)->n_pages;
  *out_pages = (iso_kv_pages){.states = calloc(plan->n_states + 1, sizeof *out_pages->states)};
  if (!out_pages->states)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a list of %u states", plan->n_states);
  for (uint32_t i = 0; i < plan->n_states; i++) {
    iso_value value = plan->states[i].value;
    const iso_value_info *info = iso_graph_get_value(plan->graph, value);
    uint64_t bytes;
    uint32_t device = 0;
    ISO_TRY(iso_shape_bytes(&info->shape, info->scheme, &bytes));
    kv_state *state = &out_pages->states[out_pages->n_states++];
    state->buffer = iso_executor_state(iso_runtime_get_executor(runtime), value, &device);
    state->device = devices->devices[device];
    state->page_bytes = bytes / (uint64_t)n_pages;
    out_pages->page_bytes += state->page_bytes;
  }
  return ISO_OK;
}

void iso_kv_pages_destroy(iso_kv_pages *pages) {
  free(pages->states);
  *pages = (iso_kv_pages){0};
}

iso_status iso_kv_pages_copy(const iso_kv_pages *pages, int32_t source, int32_t target) {
  for (uint32_t i = 0; i < pages->n_states; i++) {
    const kv_state *state = &pages->states[i];
    ISO_TRY(iso_device_copy(state->device, state->buffer, (uint64_t)target * state->page_bytes,
                            state->buffer, (uint64_t)source * state->page_bytes,
                            state->page_bytes));
  }
  return ISO_OK;
}

iso_status iso_kv_pages_download(const iso_kv_pages *pages, int32_t page, void *target) {
  char *at = target;
  for (uint32_t i = 0; i < pages->n_states; i++) {
    const kv_state *state = &pages->states[i];
    ISO_TRY(iso_device_download(state->device, state->buffer, (uint64_t)page * state->page_bytes,
                                at, state->page_bytes));
    at += state->page_bytes;
  }
  return ISO_OK;
}

iso_status iso_kv_pages_upload(const iso_kv_pages *pages, int32_t page, const void *source) {
  const char *at = source;
  for (uint32_t i = 0; i < pages->n_states; i++) {
    const kv_state *state = &pages->states[i];
    ISO_TRY(iso_device_upload(state->device, state->buffer, (uint64_t)page * state->page_bytes, at,
                              state->page_bytes));
    at += state->page_bytes;
  }
  return ISO_OK;
}
