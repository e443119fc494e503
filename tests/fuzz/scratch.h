/* A folder for what a fuzzer must hand over as files: in memory where the system has such a place.
 */
#ifndef ISOMER_TESTS_FUZZ_SCRATCH_H
#define ISOMER_TESTS_FUZZ_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SCRATCH_PATH = 64 };

/* Makes it; its path is in `folder` then. */
static inline void scratch_create(char folder[SCRATCH_PATH]) {
  snprintf(folder, SCRATCH_PATH, "%s/isomer-fuzz-XXXXXX",
           access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  if (!mkdtemp(folder))
    abort();
}

static inline void scratch_write(const char *path, const void *data, size_t size) {
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
    abort();
}

#endif
