#include "server/access_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

iso_status iso_access_log_open(iso_access_log *log, const char *path) {
  *log = (iso_access_log){.descriptor = -1};
  if (!path)
    return ISO_OK;
  if (strcmp(path, "-") == 0) {
    log->descriptor = STDOUT_FILENO;
    return ISO_OK;
  }
  log->descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  log->owned = true;
  return log->descriptor >= 0
             ? ISO_OK
             : iso_fail(ISO_ERROR_IO, "cannot open the access log %s: %s", path, strerror(errno));
}

void iso_access_log_close(iso_access_log *log) {
  if (log->owned && log->descriptor >= 0)
    close(log->descriptor);
  log->descriptor = -1;
}

bool iso_access_log_write(iso_access_log *log, const char *line, size_t length) {
  struct pollfd wanted = {.fd = log->descriptor, .events = POLLOUT};
  if (log->descriptor < 0)
    return true;
  if (poll(&wanted, 1, 0) != 1 || !(wanted.revents & POLLOUT))
    return false;
  return write(log->descriptor, line, length) == (ssize_t)length;
}
