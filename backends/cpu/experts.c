/* grouped_matmul for every scheme: rows are grouped by their expert, so that each weight row an
 * expert needs is decoded once. */
#include "backends/cpu/cpu.h"

#include <string.h>

typedef struct grouped_job {
  const iso_op_arguments *arguments;
  iso_cpu_pool *pool;
  int64_t n_rows, n_out, n_in, n_experts, n_choices;
  int64_t *starts; /* [n_experts + 1] where an expert's rows begin in `order` */
  int64_t *order;  /* [n_rows] rows (t * C + c), by expert */
  float *x;        /* [x rows, n_in] as f32 */
  float *decoded;  /* [threads, n_in] */
} grouped_job;

static int64_t rounded(int64_t count) { return (count + 15) / 16 * 16; }

static uint64_t grouped_workspace(const iso_device *device, const iso_op_arguments *arguments) {
  const iso_tensor *x = &arguments->inputs[0], *weight = &arguments->inputs[1];
  uint64_t n_rows = (uint64_t)(x->dims[0] * arguments->inputs[2].dims[1]);
  uint64_t floats = (uint64_t)(x->dims[0] * x->dims[1] + iso_cpu_pool_size(device->pool)) *
                    (uint64_t)rounded(x->dims[2]);
  return (uint64_t)rounded((int64_t)n_rows + weight->dims[0] + 1) * sizeof(int64_t) +
         floats * sizeof(float);
}

static void group_rows(grouped_job *job, const int32_t *experts) {
  memset(job->starts, 0, (size_t)(job->n_experts + 1) * sizeof *job->starts);
  for (int64_t row = 0; row < job->n_rows; row++)
    job->starts[experts[row] + 1]++;
  for (int64_t e = 0; e < job->n_experts; e++)
    job->starts[e + 1] += job->starts[e];
  /* Filling moves each start to its end, which is the next one's start. */
  for (int64_t row = 0; row < job->n_rows; row++)
    job->order[job->starts[experts[row]]++] = row;
  memmove(job->starts + 1, job->starts, (size_t)job->n_experts * sizeof *job->starts);
  job->starts[0] = 0;
}

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

static void grouped_task(void *context, uint32_t thread, uint32_t n_threads) {
  const grouped_job *job = context;
  const iso_tensor *x = &job->arguments->inputs[0], *weight = &job->arguments->inputs[1];
  const iso_tensor *y = &job->arguments->outputs[0];
  int64_t stride = rounded(job->n_in), begin, end, element = y->strides[2];
  iso_cpu_share(x->dims[0] * x->dims[1], 1, thread, n_threads, &begin, &end);
  for (int64_t row = begin; row < end; row++)
    iso_scheme_decode_row(x->scheme, iso_cpu_row(x, row), job->x + row * stride, job->n_in);
  iso_cpu_barrier(job->pool, n_threads);
  float *decoded = job->decoded + thread * stride;
  iso_cpu_share(job->n_out, 1, thread, n_threads, &begin, &end);
  for (int64_t e = 0; e < job->n_experts; e++)
    for (int64_t n = begin; n < end && job->starts[e] < job->starts[e + 1]; n++) {
      iso_scheme_decode_row(weight->scheme, iso_cpu_row(weight, e * job->n_out + n), decoded,
                            job->n_in);
      for (int64_t i = job->starts[e]; i < job->starts[e + 1]; i++) {
        int64_t row = job->order[i], x_row = x->dims[1] == 1 ? row / job->n_choices : row;
        float value = dot(job->x + x_row * stride, decoded, job->n_in);
        iso_scheme_encode_row(y->scheme, &value, NULL, (uint8_t *)iso_cpu_row(y, row) + n * element,
                              1);
      }
    }
}

static iso_status grouped_launch(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor *x = &arguments->inputs[0], *weight = &arguments->inputs[1];
  const int32_t *experts = iso_cpu_address(&arguments->inputs[2]);
  grouped_job job = {.arguments = arguments, .pool = queue->device->pool};
  job.n_choices = arguments->inputs[2].dims[1];
  job.n_rows = x->dims[0] * job.n_choices;
  job.n_experts = weight->dims[0];
  job.n_out = weight->dims[1];
  job.n_in = weight->dims[2];
  for (int64_t i = 0; i < job.n_rows; i++)
    if (experts[i] < 0 || experts[i] >= job.n_experts)
      return iso_cpu_fail(ISO_ERROR_INVALID_ARGUMENT, "grouped_matmul: expert %d of %lld",
                          experts[i], (long long)job.n_experts);
  if (job.n_rows == 0)
    return ISO_OK;
  job.starts = iso_cpu_workspace(arguments);
  job.order = job.starts + job.n_experts + 1;
  job.x = (float *)(job.starts + rounded(job.n_rows + job.n_experts + 1));
  job.decoded = job.x + x->dims[0] * x->dims[1] * rounded(job.n_in);
  group_rows(&job, experts);
  iso_cpu_parallel(job.pool, iso_cpu_threads_for(job.pool, job.n_out, 16), grouped_task, &job);
  return ISO_OK;
}

static const iso_kernel records[] = {
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_GROUPED_MATMUL,
     .name = "grouped_matmul.generic",
     .schemes = ISO_CPU_ANY_SCHEME,
     .activations = ISO_CPU_FLOAT_SCHEMES,
     .layout = ISO_LAYOUT_PLAIN,
     .rank = ISO_CPU_RANK(ISO_CPU_TIER_BASELINE, 0),
     .workspace = grouped_workspace,
     .launch = grouped_launch},
};

const iso_cpu_records iso_cpu_experts = {records, sizeof records / sizeof records[0]};
