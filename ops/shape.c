#include "ops/shape.h"
#include <inttypes.h>
#include <stdio.h>

/* Strides and bytes of dense rows at the given sizes; both fit int64 or it fails. */
static iso_status measure(iso_scheme scheme, uint32_t n_dims, const int64_t *dims, int64_t *strides,
                          uint64_t *out_bytes) {
  if (n_dims < 1 || n_dims > ISO_MAX_DIMS)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "a tensor of %u dimensions, 1 to %d can be", n_dims,
                    ISO_MAX_DIMS);
  for (uint32_t d = 0; d < n_dims; d++)
    if (dims[d] < 0 || dims[d] > ISO_MAX_DIM)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "dimension %u is %" PRId64 ", 0 to %" PRId64 " can be", d, dims[d],
                      ISO_MAX_DIM);
  uint64_t bytes;
  ISO_TRY(iso_scheme_row_bytes(scheme, dims[n_dims - 1], &bytes));
  strides[n_dims - 1] = iso_scheme_get_info(scheme)->block_bytes;
  for (uint32_t d = n_dims - 1; d-- > 0;) {
    strides[d] = (int64_t)bytes;
    if (__builtin_mul_overflow(bytes, (uint64_t)dims[d], &bytes) || bytes > INT64_MAX)
      return iso_fail(ISO_ERROR_LIMIT, "a tensor of more than 2^63 bytes");
  }
  *out_bytes = bytes;
  return ISO_OK;
}

iso_status iso_dense_strides(iso_scheme scheme, uint32_t n_dims, const int64_t *dims,
                             int64_t *out_strides) {
  uint64_t bytes;
  return measure(scheme, n_dims, dims, out_strides, &bytes);
}

iso_status iso_shape_bytes(const iso_shape *shape, iso_scheme scheme, uint64_t *out_bytes) {
  int64_t dims[ISO_MAX_DIMS] = {0}, strides[ISO_MAX_DIMS];
  for (uint32_t d = 0; d < shape->n_dims && d < ISO_MAX_DIMS; d++)
    dims[d] = shape->dims[d].size;
  return measure(scheme, shape->n_dims, dims, strides, out_bytes);
}

const char *iso_shape_format(const iso_shape *shape, char *out_text, size_t capacity) {
  static const char letters[ISO_SYMBOL_COUNT] = {
      [ISO_SYMBOL_TOKENS] = 'T', [ISO_SYMBOL_SEQUENCES] = 'S', [ISO_SYMBOL_LOGIT_ROWS] = 'R',
      [ISO_SYMBOL_ADAPTED_ROWS] = 'A'};
  char text[32 * ISO_MAX_DIMS + 3] = "[";
  size_t used = 1;
  for (uint32_t d = 0; d < shape->n_dims && d < ISO_MAX_DIMS; d++) {
    iso_dim dim = shape->dims[d];
    const char *comma = d ? ", " : "";
    bool symbolic = dim.symbol > ISO_SYMBOL_NONE && dim.symbol < ISO_SYMBOL_COUNT;
    int n = symbolic ? snprintf(text + used, sizeof text - used, "%s%c<=%" PRId64, comma,
                                letters[dim.symbol], dim.size)
                     : snprintf(text + used, sizeof text - used, "%s%" PRId64, comma, dim.size);
    used += (size_t)n;
  }
  if (capacity > 0)
    snprintf(out_text, capacity, "%s]", text);
  return out_text;
}
