#include "models/tokenizer/segment.h"

#include <stdlib.h>

iso_status iso_ids_push(iso_ids *ids, int32_t id) {
  if (ids->length == ids->capacity)
    ISO_TRY(
        iso_array_grow((void **)&ids->data, &ids->capacity, ids->length + 1, sizeof *ids->data));
  ids->data[ids->length++] = id;
  return ISO_OK;
}

void iso_segment_scratch_free(iso_segment_scratch *scratch) {
  free(scratch->symbols);
  free(scratch->heap);
  free(scratch->path);
  *scratch = (iso_segment_scratch){0};
}

iso_status iso_segment_bytes(const iso_segmenter *segmenter, const char *bytes, size_t length,
                             iso_ids *ids, bool *out_known) {
  *out_known = true;
  for (size_t i = 0; i < length; i++)
    if (segmenter->byte_ids[(uint8_t)bytes[i]] < 0) {
      *out_known = false;
      return ISO_OK;
    }
  for (size_t i = 0; i < length; i++)
    ISO_TRY(iso_ids_push(ids, segmenter->byte_ids[(uint8_t)bytes[i]]));
  return ISO_OK;
}

iso_status iso_segment(const iso_segmenter *segmenter, iso_segment_scratch *scratch,
                       const char *word, size_t length, iso_ids *ids) {
  if (length == 0)
    return ISO_OK;
  if (length > ISO_MAX_WORD)
    return iso_fail(ISO_ERROR_LIMIT, "tokenizer: a word of %zu bytes; at most %u are taken", length,
                    ISO_MAX_WORD);
  return segmenter->kind == ISO_SEGMENTER_UNIGRAM
             ? iso_segment_unigram(segmenter, scratch, word, length, ids)
             : iso_segment_bpe(segmenter, scratch, word, length, ids);
}
