#include "tools/verify_local.h"

#include "ops/conform/case.h"
#include "ops/shape.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  CHECKED_ROWS = 8,        /* of products */
  PIECE_ELEMENTS = 1 << 21 /* of a weight, a thread's piece of work */
};

/* Sums of squares over a row of the first output. */
typedef struct row_sums {
  double difference, want, deviation, magnitude;
} row_sums;

/* What the pieces of one launch found. */
typedef struct findings {
  pthread_mutex_t lock;
  iso_status status;
  char message[1024];
  bool is_wrong;
  row_sums *rows; /* of the launch, as one dimension */
  int64_t n_rows;
  double worst, got, want; /* the worst element of all */
  const char *operand;
  int64_t row, column;
} findings;

/* A part of a launch: some rows of its activations, some rows of a product's weight. */
typedef struct piece {
  iso_case test;
  iso_expectation expectation;
  uint8_t *outputs[ISO_MAX_OUTPUTS]; /* the device's, cut out; owned */
  int64_t first_column;              /* of the launch's output */
  const int64_t *rows; /* where each row of the piece lies in the launch; NULL: as it is */
} piece;

static iso_status no_memory(void) {
  return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory to check an op");
}

static bool is_product(iso_op op) { return op == ISO_OP_MATMUL || op == ISO_OP_GROUPED_MATMUL; }

/* ---- Judging a piece ------------------------------------------------------------------------- */

static void note_worst(findings *found, const char *operand, int64_t row, int64_t column,
                       double got, double want) {
  double difference = fabs(got - want);
  if (got == want || (isnan(got) && isnan(want)))
    return;
  if (isnan(difference))
    difference = INFINITY;
  if (difference <= found->worst)
    return;
  found->worst = difference;
  found->operand = operand;
  found->row = row;
  found->column = column;
  found->got = got;
  found->want = want;
}

/* Adds one output's rows to the sums; under the lock. */
static void add_rows(const piece *p, uint32_t output, float *got, float *want, findings *found) {
  const iso_tensor *tensor = &p->test.arguments.outputs[output];
  const char *name = iso_op_get_info(p->test.arguments.op)->outputs[output].name;
  int64_t n = iso_case_columns(tensor);
  for (int64_t r = 0; r < iso_case_rows(tensor); r++) {
    uint64_t offset = iso_case_row_offset(tensor, r);
    iso_scheme_decode_row(tensor->scheme, p->outputs[output] + offset, got, n);
    iso_scheme_decode_row(tensor->scheme, p->expectation.data.outputs[output] + offset, want, n);
    int64_t inner = iso_case_rows(tensor) / tensor->dims[0]; /* rows of one token */
    int64_t row = p->rows ? p->rows[r / inner] * inner + r % inner : r;
    row_sums *sums = output == 0 && row < found->n_rows ? &found->rows[row] : NULL;
    for (int64_t i = 0; i < n; i++) {
      note_worst(found, name, row, p->first_column + i, got[i], want[i]);
      if (!sums)
        continue;
      double difference = (double)got[i] - want[i];
      sums->difference += difference * difference;
      sums->want += (double)want[i] * want[i];
      if (p->expectation.deviation)
        sums->deviation += pow(p->expectation.deviation[r * n + i], 2);
      if (p->expectation.magnitude)
        sums->magnitude += pow(p->expectation.magnitude[r * n + i], 2);
    }
  }
}

/* Largest Euclidean norm of a key of KV head `head`; rows never written are zero. */
static double largest_key(const piece *p, int64_t head, float *scratch) {
  const iso_tensor *cache = &p->test.arguments.inputs[1];
  int64_t n_heads = cache->dims[1], page_size = cache->dims[2], n = cache->dims[3];
  double largest = 0;
  for (int64_t r = 0; r < iso_case_rows(cache); r++) {
    double sum = 0;
    if (r / page_size % n_heads != head)
      continue;
    iso_scheme_decode_row(
        cache->scheme, p->expectation.data.inputs[1] + iso_case_row_offset(cache, r), scratch, n);
    for (int64_t i = 0; i < n; i++)
      sum += (double)scratch[i] * scratch[i];
    largest = fmax(largest, sqrt(sum));
  }
  return largest;
}

/* A score rounds in proportion to the products in it, and the weight, its exponential, by as much
 * as the score does. Conformance has scores near 1; those of models may be 100. They are at most
 * |q| |k| scale, by which magnitudes grow. */
static iso_status enlarge_for_scores(piece *p) {
  const iso_tensor *q = &p->test.arguments.inputs[0];
  const iso_paged_attention_attributes *attributes = &p->test.attributes.paged_attention;
  int64_t n_kv_heads = p->test.arguments.inputs[1].dims[1], n = q->dims[2];
  int64_t n_values = iso_case_columns(&p->test.arguments.outputs[0]);
  double scale = attributes->scale != 0 ? attributes->scale : 1 / sqrt((double)n);
  float *scratch = malloc((size_t)n * sizeof *scratch);
  double *keys = malloc((size_t)n_kv_heads * sizeof *keys);
  for (int64_t h = 0; h < n_kv_heads && scratch && keys; h++)
    keys[h] = largest_key(p, h, scratch);
  for (int64_t r = 0; r < iso_case_rows(q) && scratch && keys; r++) {
    double sum = 0;
    iso_scheme_decode_row(q->scheme, p->expectation.data.inputs[0] + iso_case_row_offset(q, r),
                          scratch, n);
    for (int64_t i = 0; i < n; i++)
      sum += (double)scratch[i] * scratch[i];
    double key = keys[r % q->dims[1] * n_kv_heads / q->dims[1]];
    for (int64_t i = 0; i < n_values; i++)
      p->expectation.magnitude[r * n_values + i] *= (float)(1 + scale * sqrt(sum) * key);
  }
  bool made = scratch && keys;
  free(scratch);
  free(keys);
  return made ? ISO_OK : no_memory();
}

static iso_status judge(piece *p, findings *found) {
  iso_op op = p->test.arguments.op;
  ISO_TRY(iso_expectation_complete(&p->test, &p->expectation));
  if (op == ISO_OP_PAGED_ATTENTION)
    ISO_TRY(enlarge_for_scores(p));
  for (uint32_t i = 0; i < iso_op_get_info(op)->n_outputs; i++) {
    char detail[ISO_CASE_DETAIL];
    bool fine = iso_case_compare(&p->test, &p->expectation, i, p->outputs[i], detail);
    int64_t n = iso_case_columns(&p->test.arguments.outputs[i]);
    float *scratch = malloc(((size_t)n * 2 + 1) * sizeof *scratch);
    if (!scratch)
      return no_memory();
    pthread_mutex_lock(&found->lock);
    found->is_wrong |= !fine;
    add_rows(p, i, scratch, scratch + n, found);
    pthread_mutex_unlock(&found->lock);
    free(scratch);
  }
  return ISO_OK;
}

/* ---- Cutting pieces -------------------------------------------------------------------------- */

static uint64_t dense_bytes(const iso_tensor *tensor) {
  uint64_t row_bytes = 0;
  if (tensor->n_dims == 0 ||
      iso_scheme_row_bytes(tensor->scheme, iso_case_columns(tensor), &row_bytes) != ISO_OK)
    return 0;
  return row_bytes * (uint64_t)iso_case_rows(tensor);
}

/* Whether the outermost dimension of an operand counts tokens. */
static bool has_token_rows(const iso_operand_info *operand, const iso_tensor *tensor) {
  return operand->dims[0] == 'T' || (operand->dims[0] == '*' && tensor->n_dims > 1);
}

/* Copies rows of the outermost dimension, or all when `rows` is NULL. */
static uint8_t *cut_rows(iso_tensor *tensor, const uint8_t *source, const int64_t *rows,
                         int64_t n_rows) {
  uint64_t bytes = dense_bytes(tensor);
  if (!rows) {
    uint8_t *copy = malloc((size_t)bytes + 1);
    return copy ? memcpy(copy, source, (size_t)bytes) : NULL;
  }
  uint64_t unit = bytes / (uint64_t)tensor->dims[0];
  uint8_t *copy = malloc((size_t)(unit * (uint64_t)n_rows) + 1);
  for (int64_t r = 0; r < n_rows && copy; r++)
    memcpy(copy + (uint64_t)r * unit, source + (uint64_t)rows[r] * unit, (size_t)unit);
  tensor->dims[0] = n_rows;
  return copy;
}

/* Copies columns of plain rows. */
static uint8_t *cut_columns(iso_tensor *tensor, uint8_t *source, int64_t first, int64_t count) {
  uint64_t element = iso_scheme_get_info(tensor->scheme)->block_bytes;
  uint64_t row_bytes = (uint64_t)iso_case_columns(tensor) * element;
  uint64_t cut_bytes = (uint64_t)count * element;
  for (int64_t r = 0; r < iso_case_rows(tensor); r++)
    memmove(source + (uint64_t)r * cut_bytes,
            source + (uint64_t)r * row_bytes + (uint64_t)first * element, (size_t)cut_bytes);
  tensor->dims[tensor->n_dims - 1] = count;
  return iso_dense_strides(tensor->scheme, tensor->n_dims, tensor->dims, tensor->strides) == ISO_OK
             ? source
             : NULL;
}

/* Which part of the launch a piece is; `n_columns` 0: all columns. */
typedef struct cut {
  const int64_t *rows;
  int64_t n_rows, first_column, n_columns;
} cut;

static iso_status cut_inputs(const iso_verify_launch *launch, const cut *c, piece *p) {
  const iso_op_info *info = iso_op_get_info(launch->arguments.op);
  for (uint32_t i = 0; i < info->n_inputs; i++) {
    iso_tensor *tensor = &p->test.arguments.inputs[i];
    if (!launch->inputs[i])
      continue;
    p->expectation.data.inputs[i] = (uint8_t *)(uintptr_t)launch->inputs[i];
    if (c->rows && has_token_rows(&info->inputs[i], tensor)) {
      p->expectation.data.inputs[i] = cut_rows(tensor, launch->inputs[i], c->rows, c->n_rows);
      if (!p->expectation.data.inputs[i])
        return no_memory();
    }
    bool by_column =
        info->inputs[i].kind == ISO_OPERAND_WEIGHT || info->inputs[i].kind == ISO_OPERAND_PARAMETER;
    if (c->n_columns == 0 || !by_column)
      continue;
    /* Rows of the weight, elements of the bias: column j of the product needs only its own. */
    uint64_t unit = dense_bytes(tensor) / (uint64_t)tensor->dims[0];
    p->expectation.data.inputs[i] += (uint64_t)c->first_column * unit;
    tensor->dims[0] = c->n_columns;
  }
  return ISO_OK;
}

static iso_status cut_outputs(const iso_verify_launch *launch, const cut *c, piece *p) {
  const iso_op_info *info = iso_op_get_info(launch->arguments.op);
  for (uint32_t i = 0; i < info->n_outputs; i++) {
    iso_tensor *tensor = &p->test.arguments.outputs[i];
    bool by_row = c->rows && has_token_rows(&info->outputs[i], tensor);
    p->outputs[i] = cut_rows(tensor, launch->outputs[i], by_row ? c->rows : NULL, c->n_rows);
    if (p->outputs[i] && c->n_columns > 0 &&
        !cut_columns(tensor, p->outputs[i], c->first_column, c->n_columns))
      return no_memory();
    uint8_t *want = calloc((size_t)dense_bytes(tensor) + 1, 1);
    p->expectation.data.outputs[i] = want;
    if (!p->outputs[i] || !want)
      return no_memory();
    int32_t alias = info->outputs[i].alias_of;
    if (alias >= 0)
      memcpy(want, launch->inputs[alias], (size_t)dense_bytes(tensor));
  }
  return ISO_OK;
}

static void free_piece(const iso_verify_launch *launch, const cut *c, piece *p) {
  const iso_op_info *info = iso_op_get_info(launch->arguments.op);
  for (uint32_t i = 0; i < info->n_inputs; i++)
    if (!(c->rows && has_token_rows(&info->inputs[i], &launch->arguments.inputs[i])))
      p->expectation.data.inputs[i] = NULL; /* the launch's */
  iso_expectation_free(&p->expectation);
  for (uint32_t i = 0; i < ISO_MAX_OUTPUTS; i++)
    free(p->outputs[i]);
}

static iso_status check_piece(const iso_verify_launch *launch, const cut *c, findings *found) {
  piece p = {
      .test = {.arguments = launch->arguments}, .first_column = c->first_column, .rows = c->rows};
  iso_op_read_attributes(launch->arguments.op, launch->arguments.attributes, &p.test.attributes);
  iso_status status = cut_inputs(launch, c, &p);
  if (status == ISO_OK)
    status = cut_outputs(launch, c, &p);
  if (status == ISO_OK)
    status = judge(&p, found);
  free_piece(launch, c, &p);
  return status;
}

/* ---- All pieces of a launch ------------------------------------------------------------------ */

typedef struct work {
  const iso_verify_launch *launch;
  findings *found;
  cut whole; /* the rows, and all columns */
  int64_t n_columns, columns_a_piece;
  int64_t next_column; /* under the lock of `found` */
} work;

/* Takes the next columns; false when none are left or something failed. */
static bool take(work *w, cut *out_cut) {
  pthread_mutex_lock(&w->found->lock);
  bool any = w->next_column < w->n_columns && w->found->status == ISO_OK;
  *out_cut = w->whole;
  if (any && w->columns_a_piece < w->n_columns) {
    int64_t left = w->n_columns - w->next_column;
    out_cut->first_column = w->next_column;
    out_cut->n_columns = left < w->columns_a_piece ? left : w->columns_a_piece;
  }
  w->next_column += w->columns_a_piece;
  pthread_mutex_unlock(&w->found->lock);
  return any;
}

static void *run_worker(void *argument) {
  work *w = argument;
  cut c;
  while (take(w, &c)) {
    iso_status status = check_piece(w->launch, &c, w->found);
    if (status == ISO_OK)
      continue;
    pthread_mutex_lock(&w->found->lock);
    w->found->status = status;
    snprintf(w->found->message, sizeof w->found->message, "%s", iso_status_message());
    pthread_mutex_unlock(&w->found->lock);
  }
  return NULL;
}

static void run_workers(work *w, uint32_t n_threads) {
  enum { MOST_THREADS = 64 };
  pthread_t threads[MOST_THREADS];
  int64_t n_pieces = (w->n_columns + w->columns_a_piece - 1) / w->columns_a_piece;
  uint32_t n = 0;
  while (n + 1 < n_threads && n + 1 < n_pieces && n < MOST_THREADS &&
         pthread_create(&threads[n], NULL, run_worker, w) == 0)
    n++;
  run_worker(w);
  while (n > 0)
    pthread_join(threads[--n], NULL);
}

/* Eight rows from the first to the last. */
static void choose_rows(const iso_op_arguments *arguments, int64_t rows[CHECKED_ROWS], cut *out) {
  int64_t n = arguments->inputs[0].dims[0];
  if (!is_product(arguments->op) || arguments->inputs[0].n_dims < 2 || n <= CHECKED_ROWS)
    return;
  for (int64_t i = 0; i < CHECKED_ROWS; i++)
    rows[i] = i * (n - 1) / (CHECKED_ROWS - 1);
  *out = (cut){.rows = rows, .n_rows = CHECKED_ROWS};
}

/* Relative rounding of ops whose expectation has no deviation. Queries, keys and attention weights
 * may be rounded to the type of the cache; of f32 arithmetic a few units in the last place, and
 * half of one of the type that the output is stored in. */
double iso_verify_storage_rounding(const iso_op_arguments *arguments) {
  static const double F32 = 0x1p-22;
  const iso_op_info *info = iso_op_get_info(arguments->op);
  double worst = fmax(F32, iso_case_last_place(arguments->outputs[0].scheme) / 2);
  for (uint32_t i = 0; i < info->n_inputs; i++) {
    iso_scheme scheme = arguments->inputs[i].scheme;
    if (info->inputs[i].kind == ISO_OPERAND_KV && scheme != ISO_SCHEME_F32)
      worst = scheme == ISO_SCHEME_F16 ? 0x1p-10 : 0x1p-7;
  }
  return worst;
}

static void conclude(const iso_verify_launch *launch, const findings *found,
                     iso_verify_local *out) {
  double error = 0, rounding = 0, n = 0;
  for (int64_t r = 0; r < found->n_rows; r++) {
    const row_sums *sums = &found->rows[r];
    if (sums->want == 0)
      continue;
    error += sums->difference / sums->want;
    rounding += (sums->deviation + sums->magnitude * 0x1p-48) / sums->want;
    n++;
  }
  out->is_checked = true;
  out->is_wrong = found->is_wrong;
  out->error = n > 0 ? sqrt(error / n) : 0;
  out->rounding =
      fmax(n > 0 ? sqrt(rounding / n) : 0, iso_verify_storage_rounding(&launch->arguments));
  if (found->is_wrong)
    snprintf(out->detail, sizeof out->detail,
             "%s in row %lld, column %lld is %.8g, the reference gives %.8g", found->operand,
             (long long)found->row, (long long)found->column, found->got, found->want);
}

iso_status iso_verify_check(const iso_verify_launch *launch, uint32_t n_threads,
                            iso_verify_local *out_local) {
  const iso_op_arguments *arguments = &launch->arguments;
  const iso_tensor *y = &arguments->outputs[0];
  int64_t rows[CHECKED_ROWS];
  findings found = {.n_rows = iso_case_rows(y), .operand = ""};
  *out_local = (iso_verify_local){0};
  work w = {.launch = launch, .found = &found, .n_columns = 1, .columns_a_piece = 1};
  choose_rows(arguments, rows, &w.whole);
  if (arguments->op == ISO_OP_MATMUL) {
    int64_t n_in = arguments->inputs[1].dims[1];
    w.n_columns = arguments->inputs[1].dims[0];
    w.columns_a_piece = n_in < PIECE_ELEMENTS ? PIECE_ELEMENTS / n_in : 1;
  }
  found.rows = calloc((size_t)found.n_rows + 1, sizeof *found.rows);
  if (!found.rows)
    return no_memory();
  pthread_mutex_init(&found.lock, NULL);
  run_workers(&w, n_threads);
  pthread_mutex_destroy(&found.lock);
  iso_status status = found.status == ISO_OK ? ISO_OK : iso_fail(found.status, "%s", found.message);
  if (status == ISO_OK)
    conclude(launch, &found, out_local);
  free(found.rows);
  return status;
}
