/* Where the time of a step goes.
 *
 * Each repetition runs the same step twice: once as always, timed as a whole, and once observed,
 * which times every kernel with all work done before and after. What the whole takes beyond the
 * kernels is the core's own: walking the plan, inputs, logits to the host. Taking turns keeps a
 * drifting clock or a busy neighbour out of the difference, medians keep out single hiccups. */
#include "tools/bench.h"
#include "tools/json_output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 256, DECODE_STEPS_A_REPETITION = 4 };

/* Time of one kernel, over all repetitions. */
typedef struct kernel_row {
  const char *op, *kernel;
  uint64_t count;
  double us;
  double weight_bytes; /* that the products read */
} kernel_row;

typedef struct report {
  const iso_plan *plan;
  kernel_row rows[MAX_ROWS];
  int n_rows;
  double step_kernel_us;        /* of the step being observed */
  double *whole_us, *kernel_us; /* a sample each repetition */
  int n_steps;
} report;

/* Bytes of weights that a product reads; other ops read only rows of theirs. */
static double weight_bytes(const iso_plan *plan, const iso_plan_step *step, iso_op op) {
  double total = 0;
  const iso_op_info *info = iso_op_get_info(op);
  for (uint32_t i = 0; op == ISO_OP_MATMUL && i < info->n_inputs; i++) {
    uint64_t bytes;
    if (info->inputs[i].kind != ISO_OPERAND_WEIGHT || step->inputs[i].value == ISO_NO_VALUE)
      continue;
    const iso_value_info *value = iso_graph_get_value(plan->graph, step->inputs[i].value);
    if (iso_shape_bytes(&value->shape, value->scheme, &bytes) == ISO_OK)
      total += (double)bytes;
  }
  return total;
}

static void observe(void *context, const iso_plan_step *step, const iso_kernel *kernel,
                    double microseconds) {
  report *self = context;
  bool is_copy = step->kind == ISO_STEP_COPY || !kernel;
  iso_op op = is_copy ? ISO_OP_COUNT : kernel->op;
  const char *op_name = is_copy ? "(copy)" : iso_op_get_info(op)->name;
  const char *kernel_name = is_copy ? "between devices" : kernel->name;
  self->step_kernel_us += microseconds;
  int i = 0;
  while (i < self->n_rows && (self->rows[i].op != op_name || self->rows[i].kernel != kernel_name))
    i++;
  if (i == MAX_ROWS)
    return;
  if (i == self->n_rows)
    self->rows[self->n_rows++] = (kernel_row){.op = op_name, .kernel = kernel_name};
  self->rows[i].count++;
  self->rows[i].us += microseconds;
  if (!is_copy)
    self->rows[i].weight_bytes += weight_bytes(self->plan, step, op);
}

static int compare_rows(const void *a, const void *b) {
  double left = ((const kernel_row *)a)->us, right = ((const kernel_row *)b)->us;
  return (left < right) - (left > right);
}

static int compare_doubles(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, compare_doubles);
  return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* The test's step once more; every repetition overwrites the same rows of the cache. */
static iso_status run_step(iso_bench *bench, const iso_bench_test *test) {
  return test->n_prompt > 0
             ? iso_bench_prompt(bench, 0, test->n_depth,
                                test->n_prompt < bench->n_batch ? test->n_prompt : bench->n_batch)
             : iso_bench_decode(bench, test->n_sequences, test->n_depth);
}

static iso_status measure(iso_bench *bench, const iso_bench_test *test, report *self) {
  iso_executor *executor = iso_runtime_get_executor(bench->runtime);
  for (int32_t i = 0; i < test->n_sequences; i++)
    ISO_TRY(iso_bench_prompt(bench, i, 0, test->n_depth));
  ISO_TRY(run_step(bench, test));
  iso_status status = ISO_OK;
  for (int i = 0; i < self->n_steps && status == ISO_OK; i++) {
    uint64_t start = iso_bench_now();
    status = run_step(bench, test);
    self->whole_us[i] = (double)(iso_bench_now() - start) / 1e3;
    if (status != ISO_OK)
      break;
    self->step_kernel_us = 0;
    iso_executor_observe(executor, observe, self);
    status = run_step(bench, test);
    iso_executor_observe(executor, NULL, NULL);
    self->kernel_us[i] = self->step_kernel_us;
  }
  return status;
}

static void describe_test(const iso_bench *bench, const iso_bench_test *test, char *out,
                          size_t capacity) {
  if (test->n_prompt > 0)
    snprintf(out, capacity, "prompt step of %d tokens after %d",
             test->n_prompt < bench->n_batch ? test->n_prompt : bench->n_batch, test->n_depth);
  else
    snprintf(out, capacity, "decode step of %d sequence%s after %d tokens", test->n_sequences,
             test->n_sequences == 1 ? "" : "s", test->n_depth);
}

/* Whether kernels took so much longer one by one that their sum says nothing about the core: a
 * device's queue and fusion save more than noise is. */
static bool are_waited_for(double whole_us, double kernel_us) { return kernel_us > 1.2 * whole_us; }

static void print_text(const report *self, const char *title, double whole_us, double kernel_us) {
  double total = 0;
  int op_width = 2, kernel_width = 6;
  for (int i = 0; i < self->n_rows; i++) {
    total += self->rows[i].us;
    int op = (int)strlen(self->rows[i].op), kernel = (int)strlen(self->rows[i].kernel);
    op_width = op > op_width ? op : op_width;
    kernel_width = kernel > kernel_width ? kernel : kernel_width;
  }
  printf("%s\n\n| %-*s | %-*s | count | total us | share %% |  GB/s |\n| ", title, op_width, "op",
         kernel_width, "kernel");
  for (int i = 0; i < op_width; i++)
    putchar('-');
  fputs(" | ", stdout);
  for (int i = 0; i < kernel_width; i++)
    putchar('-');
  puts(" | ----: | -------: | ------: | ----: |");
  for (int i = 0; i < self->n_rows; i++) {
    const kernel_row *row = &self->rows[i];
    char speed[16] = "";
    if (row->weight_bytes > 0 && row->us > 0)
      snprintf(speed, sizeof speed, "%.1f", row->weight_bytes / row->us / 1e3);
    printf("| %-*s | %-*s | %5.0f | %8.1f | %7.1f | %5s |\n", op_width, row->op, kernel_width,
           row->kernel, (double)row->count / self->n_steps, row->us / self->n_steps,
           total > 0 ? 100 * row->us / total : 0, speed);
  }
  if (are_waited_for(whole_us, kernel_us))
    printf("\nstep %.1f us, kernels %.1f us: here each is waited for; in a step they are fused, "
           "follow each other at once and run side by side\n",
           whole_us, kernel_us);
  else
    printf("\nstep %.1f us, kernels %.1f us, core overhead %.1f%%\n", whole_us, kernel_us,
           100 * (whole_us - kernel_us) / whole_us);
}

static iso_status print_json(const report *self, const char *title, double whole_us,
                             double kernel_us) {
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "step", title);
  cJSON_AddNumberToObject(root, "step_us", whole_us);
  cJSON_AddNumberToObject(root, "kernel_us", kernel_us);
  if (are_waited_for(whole_us, kernel_us))
    cJSON_AddNullToObject(root, "core_overhead_percent");
  else
    cJSON_AddNumberToObject(root, "core_overhead_percent",
                            100 * (whole_us - kernel_us) / whole_us);
  cJSON *rows = cJSON_AddArrayToObject(root, "kernels");
  for (int i = 0; i < self->n_rows; i++) {
    const kernel_row *row = &self->rows[i];
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(rows, item);
    cJSON_AddStringToObject(item, "op", row->op);
    cJSON_AddStringToObject(item, "kernel", row->kernel);
    cJSON_AddNumberToObject(item, "count", (double)row->count / self->n_steps);
    cJSON_AddNumberToObject(item, "total_us", row->us / self->n_steps);
    if (row->weight_bytes > 0 && row->us > 0)
      cJSON_AddNumberToObject(item, "gb_per_s", row->weight_bytes / row->us / 1e3);
  }
  return iso_json_output_add(root);
}

static iso_status report_on(iso_bench *bench, const iso_bench_test *test, bool first) {
  report *self = calloc(1, sizeof *self);
  if (!self)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a report on kernels");
  self->plan = iso_runtime_get_plan(bench->runtime);
  self->n_steps =
      (int)bench->options->repetitions * (test->n_prompt > 0 ? 1 : DECODE_STEPS_A_REPETITION);
  self->whole_us = calloc((size_t)self->n_steps, sizeof *self->whole_us);
  self->kernel_us = calloc((size_t)self->n_steps, sizeof *self->kernel_us);
  iso_status status =
      self->whole_us && self->kernel_us
          ? measure(bench, test, self)
          : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %d samples", self->n_steps);
  if (status == ISO_OK) {
    char title[96];
    describe_test(bench, test, title, sizeof title);
    qsort(self->rows, (size_t)self->n_rows, sizeof self->rows[0], compare_rows);
    double whole_us = median(self->whole_us, self->n_steps);
    double kernel_us = median(self->kernel_us, self->n_steps);
    if (bench->options->json) {
      status = print_json(self, title, whole_us, kernel_us);
    } else {
      fputs(first ? "" : "\n", stdout);
      print_text(self, title, whole_us, kernel_us);
      fflush(stdout);
    }
  }
  free(self->whole_us);
  free(self->kernel_us);
  free(self);
  return status;
}

iso_status iso_bench_kernels(iso_bench *bench, const iso_bench_test *decode,
                             const iso_bench_test *prompt) {
  if (decode)
    ISO_TRY(report_on(bench, decode, true));
  if (prompt)
    ISO_TRY(report_on(bench, prompt, decode == NULL));
  return ISO_OK;
}
