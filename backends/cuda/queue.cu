/* A queue is a stream; its timeline is an event a value; a recording is a CUDA graph. */
#include "backends/cuda/copy.h"
#include "backends/cuda/cuda.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct recording {
  cudaGraphExec_t executable;
  const char *first_launch, *last_launch;
};

static double now_us() {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

/* What every call does that enqueues something: the device is made current, and what was held back
 * goes first. */
static iso_status begin(iso_queue *queue) {
  queue->n_enqueued++;
  ISO_TRY(cuda_queue_check(queue));
  CUDA_TRY(cudaSetDevice(queue->device->ordinal));
  return simt_flush_deferred(queue, &queue->deferred);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

iso_status cuda_queue_check(const iso_queue *queue) {
  if (!queue->fault[0])
    return ISO_OK;
  return iso_backend_fail(cuda_host, ISO_ERROR_DEVICE, "%s", queue->fault);
}

/* The device tells of a fault at some later call, so the op is one of those not yet waited for. */
static iso_status poison(iso_queue *queue, cudaError_t error) {
  const char *first = queue->first_launch, *last = queue->last_launch;
  if (!queue->fault[0] && first && first == last)
    snprintf(queue->fault, sizeof queue->fault, "%s: %s", first, cudaGetErrorString(error));
  else if (!queue->fault[0] && first)
    snprintf(queue->fault, sizeof queue->fault,
             "%s, in a kernel between %s and %s; ISOMER_CUDA_SYNC=1 tells which",
             cudaGetErrorString(error), first, last);
  else if (!queue->fault[0])
    snprintf(queue->fault, sizeof queue->fault, "%s", cudaGetErrorString(error));
  (void)cudaGetLastError();
  return cuda_queue_check(queue);
}

static void note_launch(iso_queue *queue, const char *first, const char *last) {
  if (!queue->first_launch)
    queue->first_launch = first;
  queue->last_launch = last;
}

iso_status cuda_launched(iso_queue *queue, const char *name) {
  queue->n_enqueued++;
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    /* Wrong grids and missing code are this launch's; the rest is an earlier kernel's. */
    bool own = error == cudaErrorInvalidConfiguration || error == cudaErrorInvalidValue ||
               error == cudaErrorLaunchOutOfResources || error == cudaErrorInvalidDeviceFunction ||
               error == cudaErrorNoKernelImageForDevice;
    return own || queue->recording ? cuda_failure(error, name, __FILE__, __LINE__)
                                   : poison(queue, error);
  }
  if (queue->synchronous && !queue->recording) {
    queue->first_launch = queue->last_launch = name;
    error = cudaStreamSynchronize(queue->stream);
    return error == cudaSuccess ? ISO_OK : poison(queue, error);
  }
  note_launch(queue, name, name);
  return ISO_OK;
}

/* ---- Life -------------------------------------------------------------------------------------
 */

static void queue_destroy(iso_queue *queue) {
  if (!queue)
    return;
  (void)cudaSetDevice(queue->device->ordinal);
  if (queue->own)
    (void)cudaStreamSynchronize(queue->own);
  cuda_gaps_destroy(&queue->gaps);
  for (cudaEvent_t event : queue->events)
    if (event)
      (void)cudaEventDestroy(event);
  for (cudaEvent_t event : {queue->forked, queue->joined[0], queue->joined[1]})
    if (event)
      (void)cudaEventDestroy(event);
  for (cudaStream_t stream : {queue->own, queue->lanes[0], queue->lanes[1]})
    if (stream)
      (void)cudaStreamDestroy(stream);
  (void)cudaFree(queue->counters);
  (void)cudaFree(queue->rows);
  (void)cudaGetLastError();
  free(queue);
}

static iso_status fill_queue(iso_queue *queue) {
  CUDA_TRY(cudaSetDevice(queue->device->ordinal));
  CUDA_TRY(cudaStreamCreateWithFlags(&queue->own, cudaStreamNonBlocking));
  queue->stream = queue->own;
  for (cudaStream_t &lane : queue->lanes)
    CUDA_TRY(cudaStreamCreateWithFlags(&lane, cudaStreamNonBlocking));
  CUDA_TRY(cudaEventCreateWithFlags(&queue->forked, cudaEventDisableTiming));
  for (cudaEvent_t &event : queue->joined)
    CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  for (cudaEvent_t &event : queue->events)
    CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  size_t bytes = SIMT_COUNTERS * sizeof *queue->counters;
  CUDA_TRY(cudaMalloc((void **)&queue->counters, bytes));
  CUDA_TRY(cudaMemsetAsync(queue->counters, 0, bytes, queue->own));
  CUDA_TRY(cudaStreamSynchronize(queue->own));
  CUDA_TRY(cudaMalloc((void **)&queue->rows, CUDA_ROWS * CUDA_ROWS_STRIDE));
  cuda_gaps_create(&queue->gaps);
  return ISO_OK;
}

static iso_status queue_create(iso_device *device, iso_queue **out_queue) {
  iso_queue *queue = (iso_queue *)calloc(1, sizeof *queue);
  if (!queue)
    return iso_backend_fail(cuda_host, ISO_ERROR_OUT_OF_MEMORY, "a queue needs %zu bytes",
                            sizeof *queue);
  queue->device = device;
  const char *synchronous = getenv("ISOMER_CUDA_SYNC");
  queue->synchronous = synchronous && strcmp(synchronous, "1") == 0;
  const char *fusion = getenv("ISOMER_FUSION");
  queue->deferred.off = fusion && strcmp(fusion, "0") == 0;
  iso_status status = fill_queue(queue);
  if (status != ISO_OK) {
    queue_destroy(queue);
    return status;
  }
  *out_queue = queue;
  return ISO_OK;
}

/* ---- Bytes -------------------------------------------------------------------------------------
 */

static bool inside(const iso_buffer *buffer, uint64_t offset, uint64_t bytes) {
  return offset <= buffer->bytes && bytes <= buffer->bytes - offset;
}

/* Errors of the stream that earlier work left poison the queue; so does any other. */
static iso_status enqueued(iso_queue *queue, cudaError_t error) {
  return error == cudaSuccess ? ISO_OK : poison(queue, error);
}

static iso_status queue_copy(iso_queue *queue, iso_buffer *target, uint64_t target_offset,
                             iso_buffer *source, uint64_t source_offset, uint64_t bytes) {
  if (!inside(target, target_offset, bytes) || !inside(source, source_offset, bytes))
    return iso_backend_fail(cuda_host, ISO_ERROR_INVALID_ARGUMENT,
                            "a copy of %llu bytes leaves its buffers", (unsigned long long)bytes);
  ISO_TRY(begin(queue));
  if (bytes == 0)
    return ISO_OK;
  if (cuda_copies_words(queue, target, target_offset, source, source_offset, bytes))
    return cuda_copy_words(queue, target->data + target_offset, source->data + source_offset,
                           bytes);
  return enqueued(queue, cudaMemcpyAsync(target->data + target_offset, source->data + source_offset,
                                         bytes, cudaMemcpyDefault, queue->stream));
}

static iso_status queue_fill(iso_queue *queue, iso_buffer *target, uint64_t offset, uint64_t bytes,
                             uint8_t value) {
  if (!inside(target, offset, bytes))
    return iso_backend_fail(cuda_host, ISO_ERROR_INVALID_ARGUMENT,
                            "a fill of %llu bytes leaves its buffer", (unsigned long long)bytes);
  ISO_TRY(begin(queue));
  if (bytes == 0)
    return ISO_OK;
  return enqueued(queue, cudaMemsetAsync(target->data + offset, value, bytes, queue->stream));
}

/* ---- Timeline ----------------------------------------------------------------------------------
 */

static iso_status queue_signal(iso_queue *queue, uint64_t *out_value) {
  ISO_TRY(begin(queue));
  uint64_t value = queue->signalled + 1;
  cudaError_t error = cudaEventRecord(queue->events[value % CUDA_EVENTS], queue->stream);
  if (error != cudaSuccess)
    return poison(queue, error);
  *out_value = queue->signalled = value;
  return ISO_OK;
}

/* The event that says `value` has passed: its own, or the oldest later one. */
static cudaEvent_t event_of(const iso_queue *queue, uint64_t value) {
  uint64_t oldest = queue->signalled < CUDA_EVENTS ? 1 : queue->signalled - CUDA_EVENTS + 1;
  return queue->events[(value > oldest ? value : oldest) % CUDA_EVENTS];
}

static cudaError_t wait_for_event(cudaEvent_t event, uint64_t timeout_us) {
  if (timeout_us == UINT64_MAX)
    return cudaEventSynchronize(event);
  double end = now_us() + (double)timeout_us;
  cudaError_t error;
  do
    error = cudaEventQuery(event);
  while (error == cudaErrorNotReady && now_us() < end);
  return error;
}

static iso_status queue_host_wait(iso_queue *queue, uint64_t value, uint64_t timeout_us) {
  ISO_TRY(cuda_queue_check(queue));
  if (value > queue->signalled)
    return iso_backend_fail(cuda_host, ISO_ERROR_INVALID_ARGUMENT,
                            "value %llu was never signalled; the latest is %llu",
                            (unsigned long long)value, (unsigned long long)queue->signalled);
  if (value <= queue->reached)
    return ISO_OK;
  CUDA_TRY(cudaSetDevice(queue->device->ordinal));
  cudaError_t error = wait_for_event(event_of(queue, value), timeout_us);
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return iso_backend_fail(cuda_host, ISO_ERROR_LIMIT, "the device was not done after %llu us",
                            (unsigned long long)timeout_us);
  }
  if (error != cudaSuccess)
    return poison(queue, error);
  queue->reached = value;
  if (value == queue->signalled)
    queue->first_launch = queue->last_launch = nullptr;
  return ISO_OK;
}

static iso_status queue_wait(iso_queue *queue, iso_queue *other, uint64_t value) {
  ISO_TRY(cuda_queue_check(other));
  ISO_TRY(begin(queue));
  if (value == 0 || value <= other->reached)
    return ISO_OK;
  return enqueued(queue, cudaStreamWaitEvent(queue->stream, event_of(other, value), 0));
}

/* ---- Lanes -------------------------------------------------------------------------------------
 */

static_assert(SIMT_LANES == 2, "queue_destroy() names them");

iso_status simt_fork(iso_queue *queue, uint32_t n_lanes) {
  CUDA_TRY(cudaSetDevice(queue->device->ordinal));
  /* What is held back comes before all lanes, not into the first that launches. */
  ISO_TRY(simt_flush_deferred(queue, &queue->deferred));
  CUDA_TRY(cudaEventRecord(queue->forked, queue->own));
  for (uint32_t i = 0; i < n_lanes; i++)
    CUDA_TRY(cudaStreamWaitEvent(queue->lanes[i], queue->forked, 0));
  return ISO_OK;
}

void simt_enter_lane(iso_queue *queue, uint32_t lane) {
  queue->stream = queue->lanes[lane];
  queue->at_turn = true;
}

void simt_leave_lane(iso_queue *queue) {
  queue->stream = queue->own;
  queue->at_turn = false;
}

/* After a failure, too: a lane that was forked off a capture must come back to it. */
iso_status simt_join(iso_queue *queue, uint32_t n_lanes) {
  queue->at_turn = true;
  for (uint32_t i = 0; i < n_lanes; i++) {
    CUDA_TRY(cudaEventRecord(queue->joined[i], queue->lanes[i]));
    CUDA_TRY(cudaStreamWaitEvent(queue->own, queue->joined[i], 0));
  }
  return ISO_OK;
}

/* ---- Recordings ---------------------------------------------------------------------------------
 */

static iso_status queue_record_begin(iso_queue *queue) {
  ISO_TRY(begin(queue));
  CUDA_TRY(cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeThreadLocal));
  queue->recording = true;
  queue->first_launch = queue->last_launch = nullptr;
  return ISO_OK;
}

/* After a failed step, too: the stream must leave its capture. */
static iso_status queue_record_end(iso_queue *queue, void **out_recording) {
  cudaGraph_t graph = nullptr;
  CUDA_TRY(cudaSetDevice(queue->device->ordinal));
  iso_status flushed = simt_flush_deferred(queue, &queue->deferred);
  queue->recording = false;
  cudaError_t error = cudaStreamEndCapture(queue->stream, &graph);
  if (flushed != ISO_OK) { /* its sentence stands */
    if (graph)
      (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    return flushed;
  }
  recording *made = (recording *)calloc(1, sizeof *made);
  if (error == cudaSuccess && !made)
    error = cudaErrorMemoryAllocation;
  if (error == cudaSuccess)
    error = cudaGraphInstantiate(&made->executable, graph, 0);
  if (graph)
    (void)cudaGraphDestroy(graph);
  if (error == cudaSuccess)
    error = cudaGraphUpload(made->executable, queue->stream);
  if (error != cudaSuccess) {
    if (made && made->executable)
      (void)cudaGraphExecDestroy(made->executable);
    free(made);
    return cuda_failure(error, "recording a step", __FILE__, __LINE__);
  }
  made->first_launch = queue->first_launch;
  made->last_launch = queue->last_launch;
  queue->first_launch = queue->last_launch = nullptr;
  *out_recording = made;
  return ISO_OK;
}

static iso_status queue_replay(iso_queue *queue, void *given) {
  recording *made = (recording *)given;
  ISO_TRY(begin(queue));
  if (made->first_launch)
    note_launch(queue, made->first_launch, made->last_launch);
  cuda_gaps_before(&queue->gaps, queue->stream);
  cudaError_t error = cudaGraphLaunch(made->executable, queue->stream);
  cuda_gaps_after(&queue->gaps, queue->stream);
  return enqueued(queue, error);
}

/* The driver keeps an executable alive until its launches are done. */
static void queue_recording_destroy(iso_queue *queue, void *given) {
  recording *made = (recording *)given;
  if (!made)
    return;
  (void)cudaSetDevice(queue->device->ordinal);
  (void)cudaGraphExecDestroy(made->executable);
  (void)cudaGetLastError();
  free(made);
}

const iso_queue_table cuda_queue_table = {.size = sizeof cuda_queue_table,
                                          .create = queue_create,
                                          .destroy = queue_destroy,
                                          .copy = queue_copy,
                                          .fill = queue_fill,
                                          .signal = queue_signal,
                                          .host_wait = queue_host_wait,
                                          .wait = queue_wait,
                                          .record_begin = queue_record_begin,
                                          .record_end = queue_record_end,
                                          .replay = queue_replay,
                                          .recording_destroy = queue_recording_destroy};
