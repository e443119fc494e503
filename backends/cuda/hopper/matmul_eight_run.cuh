/* Launches of matmul_eight(): how products are cut. */
#ifndef ISOMER_CUDA_HOPPER_MATMUL_EIGHT_RUN_H
#define ISOMER_CUDA_HOPPER_MATMUL_EIGHT_RUN_H

#include "backends/cuda/hopper/matmul_eight.cuh"

/* Bytes of scratch, for this many rows or fewer. */
static inline uint64_t matmul_eight_workspace(int64_t n_rows, int64_t n_columns) {
  uint64_t parts =
      (uint64_t)matmul_count(n_rows, EIGHT_SLAB) * (uint64_t)matmul_count(n_columns, EIGHT_GROUP);
  return parts * (EIGHT_SLAB_BYTES + EIGHT_SLAB * 4) + 1024;
}

/* The kernel for these parts. */
template <typename W, int Rows, bool Splits, typename Make>
auto matmul_eight_kernel(const matmul_eight_arguments &a) {
  auto kernel = matmul_eight<W, Rows, Splits, false, Make>;
  bool row_scales = true;
  for (int i = 0; i < a.n_parts; i++)
    row_scales &= a.parts[i].row_scales;
  if constexpr (W::float8 && Rows == EIGHT_SLAB)
    if (row_scales)
      kernel = matmul_eight<W, Rows, Splits, true, Make>;
  return kernel;
}

/* Clusters of so many blocks that the device runs at once. */
template <typename W, int Rows, bool Splits, typename Make>
int matmul_eight_clusters(iso_queue *queue, unsigned blocks) {
  static std::atomic<int> known[EIGHT_SPLITS + 1]; /* the cards of a machine are alike */
  int count = known[blocks].load(std::memory_order_relaxed);
  if (count == 0) {
    count = hopper_clusters(queue, matmul_eight<W, Rows, Splits, false, Make>, EIGHT_THREADS,
                            blocks, matmul_eight_shared<W, Rows>::bytes);
    known[blocks].store(count, std::memory_order_relaxed);
  }
  return count;
}

/* Rounded rows in matmul_eight_workspace() bytes. */
static inline matmul_eight_rows matmul_eight_rows_in(uint8_t *workspace, int64_t n_rows,
                                                     int64_t n_columns) {
  matmul_eight_rows rows = {};
  rows.n_rows = n_rows;
  rows.n_groups = (int32_t)(n_columns / EIGHT_GROUP);
  rows.image = workspace + (1024 - (uint64_t)(uintptr_t)workspace % 1024) % 1024;
  int64_t parts = matmul_count(n_rows, EIGHT_SLAB) * rows.n_groups;
  rows.scales = (float *)(rows.image + parts * EIGHT_SLAB_BYTES);
  return rows;
}

template <bool Float8>
iso_status matmul_eight_prepare(iso_queue *queue, const simt_rows &x, const matmul_eight_rows &to) {
  auto kernel = matmul_eight_by_row<Float8>(to.n_rows) ? matmul_eight_round<Float8, Float8>
                                                       : matmul_eight_round<Float8, false>;
  return simt_launch_early(queue, "matmul.eight.round", kernel, dim3((unsigned)to.n_rows),
                           dim3(256), 0, x, to);
}

/* Lets the parts' columns of `tiles` of 16 features follow one another. */
static inline void matmul_eight_place(matmul_eight_arguments *a, int tiles) {
  a->n_columns = 0, a->tiles = tiles;
  for (int i = 0; i < a->n_parts; i++) {
    matmul_eight_part &part = a->parts[i];
    part.first_column = a->n_columns;
    part.wide_y = simt_is_aligned(part.y, 16) && part.n_features % 8 == 0;
    a->n_columns += (int32_t)matmul_count(part.n_features, 16 * tiles);
  }
}

/* How products are cut: tiles of a block, and blocks that split K, none where blocks go from tile
 * to tile. */
struct matmul_eight_cut {
  unsigned splits;
  int tiles;
};

/* The cut that is done first, where a group of columns takes as long as its copies, of which x is
 * as much as 4 tiles of weights, a block's start and end as long as 6 groups of 8 tiles, and adding
 * up what others have as 2 more. */
template <typename W, typename Make>
matmul_eight_cut matmul_eight_cut_of(iso_queue *queue, matmul_eight_arguments a) {
  int64_t row_tiles = matmul_count(a.x.n_rows, EIGHT_SLAB), best_time = INT64_MAX;
  int64_t blocks = matmul_eight_clusters<W, EIGHT_SLAB, false, Make>(queue, 1);
  int n_groups = a.x.n_groups;
  matmul_eight_cut best = {};
  auto offer = [&](int64_t time, unsigned splits, int tiles) {
    if (time < best_time)
      best_time = time, best = {splits, tiles};
  };
  for (int tiles = EIGHT_TILES; tiles >= EIGHT_LEAST_TILES; tiles--) {
    int64_t each = tiles + 4, edge = 72;
    matmul_eight_place(&a, tiles);
    offer(matmul_count(row_tiles * a.n_columns, blocks) * n_groups * each + edge, 0, tiles);
    for (unsigned splits = 2; splits <= EIGHT_SPLITS && (int)splits <= n_groups; splits++) {
      int64_t clusters = matmul_eight_clusters<W, EIGHT_SLAB, true, Make>(queue, splits);
      int64_t turns = matmul_count(row_tiles * a.n_columns, clusters);
      offer(turns * (matmul_count(n_groups, splits) * each + edge + 24), splits, tiles);
    }
  }
  return best;
}

template <typename W, int Rows, typename Make>
iso_status matmul_eight_walk(iso_queue *queue, const char *name, matmul_eight_arguments a,
                             int tiles, const Make &make) {
  constexpr int pair = matmul_eight_block<W, Rows, false>::pair;
  matmul_eight_place(&a, pair * tiles);
  a.tiles = tiles;
  int64_t pairs = matmul_count(a.x.n_rows, Rows) * a.n_columns;
  int64_t most = matmul_eight_clusters<W, Rows, false, Make>(queue, pair);
  return hopper_launch<Make::makes>(queue, name, matmul_eight_kernel<W, Rows, false, Make>(a),
                                    dim3((unsigned)(pair * (pairs < most ? pairs : most))),
                                    dim3(EIGHT_THREADS), pair,
                                    (size_t)matmul_eight_shared<W, Rows>::bytes, a, make);
}

template <typename W, typename Make>
iso_status matmul_eight_split(iso_queue *queue, const char *name, matmul_eight_arguments a,
                              const matmul_eight_cut &cut, const Make &make) {
  matmul_eight_place(&a, cut.tiles);
  if (a.n_columns > 65535)
    return simt_fail_size(name);
  return hopper_launch<Make::makes>(
      queue, name, matmul_eight_kernel<W, EIGHT_SLAB, true, Make>(a),
      dim3(cut.splits, (unsigned)a.n_columns, (unsigned)matmul_count(a.x.n_rows, EIGHT_SLAB)),
      dim3(EIGHT_THREADS), cut.splits, (size_t)matmul_eight_shared<W, EIGHT_SLAB>::bytes, a, make);
}

/* Makes all parts, of one feature or more each. */
template <typename W>
iso_status matmul_eight_run(iso_queue *queue, const char *name, const matmul_eight_arguments &a) {
  make_nothing nothing;
  if (a.x.n_rows >= EIGHT_LEAST_WIDE)
    return matmul_eight_walk<W, EIGHT_WIDE>(queue, name, a, EIGHT_TILES, nothing);
  matmul_eight_cut cut = matmul_eight_cut_of<W, make_nothing>(queue, a);
  if (cut.splits == 0)
    return matmul_eight_walk<W, EIGHT_SLAB>(queue, name, a, cut.tiles, nothing);
  return matmul_eight_split<W>(queue, name, a, cut, nothing);
}

/* The same of up to EIGHT_SLAB rows that `make` makes, where all blocks run at once; *out_is_done
 * says whether they do. */
template <typename W, typename Make>
iso_status matmul_eight_make_and_run(iso_queue *queue, const char *name, matmul_eight_arguments a,
                                     const Make &make, bool *out_is_done) {
  matmul_eight_cut cut = matmul_eight_cut_of<W, Make>(queue, a);
  *out_is_done = true;
  if (cut.splits == 0)
    return matmul_eight_walk<W, EIGHT_SLAB>(queue, name, a, cut.tiles, make);
  matmul_eight_place(&a, cut.tiles);
  *out_is_done = a.n_columns <= matmul_eight_clusters<W, EIGHT_SLAB, true, Make>(queue, cut.splits);
  return *out_is_done ? matmul_eight_split<W>(queue, name, a, cut, make) : ISO_OK;
}

#endif
