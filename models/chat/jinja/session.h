/* Session: one parse or one render of a chat template. It owns every byte that the work makes,
 * counts what the work costs, and knows the template line it has reached.
 *
 * Templates come from model files and conversations from clients, so neither is trusted: each
 * allocation, each step and each level of recursion is paid for from the session's budget, and
 * an empty budget is ISO_ERROR_LIMIT. Nothing is freed before the session ends, so values may
 * share storage freely and are never copied to be kept.
 *
 * A session belongs to one thread. */
#ifndef ISOMER_MODELS_CHAT_JINJA_SESSION_H
#define ISOMER_MODELS_CHAT_JINJA_SESSION_H

#include <isomer/status.h>
#include <time.h>
#include "models/chat/jinja/value.h"

struct iso_jinja_chunk;

/* What interrupts a run of statements. */
typedef enum iso_jinja_flow {
  ISO_JINJA_FLOW_NEXT,
  ISO_JINJA_FLOW_BREAK,
  ISO_JINJA_FLOW_CONTINUE
} iso_jinja_flow;

/* Text under construction; its bytes live in the session. */
typedef struct iso_jinja_buffer {
  char *bytes;
  size_t length, capacity;
} iso_jinja_buffer;

/* A variable scope; a name not found here is looked up in `parent`. */
typedef struct iso_jinja_scope {
  struct iso_jinja_scope *parent;
  struct iso_jinja_variable *variables;
  uint32_t count, capacity;
} iso_jinja_scope;

typedef struct iso_jinja_session {
  struct iso_jinja_chunk *chunks; /* newest first */
  size_t memory_left;             /* bytes that may still be allocated */
  size_t buffer_limit;            /* most bytes that any one text may grow to */
  uint64_t steps_left;            /* about one step a node, a list element or 64 bytes of text */
  uint32_t depth_left;            /* levels of C recursion that may still be entered */
  uint32_t line;                  /* template line of the latest node */
  iso_status status;              /* code of the latest failed allocation */
  /* The rest is for rendering only. */
  time_t now;
  iso_jinja_scope *scope;   /* innermost */
  iso_jinja_buffer *output; /* where statements write */
  iso_jinja_flow flow;
  iso_jinja_value subject; /* what a filter chain of a block starts from */
} iso_jinja_session;

/* Frees everything the session made. */
void iso_jinja_session_end(iso_jinja_session *session);

/* "chat template line N: ..." as the thread's sentence, control characters made spaces; returns
 * `code`. */
iso_status iso_jinja_fail(iso_jinja_session *session, iso_status code, const char *format, ...)
    ISO_PRINTF(3, 4);

/* `count` zeroed elements of `size` bytes, aligned for any type, living as long as the session;
 * NULL when the budget or the system has no more: the failure is then in session->status. */
void *iso_jinja_allocate(iso_jinja_session *session, size_t count, size_t size);

/* The code of the latest failed allocation; never ISO_OK, which the compiler need not prove. */
static inline iso_status iso_jinja_allocation_status(const iso_jinja_session *session) {
  return session->status == ISO_OK ? ISO_ERROR_OUT_OF_MEMORY : session->status;
}

/* Allocates `count` elements for `pointer`, or returns the failure from the caller. */
#define ISO_JINJA_NEW(session, pointer, count)                                                     \
  do {                                                                                             \
    (pointer) = iso_jinja_allocate((session), (count), sizeof *(pointer));                         \
    if (!(pointer))                                                                                \
      return iso_jinja_allocation_status(session);                                                 \
  } while (0)

/* Makes room for one more element in an array that lives in the session: doubles `*pointer`
 * when `count` has reached `*capacity`. */
iso_status iso_jinja_grow(iso_jinja_session *session, void *array_pointer, uint32_t count,
                          uint32_t *capacity, size_t element_size);

/* Takes `steps` from the budget. */
iso_status iso_jinja_spend(iso_jinja_session *session, uint64_t steps);

/* Enters and leaves one level of recursion. A failure abandons the whole session, so it need not
 * be balanced by a leave. */
iso_status iso_jinja_enter(iso_jinja_session *session);
static inline void iso_jinja_leave(iso_jinja_session *session) { session->depth_left++; }

iso_status iso_jinja_append(iso_jinja_session *session, iso_jinja_buffer *buffer, const char *bytes,
                            size_t length);
iso_status iso_jinja_append_text(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                 const char *text);
/* Appends `count` copies of one ASCII character. */
iso_status iso_jinja_append_repeated(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                     char character, size_t count);
iso_status iso_jinja_append_codepoint(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                      uint32_t codepoint);
/* The buffer's text as a string value that shares its bytes; the buffer must not grow after. */
iso_jinja_value iso_jinja_buffer_string(const iso_jinja_buffer *buffer);

#endif
