#include "tools/bench.h"
#include "models/model.h"
#include "tools/json_output.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Facts ---------------------------------------------------------------------------------- */

static void describe_model(const iso_model *model, iso_bench_facts *out) {
  uint64_t bytes_of[ISO_SCHEME_COUNT] = {0};
  iso_scheme main_scheme = ISO_SCHEME_F32;
  out->model_size = iso_model_weight_bytes(model);
  out->model_n_params = iso_model_weight_elements(model);
  for (uint32_t i = 0; i < iso_model_tensor_count(model); i++) {
    iso_model_tensor tensor;
    iso_model_get_tensor(model, i, &tensor);
    if (tensor.scheme >= ISO_SCHEME_COUNT)
      continue;
    bytes_of[tensor.scheme] += tensor.bytes;
    if (bytes_of[tensor.scheme] > bytes_of[main_scheme])
      main_scheme = tensor.scheme;
  }
  double parameters = (double)out->model_n_params;
  int used = snprintf(out->model_type, sizeof out->model_type,
                      parameters < 1e9 ? "%s %.0fM " : "%s %.1fB ",
                      iso_model_get_config(model)->architecture,
                      parameters < 1e9 ? parameters / 1e6 : parameters / 1e9);
  const char *scheme = iso_scheme_get_info(main_scheme)->name;
  for (size_t i = (size_t)used; *scheme && i + 1 < sizeof out->model_type; i++)
    out->model_type[i] = (char)toupper((unsigned char)*scheme++);
}

/* Name and threads of the first device; a plain "cpu" is "cpu:0" in the registry's list. */
static void describe_device(const iso_options *options, iso_bench_facts *out) {
  iso_registry *registry;
  iso_device_listing *listings = NULL;
  uint32_t count = 0;
  size_t length = strcspn(options->device, ",");
  if (iso_registry_create(&registry) != ISO_OK)
    return;
  if (iso_registry_list(registry, &listings, &count) != ISO_OK)
    count = 0;
  for (uint32_t i = count; i-- > 0;) {
    bool same = strncmp(listings[i].spec, options->device, length) == 0 &&
                (listings[i].spec[length] == 0 || listings[i].spec[length] == ':');
    if (!same)
      continue;
    snprintf(out->device_name, sizeof out->device_name, "%s", listings[i].info.name);
    out->n_threads = options->threads ? (uint32_t)options->threads : listings[i].info.n_units;
  }
  free(listings);
  iso_registry_destroy(registry);
}

void iso_bench_find_facts(const iso_bench *bench, iso_bench_facts *out_facts) {
  *out_facts = (iso_bench_facts){0};
  describe_model(bench->model, out_facts);
  describe_device(bench->options, out_facts);
}

/* ---- Statistics ----------------------------------------------------------------------------- */

typedef struct statistics {
  double average, deviation; /* of a sample: over n - 1 */
} statistics;

/* Of nanoseconds, or of tokens/s where `tokens` is not 0. */
static statistics summarize(const iso_bench_result *result, double tokens) {
  statistics out = {0, 0};
  int32_t n = result->n_samples;
  for (int32_t i = 0; i < n; i++) {
    double ns = (double)result->samples_ns[i];
    out.average += (tokens > 0 ? tokens * 1e9 / ns : ns) / n;
  }
  for (int32_t i = 0; i < n && n > 1; i++) {
    double ns = (double)result->samples_ns[i];
    double off = (tokens > 0 ? tokens * 1e9 / ns : ns) - out.average;
    out.deviation += off * off / (n - 1);
  }
  out.deviation = sqrt(out.deviation);
  return out;
}

static double token_count(const iso_bench_test *test) {
  return test->n_prompt > 0 ? test->n_prompt : (double)test->n_gen * test->n_sequences;
}

/* ---- Markdown and JSON ---------------------------------------------------------------------- */

static void print_row(const iso_bench *bench, const iso_bench_facts *facts,
                      const iso_bench_result *result) {
  char size[32], parameters[32], test[64], speed[64];
  double mib = (double)facts->model_size / 1048576, millions = (double)facts->model_n_params / 1e6;
  snprintf(size, sizeof size, mib < 1024 ? "%.2f MiB" : "%.2f GiB", mib < 1024 ? mib : mib / 1024);
  snprintf(parameters, sizeof parameters, millions < 1000 ? "%.2f M" : "%.2f B",
           millions < 1000 ? millions : millions / 1000);
  bool is_prompt = result->test.n_prompt > 0;
  int used = snprintf(test, sizeof test, "%s%d", is_prompt ? "pp" : "tg",
                      is_prompt ? result->test.n_prompt : result->test.n_gen);
  if (result->test.n_sequences > 1)
    used += snprintf(test + used, sizeof test - (size_t)used, " x %d", result->test.n_sequences);
  if (result->test.n_depth > 0)
    snprintf(test + used, sizeof test - (size_t)used, " @ d%d", result->test.n_depth);
  statistics tokens = summarize(result, token_count(&result->test));
  snprintf(speed, sizeof speed, "%.2f \u00b1 %.2f", tokens.average, tokens.deviation);
  /* The plus-minus sign is two bytes and one column. */
  printf("| %-30s | %10s | %10s | %-10s | %7u | %15s | %21s |\n", facts->model_type, size,
         parameters, bench->options->device, facts->n_threads, test, speed);
}

static void add_samples(cJSON *root, const iso_bench_result *result) {
  double tokens = token_count(&result->test);
  cJSON *ns = cJSON_AddArrayToObject(root, "samples_ns");
  cJSON *ts = cJSON_AddArrayToObject(root, "samples_ts");
  for (int32_t i = 0; i < result->n_samples; i++) {
    double sample = (double)result->samples_ns[i];
    cJSON_AddItemToArray(ns, cJSON_CreateNumber(sample));
    cJSON_AddItemToArray(ts, cJSON_CreateNumber(tokens * 1e9 / sample));
  }
}

static iso_status print_object(const iso_bench *bench, const iso_bench_facts *facts,
                               const iso_bench_result *result) {
  statistics ns = summarize(result, 0), ts = summarize(result, token_count(&result->test));
  const char *kv_type = iso_runtime_get_options(bench->runtime)->kv_type;
  const struct {
    const char *key, *value;
  } strings[] = {{"build_commit", ISO_VERSION_STRING},
                 {"cpu_info", facts->device_name},
                 {"backends", bench->options->device},
                 {"model_filename", bench->options->model},
                 {"model_type", facts->model_type},
                 {"type_k", kv_type},
                 {"type_v", kv_type},
                 {"test_time", result->test_time}};
  const struct {
    const char *key;
    double value;
  } numbers[] = {{"model_size", (double)facts->model_size},
                 {"model_n_params", (double)facts->model_n_params},
                 {"n_batch", bench->n_batch},
                 {"n_ubatch", bench->n_batch},
                 {"n_threads", facts->n_threads},
                 {"n_prompt", result->test.n_prompt},
                 {"n_gen", result->test.n_gen},
                 {"n_depth", result->test.n_depth},
                 {"n_sequences", result->test.n_sequences},
                 {"avg_ns", ns.average},
                 {"stddev_ns", ns.deviation},
                 {"avg_ts", ts.average},
                 {"stddev_ts", ts.deviation}};
  cJSON *root = cJSON_CreateObject();
  for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++)
    cJSON_AddStringToObject(root, strings[i].key, strings[i].value);
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    cJSON_AddNumberToObject(root, numbers[i].key, numbers[i].value);
  add_samples(root, result);
  return iso_json_output_add(root);
}

void iso_bench_print_header(const iso_bench *bench) {
  if (!bench->options->json)
    printf("| %-30s | %10s | %10s | %-10s | %7s | %15s | %20s |\n"
           "| ------------------------------ | ---------: | ---------: | ---------- | ------: | "
           "--------------: | -------------------: |\n",
           "model", "size", "params", "backend", "threads", "test", "t/s");
}

iso_status iso_bench_print_result(const iso_bench *bench, const iso_bench_facts *facts,
                                  const iso_bench_result *result) {
  if (bench->options->json)
    return print_object(bench, facts, result);
  print_row(bench, facts, result);
  fflush(stdout);
  return ISO_OK;
}
