/* Any bytes: a trace all of whose values can be read, or an error. */
#include "engine/trace.h"
#include <stdlib.h>
#include <string.h>

static volatile double sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  iso_trace *trace;
  uint8_t *copy = malloc(size + 1); /* aligned, as a mapping is */
  if (!copy)
    return 0;
  memcpy(copy, data, size);
  if (iso_trace_open_memory(copy, size, &trace) == ISO_OK) {
    for (int32_t i = 0; i < trace->model->n_tokens; i++)
      sink += trace->tokens[i];
    for (uint32_t s = 0; s < trace->n_steps; s++) {
      const iso_trace_step *step = &trace->steps[s];
      for (uint32_t v = step->first_value; v < step->first_value + step->n_values; v++) {
        const iso_trace_value *value = &trace->values[v];
        if (!iso_trace_find(trace, s, value->info->name, v - step->first_value))
          abort();
        for (int64_t i = 0; i < value->info->n_rows * value->info->n_columns; i++)
          sink += value->values[i];
      }
    }
    for (int32_t i = 0; i < trace->n_output; i++)
      sink += trace->output[i].margin;
    iso_trace_close(trace);
  }
  free(copy);
  return 0;
}
