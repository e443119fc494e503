/* Products of few rows: checks backends/simt/matmul_few.cuh for every scheme against double sums,
 * then times one token's products of an 8-billion-parameter model.
 *
 *   cuda_matmul_few [check | time]      (both without a word) */
#include "bench/kernels/cuda_bench.cuh"
#include "backends/simt/matmul_few.cuh"
#include <string.h>

static bench_card card;
static int failures;

struct weight {
  iso_scheme scheme;
  int64_t n, k;
  std::vector<uint8_t> raw;
  uint64_t row_bytes, bytes; /* bytes on the device */
  uint8_t *device;           /* packed for block schemes */
};

template <typename W> static void place(weight *w) {
  uint8_t *raw = bench_device(w->raw.data(), w->raw.size());
  w->bytes = w->n * w->row_bytes;
  w->device = raw;
  if constexpr (W::packed) {
    uint64_t units = matmul_count(w->n, 16) * matmul_count(w->k, W::unit);
    w->bytes = units * W::unit_bytes;
    w->device = bench_device<uint8_t>(nullptr, w->bytes);
    BENCH_TRY(cudaMemset(w->device, 0xff, w->bytes));
    matmul_pack<W>
        <<<(unsigned)matmul_count(units, 8), 256>>>(raw, w->row_bytes, w->n, w->k, w->device);
    BENCH_TRY(cudaDeviceSynchronize());
    BENCH_TRY(cudaFree(raw));
  }
}

template <typename W> static weight make(iso_scheme scheme, int64_t n, int64_t k) {
  weight w = {scheme, n, k, bench_weight(scheme, n, k), 0, 0, nullptr};
  if (iso_scheme_row_bytes(scheme, k, &w.row_bytes) != ISO_OK)
    exit(1);
  place<W>(&w);
  return w;
}

template <typename W> static iso_status run(const matmul_few_arguments &a) {
  return matmul_few_run<W>(&card.queue, "few", card.device.n_units, card.device.shared_bytes, a);
}

static simt_rows rows_of(void *data, iso_scheme scheme, int64_t m, int64_t n) {
  simt_rows rows = {};
  rows.data = (uint8_t *)data, rows.scheme = scheme, rows.n_rows = m, rows.n_columns = n;
  rows.n_dims = 1, rows.dims[0] = m, rows.strides[0] = n * simt_float_bytes(scheme);
  return rows;
}

template <typename W>
static void check(iso_scheme scheme, int64_t m, int64_t n, int64_t k, bool outlier,
                  iso_scheme type = ISO_SCHEME_F32) {
  weight w = make<W>(scheme, n, k);
  std::vector<float> x(m * k), bias(n), y(m * n), row(k);
  for (auto &v : x)
    v = bench_normal();
  for (int64_t i = 0; i < m && outlier; i++)
    x[i * k + bench_random() % k] = 3000;
  for (auto &v : bias)
    v = bench_normal();
  std::vector<uint16_t> narrow(x.size());
  for (size_t i = 0; i < x.size() && type != ISO_SCHEME_F32; i++) {
    bool bf16 = type == ISO_SCHEME_BF16;
    narrow[i] = bf16 ? iso_bf16_from_f32(x[i]) : iso_f16_from_f32(x[i]);
    x[i] = bf16 ? iso_bf16_to_f32(narrow[i]) : iso_f16_to_f32(narrow[i]);
  }
  float *dx = bench_device(x.data(), x.size()), *db = bench_device(bias.data(), bias.size());
  float *dy = bench_device<float>(nullptr, y.size());
  BENCH_TRY(cudaMemset(dy, 0xff, y.size() * 4));
  if (type != ISO_SCHEME_F32)
    BENCH_TRY(cudaMemcpy(dx, narrow.data(), narrow.size() * 2, cudaMemcpyHostToDevice));
  matmul_few_arguments a = {rows_of(dx, type, m, k),
                            rows_of(dy, ISO_SCHEME_F32, m, n),
                            db,
                            w.device,
                            (int64_t)w.row_bytes,
                            n,
                            k,
                            m,
                            0};
  if (run<W>(a) != ISO_OK)
    exit(1);
  BENCH_TRY(cudaDeviceSynchronize());
  BENCH_TRY(cudaMemcpy(y.data(), dy, y.size() * 4, cudaMemcpyDeviceToHost));
  double error = 0, norm = 0, worst = 0;
  int64_t step = n * k * m > (1 << 26) ? 37 : 1;
  for (int64_t j = 0; j < n; j += step) {
    iso_scheme_decode_row(scheme, w.raw.data() + j * w.row_bytes, row.data(), k);
    for (int64_t i = 0; i < m; i++) {
      double want = bias[j], magnitude = fabs(bias[j]);
      for (int64_t c = 0; c < k; c++)
        want += (double)x[i * k + c] * row[c], magnitude += fabs((double)x[i * k + c] * row[c]);
      double off = y[i * n + j] - want;
      error += off * off, norm += want * want;
      worst = !(fabs(off) / magnitude <= worst) ? fabs(off) / magnitude : worst;
    }
  }
  double limit = scheme == ISO_SCHEME_BF16 ? 4e-5 : 1e-5, relative = sqrt(error / norm);
  bool good = relative <= limit;
  failures += !good;
  if (!good || k == 4096)
    printf("%-7s %-4s %4lld x %5lld x %5lld%s  error %.1e, worst %.1e of magnitude %s\n",
           iso_scheme_get_info(scheme)->name, iso_scheme_get_info(type)->name, (long long)m,
           (long long)n, (long long)k, outlier ? " outlier" : "", relative, worst,
           good ? "" : "WRONG");
  BENCH_TRY(cudaFree(dx));
  BENCH_TRY(cudaFree(dy));
  BENCH_TRY(cudaFree(db));
  BENCH_TRY(cudaFree(w.device));
}

template <typename W> static void check_all(iso_scheme scheme, int block) {
  for (int64_t m : {1, 2, 3, 8, 9, 16, 17, 33})
    check<W>(scheme, m, 33, 4 * block, false);
  for (int64_t k : {1, 3, 5, 9, 17, 31})
    check<W>(scheme, 2, 48, k * block, false);
  for (int64_t n : {1, 7, 16, 17, 4250, 9001})
    check<W>(scheme, 3, n, 2 * block, false);
  check<W>(scheme, 1, 1024, 4096, false);
  check<W>(scheme, 5, 4096, 4096, true);
  check<W>(scheme, 2, 512, 14336, false);
  check<W>(scheme, 2, 1024, 4096, true, ISO_SCHEME_BF16);
  check<W>(scheme, 9, 1024, 4096, false, ISO_SCHEME_F16);
}

template <typename W> static void time_all(iso_scheme scheme) {
  static const struct {
    int64_t n, k;
  } shapes[] = {{1024, 4096}, {4096, 4096}, {14336, 4096}, {4096, 14336}, {128256, 4096}};
  for (auto &s : shapes) {
    weight w = make<W>(scheme, s.n, s.k);
    int copies = (int)(400e6 / (double)w.bytes) + 1;
    copies = copies > 24 ? 24 : copies;
    std::vector<uint8_t *> all = {w.device};
    for (int i = 1; i < copies; i++) {
      all.push_back(bench_device<uint8_t>(nullptr, w.bytes));
      BENCH_TRY(cudaMemcpy(all[i], w.device, w.bytes, cudaMemcpyDeviceToDevice));
    }
    for (int64_t m : {1, 0, 2, 4, 8}) {
      iso_scheme type = m == 0 ? ISO_SCHEME_F32 : ISO_SCHEME_BF16;
      if (m != 1 && s.n != 14336)
        continue;
      m = m == 0 ? 1 : m;
      std::vector<uint16_t> x(m * s.k * 2); /* the pairs are floats of the same size, too */
      for (auto &v : x)
        v = iso_bf16_from_f32(bench_normal());
      uint16_t *dx = bench_device(x.data(), x.size()),
               *dy = bench_device<uint16_t>(nullptr, 2 * m * s.n);
      matmul_few_arguments a = {rows_of(dx, type, m, s.k),
                                rows_of(dy, type, m, s.n),
                                nullptr,
                                nullptr,
                                (int64_t)w.row_bytes,
                                s.n,
                                s.k,
                                m,
                                0};
      int calls = copies < 24 ? copies * (24 / copies) : 24;
      double us = bench_time(&card, calls, [&](int i) {
        a.weight = all[i % copies];
        return run<W>(a);
      });
      double raw = (double)w.row_bytes * s.n;
      printf("%-7s %-4s m %2lld  %6lld x %5lld  %8.2f us  file bytes %5.0f GB/s  moved %5.0f GB/s  "
             "%3.0f%% of copy\n",
             iso_scheme_get_info(scheme)->name, iso_scheme_get_info(type)->name, (long long)m,
             (long long)s.n, (long long)s.k, us, raw / us / 1e3, (double)w.bytes / us / 1e3,
             100 * (double)w.bytes / us / card.copy_bytes_per_us);
      BENCH_TRY(cudaFree(dx));
      BENCH_TRY(cudaFree(dy));
    }
    for (auto p : all)
      BENCH_TRY(cudaFree(p));
  }
}

int main(int argc, char **argv) {
  bench_open(&card);
  bool checks = argc < 2 || strcmp(argv[1], "check") == 0;
  bool times = argc < 2 || strcmp(argv[1], "time") == 0;
#define CHECK(SCHEME, block, ...)                                                                  \
  if (checks)                                                                                      \
    check_all<matmul_##block>(ISO_SCHEME_##SCHEME, matmul_##block::block_elements);
  MATMUL_PACKED_SCHEMES(CHECK)
  if (checks) {
    check_all<matmul_plain<simt_bf16>>(ISO_SCHEME_BF16, 8);
    check_all<matmul_plain<simt_f16>>(ISO_SCHEME_F16, 8);
    printf("%d wrong\n", failures);
  }
  if (times && failures == 0) {
    time_all<matmul_plain<simt_bf16>>(ISO_SCHEME_BF16);
    time_all<matmul_q8_0>(ISO_SCHEME_Q8_0);
    time_all<matmul_q4_0>(ISO_SCHEME_Q4_0);
    time_all<matmul_q4_k>(ISO_SCHEME_Q4_K);
    time_all<matmul_q6_k>(ISO_SCHEME_Q6_K);
    time_all<matmul_q5_k>(ISO_SCHEME_Q5_K);
  }
  return failures != 0;
}
