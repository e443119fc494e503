/* Forms of a product on AMX tiles beside each other: what of a block stays in tiles, in the first
 * and in the second level, and how many tiles it uses.
 *
 *   cpu_tile_products [seconds] [text that a variant's name has]
 *   cpu_tile_products pair       two CPUs that are fast now, for taskset -c
 *
 * 512 rows times weights from memory on two CPUs, results in bf16; every variant in turn, again and
 * again. Of each whole products, no decoding. Before each product two CPUs are chosen among those
 * that the program may run on (taskset): those whose loads of tiles are quickest, as a CPU of a
 * virtual machine may be half of a core. Products without loads, the peak, and with them are timed
 * on both before and after, and medians are shown of all products and of those around which both
 * CPUs were as fast as the fastest ("whole"). Some results of each variant are compared with sums
 * in double. Alone:
 *
 *   gcc -O3 -march=sapphirerapids -I. -pthread bench/kernels/cpu_tile_products.c -lm
 *
 * A block is rows x columns of tiles whose sums are in tiles for a stretch of K; blocks of
 * `near_rows` rows go through all stretches of a chunk of K before the next rows, so that sums stay
 * in the first level where those are few; chunk_rows rows and a chunk of K are to stay in the
 * second level. */
#define _GNU_SOURCE
#include "bench/kernels/cpu_tiles.h"

#include <immintrin.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define INLINE static inline __attribute__((always_inline))
#define THREADS 2
#ifndef ROWS
#define ROWS 512
#endif
#ifndef POOL_BYTES
#define POOL_BYTES (INT64_C(768) << 20)
#endif
#define MAX_SAMPLES 4096

typedef enum kind { BF16, INT8, INT8_SCALED } kind; /* scaled: for each stretch */
/* Rows and columns of a block and the tiles that it uses. */
typedef enum shape { S14_6, S22_8, S22_7, S22_6, S12_4, S21_4 } shape;
typedef enum sums_by { TILES, VECTORS } sums_by;

typedef struct variant {
  const char *name;
  kind kind;
  shape shape;
  sums_by sums;
  int64_t chunk_rows, near_rows, chunk, stretch, panels; /* panels of columns an item */
  int64_t asks; /* for the next weights, into the second level, each so many bytes; 0: not */
  const char *flags;
  /* by rows: threads share rows, not columns; dense: tiles of weights of 1 KB, else 256 bytes
   * between their rows; copied: weights to a buffer first; pairs: two blocks of the same rows, one
   * after the other; fixed: the same weights again and again; no results: none are stored. */
} variant;

#include "bench/kernels/cpu_tile_variants.h"
#define VARIANTS ((int)(sizeof variants / sizeof variants[0]))

typedef struct matrix_shape {
  int64_t n, k;
} matrix_shape;
#ifdef SMALL
static const matrix_shape matrices[] = {{1024, 2048}, {1024, 4096}};
#else
static const matrix_shape matrices[] = {{8192, 2048}, {2048, 8192}, {2048, 2048}};
#endif
#define MATRICES ((int)(sizeof matrices / sizeof matrices[0]))

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int rows_of(shape s) { return s == S14_6 || s == S12_4 ? 1 : 2; }
INLINE int columns_of(shape s) { return s == S14_6 ? 4 : s == S21_4 ? 1 : 2; }
INLINE int tiles_of(shape s) { return rows_of(s) * columns_of(s); }
INLINE bool has(const variant *v, const char *flag) { return strstr(v->flags, flag); }
INLINE int64_t element_bytes(kind k) { return k == BF16 ? 2 : 1; }

/* ---- Memory ---------------------------------------------------------------------------------- */

static uint8_t *weights, *activations[THREADS], *results;
static uint8_t *buffers[THREADS];
static float *sums_of[THREADS];
static float row_scales[64][ROWS], column_scales[64][64];

static void *pages(int64_t bytes) {
  void *at = mmap(NULL, (size_t)bytes + (2 << 20), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    perror("mmap");
    exit(1);
  }
  at = (void *)(((uintptr_t)at + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1));
  madvise(at, (size_t)bytes, MADV_HUGEPAGE);
  return at;
}

/* Numbers that are fit for both: bf16 of 0.5 to 2 of either sign, as bytes anything. */
static void fill(uint8_t *at, int64_t bytes) {
  uint64_t random = 88172645463325252u;
  uint16_t *words = (uint16_t *)(void *)at;
  int64_t part = least(bytes, 4 << 20);
  for (int64_t i = 0; i < part / 2; i++) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    words[i] = (uint16_t)(0x3f00 | (random & 0x80ff));
  }
  for (int64_t i = part; i < bytes; i += part - 4096)
    memcpy(at + i, at + 4096, (size_t)least(part - 4096, bytes - i));
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

typedef struct ask {
  const uint8_t *at, *end;
  int64_t lines, stride; /* a step; bytes from one to the next */
} ask;

/* A block whose products are done and whose sums are not. */
typedef struct pending {
  const int32_t *tiles; /* NULL: none */
  float *sums;          /* what they are added to; NULL: they are whole */
  bool first;
  uint8_t *out; /* NULL: to sums */
  int64_t out_stride;
  const float *row_scales, *column_scales;
} pending;

#define DOT(sums, a, b)                                                                            \
  do {                                                                                             \
    if (k == BF16)                                                                                 \
      tile_dot_bf16(sums, a, b);                                                                   \
    else                                                                                           \
      tile_dot_int8(sums, a, b);                                                                   \
  } while (0)

INLINE void multiply(kind k, shape s, const uint8_t *a, const uint8_t *b, int64_t group,
                     int64_t stride) {
  if (s == S14_6) {
    tile_load(4, a, 64);
    tile_load(5, b, stride);
    DOT(0, 4, 5);
    tile_load(5, b + group, stride);
    DOT(1, 4, 5);
    tile_load(5, b + 2 * group, stride);
    DOT(2, 4, 5);
    tile_load(5, b + 3 * group, stride);
    DOT(3, 4, 5);
  } else if (s == S22_8) {
    tile_load(4, a, 64);
    tile_load(6, b, stride);
    DOT(0, 4, 6);
    tile_load(7, b + group, stride);
    DOT(1, 4, 7);
    tile_load(5, a + TILE, 64);
    DOT(2, 5, 6);
    DOT(3, 5, 7);
  } else if (s == S22_7) {
    tile_load(4, a, 64);
    tile_load(5, b, stride);
    DOT(0, 4, 5);
    tile_load(6, b + group, stride);
    DOT(1, 4, 6);
    tile_load(4, a + TILE, 64);
    DOT(2, 4, 5);
    DOT(3, 4, 6);
  } else if (s == S22_6) {
    tile_load(4, a, 64);
    tile_load(5, b, stride);
    DOT(0, 4, 5);
    tile_load(5, b + group, stride);
    DOT(1, 4, 5);
    tile_load(4, a + TILE, 64);
    DOT(3, 4, 5);
    tile_load(5, b, stride);
    DOT(2, 4, 5);
  } else if (s == S21_4) {
    tile_load(5, b, stride);
    tile_load(4, a, 64);
    DOT(0, 4, 5);
    tile_load(4, a + TILE, 64);
    DOT(1, 4, 5);
  } else {
    tile_load(4, a, 64);
    tile_load(5, b, stride);
    DOT(0, 4, 5);
    tile_load(5, b + group, stride);
    DOT(1, 4, 5);
  }
}

/* Row r of every tile of a block that waits. */
INLINE void add_row(kind k, shape s, sums_by by, const pending *p, int r) {
  __m512 total[4];
#pragma GCC unroll 4
  for (int t = 0; t < tiles_of(s); t++) {
    int row = t / columns_of(s), column = t % columns_of(s);
    __m512i value = _mm512_load_si512(p->tiles + t * 256 + r * 16);
    __m512 before = _mm512_setzero_ps();
    if (by == VECTORS && !p->first)
      before = _mm512_load_ps(p->sums + t * 256 + r * 16);
    if (k == BF16)
      total[t] = by == VECTORS ? _mm512_add_ps(_mm512_castsi512_ps(value), before)
                               : _mm512_castsi512_ps(value);
    else
      total[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(value),
                                 _mm512_mul_ps(_mm512_set1_ps(p->row_scales[row * 16 + r]),
                                               _mm512_load_ps(p->column_scales + column * 16)),
                                 before);
  }
  if (!p->out) {
#pragma GCC unroll 4
    for (int t = 0; t < tiles_of(s); t++)
      _mm512_store_ps(p->sums + t * 256 + r * 16, total[t]);
    return;
  }
  if (s == S21_4) {
    for (int t = 0; t < 2; t++)
      _mm256_stream_si256((void *)(p->out + (t * 16 + r) * p->out_stride),
                          (__m256i)_mm512_cvtneps_pbh(total[t]));
    return;
  }
#pragma GCC unroll 4
  for (int t = 0; t < tiles_of(s); t += 2) {
    uint8_t *line =
        p->out + (t / columns_of(s) * 16 + r) * p->out_stride + t % columns_of(s) / 2 * 64;
    _mm512_stream_si512((void *)line, (__m512i)_mm512_cvtne2ps_pbh(total[t + 1], total[t]));
  }
}

typedef struct place {
  const uint8_t *a, *b;
  int64_t group, stride, step, steps; /* of b */
  float *sums;
  bool first, last;
} place;

INLINE void block(kind k, shape s, sums_by by, const place *at, pending *before, ask *next,
                  int32_t *tiles) {
  const uint8_t *a = at->a, *b = at->b;
  const uint8_t *sums = (const uint8_t *)at->sums;
  if (by == TILES && !at->first) {
    tile_load(0, sums, 64);
    tile_load(1, sums + TILE, 64);
    if (tiles_of(s) > 2) {
      tile_load(2, sums + 2 * TILE, 64);
      tile_load(3, sums + 3 * TILE, 64);
    }
  } else {
    tile_zero(0);
    tile_zero(1);
    if (tiles_of(s) > 2) {
      tile_zero(2);
      tile_zero(3);
    }
  }
  const int part = (int)((16 + at->steps - 1) / at->steps);
  for (int64_t i = 0, row = 0; i < at->steps; i++) {
    multiply(k, s, a, b, at->group, at->stride);
    a += rows_of(s) * TILE;
    b += at->step;
    for (int64_t line = 0; line < next->lines && next->at < next->end;
         line++, next->at += next->stride)
      _mm_prefetch((const char *)next->at, _MM_HINT_T1);
    if (before->tiles && row < 16)
      for (int end = (int)row + part; row < end && row < 16; row++)
        add_row(k, s, by, before, (int)row);
  }
  bool keep = by == TILES && !at->last;
  uint8_t *to = keep ? (uint8_t *)at->sums : (uint8_t *)tiles;
  tile_store(0, to, 64);
  tile_store(1, to + TILE, 64);
  if (tiles_of(s) > 2) {
    tile_store(2, to + 2 * TILE, 64);
    tile_store(3, to + 3 * TILE, 64);
  }
  tile_fence();
  before->tiles = keep ? NULL : tiles;
}

/* ---- A product ------------------------------------------------------------------------------- */

typedef struct job {
  const variant *v;
  matrix_shape m;
  const uint8_t *weights; /* [n / width][k steps][...] */
  int thread;
} job;

/* Panels that go through the rows together, and columns of weights that lie together. */
INLINE int64_t together(const variant *v) { return has(v, "pairs") ? 2 : 1; }
INLINE int64_t width_of(const variant *v) {
  return has(v, "dense") ? 16 * columns_of(v->shape) * together(v) : 64;
}

/* Weights of a panel of columns from element k on. */
static const uint8_t *weights_at(const job *j, int64_t panel, int64_t k) {
  const variant *v = j->v;
  int64_t width = width_of(v), column = panel * 16 * columns_of(v->shape);
  if (has(v, "fixed"))
    column %= width;
  int64_t steps = k * element_bytes(v->kind) / 64;
  return j->weights + column / width * width * j->m.k * element_bytes(v->kind) +
         steps * width * 64 + column % width / 16 * (has(v, "dense") ? TILE : 64);
}

/* Where the weights lie that this thread uses after those of panel p of an item, in its order: of
 * panels that share a group each asks for its part of the next group. */
static ask next_of(const job *j, int64_t item, int64_t p, int64_t per_item, int64_t k,
                   int64_t chunk, int64_t steps) {
  const variant *v = j->v;
  int64_t width = width_of(v), all = width / (16 * columns_of(v->shape));
  int64_t bytes = chunk * element_bytes(v->kind) * width * together(v) / all, part = p % all;
  p += all - part;
  if (p >= per_item) {
    p = 0;
    k += chunk;
  }
  if (k >= j->m.k) {
    k = 0;
    item += has(v, "by rows") ? 1 : THREADS;
  }
  int64_t panel = item * per_item + p;
  if (!v->asks || panel * 16 * columns_of(v->shape) >= j->m.n)
    return (ask){0};
  const uint8_t *from = weights_at(j, panel, k) + part * bytes / together(v);
  return (ask){from, from + bytes, (bytes / v->asks + steps - 1) / steps, v->asks};
}

/* Tiles of weights of a pass, a step after the other. */
static void copy_panel(const uint8_t *from, uint8_t *to, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64)
    _mm512_store_si512(to + i, _mm512_load_si512(from + i));
  tile_fence();
}

INLINE void run(kind k, shape s, sums_by by, const job *j) {
  const variant *v = j->v;
  _Alignas(64) int32_t tiles[2][4][256];
  const int64_t rows = 16 * rows_of(s), columns = 16 * columns_of(s), eb = element_bytes(k);
  const int64_t panels = j->m.n / columns, chunk = least(v->chunk, j->m.k);
  const int64_t stretch = least(v->stretch, chunk), steps = stretch * eb / 64;
  const int64_t items = panels / least(v->panels, panels), per_item = panels / items;
  const bool by_rows = has(v, "by rows"), dense = has(v, "dense"), silent = has(v, "no results");
  const int64_t halves = together(v);
  pending before = {0};
  int turn = 0;
  tile_begin();
  tile_fence();
  for (int64_t row = 0; row < ROWS; row += v->chunk_rows) {
    if (by_rows && row / v->chunk_rows % THREADS != j->thread)
      continue;
    for (int64_t item = 0; item < items; item++) {
      if (!by_rows && item % THREADS != j->thread)
        continue;
      for (int64_t kc = 0; kc < j->m.k; kc += chunk)
        for (int64_t p = 0; p < per_item; p += halves) {
          const int64_t panel = item * per_item + p;
          const int64_t all_steps = v->chunk_rows / rows * (chunk / stretch) * steps * halves;
          ask next = next_of(j, item, p, per_item, kc, chunk, all_steps);
          place at = {.steps = steps, .step = width_of(v) * 64};
          at.group = dense ? TILE : 64;
          at.stride = dense ? 64 : 256;
          const uint8_t *b = weights_at(j, panel, kc);
          if (has(v, "copied")) {
            copy_panel(b, buffers[j->thread], chunk * eb * width_of(v));
            b = buffers[j->thread];
          }
          for (int64_t near = 0; near < v->chunk_rows; near += v->near_rows)
            for (int64_t ks = 0; ks < chunk; ks += stretch)
              for (int64_t r = near; r < near + v->near_rows; r += rows)
                for (int64_t half = 0; half < halves; half++, turn ^= 1) {
                  int64_t block_row = row + r, number = (kc + ks) / stretch;
                  at.a = activations[j->thread] +
                         (number * (ROWS / rows) + block_row / rows) * steps * rows_of(s) * TILE;
                  at.b = b + ks * eb / 64 * at.step + half * columns_of(s) * at.group;
                  at.sums = sums_of[j->thread] + ((p + half) * v->chunk_rows + r) * columns;
                  at.first = kc + ks == 0;
                  at.last = kc + ks + stretch == j->m.k;
                  block(k, s, by, &at, &before, &next, tiles[turn][0]);
                  before.sums = at.sums;
                  before.first = at.first;
                  before.out = at.last
                                   ? results + block_row * j->m.n * 2 + (panel + half) * columns * 2
                                   : NULL;
                  if (at.last && silent)
                    before.tiles = NULL;
                  before.out_stride = j->m.n * 2;
                  int64_t scale = k == INT8_SCALED ? number % 64 : 0;
                  before.row_scales = row_scales[scale] + block_row;
                  before.column_scales = column_scales[scale];
                }
        }
    }
  }
  if (before.tiles)
    for (int r = 0; r < 16; r++)
      add_row(k, s, by, &before, r);
  _mm_sfence();
  tile_end();
}

#define RUN(k, s, by)                                                                              \
  if (j->v->kind == (k) && j->v->shape == (s) && j->v->sums == (by)) {                             \
    run(k, s, by, j);                                                                              \
    return;                                                                                        \
  }
static __attribute__((noinline)) void run_job(const job *j) {
  RUN(BF16, S14_6, VECTORS)
  RUN(BF16, S14_6, TILES)
  RUN(BF16, S22_8, TILES)
  RUN(BF16, S22_7, TILES)
  RUN(BF16, S22_6, TILES)
  RUN(BF16, S12_4, TILES)
  RUN(BF16, S12_4, VECTORS)
  RUN(BF16, S21_4, TILES)
  RUN(INT8, S22_8, TILES)
  RUN(INT8, S22_7, TILES)
  RUN(INT8, S22_6, TILES)
  RUN(INT8, S14_6, TILES)
  RUN(INT8, S12_4, TILES)
  RUN(INT8_SCALED, S14_6, VECTORS)
  RUN(INT8_SCALED, S22_7, VECTORS)
  RUN(INT8_SCALED, S22_6, VECTORS)
  RUN(INT8_SCALED, S12_4, VECTORS)
  fprintf(stderr, "%s: no code\n", j->v->name);
  exit(1);
}

/* ---- Checking -------------------------------------------------------------------------------- */

static double bf16(const uint8_t *at) {
  uint32_t bits = (uint32_t)(at[0] | at[1] << 8) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

static double number_at(kind k, const uint8_t *at) { return k == BF16 ? bf16(at) : (int8_t)*at; }

/* The largest difference of some results from those in double, of what terms add up to. */
static double error_of(const job *j) {
  const variant *v = j->v;
  const int64_t eb = element_bytes(v->kind), rows = 16 * rows_of(v->shape);
  const int64_t stretch = least(v->stretch, least(v->chunk, j->m.k)), steps = stretch * eb / 64;
  const int64_t columns = 16 * columns_of(v->shape), in_row = has(v, "dense") ? 64 : 256;
  double worst = 0;
  for (int64_t i = 0; i < 64; i++) {
    int64_t row = i * 37 % ROWS, column = i * 1237 % j->m.n;
    double sum = 0, terms = 0;
    int64_t owner = has(v, "by rows") ? row / v->chunk_rows % THREADS : 0;
    for (int64_t e = 0; e < j->m.k; e++) {
      int64_t number = e / stretch, step = e % stretch * eb / 64, in = e * eb % 64;
      const uint8_t *x = activations[owner] +
                         (number * (ROWS / rows) + row / rows) * steps * rows_of(v->shape) * TILE +
                         (step * rows_of(v->shape) + row % rows / 16) * TILE + row % 16 * 64 + in;
      const uint8_t *w = weights_at(j, column / columns, e / (64 / eb) * (64 / eb)) +
                         column % columns / 16 * (has(v, "dense") ? TILE : 64) + in / 4 * in_row +
                         column % 16 * 4 + in % 4;
      double scale = 1;
      int64_t s = v->kind == INT8_SCALED ? number % 64 : 0;
      if (v->kind != BF16)
        scale = (double)row_scales[s][row] * column_scales[s][column % columns];
      double term = number_at(v->kind, x) * number_at(v->kind, w) * scale;
      sum += term;
      terms += fabs(term);
    }
    double error = fabs(bf16(results + (row * j->m.n + column) * 2) - sum) / (terms / 16);
    if (!(error <= worst))
      worst = error;
  }
  return worst;
}

/* ---- Two CPUs ---------------------------------------------------------------------------------
 */

/* ns a product of tiles without loads. */
static double time_peak(int rounds, bool integers) {
  tile_begin();
  double start = now();
  for (int i = 0; i < rounds; i++) {
    const kind k = integers ? INT8 : BF16;
    DOT(0, 6, 7);
    DOT(1, 6, 7);
    DOT(2, 6, 7);
    DOT(3, 6, 7);
    DOT(4, 6, 7);
    DOT(5, 6, 7);
  }
  uint8_t out[TILE];
  tile_store(0, out, 64);
  double time = now() - start;
  tile_end();
  return 1e9 * time / (6.0 * rounds);
}

/* ---- Threads ----------------------------------------------------------------------------------
 */

typedef struct answer {
  double loads[2], peak[2], seconds;
} answer;

static atomic_int turn_of, arrived, stopping;
static int cpu_of[THREADS];
static job jobs[THREADS];
static bool only_probe, integer_peak;
static answer answers[THREADS];

static void meet(int number) {
  atomic_fetch_add(&arrived, 1);
  while (atomic_load(&arrived) < number * THREADS)
    _mm_pause();
}

static void work(int thread) {
  answer *a = &answers[thread];
  pin(0, cpu_of[thread]);
  meet(1);
  time_loads(300);
  a->loads[0] = time_loads(700);
  if (!only_probe) {
    a->peak[0] = time_peak(1500, integer_peak);
    meet(2);
    double start = now();
    run_job(&jobs[thread]);
    a->seconds = now() - start;
    a->loads[1] = time_loads(700);
    a->peak[1] = time_peak(1500, integer_peak);
  }
}

static void *worker(void *unused) {
  (void)unused;
  for (int seen = 0;;) {
    while (atomic_load(&turn_of) == seen) {
      if (atomic_load(&stopping))
        return NULL;
      _mm_pause();
    }
    seen++;
    work(1);
    atomic_fetch_add(&arrived, 1000);
  }
}

/* Both threads do their part; returns when both are done. */
static void both(bool probe) {
  only_probe = probe;
  atomic_store(&arrived, 0);
  atomic_fetch_add(&turn_of, 1);
  work(0);
  while (atomic_load(&arrived) < 1000)
    _mm_pause();
}

/* Chooses two CPUs; true where both load as fast as any did. */
static bool choose(void) {
  double times[MAX_CPUS] = {0};
  int order[MAX_CPUS] = {0};
  for (int i = 0; i < n_cpus; i++) {
    pin(0, cpus[i]);
    times[i] = look_at_cpu(400);
    int at = i;
    for (; at > 0 && times[order[at - 1]] > times[i]; at--)
      order[at] = order[at - 1];
    order[at] = i;
  }
  for (int i = 1; i < n_cpus && i < 6; i++) {
    cpu_of[0] = cpus[order[0]];
    cpu_of[1] = cpus[order[i]];
    both(true);
    if (answers[0].loads[0] < FAST * fastest && answers[1].loads[0] < FAST * fastest)
      return true;
  }
  cpu_of[1] = cpus[order[1 % n_cpus]];
  return false;
}

/* ---- Report -----------------------------------------------------------------------------------
 */

typedef struct samples {
  int count[2]; /* of all, of whole cores */
  float rate[2][MAX_SAMPLES], share[2][MAX_SAMPLES];
  double error;
} samples;

static samples *found;

static int compare(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static double median(float *values, int count) {
  if (!count)
    return 0;
  qsort(values, (size_t)count, sizeof *values, compare);
  return values[count / 2];
}

static void sample(int v, int m, int64_t number) {
  const variant *variant_ = &variants[v];
  samples *s = &found[v * MATRICES + m];
  matrix_shape shape_ = matrices[m];
  int64_t bytes = shape_.n * shape_.k * element_bytes(variant_->kind);
  int64_t at = number * bytes % (POOL_BYTES - bytes) / 4096 * 4096;
  for (int t = 0; t < THREADS; t++)
    jobs[t] = (job){variant_, shape_, weights + at, t};
  integer_peak = variant_->kind != BF16;
  choose();
  both(false);
  if (s->count[0] == 0)
    s->error = error_of(&jobs[0]);
  double operations = 2.0 * ROWS * (double)shape_.n * (double)shape_.k / THREADS, rate = 0,
         peak = 0;
  bool whole = true;
  for (int t = 0; t < THREADS; t++) {
    const answer *a = &answers[t];
    rate += 1e-9 * operations / a->seconds;
    double each = 2.0 * 16 * 16 * (variant_->kind == BF16 ? 32 : 64);
    peak += each / ((a->peak[0] + a->peak[1]) / 2);
    whole = whole && a->loads[0] < FAST * fastest && a->loads[1] < FAST * fastest;
  }
  for (int i = 0; i <= (int)whole; i++) {
    int *count = &s->count[i];
    if (*count == MAX_SAMPLES)
      continue;
    s->rate[i][*count] = (float)rate;
    s->share[i][(*count)++] = (float)(100 * rate / peak);
  }
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 60;
  const char *filter = argc > 2 ? argv[2] : "";
  begin_cpus();
  weights = pages(POOL_BYTES);
  fill(weights, POOL_BYTES);
  for (int t = 0; t < THREADS; t++) {
    activations[t] = pages(ROWS * 8192 * 2);
    if (t == 0)
      fill(activations[0], ROWS * 8192 * 2);
    else
      activations[t] = activations[0];
    buffers[t] = pages(1 << 20);
    sums_of[t] = pages(8 << 20);
    memset(buffers[t], 0, 1 << 20);
    memset(sums_of[t], 0, 8 << 20);
  }
  results = pages(ROWS * 8192 * 2);
  memset(results, 0, ROWS * 8192 * 2);
  for (int i = 0; i < 64; i++) {
    for (int r = 0; r < ROWS; r++)
      row_scales[i][r] = 1.0f / (float)(100 + (r * 7 + i * 3) % 50);
    for (int c = 0; c < 64; c++)
      column_scales[i][c] = 1.0f / (float)(100 + (c * 5 + i * 11) % 50);
  }
  found = calloc((size_t)(VARIANTS * MATRICES), sizeof *found);
  pthread_t other;
  pthread_create(&other, NULL, worker, NULL);
  for (int i = 0; i < 50; i++)
    choose();
  if (argc > 1 && strcmp(argv[1], "pair") == 0) {
    for (int i = 0; i < 500 && !choose(); i++) {
    }
    printf("%d,%d\n", cpu_of[0], cpu_of[1]);
    return 0;
  }
  double end = now() + seconds;
  int64_t number = 0;
  for (int round = 0; now() < end || round == 0; round++)
    for (int m = 0; m < MATRICES; m++)
      for (int v = 0; v < VARIANTS && (now() < end || round == 0); v++)
        if (strstr(variants[v].name, filter))
          sample(v, m, number++);
  atomic_store(&stopping, 1);
  printf("%d CPUs, a product with loads takes %.1f ns at best\n\n", n_cpus, fastest);
  printf("| 512 rows | matrix | GOP/s | of the peak | whole cores: GOP/s | of the peak | samples | "
         "error |\n|---|---|---:|---:|---:|---:|---:|---:|\n");
  for (int m = 0; m < MATRICES; m++)
    for (int v = 0; v < VARIANTS; v++) {
      samples *s = &found[v * MATRICES + m];
      if (s->count[0])
        printf("| %s | %lld x %lld | %.0f | %.0f %% | %.0f | %.0f %% | %d of %d | %.1e |\n",
               variants[v].name, (long long)matrices[m].n, (long long)matrices[m].k,
               median(s->rate[0], s->count[0]), median(s->share[0], s->count[0]),
               median(s->rate[1], s->count[1]), median(s->share[1], s->count[1]), s->count[1],
               s->count[0], s->error);
    }
  return 0;
}
