/* What `isomer verify` says of one device. */
#ifndef ISOMER_TOOLS_VERIFY_REPORT_H
#define ISOMER_TOOLS_VERIFY_REPORT_H

#include "tools/verify_compare.h"
#include <cjson/cJSON.h>

/* The text of a token, printable, into `out`; its number without a tokenizer. */
const char *iso_verify_token_text(const iso_model *model, int32_t token, char *out,
                                  size_t capacity);

/* A row a layer, logits, greedy tokens, ops by themselves, and the verdict. `judge` names whom the
 * device was compared with. */
void iso_verify_print(const iso_verify_result *result, const iso_model *model, const char *judge);
/* The same as an object; NULL when memory is out. */
cJSON *iso_verify_json(const iso_verify_result *result, const char *judge);

/* One sentence; false when the device is wrong or beyond tolerance. */
bool iso_verify_verdict(const iso_verify_result *result, const char *judge, char *out,
                        size_t capacity);

#endif
