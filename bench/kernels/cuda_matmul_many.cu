/* Products of many rows by block-quantized weights: checks backends/cuda/hopper/matmul_many.cuh
 * against double sums, then times a prompt's products of an 8-billion-parameter model.
 *
 *   cuda_matmul_many [check | time]      (both without a word) */
#include "bench/kernels/cuda_bench.cuh"
#include "backends/cuda/hopper/matmul_many.cuh"

static bench_card card;
static int failures;

struct product {
  matmul_many_arguments a = {};
  std::vector<uint8_t> raw;
  std::vector<float> x;
  uint64_t row_bytes;
  std::vector<void *> memory;
  uint8_t *workspace;
};

static simt_rows rows_of(void *data, iso_scheme scheme, int64_t m, int64_t n) {
  simt_rows rows = {};
  rows.data = (uint8_t *)data, rows.scheme = scheme, rows.n_rows = m, rows.n_columns = n;
  rows.n_dims = 1, rows.dims[0] = m, rows.strides[0] = n * simt_float_bytes(scheme);
  return rows;
}

template <typename W>
static product make(iso_scheme scheme, int64_t m, int64_t n, int64_t k, iso_scheme y_type,
                    bool outlier) {
  product p;
  p.raw = bench_weight(scheme, n, k);
  if (iso_scheme_row_bytes(scheme, k, &p.row_bytes) != ISO_OK)
    exit(1);
  uint8_t *raw = bench_device(p.raw.data(), p.raw.size());
  uint64_t units = matmul_count(n, 16) * matmul_count(k, W::unit);
  uint8_t *packed = bench_device<uint8_t>(nullptr, units * W::unit_bytes);
  matmul_pack<W><<<(unsigned)matmul_count(units, 8), 256>>>(raw, p.row_bytes, n, k, packed);
  std::vector<uint16_t> x(m * k);
  std::vector<float> bias(n);
  p.x.resize(m * k);
  for (size_t i = 0; i < x.size(); i++) {
    x[i] = i < 1 << 20 ? iso_bf16_from_f32(bench_normal()) : x[i - (1 << 20)];
    if (outlier && i % 4001 == 0)
      x[i] = iso_bf16_from_f32(500);
    p.x[i] = iso_bf16_to_f32(x[i]);
  }
  for (auto &v : bias)
    v = bench_normal();
  uint16_t *dx = bench_device(x.data(), x.size());
  float *dy = bench_device<float>(nullptr, m * n);
  BENCH_TRY(cudaMemset(dy, 0xff, m * n * 4));
  float *db = bench_device(bias.data(), bias.size());
  uint64_t bytes = matmul_many_workspace(m, k);
  p.workspace = bench_device<uint8_t>(nullptr, bytes);
  BENCH_TRY(cudaMemset(p.workspace, 0xff, bytes));
  p.a.x = rows_of(dx, ISO_SCHEME_BF16, m, k);
  p.a.y = rows_of(dy, y_type, m, n);
  p.a.bias = db, p.a.weight = packed;
  p.a.n_features = n, p.a.n_columns = k, p.a.n_rows = m;
  p.memory = {raw, packed, dx, dy, db, p.workspace};
  return p;
}

static void release(product *p) {
  for (void *m : p->memory)
    BENCH_TRY(cudaFree(m));
}

template <typename W> static iso_status run(const product &p, unsigned splits = 0) {
  return matmul_many_run<W>(&card.queue, "many", p.workspace, p.a, splits);
}

template <typename W>
static void check(iso_scheme scheme, int64_t m, int64_t n, int64_t k, iso_scheme y_type,
                  unsigned splits, bool outlier = false) {
  product p = make<W>(scheme, m, n, k, y_type, outlier);
  if (run<W>(p, splits) != ISO_OK)
    exit(1);
  BENCH_TRY(cudaDeviceSynchronize());
  std::vector<uint8_t> y(m * n * 4);
  std::vector<float> row(k), bias(n);
  BENCH_TRY(cudaMemcpy(y.data(), p.a.y.data, y.size(), cudaMemcpyDeviceToHost));
  BENCH_TRY(cudaMemcpy(bias.data(), p.a.bias, n * 4, cudaMemcpyDeviceToHost));
  double error = 0, norm = 0;
  int64_t step = (int64_t)((double)m * (double)n * (double)k / 1e8) + 1;
  for (int64_t j = 0; j < n; j += step) {
    iso_scheme_decode_row(scheme, p.raw.data() + j * p.row_bytes, row.data(), k);
    for (int64_t i = 0; i < m; i++) {
      double want = bias[j];
      for (int64_t c = 0; c < k; c++)
        want += (double)p.x[i * k + c] * row[c];
      double got = y_type == ISO_SCHEME_F32    ? ((float *)y.data())[i * n + j]
                   : y_type == ISO_SCHEME_BF16 ? iso_bf16_to_f32(((uint16_t *)y.data())[i * n + j])
                                               : iso_f16_to_f32(((uint16_t *)y.data())[i * n + j]);
      error += (got - want) * (got - want), norm += want * want;
    }
  }
  double relative = sqrt(error / norm), limit = y_type == ISO_SCHEME_BF16 ? 3e-3 : 5e-4;
  bool good = relative <= limit;
  failures += !good;
  printf("%-7s %u splits %4lld x %5lld x %5lld to %s%s  error %.1e %s\n",
         iso_scheme_get_info(scheme)->name, splits, (long long)m, (long long)n, (long long)k,
         iso_scheme_get_info(y_type)->name, outlier ? " outlier" : "", relative,
         good ? "" : "WRONG");
  release(&p);
}

template <typename W> static void check_all(iso_scheme scheme) {
  int64_t block = W::block_elements;
  check<W>(scheme, 9, 33, block, ISO_SCHEME_F32, 0);
  check<W>(scheme, 64, 136, 3 * block, ISO_SCHEME_BF16, 1);
  check<W>(scheme, 65, 256, 5 * block, ISO_SCHEME_F16, 2);
  check<W>(scheme, 37, 1022, 9 * block, ISO_SCHEME_F32, 4);
  check<W>(scheme, 64, 4400, 2048, ISO_SCHEME_BF16, 8);
  check<W>(scheme, 300, 8200, 1024, ISO_SCHEME_F32, 0, true);
}

template <typename W> static void time_all(iso_scheme scheme) {
  static const struct {
    int64_t n, k;
  } shapes[] = {{1024, 4096}, {4096, 4096}, {14336, 4096}, {4096, 14336}, {57344, 4096}};
  for (auto &s : shapes)
    for (int64_t m : {16, 64, 256}) {
      if (m != 64 && s.n != 4096)
        continue;
      /* Enough weights to leave the cache. */
      std::vector<product> sets;
      do
        sets.push_back(make<W>(scheme, m, s.n, s.k, ISO_SCHEME_BF16, false));
      while (sets.size() * sets[0].raw.size() < (size_t)128 << 20);
      double floor = (double)sets[0].raw.size() / card.copy_bytes_per_us;
      printf("%-7s m %4lld  %6lld x %5lld  floor %5.1f us:", iso_scheme_get_info(scheme)->name,
             (long long)m, (long long)s.n, (long long)s.k, floor);
      int calls = (int)sets.size() < 6 ? 6 : (int)sets.size();
      for (unsigned splits : {0u, 1u, 2u, 4u, 6u, 7u, 8u}) {
        double us = bench_time(&card, calls, [&](int i) {
          const product &p = sets[i % sets.size()];
          return run<W>(p, splits);
        });
        printf("  %u: %.1f (%.0f%%)", splits, us, 100 * floor / us);
      }
      matmul_many_arguments a = sets[0].a;
      a.n_units = (int32_t)matmul_count(s.k, W::unit), a.slab = MANY_COLUMNS;
      uint8_t *workspace = sets[0].workspace;
      a.image = workspace + (1024 - (uint64_t)(uintptr_t)workspace % 1024) % 1024;
      a.inverses = (float *)(a.image + matmul_count(m, 64) * 64 * a.n_units * W::unit * 2);
      double prepare = bench_time(&card, 6, [&](int) {
        return simt_launch_early(&card.queue, "prepare", matmul_many_prepare<simt_f16, false>, dim3((unsigned)m),
                                 dim3(256), 0, a, (int64_t)a.n_units * W::unit);
      });
      printf("  preparing %.1f\n", prepare);
      for (auto &p : sets)
        release(&p);
    }
}

int main(int argc, char **argv) {
  bench_open(&card);
  bool checks = argc < 2 || strcmp(argv[1], "check") == 0;
  bool times = argc < 2 || strcmp(argv[1], "time") == 0;
#define BOTH(SCHEME, block)                                                                        \
  if (checks)                                                                                      \
    check_all<matmul_##block>(ISO_SCHEME_##SCHEME);                                                \
  if (times)                                                                                       \
    time_all<matmul_##block>(ISO_SCHEME_##SCHEME);
  BOTH(Q4_0, q4_0)
  BOTH(Q8_0, q8_0)
  BOTH(Q4_K, q4_k)
  BOTH(Q6_K, q6_k)
#ifdef BENCH_ALL_SCHEMES
  BOTH(Q4_1, q4_1)
  BOTH(Q5_0, q5_0)
  BOTH(Q5_1, q5_1)
  BOTH(IQ4_NL, iq4_nl)
  BOTH(Q2_K, q2_k)
  BOTH(Q3_K, q3_k)
  BOTH(Q5_K, q5_k)
#endif
  printf("%d wrong\n", failures);
  return failures != 0;
}
