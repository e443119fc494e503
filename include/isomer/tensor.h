/* Shapes: dimensions are constants or one of a few symbols with a bound.
 *
 * A graph is planned once with every symbol at its bound, and run at any binding at or below
 * it. Dimensions are listed outermost first; the last one is a row and is contiguous. */
#ifndef ISOMER_TENSOR_H
#define ISOMER_TENSOR_H

#include <isomer/quant.h>

ISO_BEGIN_DECLS

typedef enum iso_symbol {
  ISO_SYMBOL_NONE = 0,       /* a constant */
  ISO_SYMBOL_TOKENS = 1,     /* T: token rows of this step, over all sequences */
  ISO_SYMBOL_SEQUENCES = 2,  /* S: sequences of this step */
  ISO_SYMBOL_LOGIT_ROWS = 3, /* R: rows whose logits are wanted */
  ISO_SYMBOL_ADAPTED_ROWS = 4, /* A: T where a row of this step has an adapter, else 0 */
  ISO_SYMBOL_COUNT = 5
} iso_symbol;

typedef struct iso_dim {
  iso_symbol symbol; /* ISO_SYMBOL_NONE: size is exact; else size is the symbol's bound */
  int64_t size;
} iso_dim;

typedef struct iso_shape {
  uint32_t n_dims; /* 1 to ISO_MAX_DIMS */
  iso_dim dims[ISO_MAX_DIMS];
} iso_shape;

/* Actual sizes of the symbols in one step; [ISO_SYMBOL_NONE] is unused. */
typedef struct iso_bindings {
  int64_t size[ISO_SYMBOL_COUNT];
} iso_bindings;

static inline iso_dim iso_dim_constant(int64_t size) {
  iso_dim dim = {ISO_SYMBOL_NONE, size};
  return dim;
}
static inline iso_dim iso_dim_symbol(iso_symbol symbol, int64_t bound) {
  iso_dim dim = {symbol, bound};
  return dim;
}

/* Size of a dimension: its own bound when `bindings` is NULL, the bound value otherwise. */
static inline int64_t iso_dim_size(iso_dim dim, const iso_bindings *bindings) {
  return dim.symbol == ISO_SYMBOL_NONE || !bindings ? dim.size : bindings->size[dim.symbol];
}

/* Bytes of a dense tensor of this scheme and shape at its bounds (no padding). Fails on
 * overflow, a row that is not whole blocks, or a dimension above ISO_MAX_DIM. */
ISO_MUST_CHECK ISO_API iso_status iso_shape_bytes(const iso_shape *shape, iso_scheme scheme,
                                                  uint64_t *out_bytes);
/* Writes a shape such as "[T<=512, 576]" into `out_text` and returns it. */
ISO_API const char *iso_shape_format(const iso_shape *shape, char *out_text, size_t capacity);

ISO_END_DECLS
#endif
