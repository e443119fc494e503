#include "tools/conform_report.h"
#include "tools/json_output.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *iso_conform_group_name(iso_op op) {
  return op == ISO_CONFORM_MEMORY ? "memory" : iso_op_get_info(op)->name;
}

iso_status iso_conform_log_add(iso_conform_log *log, const iso_conform_report *report,
                               double seconds) {
  if (log->n_entries == log->capacity) {
    uint32_t capacity = log->capacity ? 2 * log->capacity : 1024;
    iso_conform_entry *grown = realloc(log->entries, capacity * sizeof *grown);
    if (!grown)
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %u results", capacity);
    log->entries = grown;
    log->capacity = capacity;
  }
  iso_conform_entry entry = {.text = strdup(report->text),
                             .detail = strdup(report->detail),
                             .kernel = report->kernel,
                             .op = report->op,
                             .result = report->result,
                             .is_compared = report->is_compared,
                             .seconds = seconds,
                             .microseconds = report->microseconds,
                             .gigabytes_per_s = report->gigabytes_per_s,
                             .gigaflops = report->gigaflops};
  log->entries[log->n_entries++] = entry;
  return entry.text && entry.detail ? ISO_OK
                                    : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a result");
}

void iso_conform_log_free(iso_conform_log *log) {
  for (uint32_t i = 0; i < log->n_entries; i++) {
    free(log->entries[i].text);
    free(log->entries[i].detail);
  }
  free(log->entries);
  *log = (iso_conform_log){0};
}

/* ---- One op's part of the log -------------------------------------------------------------- */

typedef struct op_counts {
  uint32_t n[ISO_CONFORM_FAIL + 1];
  double seconds;
} op_counts;

static op_counts count_op(const iso_conform_log *log, iso_op op) {
  op_counts counts = {{0}, 0};
  for (uint32_t i = 0; i < log->n_entries; i++)
    if (log->entries[i].op == op) {
      counts.n[log->entries[i].result]++;
      counts.seconds += log->entries[i].seconds;
    }
  return counts;
}

static uint32_t total_of(const op_counts *counts) {
  return counts->n[ISO_CONFORM_PASS] + counts->n[ISO_CONFORM_UNSUPPORTED] +
         counts->n[ISO_CONFORM_FAIL];
}

/* Calls visit() with each distinct reason of an op's refusals and how often it was given. */
static void each_refusal(const iso_conform_log *log, iso_op op,
                         void (*visit)(void *context, const char *reason, uint32_t count),
                         void *context) {
  for (uint32_t i = 0; i < log->n_entries; i++) {
    const iso_conform_entry *entry = &log->entries[i];
    if (entry->op != op || entry->result != ISO_CONFORM_UNSUPPORTED)
      continue;
    bool seen = false;
    uint32_t count = 0;
    for (uint32_t j = 0; j < log->n_entries && !seen; j++) {
      const iso_conform_entry *other = &log->entries[j];
      if (other->op != op || other->result != ISO_CONFORM_UNSUPPORTED ||
          strcmp(other->detail, entry->detail) != 0)
        continue;
      seen = j < i;
      count++;
    }
    if (!seen)
      visit(context, entry->detail, count);
  }
}

/* ---- Text ------------------------------------------------------------------------------------ */

static void print_refusal(void *context, const char *reason, uint32_t count) {
  (void)context;
  printf("  %10u refused: %s\n", count, reason);
}

static void print_table(const iso_conform_log *log) {
  printf("%-16s %8s %8s %8s\n", "op", "passed", "refused", "failed");
  for (iso_op op = 0; op <= ISO_CONFORM_MEMORY; op++) {
    op_counts counts = count_op(log, op);
    if (total_of(&counts) == 0)
      continue;
    printf("%-16s %8u %8u %8u\n", iso_conform_group_name(op), counts.n[ISO_CONFORM_PASS],
           counts.n[ISO_CONFORM_UNSUPPORTED], counts.n[ISO_CONFORM_FAIL]);
    each_refusal(log, op, print_refusal, NULL);
  }
}

static void print_timings(const iso_conform_log *log) {
  printf("%12s %8s %9s  %s\n", "us", "GB/s", "GFLOP/s", "kernel: case");
  for (uint32_t i = 0; i < log->n_entries; i++) {
    const iso_conform_entry *entry = &log->entries[i];
    if (entry->result == ISO_CONFORM_PASS)
      printf("%12.2f %8.2f %9.2f  %s: %s%s\n", entry->microseconds, entry->gigabytes_per_s,
             entry->gigaflops, entry->kernel, entry->text,
             entry->is_compared ? "" : " (not compared)");
    else if (entry->result == ISO_CONFORM_UNSUPPORTED)
      printf("%12s %8s %9s  refused, %s: %s\n", "-", "-", "-", entry->detail, entry->text);
  }
}

static void print_failures(const iso_conform_log *log) {
  for (uint32_t i = 0; i < log->n_entries; i++) {
    const iso_conform_entry *entry = &log->entries[i];
    if (entry->result == ISO_CONFORM_FAIL)
      printf("\nFAILED %s (seed %" PRIu64 ")\n  %s: %s\n", entry->text, log->seed, entry->kernel,
             entry->detail);
  }
}

void iso_conform_print_text(const iso_conform_log *log) {
  if (log->perf)
    print_timings(log);
  else
    print_table(log);
  print_failures(log);
  const iso_conform_summary *summary = &log->summary;
  printf("\n%s (%s): %u %s, %u refused, %u failed\n", log->device, log->device_name,
         summary->n_passed, log->perf ? "timed" : "passed", summary->n_unsupported,
         summary->n_failed);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_refusal(void *context, const char *reason, uint32_t count) {
  cJSON *item = cJSON_CreateObject();
  cJSON_AddStringToObject(item, "reason", reason);
  cJSON_AddNumberToObject(item, "count", count);
  cJSON_AddItemToArray(context, item);
}

static cJSON *entry_json(const iso_conform_log *log, const iso_conform_entry *entry) {
  cJSON *item = cJSON_CreateObject();
  cJSON_AddStringToObject(item, "case", entry->text);
  cJSON_AddStringToObject(item, "kernel", entry->kernel);
  if (entry->result == ISO_CONFORM_FAIL)
    cJSON_AddStringToObject(item, "detail", entry->detail);
  if (log->perf && entry->result == ISO_CONFORM_PASS) {
    cJSON_AddNumberToObject(item, "microseconds", entry->microseconds);
    cJSON_AddNumberToObject(item, "gigabytes_per_s", entry->gigabytes_per_s);
    cJSON_AddNumberToObject(item, "gigaflops", entry->gigaflops);
    cJSON_AddBoolToObject(item, "compared", entry->is_compared);
  }
  return item;
}

static void add_op(const iso_conform_log *log, iso_op op, cJSON *ops) {
  op_counts counts = count_op(log, op);
  if (total_of(&counts) == 0)
    return;
  cJSON *row = cJSON_CreateObject();
  cJSON_AddItemToArray(ops, row);
  cJSON_AddStringToObject(row, "op", iso_conform_group_name(op));
  cJSON_AddNumberToObject(row, "passed", counts.n[ISO_CONFORM_PASS]);
  cJSON_AddNumberToObject(row, "refused", counts.n[ISO_CONFORM_UNSUPPORTED]);
  cJSON_AddNumberToObject(row, "failed", counts.n[ISO_CONFORM_FAIL]);
  each_refusal(log, op, add_refusal, cJSON_AddArrayToObject(row, "refusals"));
  cJSON *failures = cJSON_AddArrayToObject(row, "failures");
  cJSON *timings = log->perf ? cJSON_AddArrayToObject(row, "timings") : NULL;
  for (uint32_t i = 0; i < log->n_entries; i++) {
    const iso_conform_entry *entry = &log->entries[i];
    if (entry->op == op && entry->result == ISO_CONFORM_FAIL)
      cJSON_AddItemToArray(failures, entry_json(log, entry));
    else if (entry->op == op && timings && entry->result == ISO_CONFORM_PASS)
      cJSON_AddItemToArray(timings, entry_json(log, entry));
  }
}

iso_status iso_conform_print_json(const iso_conform_log *log) {
  cJSON *root = cJSON_CreateObject();
  char seed[24];
  snprintf(seed, sizeof seed, "%" PRIu64, log->seed);
  cJSON_AddStringToObject(root, "device", log->device);
  cJSON_AddStringToObject(root, "name", log->device_name);
  cJSON_AddStringToObject(root, "seed", seed);
  cJSON_AddNumberToObject(root, "passed", log->summary.n_passed);
  cJSON_AddNumberToObject(root, "refused", log->summary.n_unsupported);
  cJSON_AddNumberToObject(root, "failed", log->summary.n_failed);
  cJSON *ops = cJSON_AddArrayToObject(root, "ops");
  for (iso_op op = 0; op <= ISO_CONFORM_MEMORY; op++)
    add_op(log, op, ops);
  return iso_json_output_print(root);
}

/* ---- JUnit ----------------------------------------------------------------------------------- */

ISO_PRINTF(2, 3)
static iso_status append(iso_file_writer *writer, const char *format, ...) {
  char text[2048];
  va_list list;
  va_start(list, format);
  int length = vsnprintf(text, sizeof text, format, list);
  va_end(list);
  if (length < 0 || (size_t)length >= sizeof text)
    return iso_fail(ISO_ERROR_INTERNAL, "a line of JUnit XML has %d bytes", length);
  return iso_file_writer_append(writer, text, (uint64_t)length);
}

/* Text as the value of an attribute; cut where `capacity` ends. */
static const char *escape(const char *text, char *out, size_t capacity) {
  size_t used = 0;
  for (; *text && used + 8 < capacity; text++) {
    unsigned char c = (unsigned char)*text;
    const char *entity = c == '&'   ? "&amp;"
                         : c == '<' ? "&lt;"
                         : c == '>' ? "&gt;"
                         : c == '"' ? "&quot;"
                                    : NULL;
    if (entity)
      used += (size_t)snprintf(out + used, capacity - used, "%s", entity);
    else
      out[used++] = c >= 0x20 && c < 0x7F ? (char)c : '?';
  }
  out[used] = 0;
  return out;
}

static iso_status write_entry(iso_file_writer *writer, const iso_conform_log *log,
                              const iso_conform_entry *entry) {
  char text[512], kernel[256], detail[1024];
  escape(entry->text, text, sizeof text);
  escape(entry->kernel, kernel, sizeof kernel);
  escape(entry->detail, detail, sizeof detail);
  ISO_TRY(append(writer, "    <testcase classname=\"%s.%s\" name=\"%s%s%s\" time=\"%.6f\"",
                 log->device, iso_conform_group_name(entry->op), text, kernel[0] ? ": " : "",
                 kernel, entry->seconds));
  switch (entry->result) {
  case ISO_CONFORM_UNSUPPORTED:
    return append(writer, "><skipped message=\"%s\"/></testcase>\n", detail);
  case ISO_CONFORM_FAIL:
    return append(writer, "><failure message=\"%s\">seed %" PRIu64 "</failure></testcase>\n",
                  detail, log->seed);
  default:
    return append(writer, "/>\n");
  }
}

static iso_status write_suite(iso_file_writer *writer, const iso_conform_log *log, iso_op op) {
  op_counts counts = count_op(log, op);
  if (total_of(&counts) == 0)
    return ISO_OK;
  ISO_TRY(append(writer,
                 "  <testsuite name=\"%s\" tests=\"%u\" failures=\"%u\" errors=\"0\" "
                 "skipped=\"%u\" time=\"%.6f\">\n",
                 iso_conform_group_name(op), total_of(&counts), counts.n[ISO_CONFORM_FAIL],
                 counts.n[ISO_CONFORM_UNSUPPORTED], counts.seconds));
  for (uint32_t i = 0; i < log->n_entries; i++)
    if (log->entries[i].op == op)
      ISO_TRY(write_entry(writer, log, &log->entries[i]));
  return append(writer, "  </testsuite>\n");
}

iso_status iso_conform_write_junit(const iso_conform_log *log, iso_file_writer *writer) {
  const iso_conform_summary *summary = &log->summary;
  ISO_TRY(append(writer,
                 "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                 "<testsuites name=\"isomer conform %s\" tests=\"%u\" failures=\"%u\">\n",
                 log->device, summary->n_passed + summary->n_unsupported + summary->n_failed,
                 summary->n_failed));
  for (iso_op op = 0; op <= ISO_CONFORM_MEMORY; op++)
    ISO_TRY(write_suite(writer, log, op));
  ISO_TRY(append(writer, "</testsuites>\n"));
  return iso_file_writer_commit(writer);
}
