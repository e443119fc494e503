/* The product that takes every scheme on every CPU: a weight row is decoded to f32 and multiplied
 * with each activation row. */
#include "backends/cpu/matmul/generic.h"

#include "backends/cpu/cpu.h"

#include <string.h>

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

/* Activation rows that a weight row is multiplied with at a time. */
#define ROWS 4

/* Four floats, in whatever registers the compiler's target has. */
typedef float quad __attribute__((vector_size(16)));

static inline quad load_quad(const float *from) {
  quad value;
  memcpy(&value, from, sizeof value);
  return value;
}

/* Dot products of `rows` rows, `stride` floats from each other, with one. Eight partial sums each
 * bound the error growth of a long row; they are the same for any number of rows. */
static inline __attribute__((always_inline)) void
dots(int rows, const float *x, int64_t stride, const float *weights, int64_t n, float *out) {
  quad sums[ROWS][2] = {{{0}}};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    quad first = load_quad(weights + i), second = load_quad(weights + i + 4);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
      sums[r][0] += load_quad(x + r * stride + i) * first;
      sums[r][1] += load_quad(x + r * stride + i + 4) * second;
    }
  }
  for (; i < n; i++)
    for (int r = 0; r < rows; r++)
      sums[r][i % 8 / 4][i % 4] += x[r * stride + i] * weights[i];
  for (int r = 0; r < rows; r++) {
    quad s = sums[r][0] + sums[r][1];
    out[r] = (s[0] + s[2]) + (s[1] + s[3]);
  }
}

static void generic_task(void *context, uint32_t thread, uint32_t n_threads) {
  generic_matmul *job = context;
  const iso_tensor *x = &job->arguments->inputs[0], *weight = &job->arguments->inputs[1];
  const iso_tensor *y = &job->arguments->outputs[0];
  const float *bias = iso_cpu_input(job->arguments, 2);
  int64_t stride = padded(job->k), begin, end;
  iso_cpu_share(job->m, 1, thread, n_threads, &begin, &end);
  for (int64_t i = begin; i < end; i++)
    iso_scheme_decode_row(x->scheme, iso_cpu_row(x, i), job->x + i * stride, job->k);
  iso_cpu_barrier(job->pool, n_threads);
  float *row = job->rows + thread * stride;
  iso_cpu_share(job->n, 16, thread, n_threads, &begin, &end);
  for (int64_t j = begin; j < end; j++) {
    iso_scheme_decode_row(weight->scheme, iso_cpu_row(weight, j), row, job->k);
    for (int64_t i = 0; i < job->m; i += ROWS) {
      int rows = job->m - i < ROWS ? (int)(job->m - i) : ROWS;
      const float *activations = job->x + i * stride;
      float values[ROWS];
      if (rows == ROWS)
        dots(ROWS, activations, stride, row, job->k, values);
      else
        for (int r = 0; r < rows; r++)
          dots(1, activations + r * stride, stride, row, job->k, &values[r]);
      for (int r = 0; r < rows; r++) {
        values[r] += bias ? bias[j] : 0.0f;
        uint8_t *out = iso_cpu_row(y, i + r);
        iso_scheme_encode_row(y->scheme, &values[r], NULL, out + j * y->strides[y->n_dims - 1], 1);
      }
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
