/* Many rows times bf16 weights through oneDNN, which has the CPU's bf16 dot products or tiles; for
 * the API of 2.x and 3.x alike.
 *
 * Weights stay in the packed layout of our own kernels (matmul/packed.h), whose groups happen to be
 * a layout of oneDNN's: there is one copy of them, and this record is a candidate beside the
 * others, for many rows only. An activation is the sum of two bf16 planes, its rounding and what
 * that left, so that many rows get the answer that few rows get; two products of a matrix unit
 * are still far cheaper than one of f32. README.md in this folder says what was measured, and why
 * f32 products are not given away. */
#include "backends/cpu/dense.h"
#include "backends/cpu/matmul/packed.h"
#include "backends/cpu/matmul/product.h"
#include "quant/half.h"

#include <dlfcn.h>
#include <math.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- One thread a call ---------------------------------------------------------------------- */

/* oneDNN runs on OpenMP where it was built so. The threads are ours, so each call is made with
 * one OpenMP thread, which starts none; the setting is the calling thread's, and put back, for
 * that thread may be the application's. */
static int (*get_openmp_threads)(void);
static void (*set_openmp_threads)(int);

static void find_openmp(void) {
  void *get = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
  void *set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  if (!get || !set)
    return;
  memcpy(&get_openmp_threads, &get, sizeof get);
  memcpy(&set_openmp_threads, &set, sizeof set);
}

static int enter_library(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_openmp);
  int threads = get_openmp_threads ? get_openmp_threads() : 0;
  if (threads > 1)
    set_openmp_threads(1);
  return threads;
}

static void leave_library(int threads) {
  if (threads > 1)
    set_openmp_threads(threads);
}

/* Built on TBB, SYCL or a thread pool, oneDNN would bring threads that cannot be held back. */
static bool is_usable(void) {
  unsigned runtime = dnnl_version()->cpu_runtime;
  return runtime == DNNL_RUNTIME_SEQ || runtime == DNNL_RUNTIME_OMP;
}

/* ---- Primitives ----------------------------------------------------------------------------- */

/* A group of packed bf16 weights is what oneDNN calls BA16a64b2a, if K is a multiple of 16: pairs
 * of elements, in a pair 64 columns of 2. Its fast code wants operands without gaps. */
enum { MAX_UNIT_ROWS = 256, MIN_UNIT_ROWS = 64, ROW_STEP = 32 };
#define GROUP ISO_CPU_FLOAT_ROWS

/* y[rows, 64] in f32 = x[rows, depth] in bf16 times a group. */
typedef struct primitive {
  int64_t rows, depth;
  dnnl_primitive_t handle; /* NULL: oneDNN has no fast one */
  dnnl_primitive_desc_t description;
  size_t scratch_bytes;
} primitive;

/* Made once, for a cold one takes milliseconds, and kept for the life of the process. Readers
 * take no lock: entries below `n_primitives` never change. */
enum { MAX_PRIMITIVES = 512 };
static primitive primitives[MAX_PRIMITIVES];
static atomic_uint n_primitives;
static pthread_mutex_t primitives_lock = PTHREAD_MUTEX_INITIALIZER;
static dnnl_engine_t engine;

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t borrowed_layout;
static void layout_by_tag(dnnl_memory_desc_t *layout, dnnl_dims_t dims, dnnl_data_type_t type,
                          dnnl_format_tag_t tag) {
  if (dnnl_memory_desc_create_with_tag(layout, 2, dims, type, tag) != dnnl_success)
    *layout = NULL;
}
static dnnl_status_t describe(dnnl_primitive_desc_t *out, dnnl_memory_desc_t x,
                              dnnl_memory_desc_t weight, dnnl_memory_desc_t y,
                              dnnl_primitive_attr_t attributes) {
  dnnl_status_t status =
      x && weight && y
          ? dnnl_matmul_primitive_desc_create(out, engine, x, weight, NULL, y, attributes)
          : dnnl_out_of_memory;
  dnnl_memory_desc_destroy(x);
  dnnl_memory_desc_destroy(weight);
  dnnl_memory_desc_destroy(y);
  return status;
}
#else
typedef const dnnl_memory_desc_t *borrowed_layout;
static void layout_by_tag(dnnl_memory_desc_t *layout, dnnl_dims_t dims, dnnl_data_type_t type,
                          dnnl_format_tag_t tag) {
  memset(layout, 0, sizeof *layout);
  dnnl_memory_desc_init_by_tag(layout, 2, dims, type, tag);
}
static dnnl_status_t describe(dnnl_primitive_desc_t *out, dnnl_memory_desc_t x,
                              dnnl_memory_desc_t weight, dnnl_memory_desc_t y,
                              dnnl_primitive_attr_t attributes) {
  dnnl_matmul_desc_t matmul;
  dnnl_status_t status = dnnl_matmul_desc_init(&matmul, &x, &weight, NULL, &y);
  return status == dnnl_success ? dnnl_primitive_desc_create(out, &matmul, attributes, engine, NULL)
                                : status;
}
#endif

static borrowed_layout layout_of(const primitive *p, dnnl_query_t what) {
  return dnnl_primitive_desc_query_md(p->description, what, 0);
}

/* False where oneDNN has only its plain reference code for this. */
static bool is_fast(dnnl_primitive_desc_t description) {
  const char *name = NULL;
  return dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, (void *)&name) ==
             dnnl_success &&
         name && (strstr(name, "brg") || strstr(name, "jit"));
}

/* Under the lock. */
static primitive make_primitive(int64_t rows, int64_t depth) {
  primitive made = {.rows = rows, .depth = depth};
  dnnl_memory_desc_t x, weight, y;
  dnnl_primitive_attr_t attributes = NULL;
  int threads = enter_library();
  if ((engine || dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success) &&
      dnnl_primitive_attr_create(&attributes) == dnnl_success &&
      dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user) ==
          dnnl_success) {
    layout_by_tag(&x, (dnnl_dims_t){rows, depth}, dnnl_bf16, dnnl_ab);
    layout_by_tag(&weight, (dnnl_dims_t){depth, GROUP}, dnnl_bf16, dnnl_BA16a64b2a);
    layout_by_tag(&y, (dnnl_dims_t){rows, GROUP}, dnnl_f32, dnnl_ab);
    if (describe(&made.description, x, weight, y, attributes) == dnnl_success &&
        is_fast(made.description) &&
        dnnl_primitive_create(&made.handle, made.description) != dnnl_success)
      made.handle = NULL;
  }
  dnnl_primitive_attr_destroy(attributes);
  leave_library(threads);
  if (made.handle)
    made.scratch_bytes = dnnl_memory_desc_get_size(layout_of(&made, dnnl_query_scratchpad_md));
  return made;
}

static const primitive *look_up(uint32_t count, int64_t rows, int64_t depth) {
  for (uint32_t i = 0; i < count; i++)
    if (primitives[i].rows == rows && primitives[i].depth == depth)
      return &primitives[i];
  return NULL;
}

/* The primitive of these sizes; NULL when oneDNN has no fast one, or there are too many. */
static const primitive *find_primitive(int64_t rows, int64_t depth) {
  uint32_t count = atomic_load_explicit(&n_primitives, memory_order_acquire);
  const primitive *found = look_up(count, rows, depth);
  if (!found) {
    pthread_mutex_lock(&primitives_lock);
    count = atomic_load_explicit(&n_primitives, memory_order_relaxed);
    found = look_up(count, rows, depth);
    if (!found && count < MAX_PRIMITIVES) {
      primitives[count] = make_primitive(rows, depth);
      found = &primitives[count];
      atomic_store_explicit(&n_primitives, count + 1, memory_order_release);
    }
    pthread_mutex_unlock(&primitives_lock);
  }
  return found && found->handle ? found : NULL;
}

/* ---- Launch --------------------------------------------------------------------------------- */

/* A unit of work is unit_rows rows and one group. */
typedef struct dense_job {
  const iso_op_arguments *arguments;
  iso_cpu_pool *pool;
  iso_packed_shape shape;
  const uint8_t *weight;
  int64_t rows, padded_rows, unit_rows, row_units;
  const primitive *whole, *last; /* for unit_rows rows, and for what is left of the rows */
  uint16_t *x;                   /* [2, padded_rows, K]: the planes */
  float *results;                /* [threads, 2, unit_rows, GROUP] */
  uint8_t *scratch;              /* [threads, scratch_bytes] */
  size_t scratch_bytes;
  dnnl_stream_t stream;
  atomic_llong next;
  atomic_int failures;
} dense_job;

static int64_t rounded(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

static bool run_primitive(const dense_job *job, const primitive *p, void *x, void *weight, void *y,
                          void *scratch) {
  const dnnl_query_t layouts[] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md,
                                  dnnl_query_scratchpad_md};
  const int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
  void *places[] = {x, weight, y, scratch};
  dnnl_exec_arg_t operands[4];
  int n = p->scratch_bytes ? 4 : 3, made = 0;
  bool ok = true;
  while (made < n && ok) {
    operands[made].arg = names[made];
    ok = dnnl_memory_create(&operands[made].memory, layout_of(p, layouts[made]), engine,
                            places[made]) == dnnl_success;
    made += ok;
  }
  ok = ok && dnnl_primitive_execute(p->handle, job->stream, n, operands) == dnnl_success;
  while (made-- > 0)
    dnnl_memory_destroy(operands[made].memory);
  return ok;
}

static void run_unit(dense_job *job, int64_t unit, uint32_t thread) {
  int64_t row_unit = unit % job->row_units, group = unit / job->row_units;
  int64_t row = row_unit * job->unit_rows, rows = job->rows - row;
  int64_t column = group * GROUP, columns = job->shape.rows - column;
  int64_t n_results = job->unit_rows * GROUP;
  float *results = job->results + thread * 2 * n_results;
  const uint8_t *weight = job->weight + (uint64_t)group * job->shape.group_bytes;
  for (int plane = 0; plane < 2; plane++)
    if (!run_primitive(job, row_unit == job->row_units - 1 ? job->last : job->whole,
                       job->x + (plane * job->padded_rows + row) * job->shape.elements,
                       (void *)(uintptr_t)weight, results + plane * n_results,
                       job->scratch + thread * job->scratch_bytes)) {
      atomic_fetch_add(&job->failures, 1);
      return;
    }
  int64_t n = (rows < job->unit_rows ? rows : job->unit_rows) * GROUP;
  for (int64_t i = 0; i < n; i++)
    results[i] += results[n_results + i];
  iso_cpu_store_results(job->arguments, row, rows < job->unit_rows ? rows : job->unit_rows, column,
                        columns < GROUP ? columns : GROUP, results, GROUP);
}

/* The two planes of a row; of a padding row, zeros. What is not finite is in the first alone. */
static void split_row(const dense_job *job, int64_t row) {
  int64_t depth = job->shape.elements;
  uint16_t *high = job->x + row * depth, *low = high + job->padded_rows * depth;
  memset(low, 0, (size_t)depth * sizeof *low);
  if (row >= job->rows) {
    memset(high, 0, (size_t)depth * sizeof *high);
    return;
  }
  const iso_tensor *x = &job->arguments->inputs[0];
  const uint8_t *values = iso_cpu_row(x, row);
  uint32_t element_bytes = iso_scheme_get_info(x->scheme)->block_bytes;
  iso_cpu_convert_row(x, row, ISO_SCHEME_BF16, high);
  float wide[256];
  for (int64_t k = 0; k < depth; k += 256) {
    int64_t count = depth - k < 256 ? depth - k : 256;
    iso_scheme_decode_row(x->scheme, values + k * element_bytes, wide, count);
    for (int64_t i = 0; i < count; i++) {
      float rest = wide[i] - iso_bfloat_to_float(high[k + i]);
      low[k + i] = isfinite(rest) ? iso_bfloat_from_float(rest) : 0;
    }
  }
}

static void dense_task(void *context, uint32_t thread, uint32_t n_threads) {
  dense_job *job = context;
  int64_t row, end, unit;
  iso_cpu_share(job->padded_rows, 1, thread, n_threads, &row, &end);
  for (; row < end; row++)
    split_row(job, row);
  iso_cpu_barrier(job->pool, n_threads);
  int threads = enter_library();
  while ((unit = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed)) <
         job->row_units * job->shape.groups)
    run_unit(job, unit, thread);
  leave_library(threads);
}

static uint64_t results_bytes(const iso_device *device) {
  return (uint64_t)iso_cpu_pool_size(device->pool) * (2 * MAX_UNIT_ROWS * GROUP) * sizeof(float);
}

static const iso_product_kernel *own_kernel(void) {
  return iso_avx512_float_kernel(ISO_SCHEME_BF16);
}

/* Enough for our own kernel too, which takes over where oneDNN has no fast product. */
static uint64_t workspace(const iso_device *device, const iso_op_arguments *arguments) {
  int64_t rows = rounded(iso_cpu_row_count(&arguments->inputs[0]), ROW_STEP);
  uint64_t bytes = results_bytes(device) +
                   (uint64_t)(2 * rows * arguments->inputs[1].dims[1]) * sizeof(uint16_t);
  uint64_t other = iso_matmul_workspace(own_kernel(), device, arguments);
  return bytes > other ? bytes : other;
}

/* From here on it is faster than our own kernel. */
#define LEAST_ROWS 128

static iso_refusal check(const iso_device *device, const iso_op_arguments *arguments,
                         const char **out_detail) {
  iso_refusal refusal = iso_cpu_check_avx512(device, arguments, out_detail);
  if (refusal != ISO_ACCEPTED)
    return refusal;
  refusal = ISO_REFUSED_DEVICE;
  if (!(device->cpu_features & (ISO_CPU_HAS_AVX512_BF16 | ISO_CPU_HAS_AMX_BF16)))
    *out_detail = "needs avx512_bf16 or amx_bf16";
  else if (device->is_lowered)
    *out_detail = "a lower tier is forced, which oneDNN would not heed";
  else if (!is_usable())
    *out_detail = "this oneDNN is built with threads of its own";
  else
    refusal = ISO_ACCEPTED;
  if (refusal != ISO_ACCEPTED)
    return refusal;
  refusal = ISO_REFUSED_SHAPE;
  if (iso_cpu_row_count(&arguments->inputs[0]) < LEAST_ROWS)
    *out_detail = "for 128 rows and more";
  else if (arguments->inputs[1].dims[1] % 16 != 0)
    *out_detail = "K is not a multiple of 16";
  else
    refusal = ISO_ACCEPTED;
  return refusal;
}

/* Cuts the rows, and finds the primitives of all units and the scratch they want. */
static bool plan(dense_job *job) {
  job->padded_rows = rounded(job->rows, ROW_STEP);
  job->unit_rows = MAX_UNIT_ROWS;
  while (job->unit_rows > MIN_UNIT_ROWS &&
         job->rows / job->unit_rows * job->shape.groups < 2 * iso_cpu_pool_size(job->pool))
    job->unit_rows /= 2;
  job->row_units = (job->rows + job->unit_rows - 1) / job->unit_rows;
  job->last =
      find_primitive(job->padded_rows - (job->row_units - 1) * job->unit_rows, job->shape.elements);
  job->whole = job->row_units > 1 ? find_primitive(job->unit_rows, job->shape.elements) : job->last;
  if (!job->whole || !job->last)
    return false;
  size_t most = job->whole->scratch_bytes > job->last->scratch_bytes ? job->whole->scratch_bytes
                                                                     : job->last->scratch_bytes;
  job->scratch_bytes = (most + 63) / 64 * 64;
  return true;
}

static iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor *weight = &arguments->inputs[1];
  dense_job job = {.arguments = arguments, .pool = queue->device->pool};
  job.rows = iso_cpu_row_count(&arguments->inputs[0]);
  if (!iso_packed_shape_of(weight->scheme, weight->dims[0], weight->dims[1], &job.shape))
    return iso_cpu_fail(ISO_ERROR_INTERNAL, "matmul was given a weight that cannot be packed");
  if (!plan(&job))
    return iso_matmul_launch(own_kernel(), queue, arguments);
  if (dnnl_stream_create(&job.stream, engine, dnnl_stream_default_flags) != dnnl_success)
    return iso_cpu_fail(ISO_ERROR_OUT_OF_MEMORY, "matmul: oneDNN made no stream");
  job.weight = iso_cpu_address(weight);
  job.results = iso_cpu_workspace(arguments);
  job.x = (uint16_t *)((uint8_t *)job.results + results_bytes(queue->device));
  iso_status status = ISO_OK;
  if (job.scratch_bytes) {
    job.scratch = aligned_alloc(64, iso_cpu_pool_size(job.pool) * job.scratch_bytes);
    if (!job.scratch)
      status = iso_cpu_fail(ISO_ERROR_OUT_OF_MEMORY, "matmul: no memory for oneDNN's scratch");
  }
  atomic_init(&job.next, 0);
  atomic_init(&job.failures, 0);
  if (status == ISO_OK)
    iso_cpu_parallel(job.pool, UINT32_MAX, dense_task, &job);
  if (atomic_load(&job.failures))
    status =
        iso_cpu_fail(ISO_ERROR_DEVICE, "matmul: oneDNN failed at %lld x %lld x %lld",
                     (long long)job.rows, (long long)job.shape.rows, (long long)job.shape.elements);
  free(job.scratch);
  dnnl_stream_destroy(job.stream);
  return status;
}

/* ---- Record --------------------------------------------------------------------------------- */

static const iso_kernel records[] = {
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_MATMUL,
     .name = "matmul.bf16.onednn",
     .schemes = ISO_SCHEME_BIT(ISO_SCHEME_BF16),
     .activations = ISO_CPU_FLOAT_SCHEMES,
     .layout = ISO_CPU_LAYOUT_GROUPS,
     .rank = ISO_CPU_RANK(ISO_CPU_TIER_AVX512, 50),
     .check = check,
     .workspace = workspace,
     .packed_bytes = iso_packed_bytes,
     .pack = iso_packed_pack,
     .launch = launch},
};

const iso_cpu_records iso_cpu_onednn = {records, sizeof records / sizeof records[0]};
