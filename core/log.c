#include "core/log.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 1024, LEVEL_QUIET = -1, LEVEL_UNREAD = -2 };

static const char *const level_names[] = {"error", "warning", "notice", "debug"};
enum { LEVEL_COUNT = sizeof level_names / sizeof *level_names };

static atomic_int shown_level = LEVEL_UNREAD;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static iso_log_sink current_sink;
static void *sink_context;

static int level_of(const char *text, bool *out_known) {
  *out_known = true;
  if (!text || !*text)
    return ISO_LOG_NOTICE;
  for (int i = 0; i < LEVEL_COUNT; i++)
    if (strcmp(text, level_names[i]) == 0)
      return i;
  *out_known = strcmp(text, "quiet") == 0;
  return *out_known ? LEVEL_QUIET : ISO_LOG_NOTICE;
}

static int get_level(void) {
  int level = atomic_load_explicit(&shown_level, memory_order_relaxed);
  if (level == LEVEL_UNREAD) {
    /* Threads that race here read the same variable and store the same level. */
    const char *text = getenv("ISOMER_LOG");
    bool known;
    level = level_of(text, &known);
    int unread = LEVEL_UNREAD;
    if (!atomic_compare_exchange_strong(&shown_level, &unread, level))
      level = unread;
    else if (!known)
      iso_log(ISO_LOG_WARNING, "ISOMER_LOG=%s is none of error, warning, notice, debug and quiet",
              text);
  }
  return level;
}

void iso_log(iso_log_level level, const char *format, ...) {
  if ((int)level > get_level())
    return;
  char line[LINE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  pthread_mutex_lock(&lock);
  if (current_sink)
    current_sink(sink_context, level, line);
  else
    fprintf(stderr, "isomer: %s: %s\n", iso_log_level_name(level), line);
  pthread_mutex_unlock(&lock);
}

void iso_log_set_sink(iso_log_sink sink, void *context) {
  pthread_mutex_lock(&lock);
  current_sink = sink;
  sink_context = context;
  pthread_mutex_unlock(&lock);
}

void iso_log_set_level(int level) { atomic_store(&shown_level, level < 0 ? LEVEL_QUIET : level); }

const char *iso_log_level_name(iso_log_level level) {
  return (unsigned)level < LEVEL_COUNT ? level_names[level] : "unknown";
}
