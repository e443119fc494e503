/* Storage schemes: how the elements of a tensor lie in memory.
 *
 * One enumeration covers plain elements (f32, bf16, i32 ...) and block-quantized ones (Q8_0,
 * Q4_K ...). A row is the last dimension; a block never crosses a row. Ops never name a scheme:
 * they ask these functions, and fast kernels register for the schemes they know. */
#ifndef ISOMER_QUANT_H
#define ISOMER_QUANT_H

#include <isomer/status.h>

ISO_BEGIN_DECLS

typedef enum iso_scheme {
#define ISO_SCHEME(NAME, name, gguf_type, block_elements, block_bytes, kind) ISO_SCHEME_##NAME,
#include <isomer/schemes.def>
#undef ISO_SCHEME
  ISO_SCHEME_COUNT
} iso_scheme;

/* A set of schemes; bit i stands for scheme i. */
typedef uint64_t iso_scheme_mask;
#define ISO_SCHEME_BIT(scheme) (UINT64_C(1) << (scheme))

typedef enum iso_scheme_kind {
  ISO_SCHEME_KIND_PLAIN_FLOAT,
  ISO_SCHEME_KIND_PLAIN_INT,
  ISO_SCHEME_KIND_BLOCK
} iso_scheme_kind;

typedef struct iso_scheme_info {
  const char *name;        /* "q4_k" */
  int32_t gguf_type;       /* type number in GGUF files, -1 if none */
  uint32_t block_elements; /* elements of a block, 1 for plain schemes */
  uint32_t block_bytes;
  iso_scheme_kind kind;
} iso_scheme_info;

/* Facts of a scheme. Never NULL for a scheme below ISO_SCHEME_COUNT, NULL otherwise. */
ISO_API const iso_scheme_info *iso_scheme_get_info(iso_scheme scheme);
/* Finds a scheme by name, case-insensitive ("Q4_K", "bf16"). False when unknown. */
ISO_API bool iso_scheme_from_name(const char *name, iso_scheme *out_scheme);
/* Finds a scheme by its GGUF type number. False when unknown. */
ISO_API bool iso_scheme_from_gguf(uint32_t gguf_type, iso_scheme *out_scheme);

/* Bytes of one row of `elements` elements. Fails when the row is not whole blocks or the size
 * overflows. */
ISO_MUST_CHECK ISO_API iso_status iso_scheme_row_bytes(iso_scheme scheme, int64_t elements,
                                                       uint64_t *out_bytes);

/* Decodes `elements` elements (a multiple of the block) to f32. `source` needs no alignment.
 * Plain integers convert by value. Never fails for a scheme below ISO_SCHEME_COUNT. */
ISO_API void iso_scheme_decode_row(iso_scheme scheme, const void *source, float *out_values,
                                   int64_t elements);
/* Encodes `elements` f32 values (a multiple of the block), round to nearest even where the
 * target is a plain float. `importance` is NULL or one non-negative weight an element, which
 * block schemes use to choose scales: they lessen the sum of importance times squared error. NaN
 * encodes as NaN in plain floats and as zero elsewhere; infinities saturate except in plain
 * floats. Plain integers round to nearest even and saturate. `out_row` needs no alignment. */
ISO_API void iso_scheme_encode_row(iso_scheme scheme, const float *values, const float *importance,
                                   void *out_row, int64_t elements);

/* IEEE half and bfloat16 conversions, round to nearest even, NaN kept quiet. */
ISO_API float iso_f16_to_f32(uint16_t bits);
ISO_API uint16_t iso_f16_from_f32(float value);
ISO_API float iso_bf16_to_f32(uint16_t bits);
ISO_API uint16_t iso_bf16_from_f32(float value);

ISO_END_DECLS
#endif
