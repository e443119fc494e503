#include "models/tokenizer/lookup.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static uint64_t random_seed(void) {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
    seed = (uint64_t)(uintptr_t)&seed; /* early boot: the stack's address will do */
  return seed | 1;
}

/* 128-bit multiply and fold: every input bit reaches every output bit. */
static uint64_t mix(uint64_t a, uint64_t b) {
  __uint128_t product = (__uint128_t)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_bytes(const char *text, size_t length, uint64_t seed) {
  uint64_t hash = seed ^ length;
  while (length >= 8) {
    uint64_t word;
    memcpy(&word, text, 8);
    hash = mix(hash ^ word, UINT64_C(0x9E3779B97F4A7C15) ^ seed);
    text += 8;
    length -= 8;
  }
  uint64_t word = 0;
  memcpy(&word, text, length);
  return mix(hash ^ word, UINT64_C(0xD1B54A32D192ED03) ^ seed);
}

static uint64_t hash_pair(int32_t left, int32_t right, uint64_t seed) {
  return mix(((uint64_t)(uint32_t)left << 32 | (uint32_t)right) ^ seed,
             UINT64_C(0x9E3779B97F4A7C15));
}

/* Slots for `count` keys, at most half full. 0 on overflow. */
static size_t table_size(size_t count) {
  size_t size = 16;
  while (size / 2 < count)
    if (__builtin_mul_overflow(size, (size_t)2, &size))
      return 0;
  return size;
}

static iso_status no_memory(size_t count) {
  return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "tokenizer: no memory for a table of %zu keys", count);
}

static iso_entry *index_slot(const iso_index *index, const char *text, size_t length) {
  uint64_t at = hash_bytes(text, length, index->seed) & index->mask;
  for (;; at = (at + 1) & index->mask) {
    iso_entry *slot = &index->slots[at];
    if (slot->value < 0 || (slot->length == length && memcmp(slot->text, text, length) == 0))
      return slot;
  }
}

iso_status iso_index_build(const iso_entry *entries, size_t count, iso_index *out_index) {
  size_t size = table_size(count);
  iso_index index = {.mask = size - 1, .seed = random_seed()};
  index.slots = size ? calloc(size, sizeof *index.slots) : NULL;
  if (!index.slots)
    return no_memory(count);
  for (size_t i = 0; i < size; i++)
    index.slots[i].value = -1;
  for (size_t i = 0; i < count; i++) {
    *index_slot(&index, entries[i].text, entries[i].length) = entries[i];
    if (entries[i].length > index.longest)
      index.longest = entries[i].length;
  }
  *out_index = index;
  return ISO_OK;
}

void iso_index_free(iso_index *index) {
  free(index->slots);
  *index = (iso_index){0};
}

int32_t iso_index_find(const iso_index *index, const char *text, size_t length) {
  if (length > index->longest || !index->slots)
    return -1;
  return index_slot(index, text, length)->value;
}

static iso_merge_slot *merge_slot(const iso_merge_table *table, int32_t left, int32_t right) {
  uint64_t at = hash_pair(left, right, table->seed) & table->mask;
  for (;; at = (at + 1) & table->mask) {
    iso_merge_slot *slot = &table->slots[at];
    if (slot->left < 0 || (slot->left == left && slot->right == right))
      return slot;
  }
}

iso_status iso_merge_table_build(const iso_merge *merges, size_t count,
                                 iso_merge_table *out_table) {
  size_t size = table_size(count);
  iso_merge_table table = {.mask = size - 1, .seed = random_seed()};
  table.slots = size ? calloc(size, sizeof *table.slots) : NULL;
  if (!table.slots)
    return no_memory(count);
  for (size_t i = 0; i < size; i++)
    table.slots[i].left = -1;
  for (size_t i = 0; i < count; i++)
    *merge_slot(&table, merges[i].left, merges[i].right) =
        (iso_merge_slot){.left = merges[i].left,
                         .right = merges[i].right,
                         .merged = merges[i].merged,
                         .rank = (uint32_t)i};
  *out_table = table;
  return ISO_OK;
}

void iso_merge_table_free(iso_merge_table *table) {
  free(table->slots);
  *table = (iso_merge_table){0};
}

const iso_merge_slot *iso_merge_table_find(const iso_merge_table *table, int32_t left,
                                           int32_t right) {
  const iso_merge_slot *slot = merge_slot(table, left, right);
  return slot->left < 0 ? NULL : slot;
}

static int compare_entries(const void *a, const void *b) {
  const iso_entry *left = *(const iso_entry *const *)a, *right = *(const iso_entry *const *)b;
  uint32_t common = left->length < right->length ? left->length : right->length;
  int order = common ? memcmp(left->text, right->text, common) : 0;
  if (order != 0)
    return order;
  if (left->length != right->length)
    return left->length < right->length ? -1 : 1;
  return left < right ? -1 : left > right;
}

/* The entries below a node, as a range of the sorted list. */
typedef struct entry_range {
  uint32_t begin, end;
} entry_range;

/* Appends the children of one node: its range, cut by the byte at `depth`. Entries that end here
 * come first and give the node its value. */
static void add_children(iso_trie *trie, entry_range *ranges, uint32_t node,
                         const iso_entry *const *sorted, uint32_t depth) {
  entry_range range = ranges[node];
  for (; range.begin < range.end && sorted[range.begin]->length == depth; range.begin++)
    trie->values[node] = sorted[range.begin]->value;
  trie->first_child[node] = trie->node_count;
  while (range.begin < range.end) {
    uint8_t label = (uint8_t)sorted[range.begin]->text[depth];
    uint32_t child = trie->node_count++;
    ranges[child].begin = range.begin;
    while (range.begin < range.end && (uint8_t)sorted[range.begin]->text[depth] == label)
      range.begin++;
    ranges[child].end = range.begin;
    trie->labels[child] = label;
    trie->values[child] = -1;
  }
}

iso_status iso_trie_build(const iso_entry *entries, size_t count, iso_trie *out_trie) {
  *out_trie = (iso_trie){0};
  size_t nodes = 1, used = 0;
  const iso_entry **sorted = calloc(count ? count : 1, sizeof *sorted);
  for (size_t i = 0; i < count && sorted; i++) {
    if (entries[i].length == 0)
      continue;
    sorted[used++] = &entries[i];
    if (__builtin_add_overflow(nodes, entries[i].length, &nodes) || nodes > UINT32_MAX - 1) {
      free(sorted);
      return iso_fail(ISO_ERROR_LIMIT, "tokenizer: the tokens of a trie exceed 4 GiB");
    }
  }
  iso_trie trie = {0};
  entry_range *ranges = calloc(nodes, sizeof *ranges);
  trie.first_child = calloc(nodes + 1, sizeof *trie.first_child);
  trie.values = calloc(nodes, sizeof *trie.values);
  trie.labels = calloc(nodes, sizeof *trie.labels);
  if (!sorted || !ranges || !trie.first_child || !trie.values || !trie.labels) {
    iso_trie_free(&trie);
    free(sorted);
    free(ranges);
    return no_memory(count);
  }
  qsort(sorted, used, sizeof *sorted, compare_entries);
  if (used > 0) {
    trie.node_count = 1;
    trie.values[0] = -1;
    ranges[0] = (entry_range){0, (uint32_t)used};
    uint32_t level_end = 1;
    for (uint32_t node = 0, depth = 0; node < trie.node_count; node++) {
      if (node == level_end) {
        depth++;
        level_end = trie.node_count;
      }
      add_children(&trie, ranges, node, sorted, depth);
    }
    trie.first_child[trie.node_count] = trie.node_count;
  }
  free(sorted);
  free(ranges);
  *out_trie = trie;
  return ISO_OK;
}

void iso_trie_free(iso_trie *trie) {
  free(trie->first_child);
  free(trie->values);
  free(trie->labels);
  *trie = (iso_trie){0};
}

uint32_t iso_trie_step(const iso_trie *trie, uint32_t node, uint8_t byte) {
  if (trie->node_count == 0)
    return 0;
  uint32_t low = trie->first_child[node], high = trie->first_child[node + 1];
  const uint32_t end = high;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (trie->labels[middle] < byte)
      low = middle + 1;
    else
      high = middle;
  }
  return low < end && trie->labels[low] == byte ? low : 0;
}

int32_t iso_trie_longest(const iso_trie *trie, const char *text, size_t length,
                         size_t *out_length) {
  int32_t value = -1;
  uint32_t node = 0;
  for (size_t i = 0; i < length; i++) {
    node = iso_trie_step(trie, node, (uint8_t)text[i]);
    if (node == 0)
      break;
    if (trie->values[node] >= 0) {
      value = trie->values[node];
      *out_length = i + 1;
    }
  }
  return value;
}
