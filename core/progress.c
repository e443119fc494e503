#include "core/progress.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

void iso_progress_bar_begin(iso_progress_bar *bar, FILE *stream) {
  *bar = (iso_progress_bar){.stream = stream, .enabled = isatty(fileno(stream)) == 1};
}

static void format_bytes(char *text, size_t size, double bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
    bytes /= 1024;
  snprintf(text, size, unit && bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

static void format_time(char *text, size_t size, double seconds) {
  unsigned long whole = seconds < 1e9 ? (unsigned long)(seconds + 0.5) : 1000000000ul;
  if (whole < 3600)
    snprintf(text, size, "%lu:%02lu", whole / 60, whole % 60);
  else
    snprintf(text, size, "%lu:%02lu:%02lu", whole / 3600, whole / 60 % 60, whole % 60);
}

void iso_progress_format(char *text, size_t size, const char *stage, uint64_t done, uint64_t total,
                         double seconds) {
  enum { CELLS = 24 };
  double fraction = total > 0 ? (double)done / (double)total : 1;
  if (fraction > 1)
    fraction = 1;
  char cells[CELLS + 1], have[24], all[24], rate[24] = "-", left[24] = "-";
  for (int i = 0; i < CELLS; i++)
    cells[i] = i < (int)(fraction * CELLS) ? '#' : '.';
  cells[CELLS] = 0;
  format_bytes(have, sizeof have, (double)done);
  format_bytes(all, sizeof all, (double)total);
  if (seconds > 0 && done > 0) {
    double speed = (double)done / seconds;
    format_bytes(rate, sizeof rate, speed);
    format_time(left, sizeof left, done < total ? (double)(total - done) / speed : 0);
  }
  snprintf(text, size, "%s [%s] %3d%%  %s / %s  %s/s  %s left", stage, cells, (int)(fraction * 100),
           have, all, rate, left);
}

void iso_progress_bar_update(void *context, const char *stage, uint64_t done, uint64_t total) {
  iso_progress_bar *bar = context;
  if (!bar->enabled)
    return;
  double time = now();
  if (strncmp(bar->stage, stage, sizeof bar->stage - 1) != 0) {
    snprintf(bar->stage, sizeof bar->stage, "%s", stage);
    bar->start = time;
    bar->last_drawn = 0;
  }
  if (done < total && bar->last_drawn > 0 && time - bar->last_drawn < 0.1)
    return;
  bar->last_drawn = time;
  char text[160];
  iso_progress_format(text, sizeof text, bar->stage, done, total, time - bar->start);
  /* Back to the margin, the line, and nothing of a longer line before it. */
  fprintf(bar->stream, "\r%s\033[K", text);
  if (done >= total)
    iso_progress_bar_end(bar);
  fflush(bar->stream);
}

void iso_progress_bar_end(iso_progress_bar *bar) {
  if (bar->stage[0] == 0)
    return;
  bar->stage[0] = 0;
  fputc('\n', bar->stream);
  fflush(bar->stream);
}
