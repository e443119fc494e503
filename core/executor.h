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

/* An operand that is one value where the symbol is bound to rows, and another where it is 0. */
typedef struct executor_choice {
  iso_tensor *tensor;
  iso_symbol symbol;
  uint64_t offset, otherwise;
} executor_choice;

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

/* Steps that may be under way at a time. */
enum { EXECUTOR_FLIGHTS = 2 };

/* What the executor holds on one device. */
typedef struct executor_device {
  iso_open_device *open;
  iso_buffer *arena;
  uint8_t *arena_address; /* NULL where memory cannot be mapped */
  iso_buffer *input;
  /* Where memory cannot be mapped: one, or one a step under way. */
  iso_buffer *input_staging[EXECUTOR_FLIGHTS];
  uint8_t *input_address[EXECUTOR_FLIGHTS]; /* of `input` itself, or of its staging buffers */
  uint64_t needed_bytes;                    /* what this executor allocates on the device */
  uint64_t spare_bytes; /* free beyond that, for weights that could not be used in place */
} executor_device;

/* An output that every step copies to host memory, since it is small and somebody will read it. */
typedef struct executor_copied_output {
  iso_value value;
  uint32_t device;
  uint64_t offset; /* in the arena */
  uint64_t bytes;  /* at the bound */
  iso_buffer *staging[EXECUTOR_FLIGHTS];
  void *address[EXECUTOR_FLIGHTS];
} executor_copied_output;

enum { EXECUTOR_COPIED_OUTPUTS = 4, EXECUTOR_COPIED_BYTES = 4096 };

/* Rows that a step brings to host memory since somebody asked for them. */
typedef struct executor_kept {
  iso_buffer *staging; /* grows as needed */
  void *address;
  uint64_t capacity;
  uint32_t device;
} executor_kept;

/* Steps with more feeds than this are not recorded. */
enum { EXECUTOR_RECORDED_FEEDS = 2 };

/* All that the work of a step depends on; compared byte by byte. */
typedef struct executor_work {
  iso_bindings sizes;
  uint64_t flight, n_feeds;
  iso_executor_feed feeds[EXECUTOR_RECORDED_FEEDS];
} executor_work;

/* A step as the device's queue recorded it. */
typedef struct executor_recording {
  executor_work work;
  void *recording;   /* NULL: this work has been done once */
  uint64_t last_use; /* 0: the entry is free */
  bool is_refused;   /* this work runs, but not while it is recorded */
} executor_recording;

enum { EXECUTOR_RECORDINGS = 32 };

/* Steps under way, each in a place ("flight") of its own; from `first` on. A step alone has
 * place 0, so that steps that do not overlap repeat the same work. */
typedef struct executor_flights {
  uint32_t first, count;
  uint64_t values[EXECUTOR_FLIGHTS]; /* that the queue's timeline reaches when they are done */
  double start_us[EXECUTOR_FLIGHTS], end_us; /* the latter of the latest that is done */
} executor_flights;

struct iso_executor {
  const iso_plan *plan;
  executor_device devices[ISO_MAX_DEVICES];
  executor_weight **weights; /* as the plan's; entries NULL until loaded */
  iso_buffer **states;
  executor_step *steps;
  /* Those that do something at the sizes in force: passing over one that does not takes a
   * microsecond, as it is far from the last in memory. */
  executor_step **active;
  uint32_t n_active;
  executor_patch *patches;
  uint32_t n_patches;
  executor_choice *choices;
  uint32_t n_choices;
  uint8_t *input_block;  /* where the host writes inputs: one of the input_addresses, or owned */
  uint8_t *owned_inputs; /* when steps overlap, or no device reads any */
  uint8_t *bounce;       /* host memory for copies between devices that cannot be mapped */
  iso_bindings sizes;    /* in force, when `is_sized` */
  uint64_t used_input_bytes;
  bool is_sized;
  iso_open_device *overlapping; /* where two steps may be under way; NULL: one at a time */
  executor_flights flights;
  uint32_t shown;     /* flight of the step waited for last */
  executor_work work; /* of the step being submitted; with more feeds than it holds, in `feeds` */
  const iso_executor_feed *feeds;
  executor_copied_output copied[EXECUTOR_COPIED_OUTPUTS];
  uint32_t n_copied;
  executor_kept kept[EXECUTOR_FLIGHTS];
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

/* Whether two devices of the plan allocate from one memory: those that are CPUs do. */
bool iso_executor_share_memory(const iso_executor *executor, uint32_t a, uint32_t b);

/* Waits until every device has done its work, also after a failure. Returns `status` if that is
 * one, its sentence kept, else the first failure of waiting. */
iso_status iso_executor_drain(iso_executor *executor, iso_status status);

/* Has the step submitted last, not yet waited for, also bring these rows of an output to host
 * memory, in this order, where they stay until a further step is submitted in its place: two later
 * where steps overlap. The output lies in device memory and is no view. */
ISO_MUST_CHECK iso_status iso_executor_keep_rows(iso_executor *executor, iso_value value,
                                                 const int32_t *rows, uint32_t n_rows);
/* What the step waited for last brought; anything where it was asked for nothing. */
const void *iso_executor_kept_rows(const iso_executor *executor);

/* The device that runs every step of the plan and alone reads inputs; or -1. */
int32_t iso_executor_only_device(const iso_plan *plan);

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
