/* `isomer conform`: the conformance grid (ops/conform) on one device. */
#include "tools/conform_report.h"
#include "tools/tool.h"

#include "core/registry.h"
#include "ops/conform/case.h"
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct conform_run {
  iso_conform_log log;
  iso_status status; /* the first failure to keep a report */
  bool show_progress;
  uint32_t n_cases, n_done;
  char last_text[ISO_CASE_TEXT]; /* records of one case share its text */
  double last_s, last_drawn_s;   /* monotonic */
} conform_run;

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void show_progress(conform_run *run, const iso_conform_report *report, double now) {
  if (strcmp(run->last_text, report->text) != 0) {
    snprintf(run->last_text, sizeof run->last_text, "%s", report->text);
    run->n_done++;
  }
  if (!run->show_progress || now - run->last_drawn_s < 0.1)
    return;
  run->last_drawn_s = now;
  fprintf(stderr, "\r\033[K%u of %u cases, %u failed: %s", run->n_done, run->n_cases,
          run->log.summary.n_failed, iso_conform_group_name(report->op));
}

static bool on_report(void *context, const iso_conform_report *report) {
  conform_run *run = context;
  double now = now_s();
  run->status = iso_conform_log_add(&run->log, report, now - run->last_s);
  run->last_s = now;
  run->log.summary.n_failed += report->result == ISO_CONFORM_FAIL;
  show_progress(run, report, now);
  return run->status == ISO_OK && !iso_tool_interrupted();
}

/* Cases of the grid that the options select. */
typedef struct counter {
  const char *op; /* NULL: all */
  uint32_t n;
} counter;

static iso_status count_case(void *context, const char *text) {
  counter *self = context;
  size_t length = self->op ? strlen(self->op) : 0;
  self->n += !self->op || (strncmp(text, self->op, length) == 0 && text[length] == ' ');
  return ISO_OK;
}

/* The words of the command line, which are one case; "" for none. */
static iso_status join_words(const iso_option_list *words, char out_text[ISO_CASE_TEXT]) {
  size_t used = 0;
  out_text[0] = 0;
  for (int i = 0; i < words->n; i++) {
    int length =
        snprintf(out_text + used, ISO_CASE_TEXT - used, "%s%s", i ? " " : "", words->items[i]);
    if (length < 0 || (used += (size_t)length) >= ISO_CASE_TEXT)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "a case has at most %d characters",
                      ISO_CASE_TEXT - 1);
  }
  return ISO_OK;
}

/* "3/8" is part 2 of 8; NULL is all. */
static iso_status parse_part(const char *text, uint32_t *out_part, uint32_t *out_n_parts) {
  enum { MOST_PARTS = 10000 };
  unsigned part, n_parts;
  int end = 0;
  *out_part = *out_n_parts = 0;
  if (!text)
    return ISO_OK;
  bool is_digits = strspn(text, "0123456789/") == strlen(text) && strlen(text) <= 11;
  if (!is_digits || sscanf(text, "%u/%u%n", &part, &n_parts, &end) != 2 || text[end] || part < 1 ||
      part > n_parts || n_parts > MOST_PARTS)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "--part wants K/N, as 1/8 to 8/8, N at most %d: \"%s\" is none", MOST_PARTS,
                    text);
  *out_part = part - 1, *out_n_parts = n_parts;
  return ISO_OK;
}

/* Ops stand on buffers and the order of a queue, so these are checked first. */
static void run_memory(iso_open_device *device, conform_run *run) {
  static const struct {
    const char *text;
    iso_status (*check)(iso_open_device *device);
  } checks[] = {{"memory small", iso_conform_memory},
                {"memory beyond 4 GiB", iso_conform_large_memory}};
  iso_conform_summary *summary = &run->log.summary;
  for (size_t i = 0; i < sizeof checks / sizeof checks[0] && run->status == ISO_OK; i++) {
    iso_conform_report report = {.text = checks[i].text, .op = ISO_CONFORM_MEMORY, .kernel = ""};
    iso_status status = checks[i].check(device);
    report.result = status == ISO_OK                    ? ISO_CONFORM_PASS
                    : status == ISO_ERROR_OUT_OF_MEMORY ? ISO_CONFORM_UNSUPPORTED
                                                        : ISO_CONFORM_FAIL;
    if (status != ISO_OK)
      snprintf(report.detail, sizeof report.detail, "%s", iso_status_message());
    summary->n_passed += report.result == ISO_CONFORM_PASS;
    summary->n_unsupported += report.result == ISO_CONFORM_UNSUPPORTED;
    on_report(run, &report);
  }
}

static iso_status run_grid(const iso_options *options, iso_open_device *device, conform_run *run) {
  char text[ISO_CASE_TEXT];
  counter selected = {.op = options->op};
  bool only_memory = options->op && strcmp(options->op, "memory") == 0;
  ISO_TRY(join_words(&options->words, text));
  if (text[0] && options->op)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "a case says its op: leave out --op");
  if (only_memory && options->perf)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--perf times ops; memory is not one");
  ISO_TRY(iso_case_each(options->perf, count_case, &selected));
  iso_conform_options conform = {.op = options->op,
                                 .text = text[0] ? text : NULL,
                                 .seed = run->log.seed,
                                 .perf = options->perf};
  ISO_TRY(parse_part(options->part, &conform.part, &conform.n_parts));
  if (text[0] && options->part)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "one case has no parts: leave out --part");
  run->n_cases = text[0] ? 1 : selected.n;
  if (conform.n_parts > 0)
    run->n_cases = (selected.n + conform.n_parts - 1 - conform.part) / conform.n_parts;
  run->show_progress = isatty(STDERR_FILENO);
  run->last_s = now_s();
  if (only_memory || !(options->op || text[0] || options->perf || conform.part > 0))
    run_memory(device, run);
  iso_conform_summary memory = run->log.summary, ops = {0};
  iso_status status =
      only_memory ? ISO_OK : iso_conform_run(device, &conform, on_report, run, &ops);
  run->log.summary = (iso_conform_summary){memory.n_passed + ops.n_passed,
                                           memory.n_unsupported + ops.n_unsupported,
                                           memory.n_failed + ops.n_failed};
  if (run->show_progress)
    fprintf(stderr, "\r\033[K");
  ISO_TRY(status);
  ISO_TRY(run->status);
  return iso_tool_interrupted() ? iso_fail(ISO_ERROR_CANCELLED, "stopped after %u of %u cases",
                                           run->n_done, run->n_cases)
                                : ISO_OK;
}

/* `junit`: where the report goes, or NULL. */
static iso_status run_on(const iso_options *options, iso_open_device *device,
                         iso_file_writer *junit, int *out_exit) {
  conform_run run = {.log = {.device = device->spec,
                             .device_name = device->info.name,
                             .seed = options->seed_given ? (uint64_t)options->seed : 1,
                             .perf = options->perf}};
  iso_tool_catch_end();
  iso_status status = run_grid(options, device, &run);
  bool is_cut = status == ISO_ERROR_CANCELLED; /* what was found until then is worth as much */
  if ((status == ISO_OK || is_cut) && !options->json)
    iso_conform_print_text(&run.log);
  if (status == ISO_OK && junit)
    status = iso_conform_write_junit(&run.log, junit);
  if (status == ISO_OK && options->json)
    status = iso_conform_print_json(&run.log);
  *out_exit = run.log.summary.n_failed > 0;
  iso_conform_log_free(&run.log);
  return status;
}

static iso_status open_and_run(const iso_options *options, iso_file_writer *junit, int *out_exit) {
  iso_registry *registry;
  ISO_TRY(iso_registry_create_with(options->backend, &registry));
  iso_device_options device_options = {.size = sizeof device_options,
                                       .n_threads = (uint32_t)options->threads,
                                       .cpu_affinity = options->cpu_affinity};
  iso_open_device *device = NULL;
  iso_status status = iso_device_open(registry, options->device, &device_options, &device);
  if (status == ISO_OK) {
    status = run_on(options, device, junit, out_exit);
    iso_device_close(device);
  }
  iso_registry_destroy(registry);
  return status;
}

iso_status iso_command_conform(iso_options *options, int *out_exit) {
  if (strchr(options->device, ','))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "conform checks one device, \"%s\" are several",
                    options->device);
  /* A path that cannot be written is found now, and not after the cases. */
  iso_file_writer *junit = NULL;
  if (options->junit)
    ISO_TRY(iso_file_writer_create(options->junit, &junit));
  iso_status status = open_and_run(options, junit, out_exit);
  iso_file_writer_destroy(junit);
  return status;
}
