#include "ops/ref/reference.h"

/* Stores the rows [T, heads, dim] of one operand into its cache [pages, heads, page_size, dim]. */
static iso_status write_cache(iso_reference_call *call, const iso_host_tensor *rows,
                              const iso_host_tensor *cache) {
  const iso_host_tensor *slots = &call->inputs[2];
  int64_t n_tokens = rows->meta->dims[0], n_heads = rows->meta->dims[1];
  int64_t n_pages = cache->meta->dims[0], page_size = cache->meta->dims[2];
  float *row;
  ISO_TRY(iso_reference_scratch(call, iso_n_columns(rows), sizeof *row, &row));
  for (int64_t t = 0; t < n_tokens; t++) {
    int32_t slot = iso_load_index(slots, t);
    ISO_TRY(iso_check_index(call, 2, t, slot, -1, n_pages * page_size));
    for (int64_t head = 0; head < n_heads && slot >= 0; head++) {
      iso_load_row(rows, t * n_heads + head, row);
      int64_t page = slot / page_size, place = slot % page_size;
      iso_store_row(cache, (page * n_heads + head) * page_size + place, row);
    }
  }
  return ISO_OK;
}

iso_status iso_reference_kv_write(iso_reference_call *call) {
  ISO_TRY(write_cache(call, &call->inputs[0], &call->outputs[0]));
  return write_cache(call, &call->inputs[1], &call->outputs[1]);
}
