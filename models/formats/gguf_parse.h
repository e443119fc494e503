/* Inside the GGUF reader: a bounded cursor over the file, and the metadata section. */
#ifndef ISOMER_MODELS_FORMATS_GGUF_PARSE_H
#define ISOMER_MODELS_FORMATS_GGUF_PARSE_H

#include "models/formats/gguf.h"
#include "models/formats/name_index.h"

typedef struct gguf_cursor {
  const uint8_t *data;
  uint64_t size;
  uint64_t offset; /* at most size */
} gguf_cursor;

typedef struct gguf_metadata {
  iso_gguf_value *values;
  uint64_t count;
  iso_name_index keys;
} gguf_metadata;

/* Fails with "what at byte N". */
iso_status iso_gguf_fail(iso_status code, uint64_t offset, const char *format, ...)
    ISO_PRINTF(3, 4);

ISO_MUST_CHECK iso_status iso_gguf_take_u32(gguf_cursor *cursor, uint32_t *out_value);
ISO_MUST_CHECK iso_status iso_gguf_take_u64(gguf_cursor *cursor, uint64_t *out_value);
/* A key or tensor name: 1 to 65,535 bytes, no control characters. */
ISO_MUST_CHECK iso_status iso_gguf_take_name(gguf_cursor *cursor, iso_text_view *out_name);

/* Reads `count` key-value pairs. On failure *out_metadata is empty. */
ISO_MUST_CHECK iso_status iso_gguf_take_metadata(gguf_cursor *cursor, uint64_t count,
                                                 gguf_metadata *out_metadata);
void iso_gguf_metadata_clear(gguf_metadata *metadata);
const iso_gguf_value *iso_gguf_metadata_find(const gguf_metadata *metadata, const char *key);
/* As iso_gguf_get_optional_int. */
ISO_MUST_CHECK iso_status iso_gguf_metadata_int(const gguf_metadata *metadata, const char *key,
                                                bool required, int64_t min, int64_t max,
                                                int64_t *out_value);

/* "general.alignment", a power of two from 8 to 65,536; 32 when it is absent. */
ISO_MUST_CHECK iso_status iso_gguf_metadata_alignment(const gguf_metadata *metadata,
                                                      uint64_t *out_alignment);

/* The reader's own metadata. */
const gguf_metadata *iso_gguf_metadata(const iso_gguf *gguf);

#endif
