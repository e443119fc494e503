#include "models/tokenizer/charsmap.h"

#include <stdlib.h>
#include <string.h>

static uint32_t read_u32(const uint8_t *bytes) {
  return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
         (uint32_t)bytes[3] << 24;
}

iso_status iso_charsmap_create(const void *data, size_t size, iso_charsmap *out_map) {
  *out_map = (iso_charsmap){0};
  const uint8_t *bytes = data;
  uint32_t trie_size = size > 4 ? read_u32(bytes) : 0;
  if (size <= 4 || trie_size == 0 || trie_size % 4 != 0 || trie_size >= size - 4)
    return iso_fail(ISO_ERROR_CORRUPT_DATA,
                    "precompiled charsmap: a trie of %u bytes does not fit in %zu bytes", trie_size,
                    size);
  const char *replacements = (const char *)bytes + 4 + trie_size;
  size_t replacements_size = size - 4 - trie_size;
  if (replacements[replacements_size - 1] != 0 ||
      iso_utf8_valid_prefix(replacements, replacements_size) != replacements_size)
    return iso_fail(ISO_ERROR_CORRUPT_DATA,
                    "precompiled charsmap: the replacements are not NUL-ended UTF-8");
  iso_charsmap map = {.unit_count = trie_size / 4, .replacements_size = replacements_size};
  map.units = malloc(trie_size);
  map.replacements = malloc(replacements_size);
  if (!map.units || !map.replacements) {
    iso_charsmap_free(&map);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "precompiled charsmap: no memory for %zu bytes", size);
  }
  for (uint32_t i = 0; i < map.unit_count; i++)
    map.units[i] = read_u32(bytes + 4 + 4 * (size_t)i);
  memcpy(map.replacements, replacements, replacements_size);
  *out_map = map;
  return ISO_OK;
}

void iso_charsmap_free(iso_charsmap *map) {
  free(map->units);
  free(map->replacements);
  *map = (iso_charsmap){0};
}

static uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

iso_charsmap_match iso_charsmap_find(const iso_charsmap *map, const char *text, size_t length,
                                     bool longest) {
  iso_charsmap_match match = {0};
  if (map->unit_count == 0)
    return match;
  uint32_t at = offset_of(map->units[0]);
  for (size_t i = 0; i < length && text[i] != 0; i++) {
    uint8_t byte = (uint8_t)text[i];
    at ^= byte;
    if (at >= map->unit_count)
      break;
    uint32_t unit = map->units[at];
    if ((unit & 0x800000FFu) != byte)
      break;
    at ^= offset_of(unit);
    if (!(unit & 0x100u) || at >= map->unit_count)
      continue;
    uint32_t value = map->units[at] & 0x7FFFFFFFu;
    /* A match that ends within a code point would cut the text's, and a replacement that begins
     * within one is cut itself. */
    if (value >= map->replacements_size || iso_utf8_continues(map->replacements[value]) ||
        (i + 1 < length && iso_utf8_continues(text[i + 1])))
      continue;
    match.length = i + 1;
    match.replacement = map->replacements + value;
    match.replacement_length = strlen(match.replacement);
    if (!longest)
      break;
  }
  return match;
}
