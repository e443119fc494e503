/* Products of 9 to 64 rows by 16-bit weights: checks backends/cuda/hopper/matmul_rows.cuh
 * against double sums, then times a step's products of an 8-billion-parameter model beside
 * cuBLASLt.
 *
 *   cuda_matmul_rows [check | time]      (both without a word) */
#include "bench/kernels/cuda_bench.cuh"
#include "backends/cuda/blas.cu"
#include "backends/cuda/hopper/matmul_rows.cuh"

static bench_card card;
static int failures;

static simt_rows rows_of(void *data, iso_scheme scheme, int64_t m, int64_t n) {
  simt_rows rows = {};
  rows.data = (uint8_t *)data, rows.scheme = scheme, rows.n_rows = m, rows.n_columns = n;
  rows.n_dims = 1, rows.dims[0] = m, rows.strides[0] = n * simt_float_bytes(scheme);
  return rows;
}

/* Products of the same rows. */
struct product {
  matmul_rows_arguments a = {};
  std::vector<std::vector<uint8_t>> raw; /* as files have them */
  std::vector<float> x;                  /* as it is multiplied */
  std::vector<void *> memory;
  uint8_t *device_x;
  int64_t k;
  uint64_t weight_bytes = 0;
};

template <typename T> static T *keep(product *p, const T *from, size_t count) {
  T *to = bench_device(from, count);
  if (!from)
    BENCH_TRY(cudaMemset(to, 0xff, count * sizeof(T)));
  p->memory.push_back(to);
  return to;
}
static void release(product *p) {
  for (void *m : p->memory)
    BENCH_TRY(cudaFree(m));
}

static product make(iso_scheme scheme, int64_t m, std::vector<int64_t> features, int64_t k,
                    iso_scheme y_type, bool with_bias, bool with_glu, bool host = true) {
  product p;
  std::vector<uint16_t> x((size_t)(m * k));
  p.x.resize(x.size());
  for (size_t i = 0; i < x.size(); i++) {
    float v = bench_normal();
    x[i] = scheme == ISO_SCHEME_F16 ? iso_f16_from_f32(v) : iso_bf16_from_f32(v);
    p.x[i] = scheme == ISO_SCHEME_F16 ? iso_f16_to_f32(x[i]) : iso_bf16_to_f32(x[i]);
  }
  p.device_x = (uint8_t *)keep(&p, x.data(), x.size());
  p.k = k;
  p.a.n_parts = (int32_t)features.size();
  p.a.x = rows_of(p.device_x, scheme, m, k);
  for (size_t i = 0; i < features.size(); i++) {
    int64_t n = features[i];
    matmul_rows_part &part = p.a.parts[i];
    std::vector<uint8_t> raw = bench_weight(scheme, n, k);
    uint8_t *device = keep(&p, raw.data(), raw.size());
    p.weight_bytes += raw.size();
    part.weight = device, part.weight_stride = k * 2;
    part.n_features = (int32_t)n;
    part.y = rows_of(keep<uint8_t>(&p, nullptr, m * n * simt_float_bytes(y_type)), y_type, m, n);
    if (with_bias) {
      std::vector<float> bias(n);
      for (auto &v : bias)
        v = bench_normal();
      part.bias = keep(&p, bias.data(), bias.size());
    }
    if (host)
      p.raw.push_back(raw);
  }
  if (with_glu) {
    uint8_t *y = keep<uint8_t>(&p, nullptr, m * features[0] * simt_float_bytes(y_type));
    p.a.glu = rows_of(y, y_type, m, features[0]);
    p.a.activation = ISO_ACTIVATION_SILU;
  }
  return p;
}

static iso_status run(iso_scheme scheme, const product &p, int width = 0, unsigned splits = 0) {
  matmul_rows_cut cut = {width, splits, INT64_MAX};
  return scheme == ISO_SCHEME_F16 ? matmul_rows_run<simt_f16>(&card.queue, "rows", p.a, cut)
                                  : matmul_rows_run<simt_bf16>(&card.queue, "rows", p.a, cut);
}

static std::vector<float> read(const simt_rows &y) {
  std::vector<uint8_t> bytes((size_t)(y.n_rows * y.strides[0]));
  std::vector<float> out((size_t)(y.n_rows * y.n_columns));
  BENCH_TRY(cudaMemcpy(bytes.data(), y.data, bytes.size(), cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < out.size(); i++)
    out[i] = y.scheme == ISO_SCHEME_F32    ? ((float *)bytes.data())[i]
             : y.scheme == ISO_SCHEME_BF16 ? iso_bf16_to_f32(((uint16_t *)bytes.data())[i])
                                           : iso_f16_to_f32(((uint16_t *)bytes.data())[i]);
  return out;
}

static void check(iso_scheme scheme, int64_t m, std::vector<int64_t> features, int64_t k,
                  iso_scheme y_type, int width, unsigned splits, bool with_glu = false) {
  product p = make(scheme, m, features, k, y_type, !with_glu, with_glu);
  if (run(scheme, p, width, splits) != ISO_OK)
    exit(1);
  BENCH_TRY(cudaDeviceSynchronize());
  double error = 0, norm = 0;
  std::vector<std::vector<float>> made;
  for (size_t i = 0; i < features.size(); i++) {
    int64_t n = features[i], step = (int64_t)((double)m * (double)n * (double)k / 5e7) + 1;
    uint64_t row_bytes;
    std::vector<float> y = read(p.a.parts[i].y), row(k), bias(n);
    if (iso_scheme_row_bytes(scheme, k, &row_bytes) != ISO_OK)
      exit(1);
    if (p.a.parts[i].bias)
      BENCH_TRY(cudaMemcpy(bias.data(), p.a.parts[i].bias, n * 4, cudaMemcpyDeviceToHost));
    for (int64_t j = 0; j < n; j += step) {
      iso_scheme_decode_row(scheme, p.raw[i].data() + j * row_bytes, row.data(), k);
      for (int64_t r = 0; r < m; r++) {
        double want = bias[j];
        for (int64_t c = 0; c < k; c++)
          want += (double)p.x[r * k + c] * row[c];
        error += (y[r * n + j] - want) * (y[r * n + j] - want), norm += want * want;
      }
    }
    made.push_back(y);
  }
  double relative = sqrt(error / norm), worst = 0;
  if (with_glu) {
    std::vector<float> y = read(p.a.glu);
    for (size_t i = 0; i < y.size(); i++) {
      double gate = made[0][i], want = gate / (1 + exp(-gate)) * made[1][i];
      double off = fabs(y[i] - want) / (fabs(want) + 1e-3);
      worst = off <= worst ? worst : off;
    }
  }
  double limit = y_type == ISO_SCHEME_BF16 ? 3e-3 : 5e-4;
  bool good = relative <= limit && worst <= 6e-3;
  failures += !good;
  printf("%-7s width %3d %u splits %4lld x %5lld (%d) x %5lld to %s  error %.1e glu %.1e %s\n",
         iso_scheme_get_info(scheme)->name, width, splits, (long long)m, (long long)features[0],
         (int)features.size(), (long long)k, iso_scheme_get_info(y_type)->name, relative, worst,
         good ? "" : "WRONG");
  release(&p);
}

static void check_all(iso_scheme scheme) {
  iso_scheme f32 = ISO_SCHEME_F32, bf16 = ISO_SCHEME_BF16, f16 = ISO_SCHEME_F16;
  check(scheme, 9, {33}, 40, f32, 0, 0);
  check(scheme, 64, {136}, 200, bf16, 64, 1);
  check(scheme, 63, {256}, 328, f16, 96, 2);
  check(scheme, 37, {1022}, 1096, f32, 112, 4);
  check(scheme, 17, {200, 64, 72}, 1000, f32, 128, 3);
  check(scheme, 64, {4400}, 2048, bf16, 96, 8);
  check(scheme, 64, {1100, 1100}, 1024, bf16, 112, 2, true);
  check(scheme, 37, {384, 384}, 1024, f32, 64, 4, true);
  check(scheme, 21, {1024, 1024}, 1024, bf16, 128, 2, true);
  check(scheme, 64, {4096, 1024, 1024}, 4096, bf16, 0, 0);
  check(scheme, 64, {4096}, 14336, f32, 0, 0);
  check(scheme, 64, {14336, 14336}, 4096, bf16, 0, 0, true);
}

/* As many as leave the cache. */
static std::vector<product> make_sets(iso_scheme scheme, int64_t m, std::vector<int64_t> features,
                                      int64_t k, bool with_glu) {
  std::vector<product> sets;
  do
    sets.push_back(make(scheme, m, features, k, ISO_SCHEME_BF16, false, with_glu, false));
  while (sets.size() * sets[0].weight_bytes < (size_t)160 << 20);
  return sets;
}

static iso_status by_blas(iso_scheme scheme, const product &p, int64_t k, uint8_t *workspace) {
  for (int i = 0; i < p.a.n_parts; i++) {
    const matmul_rows_part &part = p.a.parts[i];
    cuda_product b = {};
    b.m = p.a.x.n_rows, b.n = part.n_features, b.k = k;
    b.scheme = scheme, b.y_scheme = part.y.scheme;
    b.x = p.device_x, b.w = part.weight, b.y = part.y.data;
    b.x_stride = b.w_stride = k, b.y_stride = part.n_features;
    b.workspace = workspace;
    ISO_TRY(cuda_blas_multiply(&card.queue, &b));
  }
  return ISO_OK;
}

static uint8_t *workspace;

static void time_shape(iso_scheme scheme, int64_t m, std::vector<int64_t> features, int64_t k,
                       bool with_glu) {
  std::vector<product> sets = make_sets(scheme, m, features, k, with_glu);
  int calls = (int)sets.size() < 6 ? 6 : (int)sets.size();
  double floor = (double)sets[0].weight_bytes / card.copy_bytes_per_us;
  int64_t n = 0;
  for (int64_t f : features)
    n += f;
  printf("%-7s m %3lld  %6lld (%d) x %5lld  floor %5.1f us:", iso_scheme_get_info(scheme)->name,
         (long long)m, (long long)n, (int)features.size(), (long long)k, floor);
  if (card.device.blas)
    printf("  cuBLASLt %.1f", bench_time(&card, calls, [&](int i) {
             return by_blas(scheme, sets[i % sets.size()], k, workspace);
           }));
  printf("  rows %.1f;",
         bench_time(&card, calls, [&](int i) { return run(scheme, sets[i % sets.size()]); }));
  for (int width : {64, 96, 112, 128})
    for (unsigned splits = 1; splits <= 8 && m == 64; splits++)
      if (((double)n / width / 2 * splits < 140 || splits == 1))
        printf("  %d/%u: %.1f", width, splits, bench_time(&card, calls, [&](int i) {
                 return run(scheme, sets[i % sets.size()], width, splits);
               }));
  printf("\n");
  fflush(stdout);
  for (auto &p : sets)
    release(&p);
}

/* The products of layers one after the other. */
static void time_layers(iso_scheme scheme, int64_t m) {
  enum { LAYERS = 4 };
  std::vector<product> all[4];
  double bytes = 0;
  for (int i = 0; i < LAYERS; i++) {
    all[0].push_back(
        make(scheme, m, {4096, 1024, 1024}, 4096, ISO_SCHEME_BF16, false, false, false));
    all[1].push_back(make(scheme, m, {4096}, 4096, ISO_SCHEME_BF16, false, false, false));
    all[2].push_back(make(scheme, m, {14336, 14336}, 4096, ISO_SCHEME_BF16, false, true, false));
    all[3].push_back(make(scheme, m, {4096}, 14336, ISO_SCHEME_BF16, false, false, false));
  }
  for (auto &kind : all)
    bytes += (double)kind[0].weight_bytes;
  double blas =
      card.device.blas
          ? bench_time(&card, LAYERS,
                       [&](int i) {
                         for (int j = 0; j < 4; j++)
                           ISO_TRY(by_blas(scheme, all[j][i], j == 3 ? 14336 : 4096, workspace));
                         return ISO_OK;
                       })
          : 0;
  double rows = bench_time(&card, LAYERS, [&](int i) {
    for (int j = 0; j < 4; j++)
      ISO_TRY(run(scheme, all[j][i]));
    return ISO_OK;
  });
  printf("%-7s m %3lld  a layer: floor %.1f us, cuBLASLt (no glu) %.1f, rows %.1f\n",
         iso_scheme_get_info(scheme)->name, (long long)m, bytes / card.copy_bytes_per_us, blas,
         rows);
  for (auto &kind : all)
    for (auto &p : kind)
      release(&p);
}

static void time_all(iso_scheme scheme) {
  for (int64_t m : {64, 16, 32}) {
    time_shape(scheme, m, {4096}, 4096, false);
    time_shape(scheme, m, {4096, 1024, 1024}, 4096, false);
    time_shape(scheme, m, {14336}, 4096, false);
    time_shape(scheme, m, {14336, 14336}, 4096, true);
    time_shape(scheme, m, {4096}, 14336, false);
    if (m == 64)
      time_shape(scheme, m, {128256}, 4096, false);
    time_layers(scheme, m);
  }
}

int main(int argc, char **argv) {
  bench_open(&card);
  card.device.blas = cuda_blas_create();
  workspace = bench_device<uint8_t>(nullptr, CUDA_BLAS_WORKSPACE);
  bool checks = argc < 2 || strcmp(argv[1], "check") == 0;
  bool times = argc < 2 || strcmp(argv[1], "time") == 0;
  for (iso_scheme scheme : {ISO_SCHEME_BF16, ISO_SCHEME_F16}) {
    if (checks)
      check_all(scheme);
    if (times && scheme != ISO_SCHEME_F16)
      time_all(scheme);
  }
  printf("%d wrong\n", failures);
  return failures != 0;
}
