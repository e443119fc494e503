/* The host backend as a device beside the host: memory that the host cannot look into, and a queue
 * whose work a thread of its own does later. Steps of the engine overlap on it. The environment
 * variable ISOMER_LATE_FAULT says which launch of a queue fails, counted from 1. */
#include <isomer/reference.h>

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define ISO_FEATURE_HOST_MEMORY 0u
#define HOST_BACKEND_NAME "late"
#include "backends/host/host.c"

typedef struct late_command late_command;
struct late_command {
  enum { LATE_LAUNCH, LATE_COPY, LATE_FILL, LATE_SIGNAL } kind;
  iso_op_arguments arguments;
  max_align_t attributes[4]; /* a copy */
  iso_buffer *target, *source;
  uint64_t target_offset, source_offset, bytes, value;
  uint8_t byte;
  late_command *next;
};

typedef struct late_queue {
  struct iso_queue base; /* first: a queue is cast to it */
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  late_command *first, **last;
  uint64_t signalled, reached;
  bool must_stop;
  uint64_t n_launches, fault_at; /* 0: none fails */
  iso_status fault;
  char message[256];
} late_queue;

static iso_status launch_copy(late_queue *queue, const late_command *command) {
  iso_op_arguments arguments = command->arguments;
  arguments.attributes = command->attributes;
  return launch(&queue->base, &arguments);
}

static iso_status run(late_queue *queue, const late_command *command) {
  switch (command->kind) {
  case LATE_LAUNCH:
    if (++queue->n_launches == queue->fault_at)
      return ISO_ERROR_DEVICE;
    return launch_copy(queue, command);
  case LATE_COPY:
    return queue_copy(&queue->base, command->target, command->target_offset, command->source,
                      command->source_offset, command->bytes);
  case LATE_FILL:
    return queue_fill(&queue->base, command->target, command->target_offset, command->bytes,
                      command->byte);
  case LATE_SIGNAL:
    break;
  }
  return ISO_OK;
}

/* Runs one command without the lock; a fault poisons what follows. */
static void run_first(late_queue *queue) {
  late_command *command = queue->first;
  queue->first = command->next;
  if (!queue->first)
    queue->last = &queue->first;
  bool is_poisoned = queue->fault != ISO_OK;
  pthread_mutex_unlock(&queue->mutex);
  iso_status status = is_poisoned ? ISO_OK : run(queue, command);
  pthread_mutex_lock(&queue->mutex);
  if (status != ISO_OK) {
    queue->fault = status;
    snprintf(queue->message, sizeof queue->message, "%s", "an op failed on the late device");
  }
  if (command->kind == LATE_SIGNAL)
    queue->reached = command->value;
  free(command);
  pthread_cond_broadcast(&queue->changed);
}

static void *work(void *context) {
  late_queue *queue = context;
  pthread_mutex_lock(&queue->mutex);
  while (queue->first || !queue->must_stop) {
    if (queue->first)
      run_first(queue);
    else
      pthread_cond_wait(&queue->changed, &queue->mutex);
  }
  pthread_mutex_unlock(&queue->mutex);
  return NULL;
}

static iso_status late_create(iso_device *device, iso_queue **out_queue) {
  late_queue *queue = calloc(1, sizeof *queue);
  if (!queue)
    return iso_backend_fail(host, ISO_ERROR_OUT_OF_MEMORY, "no memory for a queue");
  const char *fault = getenv("ISOMER_LATE_FAULT");
  queue->fault_at = fault ? strtoull(fault, NULL, 10) : 0;
  queue->base.device = device;
  queue->last = &queue->first;
  if (pthread_mutex_init(&queue->mutex, NULL) != 0 ||
      pthread_cond_init(&queue->changed, NULL) != 0 ||
      pthread_create(&queue->thread, NULL, work, queue) != 0) {
    free(queue);
    return iso_backend_fail(host, ISO_ERROR_OUT_OF_MEMORY, "no thread for a queue");
  }
  *out_queue = &queue->base;
  return ISO_OK;
}

static void late_destroy(iso_queue *base) {
  late_queue *queue = (late_queue *)base;
  pthread_mutex_lock(&queue->mutex);
  queue->must_stop = true;
  pthread_cond_broadcast(&queue->changed);
  pthread_mutex_unlock(&queue->mutex);
  pthread_join(queue->thread, NULL);
  pthread_cond_destroy(&queue->changed);
  pthread_mutex_destroy(&queue->mutex);
  free(queue);
}

static iso_status enqueue(iso_queue *base, const late_command *command, uint64_t *out_value) {
  late_queue *queue = (late_queue *)base;
  late_command *copy = malloc(sizeof *copy);
  if (!copy)
    return iso_backend_fail(host, ISO_ERROR_OUT_OF_MEMORY, "no memory for a command");
  *copy = *command;
  copy->next = NULL;
  pthread_mutex_lock(&queue->mutex);
  if (copy->kind == LATE_SIGNAL)
    *out_value = copy->value = ++queue->signalled;
  *queue->last = copy;
  queue->last = &copy->next;
  pthread_cond_broadcast(&queue->changed);
  pthread_mutex_unlock(&queue->mutex);
  return ISO_OK;
}

static iso_status late_copy(iso_queue *queue, iso_buffer *target, uint64_t target_offset,
                            iso_buffer *source, uint64_t source_offset, uint64_t bytes) {
  return enqueue(queue,
                 &(late_command){.kind = LATE_COPY,
                                 .target = target,
                                 .target_offset = target_offset,
                                 .source = source,
                                 .source_offset = source_offset,
                                 .bytes = bytes},
                 NULL);
}

static iso_status late_fill(iso_queue *queue, iso_buffer *target, uint64_t offset, uint64_t bytes,
                            uint8_t value) {
  return enqueue(queue,
                 &(late_command){.kind = LATE_FILL,
                                 .target = target,
                                 .target_offset = offset,
                                 .bytes = bytes,
                                 .byte = value},
                 NULL);
}

static iso_status late_launch(iso_queue *queue, const iso_op_arguments *arguments) {
  late_command command = {.kind = LATE_LAUNCH, .arguments = *arguments};
  uint32_t bytes = *(const uint32_t *)arguments->attributes;
  if (bytes > sizeof command.attributes)
    return iso_backend_fail(host, ISO_ERROR_INTERNAL, "attributes of %u bytes", bytes);
  memcpy(command.attributes, arguments->attributes, bytes);
  return enqueue(queue, &command, NULL);
}

static iso_status late_signal(iso_queue *queue, uint64_t *out_value) {
  return enqueue(queue, &(late_command){.kind = LATE_SIGNAL}, out_value);
}

static iso_status late_host_wait(iso_queue *base, uint64_t value, uint64_t timeout_us) {
  late_queue *queue = (late_queue *)base;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += (time_t)(timeout_us < 3600000000u ? timeout_us / 1000000 : 3600);
  int error = 0;
  pthread_mutex_lock(&queue->mutex);
  while (queue->reached < value && queue->fault == ISO_OK && error == 0 && timeout_us > 0)
    error = pthread_cond_timedwait(&queue->changed, &queue->mutex, &until);
  iso_status fault = queue->fault;
  bool is_reached = queue->reached >= value;
  pthread_mutex_unlock(&queue->mutex);
  if (fault != ISO_OK)
    return iso_backend_fail(host, ISO_ERROR_DEVICE, "%s", queue->message);
  return is_reached ? ISO_OK : iso_backend_fail(host, ISO_ERROR_LIMIT, "the device is at work");
}

static const iso_queue_table late_queue_table = {.size = sizeof late_queue_table,
                                                 .create = late_create,
                                                 .destroy = late_destroy,
                                                 .copy = late_copy,
                                                 .fill = late_fill,
                                                 .signal = late_signal,
                                                 .host_wait = late_host_wait};

ISO_BACKEND_EXPORT const iso_backend *iso_backend_query(uint32_t host_abi, const iso_host *given);

const iso_backend *iso_backend_query(uint32_t host_abi, const iso_host *given) {
  static iso_kernel late_kernels[sizeof kernels / sizeof kernels[0]];
  static iso_backend late;
  const iso_backend *plain = iso_host_backend_query(host_abi, given);
  if (!plain)
    return NULL;
  memcpy(late_kernels, kernels, sizeof kernels);
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
    late_kernels[i].launch = late_launch;
  late = *plain;
  late.queue = &late_queue_table;
  late.kernels = late_kernels;
  return &late;
}
