/* `isomer verify`: the same prompt on several devices, compared op by op. The first device, or a
 * recorded trace, is the judge. Whoever the judge is, what it computed lies in a trace on disk
 * while the others run, so that one model at a time is in memory. */
#include "tools/json_output.h"
#include "tools/verify_beside.h"
#include "tools/verify_compare.h"
#include "tools/verify_report.h"

#include "models/tokenizer/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_ROWS = 64, DEFAULT_OUTPUT = 32, DEFAULT_IDS = 40, MOST_ROWS = 4096 };

/* Some 40 tokens, with what tokenizers treat apart: digits, quotes, other scripts, code. */
static const char default_prompt[] =
    "In 1905, Einstein wrote: \"Light is the same for every observer.\" Énergie, エネルギー: "
    "E = mc^2; for (int i = 0; i < 10; i++)";

/* ---- The prompt ------------------------------------------------------------------------------ */

/* Opens the model, without its tokenizer where that fails and no text needs one. */
static iso_status open_model(iso_options *options, bool *out_has_text, iso_model **out_model) {
  ISO_TRY(iso_options_take_model(options));
  *out_has_text = options->prompt || options->file || options->words.n > 0;
  iso_status status = iso_tool_open_model(options, false, out_model);
  if (status == ISO_OK || *out_has_text)
    return status;
  char reason[512];
  snprintf(reason, sizeof reason, "%s", iso_status_message());
  ISO_TRY(iso_tool_open_model(options, true, out_model));
  if (options->verbose)
    fprintf(stderr, "no tokenizer, so the prompt is made of token numbers: %s\n", reason);
  return ISO_OK;
}

/* Numbers all over the vocabulary, the same for each run. */
static iso_status make_ids(const iso_model *model, int32_t **out_ids, size_t *out_count) {
  int64_t vocabulary = iso_model_get_config(model)->vocabulary_size;
  *out_ids = malloc(DEFAULT_IDS * sizeof **out_ids);
  if (!*out_ids)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for the prompt");
  for (int64_t i = 0; i < DEFAULT_IDS; i++)
    (*out_ids)[i] = (int32_t)((7919 * (i + 1) + 31 * i * i) % vocabulary);
  *out_count = DEFAULT_IDS;
  return ISO_OK;
}

static iso_status make_tokens(const iso_options *options, const iso_model *model, bool has_text,
                              int32_t **out_ids, size_t *out_count) {
  if (!iso_model_get_tokenizer(model))
    return make_ids(model, out_ids, out_count);
  char *text = NULL;
  size_t length = sizeof default_prompt - 1;
  if (has_text)
    ISO_TRY(iso_tool_read_text(options, 0, &text, &length));
  iso_status status =
      iso_tokenizer_encode(iso_model_get_tokenizer(model), text ? text : default_prompt, length,
                           ISO_TOKENIZE_ADD_SPECIAL, out_ids, out_count);
  free(text);
  if (status == ISO_OK && *out_count == 0)
    status = iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the prompt has no tokens");
  return status;
}

/* Cuts prompt and output to what the model's context holds. */
static iso_status limit(const iso_options *options, const iso_model *model, size_t n_tokens,
                        iso_verify_prompt *prompt) {
  int32_t context = iso_model_get_config(model)->context_length;
  if (options->context > 0 && options->context < context)
    context = (int32_t)options->context;
  if (n_tokens > (size_t)context)
    return iso_fail(ISO_ERROR_LIMIT, "the prompt has %zu tokens, the context %d", n_tokens,
                    context);
  int64_t output = options->predict > 0 ? options->predict : DEFAULT_OUTPUT;
  prompt->n_tokens = (int32_t)n_tokens;
  prompt->n_output =
      (int32_t)(output < context - prompt->n_tokens ? output : context - prompt->n_tokens);
  prompt->max_rows = options->batch_size > 0 ? (int32_t)options->batch_size : DEFAULT_ROWS;
  if (prompt->max_rows > MOST_ROWS)
    return iso_fail(ISO_ERROR_LIMIT, "-b %d keeps too many values at once; at most %d",
                    prompt->max_rows, MOST_ROWS);
  if (options->sequences > ISO_VERIFY_MOST_SEQUENCES)
    return iso_fail(ISO_ERROR_LIMIT, "--sequences %lld: at most %d run beside each other here",
                    (long long)options->sequences, ISO_VERIFY_MOST_SEQUENCES);
  return ISO_OK;
}

/* ---- Devices --------------------------------------------------------------------------------- */

/* What the command works on. */
typedef struct verification {
  const iso_options *options;
  const iso_model *model;
  iso_verify_prompt prompt;
  iso_adapter_list adapters; /* of which the prompt is run with the first, if any */
  int32_t *ids;              /* owned; NULL when the tokens are the trace's */
  iso_trace *judge;
  char judge_name[ISO_TRACE_TEXT];
  cJSON *json; /* array of devices, with --json */
  bool agrees;
} verification;

/* A judge that is fine is worth a line only, where others follow. */
static void report(verification *v, const iso_verify_result *result, bool others_follow) {
  char verdict[1024];
  bool agrees = iso_verify_verdict(result, v->judge_name, verdict, sizeof verdict);
  v->agrees &= agrees;
  if (v->json)
    cJSON_AddItemToArray(v->json, iso_verify_json(result, v->judge_name));
  else if (others_follow && agrees)
    printf("judge: %s\n", result->description);
  else
    iso_verify_print(result, v->model, v->judge_name);
}

/* Runs one device; with a path, its trace is kept there. */
static iso_status run_device(verification *v, const char *device, const char *path,
                             bool others_follow) {
  iso_verify_result result = {.first_difference = -1};
  snprintf(result.device, sizeof result.device, "%s", device);
  iso_verify_collector collector = {
      .model = v->model, .prompt = &v->prompt, .judge = v->judge, .path = path, .result = &result};
  iso_verify_visitor visitor = iso_verify_collect(&collector);
  iso_options options = *v->options;
  if (device != options.device)
    options.split = NULL; /* the host that judges runs whole */
  iso_status status = iso_verify_run(v->model, &options, device, &v->prompt, &visitor);
  iso_verify_collector_finish(&collector);
  if (status == ISO_OK && !iso_verify_is_reference(device))
    status = iso_verify_run_beside(v->model, &options, device, &v->prompt, &result);
  if (status == ISO_OK)
    report(v, &result, others_follow);
  iso_verify_result_free(&result);
  return status;
}

/* A file of its own for a judge whose trace nobody asked to keep. */
static iso_status make_temporary(char *out_path, size_t capacity) {
  const char *folder = getenv("TMPDIR");
  snprintf(out_path, capacity, "%s/isomer-trace-XXXXXX", folder && folder[0] ? folder : "/tmp");
  int file = mkstemp(out_path);
  if (file < 0)
    return iso_fail(ISO_ERROR_IO, "cannot create %s", out_path);
  close(file);
  return ISO_OK;
}

static iso_status run_judge(verification *v, const char *device, bool others_follow) {
  char temporary[512];
  const char *path = v->options->record;
  if (!path) {
    ISO_TRY(make_temporary(temporary, sizeof temporary));
    path = temporary;
  }
  snprintf(v->judge_name, sizeof v->judge_name, "%s", device);
  iso_status status = run_device(v, device, path, others_follow);
  if (status == ISO_OK && others_follow)
    status = iso_trace_open(path, &v->judge);
  if (path == temporary)
    unlink(temporary);
  return status;
}

/* The runs to compare, the judge first where no trace is one: --devices names each, --device one
 * that may be split over several, judged by the host. */
static iso_status list_runs(const iso_options *options, char *text, const char **out_runs,
                            int *out_n) {
  if (options->device_given && options->devices_given)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--device is one run, split over devices or not; "
                                                "--devices compares several: give one of them");
  if (options->split && !options->device_given)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "--split says how the layers of one run are spread: name its devices with "
                    "--device");
  int n = 0;
  if (options->device_given) {
    if (!options->against && !options->record)
      out_runs[n++] = "host";
    out_runs[n++] = options->device;
  } else {
    char *rest = NULL;
    for (char *name = strtok_r(text, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
      if (n == ISO_MAX_LIST)
        return iso_fail(ISO_ERROR_LIMIT, "--devices names more than %d", ISO_MAX_LIST);
      out_runs[n++] = name;
    }
  }
  *out_n = n;
  return n > 0 ? ISO_OK : iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--devices names no device");
}

static iso_status run_all(verification *v) {
  const char *runs[ISO_MAX_LIST];
  int n;
  char *text = strdup(v->options->devices);
  if (!text)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for the list of devices");
  iso_status status = list_runs(v->options, text, runs, &n);
  int first = 0;
  if (status == ISO_OK && !v->judge)
    status = run_judge(v, runs[first++], n > 1);
  for (int i = first; i < n && status == ISO_OK; i++)
    status = run_device(v, runs[i], NULL, false);
  free(text);
  return status;
}

/* Takes prompt and judge from a recorded trace. */
static iso_status open_judge(verification *v, bool has_text) {
  const iso_options *options = v->options;
  const iso_model_config *config = iso_model_get_config(v->model);
  if (has_text || options->record)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "--against brings its own prompt and trace: leave "
                    "out %s",
                    has_text ? "the prompt" : "--record");
  ISO_TRY(iso_trace_open(options->against, &v->judge));
  const iso_trace_model *recorded = v->judge->model;
  if (recorded->fingerprint != iso_verify_fingerprint(v->model, &v->adapters) ||
      recorded->n_layers != config->n_layers ||
      recorded->vocabulary_size != config->vocabulary_size)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "%s was recorded on another model (%s): names, shapes or types of its tensors "
                    "differ, or --lora does",
                    options->against, recorded->model);
  int32_t max_rows = 1;
  for (uint32_t i = 0; i < v->judge->n_steps; i++)
    if (v->judge->steps[i].n_tokens > max_rows)
      max_rows = v->judge->steps[i].n_tokens;
  ISO_TRY(limit(options, v->model, (size_t)recorded->n_tokens, &v->prompt));
  v->prompt.tokens = v->judge->tokens;
  v->prompt.max_rows = max_rows;
  if (v->prompt.n_output > v->judge->n_output)
    v->prompt.n_output = v->judge->n_output;
  snprintf(v->judge_name, sizeof v->judge_name, "%.100s", options->against);
  if (!options->json)
    printf("judge: %s, recorded on %s\n", options->against, recorded->device);
  return ISO_OK;
}

/* A trace takes the place of what is there: never of the model. */
static iso_status check_record(const iso_options *options) {
  struct stat model, record;
  bool is_model = options->record && stat(options->model, &model) == 0 &&
                  stat(options->record, &record) == 0 && model.st_dev == record.st_dev &&
                  model.st_ino == record.st_ino;
  return is_model ? iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--record %s is the model itself",
                             options->record)
                  : ISO_OK;
}

static iso_status verify(verification *v, bool has_text) {
  ISO_TRY(check_record(v->options));
  ISO_TRY(iso_tool_need_one_adapter(v->options));
  ISO_TRY(iso_tool_open_adapters(v->model, v->options, &v->adapters));
  v->prompt.adapters = &v->adapters;
  if (v->options->against) {
    ISO_TRY(open_judge(v, has_text));
  } else {
    size_t n_tokens = 0;
    ISO_TRY(make_tokens(v->options, v->model, has_text, &v->ids, &n_tokens));
    ISO_TRY(limit(v->options, v->model, n_tokens, &v->prompt));
    v->prompt.tokens = v->ids;
  }
  /* The reference may be minutes at one step: to be waited for only where a file is being made. */
  if (v->options->record)
    iso_tool_catch_end();
  return run_all(v);
}

static iso_status print_json(const verification *v, cJSON *root) {
  cJSON_AddNumberToObject(root, "n_prompt", v->prompt.n_tokens);
  cJSON_AddBoolToObject(root, "agrees", v->agrees);
  cJSON_AddStringToObject(root, "judge", v->judge_name);
  return iso_json_output_print(root);
}

iso_status iso_command_verify(iso_options *options, int *out_exit) {
  verification v = {.options = options, .agrees = true};
  iso_model *model;
  bool has_text;
  ISO_TRY(open_model(options, &has_text, &model));
  cJSON *root = options->json ? cJSON_CreateObject() : NULL;
  v.model = model;
  v.json = root ? cJSON_AddArrayToObject(root, "devices") : NULL;
  iso_status status = verify(&v, has_text);
  if (status == ISO_OK && options->json)
    status = print_json(&v, root);
  else
    cJSON_Delete(root);
  if (status == ISO_OK)
    *out_exit = v.agrees ? 0 : 1;
  iso_trace_close(v.judge);
  iso_tool_close_adapters(&v.adapters);
  free(v.ids);
  iso_model_close(model);
  return status;
}
