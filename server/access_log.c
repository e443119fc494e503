#include "server/access_log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
  /* O_NONBLOCK: a pipe that nobody reads is an error here, rather than waited for. */
  log->descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0640);
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

/* Standard output is shared with others, so that it cannot be made one that never blocks. But a
 * pipe that can be written to takes PIPE_BUF bytes at once (pipe(7)). */
static bool write_part(const iso_access_log *log, const char *bytes, size_t length) {
  struct pollfd wanted = {.fd = log->descriptor, .events = POLLOUT};
  if (poll(&wanted, 1, 0) != 1 || !(wanted.revents & POLLOUT))
    return false;
  return write(log->descriptor, bytes, length) == (ssize_t)length;
}

bool iso_access_log_write(iso_access_log *log, const char *line, size_t length) {
  if (log->descriptor < 0)
    return true;
  if (log->cut && !write_part(log, "\n", 1))
    return false;
  log->cut = false;
  for (size_t done = 0; done < length;) {
    size_t part = length - done < PIPE_BUF ? length - done : PIPE_BUF;
    if (!write_part(log, line + done, part)) {
      log->cut = done > 0;
      return false;
    }
    done += part;
  }
  return true;
}
