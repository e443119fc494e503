#include "server/server_internal.h"

#include <string.h>

bool iso_api_key_matches(const char *const *keys, int n_keys, const char *offered) {
  size_t length = strlen(offered);
  bool found = false;
  for (int i = 0; i < n_keys; i++) {
    size_t key_length = strlen(keys[i]);
    /* volatile: the loop must not end at the first difference. */
    volatile unsigned char difference = key_length != length;
    for (size_t k = 0; k < length; k++)
      difference =
          (unsigned char)(difference | (offered[k] ^ keys[i][key_length ? k % key_length : 0]));
    found |= difference == 0;
  }
  return found && length > 0;
}
