/* What --json prints: one JSON value on standard output, whatever becomes of the command. */
#ifndef ISOMER_TOOLS_JSON_OUTPUT_H
#define ISOMER_TOOLS_JSON_OUTPUT_H

#include <cjson/cJSON.h>
#include <isomer/status.h>

/* Prints a value, and frees it; NULL is memory that ran out while it was made. */
ISO_MUST_CHECK iso_status iso_json_output_print(cJSON *root);

/* An array that is printed element by element, as results come. Adding frees the element. */
ISO_MUST_CHECK iso_status iso_json_output_add(cJSON *item);
void iso_json_output_end(void);

/* {"error": sentence}: the whole output where nothing was printed, or the last element of an array
 * that has not ended. Behind a whole value nothing follows. */
void iso_json_output_fail(const char *sentence);

#endif
