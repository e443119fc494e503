/* Paged attention: checks the kernels of backends/simt/attention_*.cuh against sums in double, then
 * times decoding of a batch over long contexts, and long prompts.
 *
 *   cuda_attention [check | time]      (both without a word) */
#include "bench/kernels/cuda_bench.cuh"
#include "backends/cuda/hopper/attention_prompt.cuh"
#include "backends/simt/attention_split.cuh"
#include <string.h>

static bench_card card;
static int failures;

struct problem {
  int n_heads, n_kv_heads, dim, page_size, n_sequences, n_blocks, n_pages, n_tokens;
  std::vector<int32_t> table, start, length, context;
  std::vector<float> q, slopes;
  std::vector<uint16_t> k, v;
  float scale, soft_cap;
  uint32_t causal, window;
  bool bf16;
};

static float from_bits(const problem &p, uint16_t bits) {
  return p.bf16 ? iso_bf16_to_f32(bits) : iso_f16_to_f32(bits);
}

/* Pages in random order; rows that no query sees are NaN. */
static void fill(problem *p, bool real_values) {
  int64_t row = p->dim, rows = (int64_t)p->n_pages * p->n_kv_heads * p->page_size;
  p->k.assign(rows * row, p->bf16 ? 0x7fff : 0x7fff);
  p->v = p->k;
  p->table.assign(p->n_sequences * p->n_blocks, -7);
  std::vector<int32_t> pages(p->n_pages);
  for (int i = 0; i < p->n_pages; i++)
    pages[i] = i;
  for (int i = p->n_pages - 1; i > 0; i--)
    std::swap(pages[i], pages[bench_random() % (i + 1)]);
  int used = 0;
  for (int s = 0; s < p->n_sequences; s++) {
    if (p->length[s] == 0)
      continue;
    int first = p->context[s] - p->length[s];
    first = p->window && first >= (int)p->window ? first - (int)p->window + 1 : 0;
    for (int at = first; at < p->context[s]; at++) {
      int32_t &page = p->table[s * p->n_blocks + at / p->page_size];
      if (page < 0)
        page = pages[used++ % p->n_pages];
      for (int h = 0; h < p->n_kv_heads && real_values; h++)
        for (int e = 0; e < p->dim; e++) {
          int64_t i =
              (((int64_t)page * p->n_kv_heads + h) * p->page_size + at % p->page_size) * row + e;
          p->k[i] = p->bf16 ? iso_bf16_from_f32(bench_normal()) : iso_f16_from_f32(bench_normal());
          p->v[i] = p->bf16 ? iso_bf16_from_f32(bench_normal()) : iso_f16_from_f32(bench_normal());
        }
    }
  }
  p->q.resize((size_t)p->n_tokens * p->n_heads * p->dim);
  for (auto &value : p->q)
    value = bench_normal();
}

/* The reference: ops/ref/paged_attention.c in short. */
static void attend(const problem &p, int s, int i, int head, double *out) {
  int position = p.context[s] - p.length[s] + i;
  int last = p.causal ? position : p.context[s] - 1;
  int first = p.window && position >= (int)p.window ? position - (int)p.window + 1 : 0;
  const float *q = &p.q[((size_t)(p.start[s] + i) * p.n_heads + head) * p.dim];
  std::vector<double> scores(last - first + 1);
  double largest = -INFINITY, whole = 0;
  auto row = [&](int at) {
    int64_t page = p.table[s * p.n_blocks + at / p.page_size];
    return ((page * p.n_kv_heads + head / (p.n_heads / p.n_kv_heads)) * p.page_size +
            at % p.page_size) *
           p.dim;
  };
  for (int at = first; at <= last; at++) {
    double sum = 0;
    for (int e = 0; e < p.dim; e++)
      sum += (double)q[e] * from_bits(p, p.k[row(at) + e]);
    sum *= p.scale;
    if (p.soft_cap > 0)
      sum = p.soft_cap * tanh(sum / p.soft_cap);
    if (!p.slopes.empty())
      sum += (double)p.slopes[head] * (at - position);
    scores[at - first] = sum;
    largest = fmax(largest, sum);
  }
  for (int e = 0; e < p.dim; e++)
    out[e] = 0;
  for (int at = first; at <= last; at++) {
    double weight = exp(scores[at - first] - largest);
    whole += weight;
    for (int e = 0; e < p.dim; e++)
      out[e] += weight * from_bits(p, p.v[row(at) + e]);
  }
  for (int e = 0; e < p.dim; e++)
    out[e] /= whole;
}

struct device_problem {
  attention_operands o = {};
  std::vector<void *> memory;
  float *y;
  uint8_t *workspace;
  attention_split_plan plan;
};

template <typename T> static T *put(device_problem *d, const T *from, size_t count) {
  T *to = bench_device(from, count);
  d->memory.push_back(to);
  return to;
}

static device_problem upload(const problem &p) {
  device_problem d;
  attention_operands &o = d.o;
  auto rows = [&](float *data) {
    simt_rows r = {};
    r.data = (uint8_t *)data, r.scheme = ISO_SCHEME_F32, r.n_dims = 1;
    r.n_rows = r.dims[0] = (int64_t)p.n_tokens * p.n_heads;
    r.n_columns = p.dim, r.strides[0] = p.dim * 4;
    return r;
  };
  auto cache = [&](const std::vector<uint16_t> &data) {
    int64_t row = p.dim * 2;
    return attention_cache{(uint8_t *)put(&d, data.data(), data.size()),
                           row * p.page_size * p.n_kv_heads, row * p.page_size, row};
  };
  d.y = put<float>(&d, nullptr, p.q.size());
  BENCH_TRY(cudaMemset(d.y, 0xff, p.q.size() * 4));
  o.q = rows(put(&d, p.q.data(), p.q.size()));
  o.y = rows(d.y);
  o.k = cache(p.k), o.v = cache(p.v);
  o.block_table = put(&d, p.table.data(), p.table.size());
  o.query_start = put(&d, p.start.data(), p.start.size());
  o.query_length = put(&d, p.length.data(), p.length.size());
  o.context_length = put(&d, p.context.data(), p.context.size());
  o.slopes = p.slopes.empty() ? nullptr : put(&d, p.slopes.data(), p.slopes.size());
  o.n_tokens = p.n_tokens, o.n_heads = p.n_heads, o.n_kv_heads = p.n_kv_heads;
  o.group = p.n_heads / p.n_kv_heads, o.page_size = p.page_size, o.n_pages = p.n_pages;
  o.n_blocks = p.n_blocks, o.n_sequences = p.n_sequences, o.scale = p.scale;
  o.soft_cap = p.soft_cap, o.causal = p.causal, o.window = p.window;
  d.plan = attention_split_of(card.device.n_units, p.n_tokens, p.n_sequences, p.n_heads,
                              p.n_kv_heads, (int64_t)p.n_blocks * p.page_size, p.dim);
  d.workspace = put<uint8_t>(&d, nullptr, d.plan.workspace_bytes);
  BENCH_TRY(cudaMemset(d.workspace, 0xff, d.plan.workspace_bytes));
  return d;
}

static void release(device_problem *d) {
  for (void *p : d->memory)
    BENCH_TRY(cudaFree(p));
}

template <typename V> static iso_status split(const device_problem &d, int dim) {
  switch (dim) {
  case 64:
    return attention_split_launch<V, 64>(&card.queue, d.o, d.plan, d.workspace);
  case 96:
    return attention_split_launch<V, 96>(&card.queue, d.o, d.plan, d.workspace);
  case 128:
    return attention_split_launch<V, 128>(&card.queue, d.o, d.plan, d.workspace);
  default:
    return attention_split_launch<V, 256>(&card.queue, d.o, d.plan, d.workspace);
  }
}

template <typename V, bool Turns> static iso_status prompt(const device_problem &d, int dim) {
  return dim == 64 ? attention_prompt_launch<V, 64, Turns>(&card.queue, d.o)
                   : attention_prompt_launch<V, 128, Turns>(&card.queue, d.o);
}

/* way: 0 split, 1 and 2 prompt, without and with turns. */
static void check_way(problem &p, const char *what, int way) {
  device_problem d = upload(p);
  iso_status status =
      way == 0   ? (p.bf16 ? split<simt_bf16>(d, p.dim) : split<simt_f16>(d, p.dim))
      : way == 1 ? (p.bf16 ? prompt<simt_bf16, false>(d, p.dim) : prompt<simt_f16, false>(d, p.dim))
                 : (p.bf16 ? prompt<simt_bf16, true>(d, p.dim) : prompt<simt_f16, true>(d, p.dim));
  if (status != ISO_OK)
    exit(1);
  BENCH_TRY(cudaDeviceSynchronize());
  std::vector<float> y(p.q.size());
  BENCH_TRY(cudaMemcpy(y.data(), d.y, y.size() * 4, cudaMemcpyDeviceToHost));
  std::vector<double> want(p.dim);
  std::vector<char> covered(p.n_tokens);
  double error = 0, norm = 0;
  bool zeros = true;
  for (int s = 0; s < p.n_sequences; s++)
    for (int i = 0; i < p.length[s]; i++) {
      covered[p.start[s] + i] = 1;
      for (int h = 0; h < p.n_heads; h++) {
        attend(p, s, i, h, want.data());
        for (int e = 0; e < p.dim; e++) {
          double off = y[((size_t)(p.start[s] + i) * p.n_heads + h) * p.dim + e] - want[e];
          error += off * off, norm += want[e] * want[e];
        }
      }
    }
  for (int t = 0; t < p.n_tokens; t++)
    for (int64_t e = 0; e < (int64_t)p.n_heads * p.dim && !covered[t]; e++)
      zeros &= y[(size_t)t * p.n_heads * p.dim + e] == 0;
  double relative = sqrt(error / norm), limit = p.bf16 ? 4e-5 : 3e-6;
  if (way > 0)
    limit = p.bf16 ? 6e-3 : 8e-4;
  bool good = relative <= limit && zeros;
  failures += !good;
  printf("%-5s %-40s %s %3d wide, %d/%d heads, %d splits: error %.1e %s%s\n",
         way == 0   ? "split"
         : way == 1 ? "plain"
                    : "turns",
         what, p.bf16 ? "bf16" : "f16 ", p.dim, p.n_heads, p.n_kv_heads, d.plan.n_splits, relative,
         zeros ? "" : "uncovered rows not zero ", good ? "" : "WRONG");
  release(&d);
}

static void check(problem p, const char *what) {
  fill(&p, true);
  check_way(p, what, 0);
  for (int way = 1; way < 3 && (p.dim == 64 || p.dim == 128); way++)
    check_way(p, what, way);
}

static problem make(int heads, int kv_heads, int dim, int page, std::vector<int32_t> lengths,
                    std::vector<int32_t> contexts, int gap) {
  problem p = {};
  p.n_heads = heads, p.n_kv_heads = kv_heads, p.dim = dim, p.page_size = page;
  p.n_sequences = (int)lengths.size(), p.length = lengths, p.context = contexts;
  int pages = 0;
  for (size_t s = 0; s < lengths.size(); s++) {
    p.start.push_back(p.n_tokens);
    p.n_tokens += lengths[s] + gap;
    int blocks = (contexts[s] + page - 1) / page;
    pages += blocks;
    p.n_blocks = blocks > p.n_blocks ? blocks : p.n_blocks;
  }
  p.n_pages = pages + 2, p.scale = 1 / sqrtf((float)dim), p.causal = 1, p.bf16 = true;
  return p;
}

static void check_all() {
  for (int bf16 = 0; bf16 < 2; bf16++) {
    for (int dim : {64, 96, 128, 256}) {
      problem p = make(8, 2, dim, 16, {1, 1, 1, 0, 1}, {1, 700, 33, 5, 64}, 0);
      p.bf16 = bf16;
      check(p, "decode, ragged");
    }
    problem p = make(32, 8, 128, 64, {1}, {3000}, 0);
    p.bf16 = bf16;
    check(p, "decode, one");
    p = make(12, 4, 128, 32, {5, 1, 0, 9, 2}, {5, 130, 9, 200, 700}, 1);
    p.bf16 = bf16;
    check(p, "mixed, rows of none");
    p.window = 40;
    check(p, "mixed, window");
    p.causal = 0;
    check(p, "mixed, window, not causal");
    p.window = 0, p.soft_cap = 5, p.scale = 0.3f;
    check(p, "mixed, soft cap, not causal");
    p.causal = 1;
    for (int h = 0; h < 12; h++)
      p.slopes.push_back(exp2f(-8.0f * (float)(h + 1) / 12));
    check(p, "mixed, soft cap, slopes");
    p = make(16, 1, 64, 16, {1, 3}, {100, 900}, 0);
    p.bf16 = bf16;
    check(p, "16 heads share keys");
    p = make(4, 2, 128, 16, {300, 1, 129, 200}, {300, 77, 640, 1000}, 3);
    p.bf16 = bf16;
    check(p, "prompts");
    p.window = 150;
    check(p, "prompts, window");
    p = make(4, 2, 64, 64, {300, 1, 129, 200}, {300, 77, 640, 1000}, 0);
    p.bf16 = bf16;
    check(p, "prompts");
    p.causal = 0;
    check(p, "prompts, not causal");
    std::vector<int32_t> lengths(70, 1), contexts;
    for (int i = 0; i < 70; i++)
      contexts.push_back(1 + i * 7);
    p = make(4, 2, 64, 16, lengths, contexts, 0);
    p.bf16 = bf16;
    check(p, "decode, 70 sequences");
  }
}

static void fill_random(problem *p) {
  fill(p, false);
  size_t distinct = p->k.size() < (1 << 22) - 1 ? p->k.size() : (1 << 22) - 1;
  for (size_t i = 0; i < distinct; i++) {
    float k = bench_normal(), v = bench_normal();
    p->k[i] = iso_bf16_from_f32(k), p->v[i] = iso_bf16_from_f32(v);
  }
  bench_repeat(p->k.data(), distinct * 2, p->k.size() * 2);
  bench_repeat(p->v.data(), distinct * 2, p->v.size() * 2);
}

static void time_prompt(int rows, int context, int dim) {
  problem p = make(32, 8, dim, 64, {rows}, {context}, 0);
  fill_random(&p);
  device_problem d = upload(p);
  double operations = 4.0 * 32 * dim * ((double)rows * context - (double)rows * rows / 2);
  for (int way = 1; way < 3; way++) {
    double us = bench_time(&card, 2, [&](int) {
      return way == 1 ? prompt<simt_bf16, false>(d, dim) : prompt<simt_bf16, true>(d, dim);
    });
    printf("prompt attention, %5d of %5d rows, %3d wide, %s: %8.1f us, %4.0f TFLOP/s\n", rows,
           context, dim, way == 1 ? "plain" : "turns", us, operations / us / 1e6);
  }
  release(&d);
}

static void time_decode(int batch, int context) {
  std::vector<int32_t> lengths(batch, 1), contexts(batch, context);
  problem p = make(32, 8, 128, 64, lengths, contexts, 0);
  fill(&p, false);
  size_t distinct = p.k.size() < (1 << 22) - 1 ? p.k.size() : (1 << 22) - 1;
  for (size_t i = 0; i < distinct; i++) {
    uint64_t bits = bench_random();
    p.k[i] = (uint16_t)((bits & 0x80ff) | 0x3f00),
    p.v[i] = (uint16_t)((bits >> 16 & 0x80ff) | 0x3f00);
  }
  bench_repeat(p.k.data(), distinct * 2, p.k.size() * 2);
  bench_repeat(p.v.data(), distinct * 2, p.v.size() * 2);
  device_problem d = upload(p);
  double bytes = 2.0 * batch * context * 8 * 128 * 2;
  double us = bench_time(&card, 8, [&](int) { return split<simt_bf16>(d, 128); });
  printf("decode attention, batch %3d, context %5d, bf16: %8.1f us, %5.0f GB/s, %3.0f%% of copy, "
         "%d splits\n",
         batch, context, us, bytes / us / 1e3, 100 * bytes / us / card.copy_bytes_per_us,
         d.plan.n_splits);
  release(&d);
}

int main(int argc, char **argv) {
  bench_open(&card);
  bool checks = argc < 2 || strcmp(argv[1], "check") == 0;
  bool times = argc < 2 || strcmp(argv[1], "time") == 0;
  if (checks) {
    check_all();
    printf("%d wrong\n", failures);
  }
  if (times && failures == 0) {
    time_prompt(512, 512, 128);
    time_prompt(2048, 2048, 128);
    time_prompt(2048, 8192, 128);
    time_prompt(8192, 8192, 128);
    time_prompt(16384, 16384, 128);
    time_prompt(8192, 8192, 64);
    time_decode(1, 512);
    time_decode(1, 8192);
    time_decode(16, 1024);
    time_decode(64, 640);
    time_decode(64, 8192);
  }
  return failures != 0;
}
