/* sample: the definition itself (ops/sampling.h), rows shared out over threads. */
#include "backends/cpu/cpu.h"

#include "ops/sampling.h"

#include <stdatomic.h>

enum { LOGITS, PARAMETERS, STATE, HISTORY, ALLOWED };
enum { STATE_COLUMNS = 4 };

typedef struct sample_job {
  const iso_op_arguments *arguments;
  iso_sample_candidate *candidates; /* [threads, V] */
  _Atomic int64_t failed_row;       /* lowest so far; n_rows: none */
} sample_job;

static iso_sample_row row_of(const iso_op_arguments *arguments, int64_t row) {
  const iso_tensor *inputs = arguments->inputs;
  int64_t n_history = inputs[HISTORY].dims[1];
  const int32_t *state = (const int32_t *)iso_cpu_address(&inputs[STATE]) + row * STATE_COLUMNS;
  const uint32_t *allowed = iso_cpu_input(arguments, ALLOWED);
  const float *parameters = iso_cpu_address(&inputs[PARAMETERS]);
  return (iso_sample_row){
      .logits = iso_cpu_row(&inputs[LOGITS], row),
      .n_logits = inputs[LOGITS].dims[1],
      .parameters = parameters + row * ISO_SAMPLE_PARAMETER_COUNT,
      .seed = (uint32_t)state[0] | (uint64_t)(uint32_t)state[1] << 32,
      .draw = (uint32_t)state[2],
      .history = (const int32_t *)iso_cpu_address(&inputs[HISTORY]) + row * n_history,
      .n_history = n_history,
      .output_start = state[3],
      .allowed = allowed ? allowed + row * inputs[ALLOWED].dims[1] : NULL,
  };
}

static void sample_task(void *context, uint32_t thread, uint32_t n_threads) {
  sample_job *job = context;
  const iso_tensor *logits = &job->arguments->inputs[LOGITS];
  int32_t *tokens = iso_cpu_address(&job->arguments->outputs[0]);
  int64_t row, end;
  iso_cpu_share(logits->dims[0], 1, thread, n_threads, &row, &end);
  for (; row < end; row++) {
    iso_sample_row sample = row_of(job->arguments, row);
    if (iso_sample_token(&sample, job->candidates + thread * logits->dims[1], &tokens[row]) ==
        ISO_OK)
      continue;
    int64_t lowest = atomic_load(&job->failed_row);
    while (row < lowest && !atomic_compare_exchange_weak(&job->failed_row, &lowest, row)) {
    }
  }
}

static uint64_t sample_workspace(const iso_device *device, const iso_op_arguments *arguments) {
  uint64_t rows = (uint64_t)arguments->inputs[LOGITS].dims[0];
  uint64_t threads = iso_cpu_pool_size(device->pool);
  return (rows < threads ? rows : threads) * (uint64_t)arguments->inputs[LOGITS].dims[1] *
         sizeof(iso_sample_candidate);
}

static iso_status sample_launch(iso_queue *queue, const iso_op_arguments *arguments) {
  int64_t n_rows = arguments->inputs[LOGITS].dims[0];
  sample_job job = {
      .arguments = arguments, .candidates = iso_cpu_workspace(arguments), .failed_row = n_rows};
  iso_cpu_parallel(queue->device->pool, (uint32_t)(n_rows < UINT32_MAX ? n_rows : UINT32_MAX),
                   sample_task, &job);
  int64_t failed = atomic_load(&job.failed_row);
  if (failed == n_rows)
    return ISO_OK;
  /* Once more on this thread, where the sentence of the failure belongs. */
  iso_sample_row sample = row_of(arguments, failed);
  int32_t token;
  iso_status status = iso_sample_token(&sample, job.candidates, &token);
  return iso_fail_context(status, "sample: row %lld", (long long)failed);
}

static const iso_kernel records[] = {
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_SAMPLE,
     .name = "sample.plain",
     .activations = ISO_CPU_FLOAT_SCHEMES,
     .layout = ISO_LAYOUT_PLAIN,
     .rank = ISO_CPU_RANK(ISO_CPU_TIER_BASELINE, 0),
     .workspace = sample_workspace,
     .launch = sample_launch},
};

const iso_cpu_records iso_cpu_sample = {records, sizeof records / sizeof records[0]};
