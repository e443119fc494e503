/* SentencePiece model files: protocol buffers, read by field number (sentencepiece_model.proto of
 * the SentencePiece project). Fields that change how text is encoded are read or refused; training
 * parameters are passed over. */
#include "models/tokenizer/vocabulary.h"

#include <string.h>

/* A range of the file; reading moves `at`. */
typedef struct wire {
  const uint8_t *data;
  size_t at, size;
} wire;

/* One field: a number (varint, fixed 32 or 64) or a range of bytes. */
typedef struct wire_field {
  uint32_t number, type;
  uint64_t value;
  wire bytes;
} wire_field;

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static iso_status broken(const wire *w, const char *what) {
  return iso_fail(ISO_ERROR_CORRUPT_DATA,
                  "SentencePiece model: %s (%zu bytes into a message of %zu)", what, w->at,
                  w->size);
}

static iso_status read_varint(wire *w, uint64_t *out_value) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (w->at == w->size)
      return broken(w, "a number is cut");
    uint8_t byte = w->data[w->at++];
    value |= (uint64_t)(byte & 0x7F) << shift;
    if (!(byte & 0x80)) {
      *out_value = value;
      return ISO_OK;
    }
  }
  return broken(w, "a number has more than ten bytes");
}

static iso_status read_fixed(wire *w, size_t bytes, uint64_t *out_value) {
  if (w->size - w->at < bytes)
    return broken(w, "a number is cut");
  *out_value = 0;
  for (size_t i = 0; i < bytes; i++)
    *out_value |= (uint64_t)w->data[w->at++] << (8 * i);
  return ISO_OK;
}

/* The next field; only while w->at < w->size. */
static iso_status read_field(wire *w, wire_field *out) {
  uint64_t key = 0, length = 0;
  ISO_TRY(read_varint(w, &key));
  *out = (wire_field){.number = (uint32_t)(key >> 3), .type = (uint32_t)(key & 7)};
  if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF)
    return broken(w, "a field number is out of range");
  switch (out->type) {
  case WIRE_VARINT:
    return read_varint(w, &out->value);
  case WIRE_FIXED64:
    return read_fixed(w, 8, &out->value);
  case WIRE_FIXED32:
    return read_fixed(w, 4, &out->value);
  case WIRE_BYTES:
    ISO_TRY(read_varint(w, &length));
    if (length > w->size - w->at)
      return broken(w, "a field runs past the end");
    out->bytes = (wire){.data = w->data + w->at, .size = (size_t)length};
    w->at += (size_t)length;
    return ISO_OK;
  default:
    return broken(w, "an unknown wire type");
  }
}

static iso_status expect(const wire *w, const wire_field *field, uint32_t type) {
  return field->type == type ? ISO_OK : broken(w, "a field has the wrong wire type");
}

/* What the file says beside its pieces. */
typedef struct model_spec {
  uint64_t model_type; /* 1 unigram, 2 BPE, 3 word, 4 char */
  bool byte_fallback, suffix_whitespace;
  bool dummy_prefix, remove_extra_whitespace, escape_whitespace;
  wire charsmap, unknown_surface;
  int32_t bos_id, eos_id, pad_id;
} model_spec;

static iso_status read_piece(wire w, iso_vocabulary *v) {
  wire text = {0};
  float score = 0;
  uint64_t type = ISO_TOKEN_NORMAL;
  while (w.at < w.size) {
    wire_field field;
    ISO_TRY(read_field(&w, &field));
    if (field.number == 1) {
      ISO_TRY(expect(&w, &field, WIRE_BYTES));
      text = field.bytes;
    } else if (field.number == 2) {
      ISO_TRY(expect(&w, &field, WIRE_FIXED32));
      uint32_t bits = (uint32_t)field.value;
      memcpy(&score, &bits, sizeof score);
    } else if (field.number == 3) {
      ISO_TRY(expect(&w, &field, WIRE_VARINT));
      type = field.value;
    }
  }
  if (text.size == 0)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "SentencePiece model: piece %zu is empty", v->count);
  if (type < ISO_TOKEN_NORMAL || type > ISO_TOKEN_BYTE)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "SentencePiece model: piece %zu has type %llu", v->count,
                    (unsigned long long)type);
  if (score != score)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "SentencePiece model: the score of piece %zu is NaN",
                    v->count);
  return iso_vocabulary_add(v, (const char *)text.data, text.size, (iso_token_type)type, score);
}

static iso_status read_trainer_spec(wire w, model_spec *spec) {
  while (w.at < w.size) {
    wire_field field;
    ISO_TRY(read_field(&w, &field));
    switch (field.number) {
    case 3:
      ISO_TRY(expect(&w, &field, WIRE_VARINT));
      spec->model_type = field.value;
      break;
    case 24:
      ISO_TRY(expect(&w, &field, WIRE_VARINT));
      spec->suffix_whitespace = field.value != 0;
      break;
    case 35:
      ISO_TRY(expect(&w, &field, WIRE_VARINT));
      spec->byte_fallback = field.value != 0;
      break;
    case 41:
    case 42:
    case 43:
      ISO_TRY(expect(&w, &field, WIRE_VARINT));
      *(field.number == 41   ? &spec->bos_id
        : field.number == 42 ? &spec->eos_id
                             : &spec->pad_id) = (int32_t)(uint32_t)field.value;
      break;
    case 44:
      ISO_TRY(expect(&w, &field, WIRE_BYTES));
      spec->unknown_surface = field.bytes;
      break;
    default:
      break;
    }
  }
  return ISO_OK;
}

static iso_status read_normalizer_spec(wire w, model_spec *spec) {
  while (w.at < w.size) {
    wire_field field;
    ISO_TRY(read_field(&w, &field));
    if (field.number == 2) {
      ISO_TRY(expect(&w, &field, WIRE_BYTES));
      spec->charsmap = field.bytes;
    } else if (field.number >= 3 && field.number <= 5) {
      ISO_TRY(expect(&w, &field, WIRE_VARINT));
      *(field.number == 3   ? &spec->dummy_prefix
        : field.number == 4 ? &spec->remove_extra_whitespace
                            : &spec->escape_whitespace) = field.value != 0;
    }
  }
  return ISO_OK;
}

/* A denormalizer without a map does nothing, and files often carry such a one. */
static iso_status check_denormalizer(wire w) {
  while (w.at < w.size) {
    wire_field field;
    ISO_TRY(read_field(&w, &field));
    if (field.number == 2 && field.bytes.size > 0)
      return iso_fail(ISO_ERROR_UNSUPPORTED,
                      "SentencePiece model: denormalizer_spec is not supported");
  }
  return ISO_OK;
}

static iso_status read_model(wire w, model_spec *spec, iso_vocabulary *v) {
  while (w.at < w.size) {
    wire_field field;
    ISO_TRY(read_field(&w, &field));
    if (field.number < 1 || field.number > 5 || field.number == 4)
      continue;
    ISO_TRY(expect(&w, &field, WIRE_BYTES));
    if (field.number == 1)
      ISO_TRY(read_piece(field.bytes, v));
    else if (field.number == 2)
      ISO_TRY(read_trainer_spec(field.bytes, spec));
    else if (field.number == 3)
      ISO_TRY(read_normalizer_spec(field.bytes, spec));
    else
      ISO_TRY(check_denormalizer(field.bytes));
  }
  return ISO_OK;
}

static iso_status check_spec(const model_spec *spec) {
  if (spec->model_type != 1 && spec->model_type != 2)
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    "SentencePiece model: model_type %llu (%s) is not supported",
                    (unsigned long long)spec->model_type,
                    spec->model_type == 3   ? "WORD"
                    : spec->model_type == 4 ? "CHAR"
                                            : "unknown");
  if (spec->suffix_whitespace)
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    "SentencePiece model: treat_whitespace_as_suffix is not supported");
  if (!spec->escape_whitespace)
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    "SentencePiece model: escape_whitespaces = false is not supported");
  return ISO_OK;
}

/* Control tokens, and the unknown one, are found in text only when special tokens are parsed. */
static iso_status mark_special(iso_vocabulary *v) {
  for (size_t id = 0; id < v->count; id++) {
    iso_token *token = &v->tokens[id];
    if (token->type == ISO_TOKEN_CONTROL)
      token->flags = ISO_TOKEN_ADDED | ISO_TOKEN_SPECIAL;
    if (token->type != ISO_TOKEN_UNKNOWN)
      continue;
    if (v->unknown_id >= 0)
      return iso_fail(ISO_ERROR_CORRUPT_DATA,
                      "SentencePiece model: pieces %d and %zu are both the unknown token",
                      v->unknown_id, id);
    v->unknown_id = (int32_t)id;
  }
  if (v->unknown_id < 0)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "SentencePiece model: there is no unknown token");
  return ISO_OK;
}

static int32_t known_id(const iso_vocabulary *v, int32_t id) {
  return id >= 0 && (size_t)id < v->count ? id : -1;
}

iso_status iso_vocabulary_read_sentencepiece(const void *data, size_t size, iso_vocabulary *v) {
  static const char unknown_surface[] = " \xE2\x81\x87 ";
  model_spec spec = {
      .model_type = 1,
      .dummy_prefix = true,
      .remove_extra_whitespace = true,
      .escape_whitespace = true,
      .unknown_surface = {(const uint8_t *)unknown_surface, 0, sizeof unknown_surface - 1},
      .bos_id = 1,
      .eos_id = 2,
      .pad_id = -1,
  };
  ISO_TRY(read_model((wire){.data = data, .size = size}, &spec, v));
  ISO_TRY(check_spec(&spec));
  v->kind = spec.model_type == 1 ? ISO_SEGMENTER_UNIGRAM : ISO_SEGMENTER_SCORED_BPE;
  v->byte_fallback = spec.byte_fallback;
  v->symbols_in_model = true;
  ISO_TRY(mark_special(v));
  v->bos_id = known_id(v, spec.bos_id);
  v->eos_id = known_id(v, spec.eos_id);
  v->pad_id = known_id(v, spec.pad_id);
  ISO_TRY(iso_text_append(&v->unknown_text, spec.unknown_surface.data, spec.unknown_surface.size));
  return iso_vocabulary_use_sentencepiece(
      v, &(iso_sentencepiece_options){.charsmap = spec.charsmap.data,
                                      .charsmap_size = spec.charsmap.size,
                                      .dummy_prefix = spec.dummy_prefix,
                                      .remove_extra_whitespace = spec.remove_extra_whitespace});
}
