#include "engine/runtime.h"

#include "core/executor.h"
#include "core/log.h"
#include "models/adapter.h"
#include "ops/sampling.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_CONTEXT = 4096, DEFAULT_PAGE_SIZE = 64, MAX_PAGE_SIZE = 1024 };

/* Rows of an output on the host: one a logit row, or of hidden states one a token. */
typedef struct runtime_rows {
  const float *rows; /* NULL: not fetched since the latest step */
  float *copy;       /* where the device's memory cannot be mapped */
} runtime_rows;

/* A step, as far as the host looks at it. */
typedef struct runtime_step {
  int32_t n_rows, n_logit_rows;
  int32_t *kept; /* those of them that came to the host, ascending; max_logit_rows */
  int32_t n_kept;
} runtime_step;

struct iso_runtime {
  const iso_model *model;
  iso_runtime_options options; /* defaults filled in; device strings are not kept */
  iso_model_graph_options graph_options;
  iso_device_list devices;
  iso_graph *graph;
  iso_plan *plan;
  iso_executor *executor;
  iso_value logits, hidden;
  int32_t *token_ids, *positions, *kv_slots, *block_table; /* host memory of the inputs */
  int32_t *query_start, *query_length, *context_length, *logit_rows;
  int32_t *adapters;        /* NULL without any */
  float *sample_parameters; /* NULL, as the next two, where steps draw no tokens */
  int32_t *sample_state, *sample_history;
  iso_value tokens;
  int32_t pages_per_sequence; /* columns of block_table */
  iso_executor_feed *feeds;   /* of the step being submitted; max_sequences */
  runtime_step shown;         /* the step waited for last */
  runtime_step under_way[2];  /* in order */
  int32_t n_under_way;
  runtime_rows logit_view, hidden_view; /* of the step waited for last */
  char description[512];
};

static iso_status fill_options(const iso_model *model, const iso_runtime_options *given,
                               iso_runtime_options *out) {
  const iso_model_config *config = iso_model_get_config(model);
  *out = given ? *given : (iso_runtime_options){0};
  if (!out->devices)
    out->devices = "cpu";
  if (out->context == 0)
    out->context =
        config->context_length < DEFAULT_CONTEXT ? config->context_length : DEFAULT_CONTEXT;
  if (out->context > config->context_length)
    iso_log(ISO_LOG_NOTICE,
            "a context of %d tokens is more than the %d that the model was trained "
            "for; answers past that may make no sense",
            out->context, config->context_length);
  if (out->max_sequences == 0)
    out->max_sequences = 1;
  if (out->page_size == 0)
    out->page_size = DEFAULT_PAGE_SIZE;
  if (out->max_logit_rows == 0)
    out->max_logit_rows = out->max_sequences;
  if (out->context < 0 || out->max_logit_rows < 0 || out->max_tokens < 0 ||
      out->max_sequences < 0 || out->n_threads < 0 || out->n_pages < 0 || out->page_size < 1 ||
      out->page_size > MAX_PAGE_SIZE)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "context %d, batch %d, sequences %d, threads %d and page size %d must be "
                    "positive, a page at most %d tokens",
                    out->context, out->max_tokens, out->max_sequences, out->n_threads,
                    out->page_size, MAX_PAGE_SIZE);
  ISO_TRY(iso_adapters_check(out->adapters, out->n_adapters, model));
  int64_t pages = ((int64_t)out->context + out->page_size - 1) / out->page_size;
  int64_t pool = out->n_pages ? out->n_pages : pages * out->max_sequences;
  if (pool * out->page_size > INT32_MAX)
    return iso_fail(ISO_ERROR_LIMIT, "a cache of %lld tokens exceeds 2^31; lower the context",
                    (long long)(pool * out->page_size));
  out->n_pages = (int32_t)pool;
  return ISO_OK;
}

/* Rows a step where nobody said: as many as give every unit of a GPU four tiles of 128 x 128 in a
 * product of 4,096 features, if it tells its units. */
static void choose_rows(iso_runtime *runtime) {
  enum { LEAST = ISO_DEFAULT_STEP_ROWS, MOST = 2048, ROWS_A_UNIT = 16 };
  iso_runtime_options *options = &runtime->options;
  int64_t rows = MOST, multiple = iso_device_list_row_multiple(&runtime->devices);
  for (uint32_t i = 0; i < runtime->devices.n_named; i++) {
    const iso_device_info *info = &runtime->devices.devices[i]->info;
    int64_t suits = info->kind == ISO_DEVICE_GPU ? (int64_t)info->n_units * ROWS_A_UNIT : LEAST;
    if (suits < rows)
      rows = suits;
  }
  if (options->max_tokens == 0)
    options->max_tokens = rows < LEAST ? LEAST : (int32_t)(rows / multiple * multiple);
  if (options->max_tokens < options->max_sequences)
    options->max_tokens = options->max_sequences;
}

/* Sets the types of activations and cache: what was asked for, or what suits the devices. */
static iso_status choose_types(iso_runtime *runtime) {
  iso_runtime_options *options = &runtime->options;
  iso_scheme scheme = ISO_SCHEME_F32;
  bool all_gpus = true;
  for (uint32_t i = 0; i < runtime->devices.n_named; i++)
    all_gpus &= runtime->devices.devices[i]->info.kind == ISO_DEVICE_GPU;
  static const char *const names_8[] = {"int8", "fp8"};
  const char *name_8 = NULL;
  for (size_t i = 0; i < sizeof names_8 / sizeof names_8[0]; i++)
    if (options->activation && strcmp(options->activation, names_8[i]) == 0)
      name_8 = names_8[i];
  runtime->graph_options.operand_bits = name_8 ? 8 : 0;
  if (!options->activation || name_8)
    scheme = all_gpus ? ISO_SCHEME_BF16 : ISO_SCHEME_F32;
  else if (!iso_scheme_from_name(options->activation, &scheme) ||
           !(iso_operand_schemes(ISO_OPERAND_ACTIVATION) & ISO_SCHEME_BIT(scheme)))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "activations of %s: f32, bf16, f16, int8 or fp8 can be had",
                    options->activation);
  runtime->graph_options.activation = scheme;
  options->activation = name_8 ? name_8 : iso_scheme_get_info(scheme)->name;
  if (name_8) /* the scheme of keys and values, where only attention reads them */
    scheme = ISO_SCHEME_BF16;
  if (options->kv_type && (!iso_scheme_from_name(options->kv_type, &scheme) ||
                           !(iso_operand_schemes(ISO_OPERAND_KV) & ISO_SCHEME_BIT(scheme))))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "a cache of %s: f32, f16, bf16, q8_0 or f8_g128 can be had", options->kv_type);
  runtime->graph_options.kv_scheme = scheme;
  options->kv_type = iso_scheme_get_info(scheme)->name;
  return ISO_OK;
}

/* Tokens are drawn on the device where the host cannot look at logits without copying them, or
 * where many are drawn at once. */
static bool should_sample(const iso_runtime *runtime, bool draws_many) {
  const iso_open_device *last = NULL;
  for (uint32_t i = 0; i < runtime->devices.n_devices; i++)
    if (i == 0 || runtime->devices.split[i] > runtime->devices.split[i - 1])
      last = runtime->devices.devices[i];
  bool is_mapped = last && (last->info.features & ISO_FEATURE_HOST_MEMORY);
  /* Drawn tokens of unmapped memory come along with the step when they are 4,096 bytes at most. */
  if (!last || runtime->options.keep_all ||
      (is_mapped ? !draws_many : runtime->options.max_logit_rows > 1024))
    return false;
  for (uint32_t i = 0; i < last->kernel_count; i++)
    if (last->kernels[i].op == ISO_OP_SAMPLE)
      return true;
  return false;
}

/* A model's weights with the caller's progress callback beside them. */
typedef struct observed_weights {
  iso_weight_provider inner;
  iso_progress_callback progress;
  void *progress_context;
} observed_weights;

static iso_status observed_get(void *context, const char *name, iso_host_weight *out_weight,
                               bool *out_stays) {
  observed_weights *self = context;
  return self->inner.get(self->inner.context, name, out_weight, out_stays);
}

static void observed_done(void *context, const char *name) {
  observed_weights *self = context;
  self->inner.done(self->inner.context, name);
}

static void observed_progress(void *context, uint64_t done, uint64_t total) {
  observed_weights *self = context;
  self->progress(self->progress_context, "loading", done, total);
}

static iso_status load(iso_runtime *runtime) {
  const iso_runtime_options *options = &runtime->options;
  observed_weights weights = {.progress = options->progress,
                              .progress_context = options->progress_context};
  ISO_TRY(iso_model_weights(runtime->model, &runtime->graph_options, &weights.inner));
  iso_weight_provider provider = {.context = &weights,
                                  .get = observed_get,
                                  .done = observed_done,
                                  .progress = options->progress ? observed_progress : NULL};
  iso_status status = iso_executor_create(runtime->plan, runtime->devices.devices, &provider, NULL,
                                          &runtime->executor);
  iso_model_weights_release(&weights.inner);
  /* Whole caches are compared then, the rows that nothing wrote among them. */
  return status == ISO_OK && options->keep_all ? iso_executor_fill_states(runtime->executor, 0)
                                               : status;
}

/* Tokens of cache that the memory left by the weights would hold; 0: none. */
static int64_t tokens_that_fit(const iso_runtime *runtime) {
  const iso_kv_budget most = {.share = 0.9f};
  iso_runtime_options least = runtime->options;
  int32_t n_pages;
  least.context = 1;
  least.n_pages = INT32_MAX;
  return iso_kv_budget_pages(&most, runtime->model, &least, &runtime->devices, &n_pages) == ISO_OK
             ? (int64_t)n_pages * least.page_size
             : 0;
}

/* After an out-of-memory failure: what the cache costs, and what would fit. */
static iso_status advise_memory(const iso_runtime *runtime, iso_status status) {
  const iso_runtime_options *options = &runtime->options;
  char sentence[512], fits[64] = "";
  snprintf(sentence, sizeof sentence, "%s", iso_status_message());
  uint64_t page_bytes = 0;
  ISO_TRY(iso_kv_page_bytes(runtime->model, options, &page_bytes));
  int64_t tokens = (int64_t)options->n_pages * options->page_size, most = tokens_that_fit(runtime);
  if (most == 0)
    return iso_fail(status, "%s; the weights leave no room for a cache", sentence);
  if (most < tokens)
    snprintf(fits, sizeof fits, ", and about %lld would fit", (long long)most);
  return iso_fail(status,
                  "%s; the cache takes %.1f KB a token, %.0f MB for %lld tokens%s: lower the "
                  "context (-c), the cache's memory or its type",
                  sentence, (double)page_bytes / options->page_size / 1e3,
                  (double)page_bytes * options->n_pages / 1e6, (long long)tokens, fits);
}

static void *input_of(const iso_runtime *runtime, const char *name) {
  return iso_executor_input(runtime->executor, iso_graph_find(runtime->graph, name));
}

static void bind_inputs(iso_runtime *runtime) {
  runtime->token_ids = input_of(runtime, "token_ids");
  runtime->positions = input_of(runtime, "positions");
  runtime->kv_slots = input_of(runtime, "kv_slots");
  runtime->block_table = input_of(runtime, "block_table");
  runtime->query_start = input_of(runtime, "query_start");
  runtime->query_length = input_of(runtime, "query_length");
  runtime->context_length = input_of(runtime, "context_length");
  runtime->logit_rows = input_of(runtime, "logit_rows");
  if (runtime->options.n_adapters > 0)
    runtime->adapters = input_of(runtime, "adapters");
  if (!runtime->graph_options.samples)
    return;
  runtime->sample_parameters = input_of(runtime, "sample_parameters");
  runtime->sample_state = input_of(runtime, "sample_state");
  runtime->sample_history = input_of(runtime, "sample_history");
  runtime->tokens = iso_graph_find(runtime->graph, "tokens");
  const float greedy[ISO_SAMPLE_PARAMETER_COUNT] = {
      [ISO_SAMPLE_TOP_P] = 1, [ISO_SAMPLE_REPETITION_PENALTY] = 1};
  for (int32_t row = 0; row < runtime->options.max_logit_rows; row++)
    iso_runtime_set_sampling(runtime, row, greedy, 0, 0);
}

static void describe(iso_runtime *runtime) {
  iso_executor_stats stats;
  iso_executor_get_stats(runtime->executor, &stats);
  int used = 0, start = 0;
  char *out = runtime->description;
  size_t capacity = sizeof runtime->description;
  for (uint32_t i = 0; i < runtime->devices.n_devices && (size_t)used < capacity; i++) {
    const iso_open_device *device = runtime->devices.devices[i];
    if (i >= runtime->devices.n_named && runtime->plan->n_fallbacks == 0)
      continue;
    used += snprintf(out + used, capacity - (size_t)used, "%s%s (%s, %s): %d layers",
                     used ? "; " : "", device->spec, device->info.name, device->info.detail,
                     runtime->devices.split[i] - start);
    start = runtime->devices.split[i];
  }
  if ((size_t)used < capacity)
    snprintf(out + used, capacity - (size_t)used,
             "; weights %.0f MB, cache %.0f MB, scratch %.0f MB, %u ops fell back",
             (double)stats.weight_bytes / 1e6, (double)stats.state_bytes / 1e6,
             (double)stats.arena_bytes / 1e6, runtime->plan->n_fallbacks);
}

static iso_status build(iso_runtime *runtime, const iso_runtime_options *given,
                        const iso_kv_budget *budget, bool draws_many) {
  const iso_model_config *config = iso_model_get_config(runtime->model);
  iso_runtime_options *options = &runtime->options;
  ISO_TRY(fill_options(runtime->model, given, options));
  iso_device_options device_options = {.size = sizeof device_options,
                                       .n_threads = (uint32_t)options->n_threads,
                                       .cpu_affinity = options->cpu_affinity};
  ISO_TRY(iso_device_list_open(options->devices, options->split, config->n_layers, &device_options,
                               options->allow_fallback, &runtime->devices));
  choose_rows(runtime);
  ISO_TRY(choose_types(runtime));
  if (budget)
    ISO_TRY(
        iso_kv_budget_pages(budget, runtime->model, options, &runtime->devices, &options->n_pages));
  runtime->pages_per_sequence = (options->context + options->page_size - 1) / options->page_size;
  iso_model_graph_options *graph_options = &runtime->graph_options;
  graph_options->max_tokens = options->max_tokens;
  graph_options->max_sequences = options->max_sequences;
  graph_options->max_logit_rows = options->max_logit_rows;
  graph_options->n_pages = options->n_pages;
  graph_options->page_size = options->page_size;
  graph_options->max_context = options->context;
  graph_options->samples = should_sample(runtime, draws_many);
  graph_options->adapters = options->adapters;
  graph_options->n_adapters = options->n_adapters;
  ISO_TRY(iso_model_build_graph(runtime->model, &runtime->graph_options, &runtime->graph));
  iso_plan_options plan_options = {.n_devices = runtime->devices.n_devices,
                                   .devices = runtime->devices.plan_devices,
                                   .split = runtime->devices.split,
                                   .fallback = runtime->devices.fallback,
                                   .keep_all = options->keep_all};
  ISO_TRY(iso_plan_create(runtime->graph, &plan_options, &runtime->plan));
  iso_status status = load(runtime);
  if (status != ISO_OK)
    return status == ISO_ERROR_OUT_OF_MEMORY ? advise_memory(runtime, status) : status;
  runtime->feeds = calloc((size_t)options->max_sequences, sizeof *runtime->feeds);
  size_t n_rows = (size_t)options->max_logit_rows;
  runtime->shown.kept = malloc(n_rows * sizeof(int32_t));
  bool has_lists = runtime->feeds && runtime->shown.kept;
  for (int i = 0; i < 2; i++) {
    runtime->under_way[i].kept = malloc(n_rows * sizeof(int32_t));
    has_lists = has_lists && runtime->under_way[i].kept;
  }
  if (!has_lists)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %d sequences", options->max_sequences);
  bind_inputs(runtime);
  runtime->logits = iso_graph_find(runtime->graph, "logits");
  runtime->hidden = iso_graph_find(runtime->graph, "hidden");
  options->devices = options->split = options->cpu_affinity = NULL;
  options->adapters = runtime->graph_options.adapters = NULL;
  describe(runtime);
  return ISO_OK;
}

static iso_status create(const iso_model *model, const iso_runtime_options *options,
                         const iso_kv_budget *budget, bool draws_many, iso_runtime **out_runtime) {
  iso_runtime *runtime = calloc(1, sizeof *runtime);
  if (!runtime)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a runtime");
  runtime->model = model;
  iso_status status = build(runtime, options, budget, draws_many);
  if (status != ISO_OK) {
    iso_runtime_destroy(runtime);
    return status;
  }
  *out_runtime = runtime;
  return ISO_OK;
}

iso_status iso_runtime_create(const iso_model *model, const iso_runtime_options *options,
                              iso_runtime **out_runtime) {
  return create(model, options, NULL, false, out_runtime);
}

iso_status iso_runtime_create_within(const iso_model *model, const iso_runtime_options *options,
                                     const iso_kv_budget *budget, iso_runtime **out_runtime) {
  return create(model, options, budget, true, out_runtime);
}

void iso_runtime_destroy(iso_runtime *runtime) {
  if (!runtime)
    return;
  free(runtime->logit_view.copy);
  free(runtime->hidden_view.copy);
  free(runtime->feeds);
  free(runtime->shown.kept);
  free(runtime->under_way[0].kept);
  free(runtime->under_way[1].kept);
  iso_executor_destroy(runtime->executor);
  iso_plan_destroy(runtime->plan);
  iso_graph_destroy(runtime->graph);
  iso_device_list_close(&runtime->devices);
  free(runtime);
}

/* Checks one sequence against the bounds and the vocabulary. */
static iso_status check_sequence(const iso_runtime *runtime, const iso_batch_sequence *sequence) {
  const iso_runtime_options *options = &runtime->options;
  int32_t vocabulary = iso_model_get_config(runtime->model)->vocabulary_size;
  if (!sequence->tokens || !sequence->pages)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "a sequence's %s are NULL",
                    sequence->tokens ? "pages" : "tokens");
  if (sequence->n_tokens < 1 || sequence->position < 0 ||
      sequence->n_tokens > options->context - sequence->position)
    return iso_fail(ISO_ERROR_LIMIT, "%d tokens at position %d exceed the context of %d",
                    sequence->n_tokens, sequence->position, options->context);
  int32_t end = sequence->position + sequence->n_tokens;
  if ((int64_t)sequence->n_pages * options->page_size < end)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%d pages do not hold %d tokens", sequence->n_pages,
                    end);
  for (int32_t i = 0; i < sequence->n_tokens; i++)
    if (sequence->tokens[i] < 0 || sequence->tokens[i] >= vocabulary)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "token id %d is outside the vocabulary of %d",
                      sequence->tokens[i], vocabulary);
  if (sequence->adapter < 0 || sequence->adapter > options->n_adapters)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "there is no adapter %d among %d",
                    sequence->adapter, options->n_adapters);
  for (int32_t i = 0; i * options->page_size < end; i++)
    if (sequence->pages[i] < 0 || sequence->pages[i] >= options->n_pages)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "page %d is outside the pool of %d",
                      sequence->pages[i], options->n_pages);
  return ISO_OK;
}

/* Writes the rows of one sequence into the input block. */
static void append_sequence(iso_runtime *runtime, const iso_batch_sequence *sequence, int32_t index,
                            int32_t first_row, int32_t *n_logit_rows) {
  int32_t page_size = runtime->options.page_size;
  int32_t end = sequence->position + sequence->n_tokens;
  int32_t *table = runtime->block_table + (int64_t)index * runtime->pages_per_sequence;
  for (int32_t i = 0; i < runtime->pages_per_sequence; i++)
    table[i] = i * page_size < end ? sequence->pages[i] : -1;
  for (int32_t i = 0; i < sequence->n_tokens; i++) {
    int32_t row = first_row + i, position = sequence->position + i;
    runtime->token_ids[row] = sequence->tokens[i];
    runtime->positions[row] = position;
    if (runtime->adapters)
      runtime->adapters[row] = sequence->adapter;
    runtime->kv_slots[row] =
        sequence->pages[position / page_size] * page_size + position % page_size;
    if (!sequence->no_logits && (sequence->all_logits || i + 1 == sequence->n_tokens))
      runtime->logit_rows[(*n_logit_rows)++] = row;
  }
  runtime->query_start[index] = first_row;
  runtime->query_length[index] = sequence->n_tokens;
  runtime->context_length[index] = end;
}

/* Reads rows to the host, as f32 whatever they are on the device. */
static iso_status copy_rows(iso_runtime *runtime, iso_value value, int64_t n, float *target) {
  const iso_value_info *info = iso_graph_get_value(runtime->graph, value);
  uint64_t bytes;
  ISO_TRY(iso_scheme_row_bytes(info->scheme, n, &bytes));
  if (info->scheme == ISO_SCHEME_F32)
    return iso_executor_read(runtime->executor, value, target, bytes);
  void *raw = malloc(bytes);
  if (!raw)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %lld numbers on the host",
                    (long long)n);
  iso_status status = iso_executor_read(runtime->executor, value, raw, bytes);
  if (status == ISO_OK)
    iso_scheme_decode_row(info->scheme, raw, target, n);
  free(raw);
  return status;
}

/* Makes the first n_rows rows of an output readable on the host; a step has most_rows at most. */
static iso_status fetch(iso_runtime *runtime, iso_value value, int32_t n_rows, int32_t most_rows,
                        int64_t columns, runtime_rows *view) {
  if (n_rows == 0 || view->rows)
    return ISO_OK;
  if (iso_graph_get_value(runtime->graph, value)->scheme == ISO_SCHEME_F32)
    view->rows = iso_executor_peek(runtime->executor, value);
  if (view->rows)
    return ISO_OK;
  if (!view->copy)
    view->copy = malloc((size_t)most_rows * (size_t)columns * sizeof(float));
  if (!view->copy)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %d rows of %lld numbers on the host",
                    most_rows, (long long)columns);
  ISO_TRY(copy_rows(runtime, value, n_rows * columns, view->copy));
  view->rows = view->copy;
  return ISO_OK;
}

iso_status iso_runtime_fetch_logits(iso_runtime *runtime) {
  return fetch(runtime, runtime->logits, runtime->shown.n_logit_rows,
               runtime->options.max_logit_rows,
               iso_model_get_config(runtime->model)->vocabulary_size, &runtime->logit_view);
}

iso_status iso_runtime_fetch_hidden(iso_runtime *runtime) {
  return fetch(runtime, runtime->hidden, runtime->shown.n_rows, runtime->options.max_tokens,
               iso_model_get_config(runtime->model)->hidden_size, &runtime->hidden_view);
}

bool iso_runtime_overlaps(const iso_runtime *runtime) {
  return runtime->graph_options.samples && iso_executor_overlaps(runtime->executor);
}

/* Has row `row` take the token drawn behind `drawn_row`; rows that follow each other, as a list. */
static void feed(iso_runtime *runtime, int32_t drawn_row, int32_t row, uint32_t *n_feeds) {
  const uint64_t each = sizeof(int32_t), from = (uint64_t)drawn_row * each,
                 to = (uint64_t)row * each;
  iso_executor_feed *last = *n_feeds > 0 ? &runtime->feeds[*n_feeds - 1] : NULL;
  if (last && last->source_offset + last->bytes == from &&
      last->target_offset + last->bytes == to) {
    last->bytes += each;
    return;
  }
  runtime->feeds[(*n_feeds)++] =
      (iso_executor_feed){.source = runtime->tokens,
                          .target = iso_graph_find(runtime->graph, "token_ids"),
                          .source_offset = from,
                          .target_offset = to,
                          .bytes = each};
}

iso_status iso_runtime_submit(iso_runtime *runtime, const iso_batch_sequence *sequences,
                              const int32_t *drawn_rows, int32_t n_sequences) {
  const iso_runtime_options *options = &runtime->options;
  if (n_sequences < 1 || n_sequences > options->max_sequences)
    return iso_fail(ISO_ERROR_LIMIT, "a step of %d sequences; this runtime takes 1 to %d",
                    n_sequences, options->max_sequences);
  int32_t rows = 0, n_logit_rows = 0;
  bool is_adapted = false;
  uint32_t n_feeds = 0;
  for (int32_t i = 0; i < n_sequences; i++) {
    ISO_TRY(check_sequence(runtime, &sequences[i]));
    int32_t wanted = sequences[i].no_logits    ? 0
                     : sequences[i].all_logits ? sequences[i].n_tokens
                                               : 1;
    if (sequences[i].n_tokens > options->max_tokens - rows ||
        wanted > options->max_logit_rows - n_logit_rows)
      return iso_fail(ISO_ERROR_LIMIT, "a step of more than %d tokens or %d rows of logits",
                      options->max_tokens, options->max_logit_rows);
    append_sequence(runtime, &sequences[i], i, rows, &n_logit_rows);
    if (drawn_rows && drawn_rows[i] >= 0)
      feed(runtime, drawn_rows[i], rows, &n_feeds);
    rows += sequences[i].n_tokens;
    is_adapted = is_adapted || sequences[i].adapter > 0;
  }
  iso_bindings bindings = {{0}};
  bindings.size[ISO_SYMBOL_TOKENS] = rows;
  bindings.size[ISO_SYMBOL_SEQUENCES] = n_sequences;
  bindings.size[ISO_SYMBOL_LOGIT_ROWS] = n_logit_rows;
  bindings.size[ISO_SYMBOL_ADAPTED_ROWS] = is_adapted ? rows : 0;
  iso_status status = iso_executor_submit(runtime->executor, &bindings, runtime->feeds, n_feeds);
  if (status != ISO_OK) {
    runtime->n_under_way = 0;
    return status;
  }
  runtime_step *step = &runtime->under_way[runtime->n_under_way++];
  step->n_rows = rows;
  step->n_logit_rows = n_logit_rows;
  step->n_kept = 0;
  return ISO_OK;
}

iso_status iso_runtime_keep_logits(iso_runtime *runtime, const int32_t *rows, int32_t n_rows) {
  runtime_step *step = &runtime->under_way[runtime->n_under_way - 1];
  bool is_mapped = iso_executor_peek(runtime->executor, runtime->logits) != NULL;
  iso_status status = is_mapped ? ISO_OK
                                : iso_executor_keep_rows(runtime->executor, runtime->logits, rows,
                                                         (uint32_t)n_rows);
  if (status != ISO_OK) {
    runtime->n_under_way = 0;
    return status;
  }
  memcpy(step->kept, rows, (size_t)n_rows * sizeof *rows);
  step->n_kept = n_rows;
  return ISO_OK;
}

iso_status iso_runtime_wait(iso_runtime *runtime) {
  runtime->logit_view.rows = runtime->hidden_view.rows = NULL;
  runtime->shown.n_rows = runtime->shown.n_logit_rows = runtime->shown.n_kept = 0;
  iso_status status = iso_executor_wait(runtime->executor);
  if (status != ISO_OK) {
    runtime->n_under_way = 0;
    return status;
  }
  const runtime_step before = runtime->shown;
  runtime->shown = runtime->under_way[0];
  runtime->under_way[0] = runtime->under_way[1];
  runtime->under_way[1] = before;
  runtime->n_under_way--;
  if (runtime->shown.n_kept > 0)
    runtime->logit_view.rows = iso_executor_peek(runtime->executor, runtime->logits);
  return ISO_OK;
}

bool iso_runtime_is_done(iso_runtime *runtime) { return iso_executor_is_done(runtime->executor); }

iso_status iso_runtime_run(iso_runtime *runtime, const iso_batch_sequence *sequences,
                           int32_t n_sequences) {
  ISO_TRY(iso_runtime_submit(runtime, sequences, NULL, n_sequences));
  return iso_runtime_wait(runtime);
}

iso_status iso_runtime_step(iso_runtime *runtime, const iso_batch_sequence *sequences,
                            int32_t n_sequences) {
  ISO_TRY(iso_runtime_run(runtime, sequences, n_sequences));
  return iso_runtime_fetch_logits(runtime);
}

static const float *row_of(const runtime_rows *view, int32_t row, int32_t n_rows, int64_t columns) {
  return view->rows && row >= 0 && row < n_rows ? view->rows + row * columns : NULL;
}

/* Among the rows that came to the host alone. */
static const float *kept_row(const iso_runtime *runtime, int32_t row, int64_t columns) {
  const runtime_step *step = &runtime->shown;
  const float *rows = iso_executor_kept_rows(runtime->executor);
  for (int32_t i = 0; rows && i < step->n_kept && step->kept[i] <= row; i++)
    if (step->kept[i] == row)
      return rows + i * columns;
  return NULL;
}

const float *iso_runtime_logits(const iso_runtime *runtime, int32_t row) {
  int64_t columns = iso_model_get_config(runtime->model)->vocabulary_size;
  return runtime->logit_view.rows
             ? row_of(&runtime->logit_view, row, runtime->shown.n_logit_rows, columns)
             : kept_row(runtime, row, columns);
}

const float *iso_runtime_hidden(const iso_runtime *runtime, int32_t row) {
  return row_of(&runtime->hidden_view, row, runtime->shown.n_rows,
                iso_model_get_config(runtime->model)->hidden_size);
}

bool iso_runtime_samples(const iso_runtime *runtime) { return runtime->graph_options.samples; }

void iso_runtime_set_sampling(iso_runtime *runtime, int32_t row, const float *parameters,
                              uint64_t seed, uint32_t draw) {
  if (!runtime->graph_options.samples || row < 0 || row >= runtime->options.max_logit_rows)
    return;
  memcpy(runtime->sample_parameters + (size_t)row * ISO_SAMPLE_PARAMETER_COUNT, parameters,
         ISO_SAMPLE_PARAMETER_COUNT * sizeof *parameters);
  const uint32_t state[4] = {(uint32_t)seed, (uint32_t)(seed >> 32), draw, 0};
  memcpy(runtime->sample_state + (size_t)row * 4, state, sizeof state);
  runtime->sample_history[row] = -1;
}

int32_t iso_runtime_token(const iso_runtime *runtime, int32_t row) {
  const int32_t *tokens =
      runtime->graph_options.samples ? iso_executor_peek(runtime->executor, runtime->tokens) : NULL;
  return tokens && row >= 0 && row < runtime->shown.n_logit_rows ? tokens[row] : -1;
}

const iso_model *iso_runtime_get_model(const iso_runtime *runtime) { return runtime->model; }
const iso_plan *iso_runtime_get_plan(const iso_runtime *runtime) { return runtime->plan; }
iso_executor *iso_runtime_get_executor(iso_runtime *runtime) { return runtime->executor; }
const iso_runtime_options *iso_runtime_get_options(const iso_runtime *runtime) {
  return &runtime->options;
}
const char *iso_runtime_describe(const iso_runtime *runtime) { return runtime->description; }
const iso_device_list *iso_runtime_devices(const iso_runtime *runtime) { return &runtime->devices; }
