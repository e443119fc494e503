#include "engine/step_times.h"

/* The first run of a size does what later ones need not: chooses kernels, records. */
enum { FIRST_RUNS = 3 };
static const double weight = 0.1, line_kept = 0.95;
/* What is not seen for long becomes cheaper, so that it is tried again some day. */
static const double faded = 0.999;

void iso_step_times_learn(iso_step_times *times, int32_t n_rows, double us) {
  const double sample[5] = {1, n_rows, (double)n_rows * n_rows, us, us * n_rows};
  for (int i = 0; i < 5; i++)
    times->sums[i] = line_kept * times->sums[i] + sample[i];
  for (int32_t i = 1; i <= ISO_TIMED_ROWS; i++)
    times->seen[i].us *= i == n_rows ? 1 : faded;
  if (n_rows > ISO_TIMED_ROWS)
    return;
  iso_step_time *time = &times->seen[n_rows];
  if (time->n_seen < FIRST_RUNS)
    time->us = time->n_seen++ == 0 || us < time->us ? us : time->us;
  else /* a step that something else held up counts as twice as long at most */
    time->us += weight * ((us < 2 * time->us ? us : 2 * time->us) - time->us);
}

/* us of each row more, by a line through the times of all sizes. */
static double line_slope(const iso_step_times *times) {
  const double *s = times->sums;
  double mean_rows = s[1] / s[0], mean_us = s[3] / s[0], each = mean_us / mean_rows;
  double spread = s[2] / s[0] - mean_rows * mean_rows;
  /* One size says nothing of the price of a row: a third of what it costs alone, until others show
   * better. */
  double slope = spread > 0.01 ? (s[4] / s[0] - mean_rows * mean_us) / spread : each / 3;
  return slope < 0.01 * each ? 0.01 * each : slope > each ? each : slope;
}

double iso_step_times_guess(const iso_step_times *times, int32_t n_rows) {
  if (times->is_fixed)
    return times->base_us + n_rows * times->row_us;
  const double *s = times->sums;
  if (s[0] == 0)
    return 2 + n_rows;
  double slope = line_slope(times);
  int32_t below = n_rows <= ISO_TIMED_ROWS ? n_rows : 0, above = below + 1;
  while (below > 0 && times->seen[below].n_seen == 0)
    below--;
  while (above <= ISO_TIMED_ROWS && times->seen[above].n_seen == 0)
    above++;
  double from = times->seen[below].us, us = s[3] / s[0] + (n_rows - s[1] / s[0]) * slope;
  if (n_rows > ISO_TIMED_ROWS)
    return us > slope ? us : slope;
  if (below > 0 && above <= ISO_TIMED_ROWS)
    return from + (times->seen[above].us - from) * (n_rows - below) / (above - below);
  if (below > 0)
    return from + (n_rows - below) * slope;
  if (above <= ISO_TIMED_ROWS)
    us = times->seen[above].us - (above - n_rows) * slope;
  return us > slope ? us : slope;
}
