/* Shared vocabulary of every public header: export marks, version, small limits.
 * This header compiles alone as C11 and as C++17. */
#ifndef ISOMER_BASE_H
#define ISOMER_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ISO_VERSION_MAJOR 0
#define ISO_VERSION_MINOR 1
#define ISO_VERSION_PATCH 0
#define ISO_VERSION_STRING "0.1.0"

#if defined(__GNUC__)
#define ISO_API __attribute__((visibility("default")))
#define ISO_MUST_CHECK __attribute__((warn_unused_result))
#define ISO_PRINTF(format_index, first_argument) \
  __attribute__((format(printf, format_index, first_argument)))
#else
#define ISO_API
#define ISO_MUST_CHECK
#define ISO_PRINTF(format_index, first_argument)
#endif

#ifdef __cplusplus
#define ISO_BEGIN_DECLS extern "C" {
#define ISO_END_DECLS }
#else
#define ISO_BEGIN_DECLS
#define ISO_END_DECLS
#endif

/* Most dimensions a tensor can have, in files and in graphs. */
#define ISO_MAX_DIMS 4
/* Largest size of one dimension; keeps products of two dimensions inside int64. */
#define ISO_MAX_DIM (INT64_C(1) << 31)

/* Progress of long work: called from one thread, `done` never falling within a stage, done == total
 * ending it. Bytes, unless the stage says otherwise. `stage` lives only during the call. */
typedef void (*iso_progress_callback)(void *context, const char *stage, uint64_t done,
                                      uint64_t total);

#endif
