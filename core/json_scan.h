/* The strict check of a JSON text that precedes building a tree; see core/json.h. */
#ifndef ISOMER_CORE_JSON_SCAN_H
#define ISOMER_CORE_JSON_SCAN_H

#include <isomer/status.h>

/* Checks the grammar, depth, strings and number spellings of a text, in O(length) time and no
 * memory beyond a fixed frame. *out_value_count is the number of values. */
ISO_MUST_CHECK iso_status iso_json_scan(const char *text, size_t length, int max_depth,
                                        uint64_t *out_value_count);

/* Bytes of the UTF-8 byte order mark at the start: 3 or 0. */
size_t iso_json_mark_length(const char *text, size_t length);

/* Byte offset of the value number `ordinal` in document order (0 is the root), or of its key where
 * it has one and `wants_key`. The text must have passed iso_json_scan. */
size_t iso_json_scan_find(const char *text, size_t length, uint64_t ordinal, bool wants_key);

/* CORRUPT_DATA or LIMIT with "what at byte B (line L)". */
iso_status iso_json_fail(iso_status code, const char *text, size_t offset, const char *what);

#endif
