/* The vendor ABI: what a backend gives to Isomer.
 *
 * A backend is one shared library (or a linked-in object) with one entry, iso_backend_query().
 * It fills five narrow tables: driver, device, memory, queue and an array of kernel records.
 *
 * Rules of the ABI
 *  - Every struct that crosses it starts with `uint32_t size`, its sizeof as the writer knew it.
 *    A reader takes the smaller size and reads the rest as zero. Fields are only ever appended.
 *  - Arrays of structs carry a stride, so that an older reader can step over newer records.
 *  - A slot marked "optional" may be NULL; the core installs a shared default, so no caller ever
 *    tests a slot. Every other slot is required, and a table without it is refused at load.
 *  - Storage is a handle plus a byte offset, never a pointer: some devices have none to give.
 *    Offsets and sizes are 64 bits wide, and single allocations above 4 GiB must work or be
 *    refused with ISO_ERROR_OUT_OF_MEMORY.
 *  - Failures return a status; its sentence is set with host->fail() (iso_backend_fail()) by the
 *    thread that returns it. ISO_OK brings what was asked for. A backend never aborts, exits or
 *    prints.
 *  - Functions may be called from any thread, but the caller never uses one queue, or one buffer
 *    for writing, from two threads at a time.
 *
 * ABI_MAJOR changes when an old backend can no longer run; ABI_MINOR when something is appended.
 * A host loads every backend of its own major version, older or newer. */
#ifndef ISOMER_BACKEND_H
#define ISOMER_BACKEND_H

#include <isomer/ops.h>

ISO_BEGIN_DECLS

#define ISO_ABI_MAJOR 1u
#define ISO_ABI_MINOR 0u
#define ISO_ABI_VERSION ((ISO_ABI_MAJOR << 16) | ISO_ABI_MINOR)

/* Objects of the backend's own making; Isomer only carries the pointers. */
typedef struct iso_device iso_device;
typedef struct iso_buffer iso_buffer;
typedef struct iso_queue iso_queue;

/* ---- What the host offers ------------------------------------------------------------- */

typedef enum iso_log_level {
  ISO_LOG_ERROR = 0,
  ISO_LOG_WARNING = 1,
  ISO_LOG_NOTICE = 2, /* what a user should know once: the tier chosen, a feature refused */
  ISO_LOG_DEBUG = 3
} iso_log_level;

typedef struct iso_host {
  uint32_t size;
  uint32_t abi; /* ISO_ABI_VERSION of the host */
  /* Stores the sentence of a failure for this thread and returns `code`. */
  iso_status (*fail)(iso_status code, const char *file, int line, const char *format, ...)
      ISO_PRINTF(4, 5);
  void (*log)(iso_log_level level, const char *format, ...) ISO_PRINTF(2, 3);
} iso_host;

/* For a backend that keeps `static const iso_host *host`. */
#define iso_backend_fail(host, code, ...) ((host)->fail((code), __FILE__, __LINE__, __VA_ARGS__))

/* ---- Device facts ---------------------------------------------------------------------- */

typedef enum iso_device_kind {
  ISO_DEVICE_CPU = 0,
  ISO_DEVICE_GPU = 1,
  ISO_DEVICE_ACCELERATOR = 2
} iso_device_kind;

/* Feature bits of a device. */
enum {
  ISO_FEATURE_HOST_MEMORY = 1u << 0, /* device memory can be mapped at no cost (CPU, unified) */
  ISO_FEATURE_FP16 = 1u << 1,
  ISO_FEATURE_BF16 = 1u << 2,
  ISO_FEATURE_INT8_DOT = 1u << 3,
  ISO_FEATURE_MATRIX_UNIT = 1u << 4,
  ISO_FEATURE_FP8 = 1u << 5,
  ISO_FEATURE_SOFTWARE = 1u << 6, /* a processor stands in for the device: it is opened only when
                                     its index is given, as in vulkan:0 */
  ISO_FEATURE_PEER_COPY = 1u << 7 /* copy() reads buffers of the backend's other devices; without
                                     it the core copies between them through the host */
};

typedef struct iso_device_info {
  uint32_t size;
  iso_device_kind kind;
  char name[128];         /* "Intel Xeon ... (AMX)", "NVIDIA H200" */
  char id[64];            /* stable across runs: UUID, PCI address or "cpu" */
  char detail[128];       /* driver version, tier chosen and why */
  uint64_t memory_bytes;  /* total memory of the device */
  uint64_t largest_allocation_bytes;
  uint32_t alignment_bytes; /* of every buffer offset a kernel is given; a power of two, at most
                               2^20 */
  uint32_t subgroup_width;  /* lanes that run in step; 1 for CPUs */
  uint32_t n_units;         /* threads, multiprocessors, compute units */
  uint32_t features;        /* ISO_FEATURE_ bits */
  float copy_bytes_per_us;  /* rough speed of host to device copies, for placement costs */
} iso_device_info;

typedef struct iso_device_options {
  uint32_t size;
  uint32_t n_threads; /* CPU backends: 0 means one a physical core */
  /* CPU backends: CPUs to run on, as "0-3,8", a thread each (n_threads 0 means all of them); NULL:
   * where the system puts them. The calling thread and those it starts are kept to the list. */
  const char *cpu_affinity;
} iso_device_options;

/* ---- Arguments of one op ---------------------------------------------------------------- */

/* Layout 0 is rows in order, dims outermost first. Others are private to the backend whose
 * kernel packed the weight. */
#define ISO_LAYOUT_PLAIN 0u

/* An operand. `buffer` is NULL while a kernel is only asked whether it would run, and for an
 * absent optional operand, which also has n_dims 0. */
typedef struct iso_tensor {
  iso_buffer *buffer;
  uint64_t offset; /* bytes from the start of the buffer */
  iso_scheme scheme;
  uint32_t layout;
  uint32_t n_dims;
  int64_t dims[ISO_MAX_DIMS];
  /* Bytes between neighbours along each dimension. The last one is the element (plain schemes)
   * or block size: rows are contiguous. Meaningless in packed layouts. */
  int64_t strides[ISO_MAX_DIMS];
} iso_tensor;

typedef struct iso_op_arguments {
  uint32_t size;
  iso_op op;
  uint32_t n_inputs, n_outputs;
  iso_tensor inputs[ISO_MAX_INPUTS];
  iso_tensor outputs[ISO_MAX_OUTPUTS];
  const void *attributes; /* iso_<op>_attributes, never NULL */
  iso_buffer *workspace;  /* scratch of at least workspace() bytes, contents undefined */
  uint64_t workspace_offset;
  uint64_t workspace_bytes;
} iso_op_arguments;

/* ---- Kernel records ----------------------------------------------------------------------- */

/* Why a kernel will not run. Codes are for machines, the sentence for people. */
typedef enum iso_refusal {
  ISO_ACCEPTED = 0,
  ISO_REFUSED_NO_KERNEL = 1,  /* the device has no record for this op */
  ISO_REFUSED_SCHEME = 2,     /* weight or cache scheme */
  ISO_REFUSED_ACTIVATION = 3, /* scheme of the activations */
  ISO_REFUSED_LAYOUT = 4,
  ISO_REFUSED_SHAPE = 5, /* sizes, alignment or divisibility */
  ISO_REFUSED_STRIDE = 6,
  ISO_REFUSED_ATTRIBUTE = 7,
  ISO_REFUSED_DEVICE = 8, /* a feature this device lacks */
  ISO_REFUSED_SIZE = 9,   /* beyond a limit of the device */
  ISO_REFUSAL_COUNT = 10
} iso_refusal;

/* A weight as it lies in host memory, dense rows, dims outermost first. */
typedef struct iso_host_weight {
  uint32_t size;
  iso_scheme scheme;
  uint32_t n_dims;
  int64_t dims[ISO_MAX_DIMS];
  const void *data; /* unaligned, valid until pack() has returned */
  uint64_t bytes;
} iso_host_weight;

/* One way to run one op. Support is derived from these records: there is no other switch.
 *
 * `schemes` speaks of the op's WEIGHT operand, or of its KV operands where it has no weight; it
 * is ignored for other ops. `activations` speaks of all ACTIVATION operands. The core checks
 * both masks and `layout` before it calls check().
 *
 * The core chooses, for each op and device, the layout of the accepting record of highest rank
 * at the planned bound, packs the weight once in that layout, and keeps every record of that
 * layout as a candidate. At each launch the candidate of highest rank whose check() accepts the
 * actual sizes runs; so a record may be made for small or for large batches only, as long as
 * some record of the same layout takes the rest. */
typedef struct iso_kernel {
  uint32_t size;
  iso_op op;
  const char *name; /* "matmul.q4_0.avx512": op, scheme, tier */
  iso_scheme_mask schemes;
  iso_scheme_mask activations;
  uint32_t layout; /* of the weight: PLAIN, or any other number that a record of this op packs */
  int32_t rank; /* higher is preferred */
  /* Optional (accepts all that the masks let through). May only look at schemes, dims, strides
   * and attributes. A refusal may set a static sentence. Pure and thread safe. */
  iso_refusal (*check)(const iso_device *device, const iso_op_arguments *arguments,
                       const char **out_detail);
  /* Optional (0). Bytes of scratch at these sizes. Asked once, at the planned bound, even where
   * check() takes only smaller sizes: the answer must do for every size below. */
  uint64_t (*workspace)(const iso_device *device, const iso_op_arguments *arguments);
  /* For records with a layout of their own: size of a weight in it, and the packing itself.
   * packed_bytes() may be asked before the bytes are there, with `data` NULL.
   * pack() may run its own threads and may return before the device is done. */
  iso_status (*packed_bytes)(const iso_device *device, const iso_host_weight *weight,
                             uint64_t *out_bytes);
  iso_status (*pack)(iso_queue *queue, const iso_host_weight *weight, iso_buffer *buffer,
                     uint64_t offset);
  /* Enqueues the op. Sizes may be zero in any symbolic dimension: then nothing is written.
   * `arguments` and its attributes are read before launch() returns: a queue that does the work
   * later keeps a copy. The buffers stay until the queue has been waited for. */
  iso_status (*launch)(iso_queue *queue, const iso_op_arguments *arguments);
} iso_kernel;

/* ---- The five tables ---------------------------------------------------------------------- */

typedef struct iso_driver_table {
  uint32_t size;
  /* Counts devices and describes up to `capacity` of them. A driver or library that is missing
   * is ISO_OK with zero devices and a sentence in `out_reason` (capacity 256, may be "").
   * `out_infos` (NULL when capacity is 0) has room for 4,096 bytes an entry; the entries lie as
   * far apart as the backend's iso_device_info is large, which the first one's `size` tells. */
  iso_status (*enumerate)(uint32_t capacity, iso_device_info *out_infos, uint32_t *out_count,
                          char *out_reason);
  iso_status (*open)(uint32_t index, const iso_device_options *options, iso_device **out_device);
} iso_driver_table;

typedef struct iso_device_table {
  uint32_t size;
  iso_status (*info)(const iso_device *device, iso_device_info *out_info);
  void (*close)(iso_device *device); /* after its queues and buffers are gone */
} iso_device_table;

typedef enum iso_memory_kind {
  ISO_MEMORY_DEVICE = 0, /* fast for kernels */
  ISO_MEMORY_STAGING = 1 /* mappable, fast for copies to and from the device */
} iso_memory_kind;

typedef struct iso_memory_table {
  uint32_t size;
  /* A buffer of at least `bytes` (> 0). Out of memory names what was asked and what is free. */
  iso_status (*alloc)(iso_device *device, iso_memory_kind kind, uint64_t bytes,
                      iso_buffer **out_buffer);
  void (*free)(iso_device *device, iso_buffer *buffer);
  /* The host address of a buffer's byte 0, for STAGING buffers, and for DEVICE buffers where
   * ISO_FEATURE_HOST_MEMORY is set: a multiple of the device's alignment_bytes, never NULL. Stays
   * valid until free(). Required. */
  iso_status (*map)(iso_device *device, iso_buffer *buffer, void **out_address);
  /* Optional. Makes a buffer of memory the caller owns and keeps alive and unchanged; kernels
   * only read it. Default: unsupported, and the core copies instead. */
  iso_status (*import)(iso_device *device, const void *address, uint64_t bytes,
                       iso_buffer **out_buffer);
  /* Optional. Memory free now. Default: memory_bytes of the device. */
  iso_status (*bytes_free)(iso_device *device, uint64_t *out_bytes);
} iso_memory_table;

typedef struct iso_queue_table {
  uint32_t size;
  iso_status (*create)(iso_device *device, iso_queue **out_queue);
  void (*destroy)(iso_queue *queue);
  /* Work runs in the order it was enqueued. Regions of one copy do not overlap. The source may be
   * of another device of the same backend, whose queue the core has made this one wait for, where
   * the queue's device has ISO_FEATURE_PEER_COPY. */
  iso_status (*copy)(iso_queue *queue, iso_buffer *target, uint64_t target_offset,
                     iso_buffer *source, uint64_t source_offset, uint64_t bytes);
  iso_status (*fill)(iso_queue *queue, iso_buffer *target, uint64_t offset, uint64_t bytes,
                     uint8_t value);
  /* A queue's timeline is a counter that starts at 0. signal() enqueues raising it to the next
   * value and returns that value; host_wait() blocks until the value is reached. A fault of the
   * device poisons the timeline: every later host_wait() returns it, naming the op.
   * `timeout_us` UINT64_MAX waits for ever; a time-out is ISO_ERROR_LIMIT.
   * Both optional together: a queue without them is synchronous. */
  iso_status (*signal)(iso_queue *queue, uint64_t *out_value);
  iso_status (*host_wait)(iso_queue *queue, uint64_t value, uint64_t timeout_us);
  /* Optional. Enqueues a wait for another queue of the same backend. Default: host_wait. */
  iso_status (*wait)(iso_queue *queue, iso_queue *other, uint64_t value);
  /* Optional, all four together. Between begin and end, work is kept and not run; the recording can
   * be replayed while its buffers live. Default: the core walks the plan each time. */
  iso_status (*record_begin)(iso_queue *queue);
  iso_status (*record_end)(iso_queue *queue, void **out_recording);
  iso_status (*replay)(iso_queue *queue, void *recording);
  void (*recording_destroy)(iso_queue *queue, void *recording);
} iso_queue_table;

typedef struct iso_backend {
  uint32_t size;
  uint32_t abi;     /* ISO_ABI_VERSION the backend was built with */
  const char *name; /* "cpu", "cuda", "acme": the word before ':' in --device, 1 to 31 of a-z,
                       0-9 and _ */
  const iso_driver_table *driver;
  const iso_device_table *device;
  const iso_memory_table *memory;
  const iso_queue_table *queue;
  const iso_kernel *kernels;
  uint32_t kernel_count;
  uint32_t kernel_stride; /* sizeof(iso_kernel) as the backend knew it */
  /* Optional extensions by name and version ("isomer.collectives.1"); NULL when absent. */
  const void *(*query_extension)(const char *name);
} iso_backend;

/* The entry of a backend library. `host` outlives the backend. Returns NULL, with the sentence
 * set through host->fail(), when it cannot serve this host. May be called again, always with the
 * same host, while devices of the backend are open and at work, but by one thread at a time: what
 * it returns is copied before the next call, and what devices use it must leave as it is. */
typedef const iso_backend *(*iso_backend_query_function)(uint32_t host_abi, const iso_host *host);
#define ISO_BACKEND_ENTRY "iso_backend_query"
#if defined(__GNUC__)
#define ISO_BACKEND_EXPORT __attribute__((visibility("default")))
#else
#define ISO_BACKEND_EXPORT
#endif

ISO_END_DECLS
#endif
