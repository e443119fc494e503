/* Counts and histograms in Prometheus' text format (version 0.0.4). */
#ifndef ISOMER_SERVER_METRICS_H
#define ISOMER_SERVER_METRICS_H

#include "core/printer.h"
#include <isomer/engine.h>

enum { ISO_HISTOGRAM_BUCKETS = 16 };

typedef struct iso_histogram {
  const double *bounds; /* ascending, ISO_HISTOGRAM_BUCKETS of them */
  uint64_t counts[ISO_HISTOGRAM_BUCKETS + 1];
  double sum;
} iso_histogram;

void iso_histogram_add(iso_histogram *histogram, double value, uint64_t times);

enum { ISO_METRIC_ROUTES = 32 };

typedef struct iso_metrics {
  iso_histogram first_token_seconds, inter_token_seconds, queue_seconds, request_seconds;
  iso_histogram prompt_tokens, output_tokens;
  struct iso_route_count { /* a row a route and status class; static strings */
    const char *route;
    uint64_t by_class[6]; /* index 2: 2xx ... */
  } routes[ISO_METRIC_ROUTES];
  uint64_t log_lines_dropped;
} iso_metrics;

void iso_metrics_init(iso_metrics *metrics);
void iso_metrics_count(iso_metrics *metrics, const char *route, int status);
/* `engine` may be NULL: not loaded yet. */
void iso_metrics_print(const iso_metrics *metrics, iso_engine *engine, int n_connections,
                       int n_exchanges, iso_printer *out);

#endif
