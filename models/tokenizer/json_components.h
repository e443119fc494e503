/* The parts of a tokenizer.json around its model, each into an iso_vocabulary. A component that is
 * not supported is refused by its type. A NULL or JSON null section adds nothing. */
#ifndef ISOMER_MODELS_TOKENIZER_JSON_COMPONENTS_H
#define ISOMER_MODELS_TOKENIZER_JSON_COMPONENTS_H

#include "core/json.h"
#include "models/tokenizer/vocabulary.h"

ISO_MUST_CHECK iso_status iso_json_read_normalizer(const cJSON *section, iso_vocabulary *v);
ISO_MUST_CHECK iso_status iso_json_read_pretokenizer(const cJSON *section, iso_vocabulary *v);
ISO_MUST_CHECK iso_status iso_json_read_decoder(const cJSON *section, iso_vocabulary *v);
/* Only the template for a single text counts. */
ISO_MUST_CHECK iso_status iso_json_read_post_processor(const cJSON *section, iso_vocabulary *v);

/* Added tokens: a list of objects with "id" and "content", or an object of them by id. A token that
 * the vocabulary has already keeps its id. */
ISO_MUST_CHECK iso_status iso_json_read_added_tokens(const cJSON *list, iso_vocabulary *v);

/* A handler of one type of component. */
typedef struct iso_component_reader {
  const char *type;
  iso_status (*read)(const cJSON *section, iso_vocabulary *v);
} iso_component_reader;

/* Finds the reader of section.type in a table that ends with {NULL}, and runs it. `what` names the
 * kind of component in messages. */
ISO_MUST_CHECK iso_status iso_json_read_component(const cJSON *section, const char *what,
                                                  const iso_component_reader *readers,
                                                  iso_vocabulary *v);
/* Runs `read` on each element of section[key]. */
ISO_MUST_CHECK iso_status iso_json_read_sequence(const cJSON *section, const char *key,
                                                 iso_status (*read)(const cJSON *,
                                                                    iso_vocabulary *),
                                                 iso_vocabulary *v);
/* Compiles section.pattern: {"String": ...} or {"Regex": ...}. */
ISO_MUST_CHECK iso_status iso_json_read_pattern(const cJSON *section, iso_regex **out_regex);

#endif
