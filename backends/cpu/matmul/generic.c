/* The product that takes every scheme on every CPU: a weight row is decoded to f32 and multiplied
 * with each activation row. */
#include "backends/cpu/matmul/generic.h"

#include "backends/cpu/cpu.h"

typedef struct generic_matmul {
  const iso_op_arguments *arguments;
  iso_cpu_pool *pool;
  float *x;    /* [m, k], activations as f32 */
  float *rows; /* [threads, k], one decoded weight row a thread */
  int64_t m, n, k;
} generic_matmul;

static int64_t padded(int64_t elements) { return (elements + 15) / 16 * 16; }

uint64_t iso_generic_matmul_workspace(const iso_device *device, const iso_op_arguments *arguments) {
  uint64_t k = (uint64_t)padded(arguments->inputs[1].dims[1]);
  uint64_t m = (uint64_t)iso_cpu_row_count(&arguments->inputs[0]);
  return (m + iso_cpu_pool_size(device->pool)) * k * sizeof(float);
}

/* Eight partial sums bound the error growth of a long row and let the loop vectorise. */
static float dot(const float *a, const float *b, int64_t n) {
  float sums[8] = {0};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int lane = 0; lane < 8; lane++)
      sums[lane] += a[i + lane] * b[i + lane];
  for (; i < n; i++)
    sums[i % 8] += a[i] * b[i];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

static void generic_task(void *context, uint32_t thread, uint32_t n_threads) {
  generic_matmul *job = context;
  const iso_tensor *x = &job->arguments->inputs[0], *weight = &job->arguments->inputs[1];
  const iso_tensor *y = &job->arguments->outputs[0];
  const float *bias = iso_cpu_address(&job->arguments->inputs[2]);
  int64_t stride = padded(job->k), begin, end;
  iso_cpu_share(job->m, 1, thread, n_threads, &begin, &end);
  for (int64_t i = begin; i < end; i++)
    iso_scheme_decode_row(x->scheme, iso_cpu_row(x, i), job->x + i * stride, job->k);
  iso_cpu_barrier(job->pool, n_threads);
  float *row = job->rows + thread * stride;
  iso_cpu_share(job->n, 16, thread, n_threads, &begin, &end);
  for (int64_t j = begin; j < end; j++) {
    iso_scheme_decode_row(weight->scheme, iso_cpu_row(weight, j), row, job->k);
    for (int64_t i = 0; i < job->m; i++) {
      float value = dot(job->x + i * stride, row, job->k) + (bias ? bias[j] : 0.0f);
      uint8_t *out = iso_cpu_row(y, i);
      iso_scheme_encode_row(y->scheme, &value, NULL, out + j * y->strides[y->n_dims - 1], 1);
    }
  }
}

iso_status iso_generic_matmul_launch(iso_queue *queue, const iso_op_arguments *arguments) {
  iso_cpu_pool *pool = queue->device->pool;
  generic_matmul job = {.arguments = arguments, .pool = pool};
  job.m = iso_cpu_row_count(&arguments->inputs[0]);
  job.n = arguments->inputs[1].dims[0];
  job.k = arguments->inputs[1].dims[1];
  if (job.m == 0)
    return ISO_OK;
  job.x = iso_cpu_workspace(arguments);
  job.rows = job.x + job.m * padded(job.k);
  iso_cpu_parallel(pool, iso_cpu_threads_for(pool, job.n, 16), generic_task, &job);
  return ISO_OK;
}
