/* Paged attention: checks the kernels of backends/simt/attention_*.cuh against sums in double, then
 * times decoding of a batch over long contexts, long prompts, and prompts beside decoding.
 *
 *   cuda_attention [check | time | mixed]      (all without a word) */
#include "bench/kernels/cuda_bench.cuh"
#include "backends/cuda/hopper/attention_prompt.cuh"
#include <algorithm>
#include <string.h>

static bench_card card;
static int failures;

struct problem {
  int n_heads, n_kv_heads, dim, page_size, n_sequences, n_blocks, n_pages, n_tokens;
  std::vector<int32_t> table, start, length, context;
  std::vector<float> q, slopes;
  std::vector<uint8_t> k, v;
  float scale, soft_cap;
  uint32_t causal, window;
  iso_scheme scheme; /* of the cache */
};

static int64_t row_bytes(const problem &p) {
  return p.scheme == ISO_SCHEME_Q8_0 ? p.dim / 32 * 34 : p.dim * 2;
}

static void put_random(const problem &p, uint8_t *row) {
  for (int e = 0; e < p.dim; e++) {
    uint16_t bits = p.scheme == ISO_SCHEME_BF16 ? iso_bf16_from_f32(bench_normal())
                    : p.scheme == ISO_SCHEME_F16
                        ? iso_f16_from_f32(bench_normal())
                        : iso_f16_from_f32((float)(0.02 * bench_uniform()));
    if (p.scheme == ISO_SCHEME_Q8_0) {
      row[e / 32 * 34 + 2 + e % 32] = (uint8_t)bench_random();
      if (e % 32 == 0)
        memcpy(row + e / 32 * 34, &bits, 2);
    } else {
      memcpy(row + 2 * e, &bits, 2);
    }
  }
}

static void decode(const problem &p, const uint8_t *row, std::vector<float> *out) {
  out->resize(p.dim);
  iso_scheme_decode_row(p.scheme, row, out->data(), p.dim);
}

/* Pages in random order; rows that no query sees are NaN. */
static void fill(problem *p, bool real_values) {
  int64_t row = row_bytes(*p), rows = (int64_t)p->n_pages * p->n_kv_heads * p->page_size;
  p->k.assign(rows * row, 0x7f);
  for (int64_t i = 0; i < rows * row; i += 2)
    p->k[i] = 0xff;
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
      for (int h = 0; h < p->n_kv_heads && real_values; h++) {
        int64_t i = (((int64_t)page * p->n_kv_heads + h) * p->page_size + at % p->page_size) * row;
        put_random(*p, &p->k[i]);
        put_random(*p, &p->v[i]);
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
           row_bytes(p);
  };
  std::vector<float> values;
  for (int at = first; at <= last; at++) {
    double sum = 0;
    decode(p, &p.k[row(at)], &values);
    for (int e = 0; e < p.dim; e++)
      sum += (double)q[e] * values[e];
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
    decode(p, &p.v[row(at)], &values);
    for (int e = 0; e < p.dim; e++)
      out[e] += weight * values[e];
  }
  for (int e = 0; e < p.dim; e++)
    out[e] /= whole;
}

struct device_problem {
  attention_operands o = {};
  std::vector<void *> memory;
  float *y;
  uint8_t *workspace;
  attention_split_plan plan, mixed;
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
  auto cache = [&](const std::vector<uint8_t> &data) {
    int64_t row = row_bytes(p);
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
  o.page_shift = attention_shift_of(p.page_size);
  int64_t slots = attention_split_slots(card.device.n_units, p.scheme, p.dim);
  d.plan = attention_split_of(slots, p.n_tokens, p.n_sequences, p.n_heads,
                              p.n_kv_heads, (int64_t)p.n_blocks * p.page_size, p.dim);
  d.mixed = attention_mixed_plan(slots, p.n_sequences, p.n_heads, p.n_kv_heads,
                                 (int64_t)p.n_blocks * p.page_size, p.dim);
  size_t bytes = std::max(d.plan.workspace_bytes, d.mixed.workspace_bytes);
  d.workspace = put<uint8_t>(&d, nullptr, bytes);
  BENCH_TRY(cudaMemset(d.workspace, 0xff, bytes));
  return d;
}

static void release(device_problem *d) {
  for (void *p : d->memory)
    BENCH_TRY(cudaFree(p));
}

/* Ways: 0 few rows, 1 and 2 many, without and with turns, 3 few of some and many of others. */
static const char *const WAYS[] = {"split", "plain", "turns", "mixed"};
enum { N_WAYS = 4 };

template <template <typename, int> class Split, template <typename, int> class Prompt, typename V>
static iso_status run_floats(const device_problem &d, int dim, int way) {
  iso_queue *queue = &card.queue;
  if (way == 0)
    return dim == 64   ? attention_split_launch<Split<V, 64>, 64>(queue, d.o, d.plan, d.workspace)
           : dim == 96 ? attention_split_launch<Split<V, 96>, 96>(queue, d.o, d.plan, d.workspace)
           : dim == 128
               ? attention_split_launch<Split<V, 128>, 128>(queue, d.o, d.plan, d.workspace)
               : attention_split_launch<Split<V, 256>, 256>(queue, d.o, d.plan, d.workspace);
  if (way == 1)
    return dim == 64 ? attention_prompt_launch<Prompt<V, 64>, 64, false>(queue, d.o)
                     : attention_prompt_launch<Prompt<V, 128>, 128, false>(queue, d.o);
  if (way == 3)
    return dim == 64 ? attention_mixed_launch<Prompt<V, 64>, Split<V, 64>, 64>(queue, d.o, d.mixed,
                                                                               d.workspace)
                     : attention_mixed_launch<Prompt<V, 128>, Split<V, 128>, 128>(
                           queue, d.o, d.mixed, d.workspace);
  return dim == 64 ? attention_prompt_launch<Prompt<V, 64>, 64, true>(queue, d.o)
                   : attention_prompt_launch<Prompt<V, 128>, 128, true>(queue, d.o);
}

static iso_status run(const problem &p, const device_problem &d, int way) {
  iso_queue *queue = &card.queue;
  if (p.scheme == ISO_SCHEME_BF16)
    return run_floats<split_floats, prompt_floats, simt_bf16>(d, p.dim, way);
  if (p.scheme == ISO_SCHEME_F16)
    return run_floats<split_floats, prompt_floats, simt_f16>(d, p.dim, way);
  if (way == 0)
    return p.dim == 64 ? attention_split_launch<split_q8_0<64>, 64>(queue, d.o, d.plan, d.workspace)
           : p.dim == 128
               ? attention_split_launch<split_q8_0<128>, 128>(queue, d.o, d.plan, d.workspace)
               : attention_split_launch<split_q8_0<256>, 256>(queue, d.o, d.plan, d.workspace);
  if (way == 1)
    return p.dim == 64 ? attention_prompt_launch<prompt_q8_0<64>, 64, false>(queue, d.o)
                       : attention_prompt_launch<prompt_q8_0<128>, 128, false>(queue, d.o);
  if (way == 3)
    return p.dim == 64
               ? attention_mixed_launch<prompt_q8_0<64>, split_q8_0<64>, 64>(queue, d.o, d.mixed,
                                                                             d.workspace)
               : attention_mixed_launch<prompt_q8_0<128>, split_q8_0<128>, 128>(queue, d.o, d.mixed,
                                                                                d.workspace);
  return p.dim == 64 ? attention_prompt_launch<prompt_q8_0<64>, 64, true>(queue, d.o)
                     : attention_prompt_launch<prompt_q8_0<128>, 128, true>(queue, d.o);
}

static void check_way(const problem &p, const std::vector<double> &want, const char *what,
                      int way) {
  device_problem d = upload(p);
  iso_status status = run(p, d, way);
  if (status != ISO_OK)
    exit(1);
  BENCH_TRY(cudaDeviceSynchronize());
  std::vector<float> y(p.q.size());
  BENCH_TRY(cudaMemcpy(y.data(), d.y, y.size() * 4, cudaMemcpyDeviceToHost));
  std::vector<char> covered(p.n_tokens);
  double error = 0, norm = 0;
  bool zeros = true;
  for (int s = 0; s < p.n_sequences; s++)
    for (int i = 0; i < p.length[s]; i++) {
      covered[p.start[s] + i] = 1;
      for (int h = 0; h < p.n_heads; h++) {
        size_t at = ((size_t)(p.start[s] + i) * p.n_heads + h) * p.dim;
        for (int e = 0; e < p.dim; e++) {
          double off = y[at + e] - want[at + e];
          error += off * off, norm += want[at + e] * want[at + e];
        }
      }
    }
  for (int t = 0; t < p.n_tokens; t++)
    for (int64_t e = 0; e < (int64_t)p.n_heads * p.dim && !covered[t]; e++)
      zeros &= y[(size_t)t * p.n_heads * p.dim + e] == 0;
  double relative = sqrt(error / norm), limit = p.scheme == ISO_SCHEME_BF16 ? 4e-5 : 3e-6;
  if (way > 0 || p.scheme == ISO_SCHEME_Q8_0)
    limit = p.scheme == ISO_SCHEME_BF16 ? 6e-3 : 1e-3;
  bool good = relative <= limit && zeros;
  failures += !good;
  printf("%-5s %-40s %s %3d wide, %d/%d heads, %d splits: error %.1e %s%s\n", WAYS[way], what,
         iso_scheme_get_info(p.scheme)->name, p.dim, p.n_heads, p.n_kv_heads, d.plan.n_splits,
         relative, zeros ? "" : "uncovered rows not zero ", good ? "" : "WRONG");
  release(&d);
}

static void check(problem p, const char *what) {
  fill(&p, true);
  std::vector<double> want(p.q.size());
  for (int s = 0; s < p.n_sequences; s++)
    for (int i = 0; i < p.length[s]; i++)
      for (int h = 0; h < p.n_heads; h++)
        attend(p, s, i, h, &want[((size_t)(p.start[s] + i) * p.n_heads + h) * p.dim]);
  if (p.scheme != ISO_SCHEME_Q8_0 || p.dim != 96)
    check_way(p, want, what, 0);
  for (int way = 1; way < N_WAYS && (p.dim == 64 || p.dim == 128); way++)
    check_way(p, want, what, way);
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
  p.n_pages = pages + 2, p.scale = 1 / sqrtf((float)dim), p.causal = 1, p.scheme = ISO_SCHEME_BF16;
  return p;
}

static void check_all() {
  for (iso_scheme scheme : {ISO_SCHEME_F16, ISO_SCHEME_BF16, ISO_SCHEME_Q8_0}) {
    for (int dim : {64, 96, 128, 256}) {
      problem p = make(8, 2, dim, 16, {1, 1, 1, 0, 1}, {1, 700, 33, 5, 64}, 0);
      p.scheme = scheme;
      check(p, "decode, ragged");
    }
    problem p = make(32, 8, 128, 64, {1}, {3000}, 0);
    p.scheme = scheme;
    check(p, "decode, one");
    p = make(12, 4, 128, 32, {5, 1, 0, 9, 2}, {5, 130, 9, 200, 700}, 1);
    p.scheme = scheme;
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
    p.scheme = scheme;
    check(p, "16 heads share keys");
    p = make(2, 1, 128, 16, {300, 1, 129, 100}, {300, 77, 640, 400}, 3);
    p.scheme = scheme;
    check(p, "prompts");
    p.window = 150;
    check(p, "prompts, window");
    p = make(2, 1, 64, 64, {300, 1, 129, 100}, {300, 77, 640, 400}, 0);
    p.scheme = scheme;
    check(p, "prompts");
    p.causal = 0;
    check(p, "prompts, not causal");
    std::vector<int32_t> lengths(70, 1), contexts;
    for (int i = 0; i < 70; i++)
      contexts.push_back(1 + i * 7);
    p = make(4, 2, 64, 16, lengths, contexts, 0);
    p.scheme = scheme;
    check(p, "decode, 70 sequences");
  }
}

/* Random values, of which the first are repeated. */
static void fill_random(problem *p) {
  fill(p, false);
  int64_t row = row_bytes(*p);
  size_t rows = p->k.size() / row, distinct = rows < 32767 ? rows : 32767;
  for (size_t i = 0; i < distinct; i++)
    put_random(*p, &p->k[i * row]), put_random(*p, &p->v[i * row]);
  bench_repeat(p->k.data(), distinct * row, p->k.size());
  bench_repeat(p->v.data(), distinct * row, p->v.size());
}

static void time_prompt(int rows, int context, int dim, iso_scheme scheme) {
  problem p = make(32, 8, dim, 64, {rows}, {context}, 0);
  p.scheme = scheme;
  fill_random(&p);
  device_problem d = upload(p);
  double operations = 4.0 * 32 * dim * ((double)rows * context - (double)rows * rows / 2);
  for (int way = 1; way < 3; way++) {
    double us = bench_time(&card, 2, [&](int) { return run(p, d, way); });
    printf("prompt attention, %5d of %5d rows, %3d wide, %s, %s: %8.1f us, %4.0f TFLOP/s\n", rows,
           context, dim, iso_scheme_get_info(scheme)->name, WAYS[way], us, operations / us / 1e6);
  }
  release(&d);
}

static void time_decode(int batch, int context, iso_scheme scheme) {
  std::vector<int32_t> lengths(batch, 1), contexts(batch, context);
  problem p = make(32, 8, 128, 64, lengths, contexts, 0);
  p.scheme = scheme;
  fill_random(&p);
  device_problem d = upload(p);
  double bytes = 2.0 * batch * context * 8 * row_bytes(p);
  double us = bench_time(&card, 8, [&](int) { return run(p, d, 0); });
  printf("decode attention, batch %3d, context %5d, %s: %8.1f us, %5.0f GB/s, %3.0f%% of copy, "
         "%d splits\n",
         batch, context, iso_scheme_get_info(scheme)->name, us, bytes / us / 1e3,
         100 * bytes / us / card.copy_bytes_per_us, d.plan.n_splits);
  release(&d);
}

/* Sequences of 640 that decode, beside prompts of 512. */
static void time_mixed(int n_decoding, int n_prompts) {
  std::vector<int32_t> lengths(n_decoding, 1), contexts(n_decoding, 640);
  lengths.resize(n_decoding + n_prompts, 512);
  contexts.resize(n_decoding + n_prompts, 512);
  problem p = make(32, 8, 128, 64, lengths, contexts, 0);
  fill_random(&p);
  device_problem d = upload(p);
  for (int way : {2, 3}) {
    double us = bench_time(&card, 8, [&](int) { return run(p, d, way); });
    printf("mixed attention, %3d that decode, %d prompts of 512, %s: %8.1f us\n", n_decoding,
           n_prompts, WAYS[way], us);
  }
  release(&d);
}

int main(int argc, char **argv) {
  bench_open(&card);
  bool checks = argc < 2 || strcmp(argv[1], "check") == 0;
  bool times = argc < 2 || strcmp(argv[1], "time") == 0;
  bool mixes = argc < 2 || strcmp(argv[1], "mixed") == 0;
  if (checks) {
    check_all();
    printf("%d wrong\n", failures);
  }
  if (times && failures == 0) {
    for (iso_scheme scheme : {ISO_SCHEME_BF16, ISO_SCHEME_Q8_0}) {
      time_prompt(512, 512, 128, scheme);
      time_prompt(2048, 2048, 128, scheme);
      time_prompt(2048, 8192, 128, scheme);
      time_prompt(8192, 8192, 128, scheme);
      time_prompt(16384, 16384, 128, scheme);
      time_prompt(8192, 8192, 64, scheme);
      time_decode(1, 512, scheme);
      time_decode(1, 8192, scheme);
      time_decode(16, 1024, scheme);
      time_decode(64, 640, scheme);
      time_decode(64, 8192, scheme);
    }
  }
  for (int n_prompts = 1; mixes && failures == 0 && n_prompts <= 4; n_prompts += 3)
    for (int n_decoding : {0, 64, 256})
      time_mixed(n_decoding, n_prompts);
  return failures != 0;
}
