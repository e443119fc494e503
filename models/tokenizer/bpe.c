#include "models/tokenizer/segment.h"

#include <string.h>

/* A run of the word that is one symbol so far; a doubly linked list in an array. */
typedef struct iso_merge_symbol {
  int32_t previous, next; /* -1: none */
  uint32_t start, length; /* bytes of the word; length 0: merged away */
  int32_t id;             /* RANKED_BPE; -1: nothing stands for it */
  bool frozen;
} iso_merge_symbol;

/* A merge that may happen: the symbol at `position` with its next. */
typedef struct iso_candidate {
  uint64_t order;  /* priority in the high half, position in the low one; least first */
  uint32_t length; /* bytes of both: tells whether either has changed since */
  int32_t merged;
} iso_candidate;

/* Least first from the largest score down: IEEE floats ordered as integers, then inverted. Adding
 * zero makes -0 and 0 the tie that they are. */
static uint32_t score_priority(double score) {
  float value = (float)score + 0.0f;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return ~bits;
}

static iso_status heap_push(iso_segment_scratch *s, iso_candidate candidate) {
  ISO_TRY(
      iso_array_grow((void **)&s->heap, &s->heap_capacity, s->heap_length + 1, sizeof *s->heap));
  size_t at = s->heap_length++;
  while (at > 0) {
    size_t parent = (at - 1) / 2;
    if (s->heap[parent].order <= candidate.order)
      break;
    s->heap[at] = s->heap[parent];
    at = parent;
  }
  s->heap[at] = candidate;
  return ISO_OK;
}

static iso_candidate heap_pop(iso_segment_scratch *s) {
  iso_candidate top = s->heap[0], last = s->heap[--s->heap_length];
  size_t at = 0;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= s->heap_length)
      break;
    if (child + 1 < s->heap_length && s->heap[child + 1].order < s->heap[child].order)
      child++;
    if (last.order <= s->heap[child].order)
      break;
    s->heap[at] = s->heap[child];
    at = child;
  }
  s->heap[at] = last;
  return top;
}

/* Puts the merge of `left` with its next on the heap, if there is one. */
static iso_status consider(const iso_segmenter *segmenter, iso_segment_scratch *s, const char *word,
                           int32_t left) {
  if (left < 0 || s->symbols[left].next < 0)
    return ISO_OK;
  const iso_merge_symbol *a = &s->symbols[left], *b = &s->symbols[a->next];
  iso_candidate candidate = {.length = a->length + b->length};
  uint32_t priority;
  if (segmenter->kind == ISO_SEGMENTER_RANKED_BPE) {
    const iso_merge_slot *merge = iso_merge_table_find(&segmenter->merges, a->id, b->id);
    if (!merge)
      return ISO_OK;
    candidate.merged = merge->merged;
    priority = merge->rank;
  } else {
    if (a->frozen || b->frozen)
      return ISO_OK;
    candidate.merged = iso_index_find(&segmenter->pieces, word + a->start, candidate.length);
    if (candidate.merged < 0)
      return ISO_OK;
    priority = score_priority(segmenter->scores[candidate.merged]);
  }
  candidate.order = (uint64_t)priority << 32 | (uint32_t)left;
  return heap_push(s, candidate);
}

static iso_status add_symbol(iso_segment_scratch *s, size_t *count, iso_merge_symbol symbol) {
  ISO_TRY(
      iso_array_grow((void **)&s->symbols, &s->symbol_capacity, *count + 1, sizeof *s->symbols));
  symbol.previous = (int32_t)*count - 1;
  symbol.next = -1;
  if (*count > 0)
    s->symbols[*count - 1].next = (int32_t)*count;
  s->symbols[(*count)++] = symbol;
  return ISO_OK;
}

/* Ranked BPE starts from ids, so what has no token is settled here: bytes, the unknown token, or
 * nothing. `*unknown` is the last symbol while it may still take up more unknown characters. */
static iso_status add_unknown(const iso_segmenter *segmenter, iso_segment_scratch *s, size_t *count,
                              const char *word, uint32_t start, uint32_t length, bool *unknown) {
  bool known = segmenter->byte_fallback;
  for (uint32_t i = 0; i < length && known; i++)
    known = segmenter->byte_ids[(uint8_t)word[start + i]] >= 0;
  if (known) {
    for (uint32_t i = 0; i < length; i++)
      ISO_TRY(add_symbol(s, count,
                         (iso_merge_symbol){.start = start + i,
                                            .length = 1,
                                            .id = segmenter->byte_ids[(uint8_t)word[start + i]]}));
    *unknown = false;
    return ISO_OK;
  }
  if (segmenter->unknown_id < 0)
    return ISO_OK;
  if (*unknown && segmenter->fuse_unknown) {
    s->symbols[*count - 1].length += length;
    return ISO_OK;
  }
  *unknown = true;
  return add_symbol(
      s, count, (iso_merge_symbol){.start = start, .length = length, .id = segmenter->unknown_id});
}

/* The word as one symbol a code point. */
static iso_status make_symbols(const iso_segmenter *segmenter, iso_segment_scratch *s,
                               const char *word, size_t length, size_t *out_count) {
  size_t count = 0;
  bool unknown = false;
  for (size_t at = 0; at < length;) {
    iso_merge_symbol symbol = {.start = (uint32_t)at, .id = -1};
    size_t size = 0;
    symbol.frozen = iso_trie_longest(&segmenter->symbols, word + at, length - at, &size) >= 0;
    if (!symbol.frozen)
      size = iso_utf8_length_of((uint8_t)word[at]);
    symbol.length = (uint32_t)size;
    at += size;
    if (segmenter->kind == ISO_SEGMENTER_RANKED_BPE) {
      symbol.id = iso_index_find(&segmenter->pieces, word + symbol.start, size);
      if (symbol.id < 0) {
        ISO_TRY(add_unknown(segmenter, s, &count, word, symbol.start, symbol.length, &unknown));
        continue;
      }
      unknown = false;
    }
    ISO_TRY(add_symbol(s, &count, symbol));
  }
  *out_count = count;
  return ISO_OK;
}

static iso_status merge_all(const iso_segmenter *segmenter, iso_segment_scratch *s,
                            const char *word, size_t count) {
  s->heap_length = 0;
  for (size_t i = 0; i + 1 < count; i++)
    ISO_TRY(consider(segmenter, s, word, (int32_t)i));
  while (s->heap_length > 0) {
    iso_candidate top = heap_pop(s);
    int32_t at = (int32_t)(uint32_t)top.order;
    iso_merge_symbol *left = &s->symbols[at];
    if (left->length == 0 || left->next < 0)
      continue;
    iso_merge_symbol *right = &s->symbols[left->next];
    if (left->length + right->length != top.length)
      continue;
    left->length = top.length;
    left->id = top.merged;
    left->next = right->next;
    right->length = 0;
    if (left->next >= 0)
      s->symbols[left->next].previous = at;
    ISO_TRY(consider(segmenter, s, word, left->previous));
    ISO_TRY(consider(segmenter, s, word, at));
  }
  return ISO_OK;
}

/* Scored BPE looks ids up at the end; what has none becomes bytes, or one unknown token a run. */
static iso_status push_scored(const iso_segmenter *segmenter, const char *text, size_t length,
                              bool *unknown, iso_ids *ids) {
  int32_t id = iso_index_find(&segmenter->pieces, text, length);
  if (id >= 0) {
    *unknown = false;
    return iso_ids_push(ids, id);
  }
  if (segmenter->byte_fallback) {
    bool known;
    ISO_TRY(iso_segment_bytes(segmenter, text, length, ids, &known));
    if (known)
      return ISO_OK;
  }
  if (segmenter->unknown_id < 0 || (*unknown && segmenter->fuse_unknown))
    return ISO_OK;
  *unknown = true;
  return iso_ids_push(ids, segmenter->unknown_id);
}

static iso_status segment_part(const iso_segmenter *segmenter, iso_segment_scratch *scratch,
                               const char *word, size_t length, iso_ids *ids) {
  size_t count;
  ISO_TRY(make_symbols(segmenter, scratch, word, length, &count));
  ISO_TRY(merge_all(segmenter, scratch, word, count));
  bool unknown = false;
  for (int32_t at = count ? 0 : -1; at >= 0; at = scratch->symbols[at].next) {
    const iso_merge_symbol *symbol = &scratch->symbols[at];
    if (segmenter->kind == ISO_SEGMENTER_RANKED_BPE)
      ISO_TRY(iso_ids_push(ids, symbol->id));
    else
      ISO_TRY(push_scored(segmenter, word + symbol->start, symbol->length, &unknown, ids));
  }
  return ISO_OK;
}

/* Whether a word may be cut before the U+2581 at `at`. */
static bool can_cut(const iso_segmenter *segmenter, const char *word, size_t at) {
  uint32_t before;
  size_t start = iso_utf8_previous(word, at);
  if (iso_utf8_decode(word + start, at - start, &before) == 0 || before == 0x2581)
    return false;
  for (uint8_t i = 0; i < segmenter->uncut_count; i++)
    if (segmenter->uncut[i] == before)
      return false;
  return true;
}

/* Length of the part of `word` up to the next cut. */
static size_t part_length(const iso_segmenter *segmenter, const char *word, size_t length) {
  for (size_t at = 1; segmenter->cut_at_metaspace && at + 3 <= length; at++)
    if (memcmp(word + at, "\xE2\x96\x81", 3) == 0 && can_cut(segmenter, word, at))
      return at;
  return length;
}

iso_status iso_segment_bpe(const iso_segmenter *segmenter, iso_segment_scratch *scratch,
                           const char *word, size_t length, iso_ids *ids) {
  if (segmenter->whole_word_first) {
    int32_t id = iso_index_find(&segmenter->pieces, word, length);
    if (id >= 0)
      return iso_ids_push(ids, id);
  }
  for (size_t at = 0; at < length;) {
    size_t part = part_length(segmenter, word + at, length - at);
    ISO_TRY(segment_part(segmenter, scratch, word + at, part, ids));
    at += part;
  }
  return ISO_OK;
}
