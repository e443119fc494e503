#include "models/tokenizer/segment.h"

/* The best path that ends at one byte of the word. */
typedef struct iso_path_node {
  double score;
  int32_t start; /* of its last piece; -1: no path ends here */
  int32_t id;    /* of its last piece */
} iso_path_node;

/* Extends the best path up to `from` by a piece that ends at `to`. Of equal scores the first found
 * stays. SentencePiece compares sums in 64 bits but keeps them in 32. */
static void offer(const iso_segmenter *segmenter, iso_path_node *path, size_t from, size_t to,
                  double piece_score, int32_t id) {
  double score = path[from].score + piece_score;
  if (path[to].start < 0 || score > path[to].score)
    path[to] = (iso_path_node){.score = segmenter->single_precision ? (float)score : score,
                               .start = (int32_t)from,
                               .id = id};
}

static iso_status find_best_path(const iso_segmenter *segmenter, iso_path_node *path,
                                 const char *word, size_t length) {
  for (size_t i = 0; i <= length; i++)
    path[i] = (iso_path_node){.start = -1};
  for (size_t at = 0; at < length;) {
    const size_t size = iso_utf8_length_of((uint8_t)word[at]);
    bool single = false;
    uint32_t node = 0;
    for (size_t end = at; end < length;) {
      node = iso_trie_step(&segmenter->trie, node, (uint8_t)word[end]);
      if (node == 0)
        break;
      end++;
      int32_t id = segmenter->trie.values[node];
      if (id < 0)
        continue;
      offer(segmenter, path, at, end, segmenter->scores[id], id);
      single = single || end - at == size;
    }
    if (!single) {
      if (segmenter->unknown_id < 0)
        return iso_fail(ISO_ERROR_UNSUPPORTED,
                        "tokenizer: a character has no token, and the unigram model has no "
                        "unknown token");
      offer(segmenter, path, at, at + size, segmenter->unknown_score, segmenter->unknown_id);
    }
    at += size;
  }
  return ISO_OK;
}

/* A piece of the best path: its text is looked up, since unknown characters joined in a run can
 * make a token. */
static iso_status push_piece(const iso_segmenter *segmenter, const char *text, size_t length,
                             int32_t id, iso_ids *ids) {
  if (id != segmenter->unknown_id)
    return iso_ids_push(ids, id);
  int32_t known = iso_index_find(&segmenter->pieces, text, length);
  if (known >= 0)
    return iso_ids_push(ids, known);
  if (segmenter->byte_fallback) {
    bool has_bytes;
    ISO_TRY(iso_segment_bytes(segmenter, text, length, ids, &has_bytes));
    if (has_bytes)
      return ISO_OK;
  }
  return iso_ids_push(ids, segmenter->unknown_id);
}

iso_status iso_segment_unigram(const iso_segmenter *segmenter, iso_segment_scratch *scratch,
                               const char *word, size_t length, iso_ids *ids) {
  ISO_TRY(iso_array_grow((void **)&scratch->path, &scratch->path_capacity, length + 1,
                         sizeof *scratch->path));
  iso_path_node *path = scratch->path;
  ISO_TRY(find_best_path(segmenter, path, word, length));
  /* Turn the chain of ends around: node `start` then names the end of the piece from there. */
  int32_t end = (int32_t)length, id = path[length].id;
  for (int32_t start = path[length].start; end > 0;) {
    iso_path_node before = path[start];
    path[start].start = end;
    path[start].id = id;
    end = start;
    start = before.start;
    id = before.id;
  }
  for (int32_t at = 0; at < (int32_t)length;) {
    int32_t piece_end = path[at].start;
    const int32_t piece_id = path[at].id;
    while (piece_id == segmenter->unknown_id && segmenter->fuse_unknown &&
           piece_end < (int32_t)length && path[piece_end].id == segmenter->unknown_id)
      piece_end = path[piece_end].start;
    ISO_TRY(push_piece(segmenter, word + at, (size_t)(piece_end - at), piece_id, ids));
    at = piece_end;
  }
  return ISO_OK;
}
