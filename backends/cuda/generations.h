/* Which generations of cards a build's code runs on, by the list that it was compiled for. */
#ifndef ISOMER_CUDA_GENERATIONS_H
#define ISOMER_CUDA_GENERATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether one entry of the list, as CMake has it, is code for a card of compute capability
 * `generation` (90 is 9.0). Machine code ("86-real") runs on cards of its major number from its own
 * minor one on, an intermediate form ("80-virtual") on every card from its own on, and "86" is
 * both. Code with a letter runs on its own generation alone ("90a") or on those of its major number
 * from its own on ("100f"). Anything else ("native") may be code for any card. */
static inline bool cuda_entry_runs(const char *entry, size_t length, int generation) {
  char *end;
  int least = (int)strtol(entry, &end, 10);
  if (end == entry)
    return true;
  bool specific = *end == 'a', family = *end == 'f';
  end += specific || family;
  size_t left = length - (size_t)(end - entry);
  bool is_real = left == 5 && strncmp(end, "-real", 5) == 0;
  if (left != 0 && !is_real && !(left == 8 && strncmp(end, "-virtual", 8) == 0))
    return true;
  if (specific)
    return generation == least;
  if (family || is_real)
    return generation / 10 == least / 10 && generation >= least;
  return generation >= least;
}

/* Whether a build for `architectures`, entries with commas or semicolons between them, has code for
 * such a card. */
static inline bool cuda_generation_is_compiled(const char *architectures, int generation) {
  for (const char *entry = architectures + strspn(architectures, " ,;"); *entry;) {
    size_t length = strcspn(entry, " ,;");
    if (cuda_entry_runs(entry, length, generation))
      return true;
    entry += length;
    entry += strspn(entry, " ,;");
  }
  return false;
}

/* Why a card is refused that the build has no code for. */
static inline void cuda_say_generation(const char *architectures, const char *card_name,
                                       int generation, size_t capacity, char *out_reason) {
  snprintf(out_reason, capacity,
           "%s is sm_%d, for which this build has no code (it has %s): rebuild with "
           "-DISO_CUDA_ARCHITECTURES=%d",
           card_name, generation, architectures, generation);
}

#endif
