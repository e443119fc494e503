/* Times paged attention of one new token a sequence against the read bandwidth of memory.
 *
 *   bench_cpu_attention [--threads n] [--caches bf16,q8_0] [--contexts 8192] [--sequences 1]
 *                       [--heads 32] [--kv-heads 8] [--head-dim 64] [--page 64]
 *                       [--megabytes 512] [--seconds 1]
 *
 * Caches rotate through copies larger than the caches of the CPU, as a model's layers do, and
 * their pages are dealt out at random. Attention and plain reads of the very same bytes alternate,
 * so that both see the same neighbours; the medians are compared. Then windows of a length
 * alternate, one of attention and one of reads over all copies, which is how bench/limits reads:
 * their medians are compared, and that of attention with the best window of reads, as limits prints
 * the best. */
#include "bench/kernels/cpu_bench.h"

#define MAX_SAMPLES 2048
#define WINDOW_SECONDS 0.08
#define MAX_WINDOWS 256
#define READ_PART (UINT64_C(4) << 20)

typedef struct options {
  const char *caches, *contexts;
  int64_t n_sequences, n_heads, n_kv_heads, head_dim, page_size, megabytes;
  uint32_t n_threads;
  double seconds;
} options;

static int32_t *indices(cpu_bench *b, iso_tensor *out_tensor, uint32_t n_dims,
                        const int64_t *dims) {
  int64_t count = dims[0] * (n_dims > 1 ? dims[1] : 1);
  iso_buffer *buffer = cpu_bench_alloc(b, (uint64_t)count * sizeof(int32_t));
  *out_tensor = cpu_bench_tensor(buffer, ISO_SCHEME_I32, n_dims, dims);
  return (int32_t *)(void *)buffer->data;
}

/* Values of both signs; those of one row differ from those of others. */
static void fill(iso_tensor *tensor, int64_t rows) {
  int64_t n = tensor->dims[tensor->n_dims - 1];
  float values[1024];
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t i = 0; i < n; i++)
      values[i] = (float)((row * 31 + i * 7) % 61 - 30) / 32;
    iso_scheme_encode_row(tensor->scheme, values, NULL, iso_cpu_row(tensor, row), n);
  }
}

/* The caches of a case, copy after copy of keys and values. */
typedef struct copies {
  const iso_kernel *kernel;
  iso_op_arguments *arguments;
  iso_buffer *data;
  int64_t count;
  uint64_t half; /* bytes of keys, and of values */
} copies;

static void attend(cpu_bench *b, const copies *c, int64_t turn) {
  iso_tensor *inputs = c->arguments->inputs;
  inputs[1].offset = (uint64_t)(turn % c->count) * 2 * c->half;
  inputs[2].offset = inputs[1].offset + c->half;
  cpu_bench_check(c->kernel->launch(b->queue, c->arguments), c->kernel->name);
}

typedef struct read_window {
  const uint8_t *data;
  uint64_t bytes;
  bench_read read;
  uint64_t begin; /* part of its share at which each thread begins */
  double rates[ISO_CPU_MAX_THREADS];
} read_window;

static void read_window_task(void *context, uint32_t thread, uint32_t n_threads) {
  read_window *job = context;
  int64_t begin, end;
  iso_cpu_share((int64_t)job->bytes, READ_PART, thread, n_threads, &begin, &end);
  uint64_t parts = (uint64_t)(end - begin) / READ_PART, at = job->begin;
  double start = cpu_bench_now(), done = 0, time;
  do {
    done += job->read(job->data + begin + at++ % parts * READ_PART, READ_PART);
    time = cpu_bench_now() - start;
  } while (time < WINDOW_SECONDS);
  job->rates[thread] = done / time;
}

/* Bytes a second that reads of all copies reach in a window, each thread for itself. */
static double read_for_a_window(cpu_bench *b, const copies *c, uint64_t turn) {
  read_window job = {.data = c->data->data,
                     .bytes = (uint64_t)c->count * 2 * c->half,
                     .read = bench_best_read(b->device->cpu_features),
                     .begin = turn * 8};
  iso_cpu_parallel(b->device->pool, UINT32_MAX, read_window_task, &job);
  double rate = 0;
  for (uint32_t i = 0; i < b->device->info.n_units; i++)
    rate += job.rates[i];
  return rate;
}

static double attend_for_a_window(cpu_bench *b, const copies *c, int64_t *turn) {
  double began = cpu_bench_now(), done = 0, time;
  do {
    attend(b, c, (*turn)++);
    done += 2 * (double)c->half;
    time = cpu_bench_now() - began;
  } while (time < WINDOW_SECONDS);
  return done / time;
}

static void bench_windows(cpu_bench *b, const copies *c, double seconds) {
  static double attention[MAX_WINDOWS], reads[MAX_WINDOWS];
  int64_t turn = 0;
  double end = cpu_bench_now() + seconds;
  int count = 0;
  for (; count < MAX_WINDOWS && (count < 5 || cpu_bench_now() < end); count++) {
    attention[count] = attend_for_a_window(b, c, &turn);
    reads[count] = read_for_a_window(b, c, (uint64_t)count);
  }
  double middle = cpu_bench_quantile(attention, count, 0.5),
         most = cpu_bench_quantile(attention, count, 1),
         read = cpu_bench_quantile(reads, count, 0.5), best = cpu_bench_quantile(reads, count, 1);
  printf(" %6.2f | %6.2f | %6.2f | %6.2f | %3.0f%% | %3.0f%% | %3.0f%% |\n", 1e-9 * middle,
         1e-9 * read, 1e-9 * most, 1e-9 * best, 100 * middle / read, 100 * most / best,
         100 * middle / best);
}

static void bench_case(cpu_bench *b, const options *o, iso_scheme scheme, int64_t context) {
  iso_op_arguments arguments = {.size = sizeof arguments, .op = ISO_OP_PAGED_ATTENTION};
  iso_paged_attention_attributes attributes = {.size = sizeof attributes, .causal = 1};
  int64_t n_blocks = (context + o->page_size - 1) / o->page_size, s = o->n_sequences;
  int64_t n_pages = n_blocks * s;
  int64_t q[] = {s, o->n_heads, o->head_dim}, table[] = {s, n_blocks};
  int64_t cache[] = {n_pages, o->n_kv_heads, o->page_size, o->head_dim};
  iso_tensor *inputs = arguments.inputs;
  uint64_t q_bytes = (uint64_t)(s * o->n_heads * o->head_dim) * sizeof(float);
  arguments.n_inputs = 7;
  arguments.n_outputs = 1;
  arguments.attributes = &attributes;
  inputs[0] = cpu_bench_tensor(cpu_bench_alloc(b, q_bytes), ISO_SCHEME_F32, 3, q);
  arguments.outputs[0] = cpu_bench_tensor(cpu_bench_alloc(b, q_bytes), ISO_SCHEME_F32, 3, q);
  fill(&inputs[0], s * o->n_heads);
  inputs[1] = cpu_bench_tensor(NULL, scheme, 4, cache);
  uint64_t half = (uint64_t)(n_pages * inputs[1].strides[0]);
  int64_t n_copies = (o->megabytes << 20) / (int64_t)(2 * half) + 1;
  iso_buffer *data = cpu_bench_alloc(b, (uint64_t)n_copies * 2 * half);
  inputs[1].buffer = data;
  inputs[2] = inputs[1];
  fill(&inputs[1], n_pages * o->n_kv_heads * o->page_size);
  for (int64_t i = 1; i < 2 * n_copies; i++)
    memcpy(data->data + (uint64_t)i * half, data->data, half);
  int32_t *pages = indices(b, &inputs[3], 2, table), *start = indices(b, &inputs[4], 1, table);
  int32_t *length = indices(b, &inputs[5], 1, table), *total = indices(b, &inputs[6], 1, table);
  for (int64_t i = 0; i < n_pages; i++)
    pages[i] = (int32_t)i;
  uint64_t random = 1;
  for (int64_t i = n_pages - 1; i > 0; i--) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    int64_t j = (int64_t)(random >> 33) % (i + 1);
    int32_t page = pages[i];
    pages[i] = pages[j];
    pages[j] = page;
  }
  for (int64_t i = 0; i < s; i++) {
    start[i] = (int32_t)i;
    length[i] = 1;
    total[i] = (int32_t)context;
  }
  const iso_kernel *kernel = cpu_bench_choose(b, &arguments, scheme);
  arguments.workspace_bytes = kernel->workspace(b->device, &arguments);
  arguments.workspace = cpu_bench_alloc(b, arguments.workspace_bytes + 64);

  const copies all = {kernel, &arguments, data, n_copies, half};
  static double times[MAX_SAMPLES], reads[MAX_SAMPLES];
  double end = cpu_bench_now() + o->seconds;
  int count = 0;
  for (; count < MAX_SAMPLES && (count < 5 || cpu_bench_now() < end); count++) {
    double began = cpu_bench_now();
    attend(b, &all, count);
    times[count] = cpu_bench_now() - began;
    uint64_t other = (uint64_t)((count + n_copies / 2) % n_copies) * 2 * half;
    reads[count] = cpu_bench_time_read(b, data->data + other, 2 * half);
  }
  double time = cpu_bench_quantile(times, count, 0.5), read = cpu_bench_quantile(reads, count, 0.5);
  double low = cpu_bench_quantile(times, count, 0.1),
         read_low = cpu_bench_quantile(reads, count, 0.1);
  printf("| %-26s | %-5s | %3lld x %6lld | %8.3f | %6.2f | %6.2f | %3.0f%% | %3.0f%% |",
         kernel->name, iso_scheme_get_info(scheme)->name, (long long)s, (long long)context,
         1e3 * time, 2e-9 * (double)half / time, 2e-9 * (double)half / read, 100 * read / time,
         100 * read_low / low);
  bench_windows(b, &all, o->seconds);
  fflush(stdout);
  b->backend->memory->free(b->device, arguments.workspace);
  b->backend->memory->free(b->device, data);
  b->backend->memory->free(b->device, arguments.outputs[0].buffer);
  for (int i = 0; i < 7; i++)
    if (i != 1 && i != 2)
      b->backend->memory->free(b->device, inputs[i].buffer);
}

static void bench_scheme(cpu_bench *b, const options *o, const char *name) {
  iso_scheme scheme;
  if (!iso_scheme_from_name(name, &scheme)) {
    fprintf(stderr, "unknown scheme %s\n", name);
    exit(1);
  }
  char *contexts = strdup(o->contexts), *state;
  for (char *context = contexts ? strtok_r(contexts, ",", &state) : NULL; context;
       context = strtok_r(NULL, ",", &state))
    bench_case(b, o, scheme, atoll(context));
  free(contexts);
}

int main(int argc, char **argv) {
  options o = {.caches = "bf16,f16,q8_0,f32",
               .contexts = "8192",
               .n_sequences = 1,
               .n_heads = 32,
               .n_kv_heads = 8,
               .head_dim = 64,
               .page_size = 64,
               .megabytes = 512,
               .seconds = 1};
  const struct {
    const char *name;
    int64_t *number;
  } numbers[] = {{"--sequences", &o.n_sequences}, {"--heads", &o.n_heads},
                 {"--kv-heads", &o.n_kv_heads},   {"--head-dim", &o.head_dim},
                 {"--page", &o.page_size},        {"--megabytes", &o.megabytes}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *name = argv[i], *value = argv[i + 1];
    if (strcmp(name, "--caches") == 0)
      o.caches = value;
    else if (strcmp(name, "--contexts") == 0)
      o.contexts = value;
    else if (strcmp(name, "--threads") == 0)
      o.n_threads = (uint32_t)atoi(value);
    else if (strcmp(name, "--seconds") == 0)
      o.seconds = atof(value);
    for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++)
      if (strcmp(name, numbers[n].name) == 0)
        *numbers[n].number = atoll(value);
  }
  cpu_bench b = {0};
  cpu_bench_open(&b, o.n_threads);
  printf("%s, %u threads, %lld heads, %lld of keys, %lld wide\n\n", b.device->info.name,
         b.device->info.n_units, (long long)o.n_heads, (long long)o.n_kv_heads,
         (long long)o.head_dim);
  printf(
      "| kernel | cache | context | ms | GB/s | read GB/s | share | of best 10%% | windows, GB/s | "
      "read | best | best read | share | of the best | of best reads |\n"
      "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  char *caches = strdup(o.caches), *state;
  for (char *name = caches ? strtok_r(caches, ",", &state) : NULL; name;
       name = strtok_r(NULL, ",", &state))
    bench_scheme(&b, &o, name);
  free(caches);
  cpu_bench_close(&b);
  return 0;
}
