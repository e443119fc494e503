#include "server/metrics.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

static const double second_bounds[ISO_HISTOGRAM_BUCKETS] = {
    .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300};
static const double token_bounds[ISO_HISTOGRAM_BUCKETS] = {
    1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};

void iso_histogram_add(iso_histogram *histogram, double value, uint64_t times) {
  int i = 0;
  while (i < ISO_HISTOGRAM_BUCKETS && value > histogram->bounds[i])
    i++;
  histogram->counts[i] += times;
  histogram->sum += value * (double)times;
}

/* The one list of histograms and of what the engine counts. */
static const struct {
  const char *name, *help;
  size_t offset;
  const double *bounds;
} histograms[] = {
#define HISTOGRAM(field, bounds, help)                                                             \
  { "isomer_" #field, help, offsetof(iso_metrics, field), bounds }
    HISTOGRAM(first_token_seconds, second_bounds, "From request to first token."),
    HISTOGRAM(inter_token_seconds, second_bounds, "Between tokens of one choice."),
    HISTOGRAM(queue_seconds, second_bounds, "From submission to the first step."),
    HISTOGRAM(request_seconds, second_bounds, "From request to the end of the answer."),
    HISTOGRAM(prompt_tokens, token_bounds, "Tokens of a prompt."),
    HISTOGRAM(output_tokens, token_bounds, "Tokens of an answer, all choices."),
#undef HISTOGRAM
};
enum { N_HISTOGRAMS = sizeof histograms / sizeof *histograms };

typedef enum stat_type { STAT_INT, STAT_COUNT, STAT_MICROSECONDS } stat_type;
static const struct {
  const char *name, *type, *help;
  stat_type field_type;
  size_t offset;
} engine_stats[] = {
#define GAUGE(field, help)                                                                         \
  { "isomer_engine_" #field, "gauge", help, STAT_INT, offsetof(iso_engine_stats, n_##field) }
#define COUNTER(field, help)                                                                       \
  {                                                                                                \
    "isomer_engine_" #field "_total", "counter", help, STAT_COUNT,                                 \
        offsetof(iso_engine_stats, n_##field)                                                      \
  }
    GAUGE(running, "Requests in the batch."),
    GAUGE(waiting, "Requests in the queue."),
    GAUGE(paused, "Requests whose reader is slow."),
    GAUGE(swapped, "Requests preempted to host memory."),
    GAUGE(pages, "Pages of the KV pool."),
    GAUGE(pages_used, "KV pages in use by requests."),
    GAUGE(pages_cached, "KV pages kept for prefixes, free to take."),
    COUNTER(steps, "Steps run."),
    COUNTER(requests, "Requests submitted."),
    COUNTER(finished, "Requests that ended well."),
    COUNTER(cancelled, "Requests cancelled."),
    COUNTER(failed, "Requests that failed."),
    COUNTER(preempted, "Preemptions."),
    COUNTER(swapped_pages, "KV pages moved to host memory."),
    COUNTER(prompt_tokens, "Prompt tokens run: those found in the prefix cache are apart."),
    COUNTER(output_tokens, "Generated tokens."),
    COUNTER(prefix_hit_tokens, "Prompt tokens found in the prefix cache."),
    COUNTER(drafted, "Tokens drafted by speculation."),
    COUNTER(accepted, "Drafted tokens accepted."),
#undef GAUGE
#undef COUNTER
    {"isomer_engine_step_seconds_total", "counter", "Time in steps.", STAT_MICROSECONDS,
     offsetof(iso_engine_stats, step_us)},
    {"isomer_engine_idle_seconds_total", "counter",
     "Time the device waited for the host between steps.", STAT_MICROSECONDS,
     offsetof(iso_engine_stats, idle_us)},
};

void iso_metrics_init(iso_metrics *metrics) {
  memset(metrics, 0, sizeof *metrics);
  for (int i = 0; i < N_HISTOGRAMS; i++)
    ((iso_histogram *)((char *)metrics + histograms[i].offset))->bounds = histograms[i].bounds;
}

void iso_metrics_count(iso_metrics *metrics, const char *route, int status) {
  int class = status / 100;
  for (int i = 0; i < ISO_METRIC_ROUTES; i++) {
    struct iso_route_count *row = &metrics->routes[i];
    if (row->route && row->route != route)
      continue;
    row->route = route;
    row->by_class[class >= 1 && class <= 5 ? class : 0]++;
    return;
  }
}

static void print_head(iso_printer *out, const char *name, const char *type, const char *help) {
  iso_printer_add(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void print_histogram(iso_printer *out, const char *name, const char *help,
                            const iso_histogram *histogram) {
  uint64_t below = 0;
  print_head(out, name, "histogram", help);
  for (int i = 0; i < ISO_HISTOGRAM_BUCKETS; i++) {
    below += histogram->counts[i];
    iso_printer_add(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, histogram->bounds[i], below);
  }
  below += histogram->counts[ISO_HISTOGRAM_BUCKETS];
  iso_printer_add(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.9g\n%s_count %" PRIu64 "\n",
                  name, below, name, histogram->sum, name, below);
}

static void print_engine(iso_printer *out, const iso_engine_stats *stats) {
  for (size_t i = 0; i < sizeof engine_stats / sizeof *engine_stats; i++) {
    const void *field = (const char *)stats + engine_stats[i].offset;
    double value = engine_stats[i].field_type == STAT_INT     ? *(const int32_t *)field
                   : engine_stats[i].field_type == STAT_COUNT ? (double)*(const uint64_t *)field
                                                              : *(const double *)field / 1e6;
    print_head(out, engine_stats[i].name, engine_stats[i].type, engine_stats[i].help);
    iso_printer_add(out, "%s %.15g\n", engine_stats[i].name, value);
  }
}

void iso_metrics_print(const iso_metrics *metrics, iso_engine *engine, int n_connections,
                       int n_exchanges, iso_printer *out) {
  print_head(out, "isomer_ready", "gauge", "1 once the model is loaded.");
  iso_printer_add(out, "isomer_ready %d\n", engine != NULL);
  print_head(out, "isomer_http_connections", "gauge", "Open connections.");
  iso_printer_add(out, "isomer_http_connections %d\n", n_connections);
  print_head(out, "isomer_http_exchanges", "gauge", "Requests being answered.");
  iso_printer_add(out, "isomer_http_exchanges %d\n", n_exchanges);
  print_head(out, "isomer_access_log_dropped_total", "counter",
             "Access log lines that nobody took.");
  iso_printer_add(out, "isomer_access_log_dropped_total %" PRIu64 "\n", metrics->log_lines_dropped);
  print_head(out, "isomer_http_requests_total", "counter", "Requests by route and kind of status.");
  for (int i = 0; i < ISO_METRIC_ROUTES && metrics->routes[i].route; i++)
    for (int class = 0; class < 6; class ++)
      if (metrics->routes[i].by_class[class])
        iso_printer_add(out,
                        "isomer_http_requests_total{route=\"%s\",status=\"%dxx\"} %" PRIu64 "\n",
                        metrics->routes[i].route, class, metrics->routes[i].by_class[class]);
  for (int i = 0; i < N_HISTOGRAMS; i++)
    print_histogram(out, histograms[i].name, histograms[i].help,
                    (const iso_histogram *)((const char *)metrics + histograms[i].offset));
  iso_engine_stats stats;
  if (!engine)
    return;
  iso_engine_get_stats(engine, &stats);
  print_engine(out, &stats);
}
