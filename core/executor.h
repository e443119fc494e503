/* The executor's parts: memory (executor.c), weights (executor_weights.c), one step of the model
 * (executor_run.c), steps that are replayed (executor_record.c). */
#ifndef ISOMER_CORE_EXECUTOR_H
#define ISOMER_CORE_EXECUTOR_H

#include <isomer/plan.h>
#include <stdatomic.h>

/* A weight on a device; executors of one model share it. */
typedef struct executor_weight {
  atomic_uint references;
  iso_open_device *device;
  iso_buffer *buffer;
  uint64_t bytes;
  bool imported;
} executor_weight;

/* A dimension that is set when the sizes of a step change. */
typedef struct executor_patch {
  int64_t *dim;
  iso_symbol symbol;
} executor_patch;

/* A step of the plan with everything looked up. */
typedef struct executor_step {
  const iso_plan_step *plan;
  const iso_kernel *kernel; /* LAUNCH: chosen for the sizes in force; NULL: nothing to do */
  iso_op_arguments arguments;
  bool depends_on_sizes;
  uint64_t copy_unit; /* COPY: bytes a row of `copy_symbol`, or in all when that is NONE */
  iso_symbol copy_symbol;
  uint64_t copy_bytes; /* COPY: at the sizes in force */
} executor_step;

/* What the executor holds on one device. */
typedef struct executor_device {
  iso_open_device *open;
  iso_buffer *arena;
  uint8_t *arena_address; /* NULL where memory cannot be mapped */
  iso_buffer *input;
  iso_buffer *input_staging; /* where memory cannot be mapped */
  uint8_t *input_address;    /* of `input` itself, or of its staging buffer */
  uint64_t needed_bytes;     /* what this executor allocates on the device */
  uint64_t spare_bytes;      /* free beyond that, for weights that could not be used in place */
} executor_device;

/* An output that every step copies to host memory, since it is small and somebody will read it. */
typedef struct executor_copied_output {
  iso_value value;
  uint32_t device;
  uint64_t offset; /* in the arena */
  uint64_t bytes;  /* at the bound */
  iso_buffer *staging;
  void *address;
} executor_copied_output;

enum { EXECUTOR_COPIED_OUTPUTS = 4, EXECUTOR_COPIED_BYTES = 4096 };

/* A step at certain sizes, as the device's queue recorded it. */
typedef struct executor_recording {
  iso_bindings sizes;
  void *recording;   /* NULL: these sizes have run once */
  uint64_t last_use; /* 0: the entry is free */
} executor_recording;

enum { EXECUTOR_RECORDINGS = 32 };

struct iso_executor {
  const iso_plan *plan;
  executor_device devices[ISO_MAX_DEVICES];
  executor_weight **weights; /* as the plan's; entries NULL until loaded */
  iso_buffer **states;
  executor_step *steps;
  executor_patch *patches;
  uint32_t n_patches;
  uint8_t *input_block;  /* where the host writes inputs: one of the input_addresses, or owned */
  uint8_t *owned_inputs; /* when no device reads any */
  uint8_t *bounce;       /* host memory for copies between devices that cannot be mapped */
  iso_bindings sizes;    /* in force, when `is_sized` */
  uint64_t used_input_bytes;
  bool is_sized;
  executor_copied_output copied[EXECUTOR_COPIED_OUTPUTS];
  uint32_t n_copied;
  iso_open_device *recorder; /* the device that records steps; NULL: none */
  executor_recording recordings[EXECUTOR_RECORDINGS];
  uint64_t recording_clock;
  iso_executor_observer observer;
  void *observer_context;
  iso_executor_stats stats;
};

/* Bytes of weights that the executor must allocate on each device (added to needed_bytes): not
 * those that `share` has loaded, nor those that may be used in place. */
ISO_MUST_CHECK iso_status iso_executor_measure_weights(iso_executor *executor,
                                                       const iso_executor *share);
ISO_MUST_CHECK iso_status iso_executor_load_weights(iso_executor *executor,
                                                    const iso_weight_provider *provider,
                                                    const iso_executor *share);
void iso_executor_release_weights(iso_executor *executor);

/* Allocates on a device; errors name `what`. Nothing is smaller than a byte. */
ISO_MUST_CHECK iso_status iso_executor_alloc(iso_open_device *device, iso_memory_kind kind,
                                             uint64_t bytes, const char *what,
                                             iso_buffer **out_buffer);

/* Waits until every device has done its work, also after a failure. Returns `status` if that is
 * one, its sentence kept, else the first failure of waiting. */
iso_status iso_executor_drain(iso_executor *executor, iso_status status);

/* Copies the sentence of the latest failure, which cleaning up may replace. */
void iso_executor_keep_message(char *out_message, size_t capacity);

/* The device whose queue may record whole steps of this executor, which has its memory; or NULL. */
iso_open_device *iso_executor_find_recorder(const iso_executor *executor);
/* Runs the steps at the sizes in force, or replays a recording of them; returns before the work is
 * done. `run_steps` enqueues every step. */
typedef iso_status (*executor_steps_function)(iso_executor *executor);
ISO_MUST_CHECK iso_status iso_executor_run_recorded(iso_executor *executor,
                                                    executor_steps_function run_steps);
void iso_executor_release_recordings(iso_executor *executor);

/* Fills in steps and patches, after all memory is there. */
ISO_MUST_CHECK iso_status iso_executor_prepare(iso_executor *executor);

#endif
