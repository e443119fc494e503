/* The look-up tables of a tokenizer: text to id, pair to merge, and a byte trie.
 *
 * All are built once and then only read, from any thread. Hashes are seeded from the system's
 * random source, so that no file can be made whose keys collide. */
#ifndef ISOMER_MODELS_TOKENIZER_LOOKUP_H
#define ISOMER_MODELS_TOKENIZER_LOOKUP_H

#include <isomer/status.h>

/* A text with a number: what goes into an index or a trie. The bytes are borrowed. */
typedef struct iso_entry {
  const char *text;
  uint32_t length;
  int32_t value; /* >= 0 */
} iso_entry;

/* Exact texts. Keeps the entries' text pointers, so their bytes must stay. */
typedef struct iso_index {
  iso_entry *slots; /* value -1: free */
  uint64_t mask, seed;
  uint32_t longest; /* bytes of the longest text */
} iso_index;

/* Of equal texts the last one wins. */
ISO_MUST_CHECK iso_status iso_index_build(const iso_entry *entries, size_t count,
                                          iso_index *out_index);
void iso_index_free(iso_index *index);
/* The value of `text`, -1 when absent. Constant time for any length: texts longer than the longest
 * entry are not even hashed. */
int32_t iso_index_find(const iso_index *index, const char *text, size_t length);

/* Merges of byte pair encoding: (left id, right id) -> rank and merged id. */
typedef struct iso_merge {
  int32_t left, right, merged;
} iso_merge;

typedef struct iso_merge_slot {
  int32_t left, right, merged; /* left -1: free */
  uint32_t rank;               /* place in the list; lower merges first */
} iso_merge_slot;

typedef struct iso_merge_table {
  iso_merge_slot *slots;
  uint64_t mask, seed;
} iso_merge_table;

/* Of equal pairs the last one wins. */
ISO_MUST_CHECK iso_status iso_merge_table_build(const iso_merge *merges, size_t count,
                                                iso_merge_table *out_table);
void iso_merge_table_free(iso_merge_table *table);
/* NULL when the pair does not merge. */
const iso_merge_slot *iso_merge_table_find(const iso_merge_table *table, int32_t left,
                                           int32_t right);

/* A byte trie in breadth-first order: the children of a node are neighbours, so a node needs no
 * more than where they start. Node 0 is the root. */
typedef struct iso_trie {
  uint32_t *first_child; /* [node_count + 1]; children of n: first_child[n] .. first_child[n+1] */
  int32_t *values;       /* -1: no entry ends here */
  uint8_t *labels;
  uint32_t node_count; /* 0: empty trie */
} iso_trie;

/* Empty texts are left out; of equal texts the last one wins. */
ISO_MUST_CHECK iso_status iso_trie_build(const iso_entry *entries, size_t count,
                                         iso_trie *out_trie);
void iso_trie_free(iso_trie *trie);
/* The child of `node` by `byte`; 0 when there is none. */
uint32_t iso_trie_step(const iso_trie *trie, uint32_t node, uint8_t byte);
/* The longest entry that `text` starts with: its value and length, or -1. */
int32_t iso_trie_longest(const iso_trie *trie, const char *text, size_t length, size_t *out_length);

#endif
