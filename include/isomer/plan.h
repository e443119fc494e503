/* Planning: graph + devices in, an inert list of steps out. No device is touched: planning asks
 * kernel records only, so it runs on fake devices in tests. */
#ifndef ISOMER_PLAN_H
#define ISOMER_PLAN_H

#include <isomer/device.h>
#include <isomer/graph.h>

ISO_BEGIN_DECLS

#define ISO_MAX_DEVICES 16

/* What planning knows of a device. */
typedef struct iso_plan_device {
  const char *name; /* "cpu", "cuda:0" */
  const iso_kernel *kernels;
  uint32_t kernel_count;
  const iso_device *device; /* handed to check(); NULL for fakes whose checks ignore it */
  uint32_t alignment_bytes;
  /* Steps for which scratch memory is left alone after its last use, so that the device may run
   * neighbouring steps as one. 0: none. */
  uint32_t reuse_delay;
} iso_plan_device;

typedef struct iso_plan_options {
  uint32_t n_devices;
  const iso_plan_device *devices;
  /* Layers [split[i - 1], split[i]) go to device i (split[-1] is 0); n_devices - 1 entries. Nodes
   * before the first layer go with it, nodes after the last with the last device. */
  const int32_t *split;
  /* Where nodes run that their device refuses; an index into devices, or -1: such a node is an
   * error that carries the reason. */
  int32_t fallback;
  /* Values whose contents must survive the step besides outputs: `isomer verify` keeps all. */
  bool keep_all;
} iso_plan_options;

typedef enum iso_storage_kind {
  ISO_STORAGE_ARENA,  /* scratch of a device, reused within a step */
  ISO_STORAGE_INPUT,  /* the block of host-written inputs, one upload a device and step */
  ISO_STORAGE_WEIGHT, /* its own buffer, index into iso_plan.weights */
  ISO_STORAGE_STATE,  /* its own buffer, index into iso_plan.states */
  ISO_STORAGE_ABSENT
} iso_storage_kind;

/* Where an operand of a step lies. */
typedef struct iso_plan_operand {
  iso_value value; /* ISO_NO_VALUE when absent */
  iso_storage_kind storage;
  uint32_t index;  /* weight or state */
  uint64_t offset; /* bytes in the storage */
} iso_plan_operand;

typedef enum iso_step_kind {
  ISO_STEP_LAUNCH,
  ISO_STEP_COPY /* a value from one device to another */
} iso_step_kind;

/* Most records of one layout kept as candidates for a node. */
#define ISO_MAX_CANDIDATES 8

typedef struct iso_plan_step {
  iso_step_kind kind;
  uint32_t device; /* COPY: the target */
  int32_t node;    /* LAUNCH */
  uint32_t n_candidates;
  const iso_kernel *candidates[ISO_MAX_CANDIDATES]; /* highest rank first */
  uint64_t workspace_offset, workspace_bytes;       /* in the device's arena */
  iso_plan_operand inputs[ISO_MAX_INPUTS];
  iso_plan_operand outputs[ISO_MAX_OUTPUTS];
  /* LAUNCH: of inputs that may be another value (see iso_graph_otherwise()), that one's offset. */
  uint64_t otherwise_offsets[ISO_MAX_INPUTS];
  uint32_t source_device; /* COPY */
  uint64_t copy_bytes;    /* COPY: at the bound */
} iso_plan_step;

typedef struct iso_plan_weight {
  iso_value value;
  uint32_t device;
  uint32_t layout;
  const iso_kernel *packer; /* record whose pack() makes the layout; NULL when plain */
} iso_plan_weight;

typedef struct iso_plan_state {
  iso_value value;
  uint32_t device;
} iso_plan_state;

/* A node that its own device refused. */
typedef struct iso_plan_fallback {
  int32_t node;
  uint32_t wanted, used;
  iso_refusal refusal;
  char reason[160]; /* "cuda:0 has no kernel for argmax" */
} iso_plan_fallback;

typedef struct iso_plan {
  const iso_graph *graph; /* must outlive the plan */
  uint32_t n_devices;
  char device_names[ISO_MAX_DEVICES][80];
  uint64_t arena_bytes[ISO_MAX_DEVICES];
  uint64_t input_bytes; /* of the input block; the same offsets on every device that reads it */
  bool reads_inputs[ISO_MAX_DEVICES];
  uint32_t n_steps, n_weights, n_states, n_fallbacks;
  iso_plan_step *steps;
  iso_plan_weight *weights;
  iso_plan_state *states;
  iso_plan_fallback *fallbacks;
  uint64_t copy_bytes_total; /* across all COPY steps, at the bound */
  /* Where the host finds each value after a step: device and operand, indexed by value. Device -1:
   * nowhere, or for ISO_STORAGE_INPUT in the input block. Temporaries that are neither outputs nor
   * kept are nowhere, as their place is used again; nor are views of either of two values. */
  int32_t *value_device;
  iso_plan_operand *value_operand;
} iso_plan;

/* UNSUPPORTED names the node that no device takes and why. Equal arguments give equal plans. The
 * plan points into the devices' kernel arrays, which must outlive it. */
ISO_MUST_CHECK ISO_API iso_status iso_plan_create(const iso_graph *graph,
                                                  const iso_plan_options *options,
                                                  iso_plan **out_plan);
ISO_API void iso_plan_destroy(iso_plan *plan);
/* The plan as text, one line a step, then weights, memory and fallbacks. Caller frees. */
ISO_MUST_CHECK ISO_API iso_status iso_plan_print(const iso_plan *plan, char **out_text);

/* Asks one device about one op at given sizes: the accepting record of highest rank, or NULL
 * with the refusal of the record that came closest. `layout` ISO_LAYOUT_ANY takes any. */
#define ISO_LAYOUT_ANY 0xffffffffu
ISO_API const iso_kernel *iso_kernel_select(const iso_plan_device *device,
                                            const iso_op_arguments *arguments, uint32_t layout,
                                            iso_refusal *out_refusal, char *out_reason,
                                            size_t reason_capacity);

/* ---- Execution --------------------------------------------------------------------------- */

typedef struct iso_executor iso_executor;

/* Gives an executor a weight's bytes: plain rows in host memory that stay valid until the
 * executor has been created (and as long as it lives when `*out_stays` is set true, which lets a
 * device use them in place). Called once a weight. */
typedef struct iso_weight_provider {
  void *context;
  iso_status (*get)(void *context, const char *name, iso_host_weight *out_weight, bool *out_stays);
  /* The executor is done reading this weight's bytes; NULL when nobody cares. */
  void (*done)(void *context, const char *name);
  /* Bytes placed so far, of all; NULL for none. */
  void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
} iso_weight_provider;

/* Allocates arenas, states and weights, and packs. States hold anything until they are written: a
 * large KV cache takes no time and, on a CPU, no memory before its pages are used. The plan, its
 * graph and the devices must outlive the executor. Weights already loaded by `share` (may be NULL),
 * an executor of the same graph names and devices, are used again instead of being loaded. */
ISO_MUST_CHECK ISO_API iso_status iso_executor_create(const iso_plan *plan,
                                                      iso_open_device *const *devices,
                                                      const iso_weight_provider *weights,
                                                      iso_executor *share,
                                                      iso_executor **out_executor);
ISO_API void iso_executor_destroy(iso_executor *executor);

/* Host memory of an input, sized at its bound; write it before a run. It may be written again once
 * the step is submitted. */
ISO_API void *iso_executor_input(iso_executor *executor, iso_value input);
/* Runs one step at these sizes and waits for it. One thread at a time. */
ISO_MUST_CHECK ISO_API iso_status iso_executor_run(iso_executor *executor,
                                                   const iso_bindings *bindings);

/* Bytes that an input takes on the device from an output of the step submitted before, in place of
 * what the host wrote there. */
typedef struct iso_executor_feed {
  iso_value source, target;
  uint64_t source_offset, target_offset, bytes;
} iso_executor_feed;

/* Whether a step may be submitted while another is under way: one device does everything, and the
 * host writes inputs and reads outputs in memory of its own. */
ISO_API bool iso_executor_overlaps(const iso_executor *executor);
/* iso_executor_run() in two parts. Where steps overlap two may be under way, waited for in the
 * order in which they were submitted; elsewhere one. `feeds` need a step submitted before this one.
 * Failures end every step under way. */
ISO_MUST_CHECK ISO_API iso_status iso_executor_submit(iso_executor *executor,
                                                      const iso_bindings *bindings,
                                                      const iso_executor_feed *feeds,
                                                      uint32_t n_feeds);
/* Whether the step submitted first of those under way is done, so that waiting takes no time; true
 * when none is. */
ISO_API bool iso_executor_is_done(iso_executor *executor);
/* Waits for the step submitted first of those under way. Of its outputs only those that
 * iso_executor_peek() gives are there while another is under way. */
ISO_MUST_CHECK ISO_API iso_status iso_executor_wait(iso_executor *executor);
/* Copies the first `bytes` bytes of an output or kept value to the host. */
ISO_MUST_CHECK ISO_API iso_status iso_executor_read(iso_executor *executor, iso_value value,
                                                    void *target, uint64_t bytes);
/* Host pointer to an output where its device's memory is mappable, or where it is integers of at
 * most 4,096 bytes, which come along with the step; NULL elsewhere. Of the step waited for last;
 * valid until the next wait. */
ISO_API const void *iso_executor_peek(iso_executor *executor, iso_value value);

/* Called after each step of a run that did something, with all work done; for traces. NULL stops.
 */
typedef void (*iso_executor_observer)(void *context, const iso_plan_step *step,
                                      const iso_kernel *kernel, double microseconds);
ISO_API void iso_executor_observe(iso_executor *executor, iso_executor_observer observer,
                                  void *context);

/* Fills all states with bytes of this value: zero where whole states are compared, 0xFF, which is no
 * number in any type of them, where it must show that somebody reads what nobody wrote. */
ISO_MUST_CHECK ISO_API iso_status iso_executor_fill_states(iso_executor *executor, uint8_t byte);
/* Buffer and device of a state, for engines that move or clear pages. */
ISO_API iso_buffer *iso_executor_state(iso_executor *executor, iso_value state,
                                       uint32_t *out_device);

typedef struct iso_executor_stats {
  uint64_t weight_bytes, state_bytes, arena_bytes; /* over all devices */
  uint64_t imported_bytes;                         /* weights used in place */
  uint64_t runs;
  double kernel_us, total_us; /* sums; kernel_us only while observed */
} iso_executor_stats;
ISO_API void iso_executor_get_stats(const iso_executor *executor, iso_executor_stats *out_stats);

ISO_END_DECLS
#endif
