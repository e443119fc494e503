#include "ops/ref/reference.h"
#include <math.h>

iso_status iso_reference_rope(iso_reference_call *call) {
  const iso_host_tensor *x = &call->inputs[0], *positions = &call->inputs[1];
  const iso_host_tensor *y = &call->outputs[0];
  const iso_rope_attributes *attributes = &call->attributes.rope;
  int64_t n_tokens = x->meta->dims[0], n_heads = x->meta->dims[1];
  int64_t n_pairs = iso_n_columns(&call->inputs[2]);
  float *frequencies, *row;
  ISO_TRY(iso_load_all(call, &call->inputs[2], &frequencies));
  ISO_TRY(iso_reference_scratch(call, iso_n_columns(x), sizeof *row, &row));
  for (int64_t t = 0; t < n_tokens; t++) {
    int32_t position = iso_load_index(positions, t);
    ISO_TRY(iso_check_index(call, 1, t, position, 0, (int64_t)INT32_MAX + 1));
    for (int64_t h = 0; h < n_heads; h++) {
      iso_load_row(x, t * n_heads + h, row);
      for (int64_t i = 0; i < n_pairs; i++) {
        float angle = (float)position * frequencies[i]; /* f32 by definition, see ops.def */
        double c = cos(angle) * attributes->magnitude, s = sin(angle) * attributes->magnitude;
        float *a = row + (attributes->interleaved ? 2 * i : i);
        float *b = attributes->interleaved ? a + 1 : a + n_pairs;
        double first = *a, second = *b;
        *a = (float)(first * c - second * s);
        *b = (float)(first * s + second * c);
      }
      iso_store_row(y, t * n_heads + h, row);
    }
  }
  return ISO_OK;
}
