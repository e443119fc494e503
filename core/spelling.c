#include "core/spelling.h"

#include <string.h>

int iso_spelling_distance(const char *a, const char *b) {
  enum { LIMIT = 32 };
  int table[LIMIT + 1][LIMIT + 1];
  size_t n = strlen(a), m = strlen(b);
  if (n > LIMIT || m > LIMIT)
    return LIMIT;
  for (size_t i = 0; i <= n; i++)
    for (size_t j = 0; j <= m; j++) {
      if (i == 0 || j == 0) {
        table[i][j] = (int)(i + j);
        continue;
      }
      int best = table[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      if (table[i - 1][j] + 1 < best)
        best = table[i - 1][j] + 1;
      if (table[i][j - 1] + 1 < best)
        best = table[i][j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
          table[i - 2][j - 2] + 1 < best)
        best = table[i - 2][j - 2] + 1;
      table[i][j] = best;
    }
  return table[n][m];
}
