/* Names that the server goes by. */
#include "server/server_internal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_address(const char *name) {
  struct in_addr four;
  struct in6_addr six;
  size_t length = strlen(name);
  char inner[INET6_ADDRSTRLEN];
  if (inet_pton(AF_INET, name, &four) == 1)
    return true;
  if (name[0] != '[' || length < 3 || name[length - 1] != ']' || length - 2 >= sizeof inner)
    return false;
  memcpy(inner, name + 1, length - 2);
  inner[length - 2] = 0;
  return inet_pton(AF_INET6, inner, &six) == 1;
}

static bool ends_with(const char *name, const char *end) {
  size_t length = strlen(name), end_length = strlen(end);
  return length > end_length && strcasecmp(name + length - end_length, end) == 0;
}

bool iso_host_is_allowed(const iso_server_options *options, bool is_loopback, const char *host) {
  char name[256]; /* no name in DNS is longer */
  if (!host || (!is_loopback && options->n_allowed_hosts == 0))
    return true;
  size_t length = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
  if (length > strlen(host) || length >= sizeof name)
    return false;
  memcpy(name, host, length);
  name[length] = 0;
  if (length > 0 && name[length - 1] == '.')
    name[length - 1] = 0;
  if (is_address(name) || strcasecmp(name, "localhost") == 0 || ends_with(name, ".localhost") ||
      strcasecmp(name, options->host) == 0)
    return true;
  for (int i = 0; i < options->n_allowed_hosts; i++)
    if (strcmp(options->allowed_hosts[i], "*") == 0 ||
        strcasecmp(options->allowed_hosts[i], name) == 0)
      return true;
  return false;
}
