/* What steps that decode take, by their number of rows: as seen, and guessed where not. On some
 * devices a few rows more are free, on others each has its price, and where a kernel begins another
 * pass the price jumps; so small numbers are kept one by one. One thread at a time. */
#ifndef ISOMER_ENGINE_STEP_TIMES_H
#define ISOMER_ENGINE_STEP_TIMES_H

#include <stdbool.h>
#include <stdint.h>

enum { ISO_TIMED_ROWS = 64 };

typedef struct iso_step_time {
  double us;
  int32_t n_seen; /* 0: not known */
} iso_step_time;

/* All zero: nothing is known. */
typedef struct iso_step_times {
  iso_step_time seen[ISO_TIMED_ROWS + 1]; /* by rows */
  double sums[5];                         /* of 1, rows, rows^2, us, us * rows; old ones fade */
  bool is_fixed;                          /* for tests: */
  double base_us, row_us;                 /* base_us + rows * row_us */
} iso_step_times;

/* A step of n_rows >= 1 rows took `us`. */
void iso_step_times_learn(iso_step_times *times, int32_t n_rows, double us);
/* us of a step of n_rows >= 1 rows. In units of their own before anything is known. */
double iso_step_times_guess(const iso_step_times *times, int32_t n_rows);

#endif
