/* Inside of the CUDA backend: its objects and how its functions report failures.
 *
 * One device has any number of queues; a queue is one stream. Kernels see these objects only
 * through backends/simt/simt.cuh, so that the same sources build for other vendors. */
#ifndef ISOMER_BACKENDS_CUDA_H
#define ISOMER_BACKENDS_CUDA_H

#include "backends/cuda/gaps.h"
#include "backends/simt/fusion.h"
#include <cuda_runtime.h>
#include <isomer/backend.h>

/* Offsets that kernels are given: one line of memory of every generation. */
enum { CUDA_ALIGNMENT = 256 };

struct cuda_blas; /* backends/cuda/blas.h */

struct iso_device {
  iso_device_info info;
  int ordinal;      /* as the CUDA runtime counts */
  int generation;   /* compute capability, 90 for 9.0 */
  int n_units;      /* multiprocessors */
  int shared_bytes; /* shared memory that one block may ask for */
  int l2_bytes;
  bool starts_early; /* kernels are code for sm_90 or later, which can wait for earlier kernels */
  cuda_blas *blas;   /* NULL: cuBLASLt is not installed */
  bool is_full; /* no room was left for other forms of weights, nor was anything freed since; atomic
                 */
};

/* A place of a buffer where simt_note() found something to hold, and what cuda_keep_form() put
 * there: the same in another form, from cudaMalloc(), or NULL. */
struct cuda_note {
  uint64_t offset;
  uint8_t *form;
};

struct iso_buffer {
  uint8_t *data; /* on the device; for STAGING pinned host memory, which the device reaches too */
  uint64_t bytes;
  iso_memory_kind kind;
  int ordinal;      /* the device it was allocated for, as the CUDA runtime counts */
  cuda_note *notes; /* in no order */
  uint32_t n_notes, most_notes;
};

/* Events of the latest values of a timeline. A value that has no event any more is waited for by
 * the oldest one that has. */
enum { CUDA_EVENTS = 64 };

/* Rows that the kernel which made them has rounded to E4M3 as well, for a product that may come
 * next: true while nothing was enqueued since. Codes are rows with a scale each, or, `in_groups`,
 * as backends/simt/rounding.cuh has them. */
struct cuda_rounded {
  iso_tensor x;
  uint8_t *codes;
  float *scales;
  bool in_groups;
  uint64_t n_enqueued;
};

/* Rows rounded for a product, SIMT_SLAB of so many columns, with scales for each SIMT_ROUNDED_GROUP
 * of them. There are two such: while one is read the next may be made. */
enum {
  CUDA_ROWS = 2,
  CUDA_ROWS_COLUMNS = 16384,
  CUDA_ROWS_CODES = SIMT_SLAB * CUDA_ROWS_COLUMNS,
  CUDA_ROWS_SCALES = CUDA_ROWS_CODES / SIMT_ROUNDED_GROUP * 4,
  CUDA_ROWS_STRIDE = CUDA_ROWS_CODES + CUDA_ROWS_SCALES
};

struct iso_queue {
  iso_device *device;
  cudaStream_t stream; /* where work goes: the queue's own, or a lane's */
  cudaStream_t own, lanes[SIMT_LANES];
  cudaEvent_t forked, joined[SIMT_LANES];
  bool at_turn; /* the next launch must not start before its turn: it waits for several streams */
  cudaEvent_t events[CUDA_EVENTS]; /* of value v: events[v % CUDA_EVENTS] */
  uint64_t signalled;              /* the latest value that was enqueued */
  uint64_t reached;                /* the latest value that is known to have passed */
  bool recording;                  /* between record_begin and record_end */
  bool synchronous;                /* ISOMER_CUDA_SYNC: wait after each launch, to name a fault */
  const char *first_launch;        /* since the latest value waited for; NULL: none */
  const char *last_launch;
  simt_deferred deferred; /* ops that may become part of a larger kernel */
  cuda_gaps gaps;
  uint32_t *counters;  /* SIMT_COUNTERS of them on the device, zero between kernels */
  char fault[256];     /* the first fault of the device; "" while there is none */
  uint64_t n_enqueued; /* kernels, copies and whatever else has come */
  cuda_rounded rounded;
  uint8_t *rows; /* CUDA_ROWS times CUDA_ROWS_STRIDE bytes on the device, lent by turns */
  uint32_t turn;
};

/* What the host gave at load. */
extern const iso_host *cuda_host;

/* Turns an error of the runtime into a status. `what` names the call or the kernel. */
iso_status cuda_failure(cudaError_t error, const char *what, const char *file, int line);

#define CUDA_TRY(call)                                                                             \
  do {                                                                                             \
    cudaError_t cuda_try_error_ = (call);                                                          \
    if (cuda_try_error_ != cudaSuccess)                                                            \
      return cuda_failure(cuda_try_error_, #call, __FILE__, __LINE__);                             \
  } while (0)

/* Looks at what launching a kernel left behind, and remembers its name for the report of a fault.
 * Called after every launch, by simt_launch(). */
iso_status cuda_launched(iso_queue *queue, const char *name);

/* Another form of what lies at a noted place; NULL while there is none. It lives as long as the
 * buffer, so recordings may name it. Thread safe, as is keeping one: false, and `form` stays the
 * caller's, where there is no note or somebody else was first. */
uint8_t *cuda_find_form(const iso_buffer *buffer, uint64_t offset);
bool cuda_keep_form(iso_buffer *buffer, uint64_t offset, uint8_t *form);

/* The poisoned timeline's sentence, or ISO_OK. */
iso_status cuda_queue_check(const iso_queue *queue);

extern const iso_driver_table cuda_driver_table;
extern const iso_device_table cuda_device_table;
extern const iso_memory_table cuda_memory_table;
extern const iso_queue_table cuda_queue_table;

#endif
