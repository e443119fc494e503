/* A progress bar for whoever has a terminal. */
#ifndef ISOMER_CORE_PROGRESS_H
#define ISOMER_CORE_PROGRESS_H

#include <isomer/base.h>
#include <stdio.h>

/* A one-line bar: percent, bytes, rate and time left, redrawn at most ten times a second. It draws
 * only when its stream is a terminal. */
typedef struct iso_progress_bar {
  FILE *stream;
  bool enabled;
  double start;      /* of the stage; seconds, monotonic */
  double last_drawn; /* 0: not yet in this stage */
  char stage[48];
} iso_progress_bar;

void iso_progress_bar_begin(iso_progress_bar *bar, FILE *stream);
/* An iso_progress_callback whose context is an iso_progress_bar. */
void iso_progress_bar_update(void *bar, const char *stage, uint64_t done, uint64_t total);
/* Ends the line of a bar that has not reached its end, so that other text begins one of its own. */
void iso_progress_bar_end(iso_progress_bar *bar);

/* The text of a bar: `seconds` since the stage began, at most `size` bytes with the NUL. */
void iso_progress_format(char *text, size_t size, const char *stage, uint64_t done, uint64_t total,
                         double seconds);

#endif
