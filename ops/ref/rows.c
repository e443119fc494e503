/* Ops that pick rows: embedding, gather_rows. */
#include "ops/ref/reference.h"
#include <math.h>
#include <string.h>

iso_status iso_reference_embedding(iso_reference_call *call) {
  const iso_host_tensor *ids = &call->inputs[0], *table = &call->inputs[1], *y = &call->outputs[0];
  int64_t n_columns = iso_n_columns(y);
  float *row;
  ISO_TRY(iso_reference_scratch(call, n_columns, sizeof *row, &row));
  for (int64_t t = 0; t < iso_n_rows(y); t++) {
    int32_t id = iso_load_index(ids, t);
    bool inside = id >= 0 && id < iso_n_rows(table);
    if (inside)
      iso_load_row(table, id, row);
    for (int64_t i = 0; i < n_columns; i++)
      row[i] = inside ? row[i] * call->attributes.embedding.scale : NAN;
    iso_store_row(y, t, row);
  }
  return ISO_OK;
}

iso_status iso_reference_gather_rows(iso_reference_call *call) {
  const iso_host_tensor *x = &call->inputs[0], *rows = &call->inputs[1], *y = &call->outputs[0];
  uint64_t bytes;
  ISO_TRY(iso_scheme_row_bytes(y->meta->scheme, iso_n_columns(y), &bytes));
  for (int64_t r = 0; r < iso_n_rows(y); r++) {
    int32_t row = iso_load_index(rows, r);
    ISO_TRY(iso_check_index(call, 1, r, row, 0, iso_n_rows(x)));
    memcpy(iso_row(y, r), iso_row(x, row), bytes);
  }
  return ISO_OK;
}
