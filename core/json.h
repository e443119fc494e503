/* JSON as RFC 8259 has it, from files and requests that are not trusted.
 *
 * The text is checked in one pass, with no recursion and no memory, before cJSON builds a tree
 * of it. Refused beyond plain syntax errors: nesting deeper than a limit, bytes after the value,
 * duplicate keys, NaN and Infinity, numbers that overflow a double or have more than 63
 * characters, invalid UTF-8, lone surrogates, and NUL (also as \u0000, which a C string cannot
 * hold). A UTF-8 byte order mark at the start is skipped. Errors name the byte and the line. */
#ifndef ISOMER_CORE_JSON_H
#define ISOMER_CORE_JSON_H

#include <cjson/cJSON.h>
#include <isomer/status.h>

/* Largest max_depth; below cJSON's own recursion limit. */
#define ISO_JSON_MAX_DEPTH 512
/* Most values in one text: bounds the tree, at about 64 bytes a value, whatever the text's size.
 * The largest tokenizer files known have about 2 million. */
#define ISO_JSON_MAX_VALUES (8u << 20)

/* Parses `length` bytes (no NUL needed at the end). Containers may nest max_depth deep, 1 to
 * ISO_JSON_MAX_DEPTH: "[]" has depth 1. The caller frees *out_root with cJSON_Delete. Time is
 * O(n log n). CORRUPT_DATA for a broken text, LIMIT for one too deep or with too many values.
 * Thread safe. */
ISO_MUST_CHECK iso_status iso_json_parse(const char *text, size_t length, int max_depth,
                                         cJSON **out_root);

/* The same with at most *values values, of which what the text has is taken off; where it has more
 * the status is LIMIT and *values 0. */
ISO_MUST_CHECK iso_status iso_json_parse_within(const char *text, size_t length, int max_depth,
                                                uint64_t *values, cJSON **out_root);

/* Reads and parses a file of at most `limit` bytes; errors name the path. */
ISO_MUST_CHECK iso_status iso_json_read_file(const char *path, uint64_t limit, int max_depth,
                                             cJSON **out_root);

/* Typed members of an object. `get` needs the key; `get_optional` leaves *out_value as it was when
 * the key is absent or null. Both refuse a value of the wrong type or outside [min, max], naming
 * the key. Integers must be whole and within 2^53. Strings, arrays and objects belong to the tree.
 * `object` may be NULL or no object: then the key is absent. Linear in the object's size. */
ISO_MUST_CHECK iso_status iso_json_get_int(const cJSON *object, const char *key, int64_t min,
                                           int64_t max, int64_t *out_value);
ISO_MUST_CHECK iso_status iso_json_get_optional_int(const cJSON *object, const char *key,
                                                    int64_t min, int64_t max, int64_t *out_value);
ISO_MUST_CHECK iso_status iso_json_get_float(const cJSON *object, const char *key, double min,
                                             double max, double *out_value);
ISO_MUST_CHECK iso_status iso_json_get_optional_float(const cJSON *object, const char *key,
                                                      double min, double max, double *out_value);
ISO_MUST_CHECK iso_status iso_json_get_bool(const cJSON *object, const char *key, bool *out_value);
ISO_MUST_CHECK iso_status iso_json_get_optional_bool(const cJSON *object, const char *key,
                                                     bool *out_value);
ISO_MUST_CHECK iso_status iso_json_get_string(const cJSON *object, const char *key,
                                              const char **out_value);
ISO_MUST_CHECK iso_status iso_json_get_optional_string(const cJSON *object, const char *key,
                                                       const char **out_value);
ISO_MUST_CHECK iso_status iso_json_get_array(const cJSON *object, const char *key,
                                             const cJSON **out_array);
ISO_MUST_CHECK iso_status iso_json_get_optional_array(const cJSON *object, const char *key,
                                                      const cJSON **out_array);
ISO_MUST_CHECK iso_status iso_json_get_object(const cJSON *object, const char *key,
                                              const cJSON **out_object);
ISO_MUST_CHECK iso_status iso_json_get_optional_object(const cJSON *object, const char *key,
                                                       const cJSON **out_object);

#endif
