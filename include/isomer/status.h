/* Status: what every fallible function returns.
 *
 * A status is a small code. The sentence that goes with it (what failed, where, what to do)
 * is kept per thread: iso_fail() stores it and returns the code, so the usual form is
 *
 *     if (bytes > limit)
 *       return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "%s needs %llu bytes, %llu are free; ...", ...);
 *
 * and a caller either passes the code on (ISO_TRY), adds context (iso_fail_context), or prints
 * iso_status_message(). Codes cross threads by value; whoever moves a failure to another thread
 * moves the sentence with it: the waiting thread calls iso_fail() with the copied text. */
#ifndef ISOMER_STATUS_H
#define ISOMER_STATUS_H

#include <isomer/base.h>

ISO_BEGIN_DECLS

typedef enum iso_status {
  ISO_OK = 0,
  ISO_ERROR_INVALID_ARGUMENT = 1, /* the caller passed something that can never work */
  ISO_ERROR_OUT_OF_MEMORY = 2,    /* host or device memory; the message names the sizes */
  ISO_ERROR_NOT_FOUND = 3,        /* a file, device, tensor or key that is absent */
  ISO_ERROR_IO = 4,               /* the system refused to read, write or map */
  ISO_ERROR_CORRUPT_DATA = 5,     /* a file or request that breaks its format */
  ISO_ERROR_UNSUPPORTED = 6,      /* well-formed, but nothing here can run it; says why */
  ISO_ERROR_LIMIT = 7,            /* a bound on steps, depth, size or time was reached */
  ISO_ERROR_DEVICE = 8,           /* a device or driver failed */
  ISO_ERROR_CANCELLED = 9,        /* the caller asked to stop */
  ISO_ERROR_INTERNAL = 10,        /* a broken promise inside Isomer: report it */
  ISO_ERROR_BUSY = 11,            /* no room just now: come again later */
  ISO_STATUS_COUNT = 12
} iso_status;

/* Stores the sentence for this thread and returns `code` unchanged. At most 1,023 bytes are
 * kept. `file` and `line` are the place; iso_fail() fills them in. Thread safe. */
ISO_API iso_status iso_fail_at(iso_status code, const char *file, int line, const char *format, ...)
    ISO_PRINTF(4, 5);

/* Puts "context: " before the stored sentence and returns `code` unchanged; does nothing when
 * code is ISO_OK. */
ISO_API iso_status iso_fail_context(iso_status code, const char *format, ...) ISO_PRINTF(2, 3);

#define iso_fail(code, ...) iso_fail_at((code), __FILE__, __LINE__, __VA_ARGS__)

/* The sentence of this thread's latest failure, never NULL, valid until its next failure. */
ISO_API const char *iso_status_message(void);
/* "file.c:123" of this thread's latest failure, never NULL; for logs, not for users. */
ISO_API const char *iso_status_place(void);
/* A code's name in lower case words, such as "out of memory"; "unknown" if out of range. */
ISO_API const char *iso_status_name(iso_status code);

/* Passes a failure on to the caller of the enclosing function. */
#define ISO_TRY(expression)                          \
  do {                                               \
    iso_status iso_try_status_ = (expression);       \
    if (iso_try_status_ != ISO_OK)                   \
      return iso_try_status_;                        \
  } while (0)

ISO_END_DECLS
#endif
