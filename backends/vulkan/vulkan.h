/* Inside of the Vulkan backend: what its files share.
 *
 * Kernels see memory as 64-bit addresses in push constants (bufferDeviceAddress): there are no
 * descriptors, and no limit on the size of a binding. Host code is C11 and needs headers only:
 * the loader is opened at run time. */
#ifndef ISOMER_VULKAN_H
#define ISOMER_VULKAN_H

#include <isomer/backend.h>
#include <pthread.h>
#include <stdatomic.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

/* ---- Loader ------------------------------------------------------------------------------- */

/* One instance, and the functions of the only device made from it. */
typedef struct vulkan_api {
  uint32_t version; /* of the instance */
  PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
  VkInstance instance;
#define VULKAN_GLOBAL(name) PFN_##name name;
#define VULKAN_INSTANCE(name) PFN_##name name;
#define VULKAN_DEVICE(name) PFN_##name name;
#include "backends/vulkan/functions.def"
} vulkan_api;

extern const iso_host *vulkan_host;
#define vulkan_fail(code, ...) iso_backend_fail(vulkan_host, code, __VA_ARGS__)
#define VULKAN_TRY(call, what)                                                                     \
  do {                                                                                             \
    VkResult vulkan_result_ = (call);                                                              \
    if (vulkan_result_ != VK_SUCCESS)                                                              \
      return vulkan_error(vulkan_result_, what);                                                   \
  } while (0)

/* The same of a call that makes `handle`, which is undefined after a failure. */
#define VULKAN_MAKE(handle, call, what)                                                            \
  do {                                                                                             \
    VkResult vulkan_result_ = (call);                                                              \
    if (vulkan_result_ != VK_SUCCESS) {                                                            \
      (handle) = VK_NULL_HANDLE;                                                                   \
      return vulkan_error(vulkan_result_, what);                                                   \
    }                                                                                              \
  } while (0)

enum { VULKAN_ERROR_BYTES = 64 };
/* A Vulkan error in words, and its status. */
iso_status vulkan_error_text(VkResult result, char out_text[VULKAN_ERROR_BYTES]);
/* Sets the sentence of a Vulkan error, `what` being what was tried, and returns its status. */
iso_status vulkan_error(VkResult result, const char *what);
/* Opens the loader and makes an instance. False with a reason (capacity 256) when there is none. */
bool vulkan_api_create(vulkan_api *out_api, char *out_reason);
/* UNSUPPORTED where a function is not there. */
iso_status vulkan_api_load_device(vulkan_api *api, VkDevice device);
void vulkan_api_destroy(vulkan_api *api);
bool vulkan_has_extension(const vulkan_api *api, VkPhysicalDevice physical, const char *name);

/* ---- Device ------------------------------------------------------------------------------- */

/* What was found out about a physical device that can serve. */
typedef struct vulkan_facts {
  VkPhysicalDevice physical;
  uint32_t queue_family;
  uint64_t memory_bytes; /* of the heap that kernels use */
  uint64_t largest_allocation_bytes;
  uint32_t device_type, staging_type; /* memory types of the two iso_memory_kind */
  uint32_t device_heap;
  bool host_memory; /* device memory can be mapped at no cost */
  bool has_fp16, has_dot, has_matrix,
      has_matrix2;    /* in use; the last implies has_matrix (tier.h) */
  bool has_fragments; /* vulkan_probe_fragments() */
  char tier[96];      /* in words */
  uint32_t version;   /* of Vulkan, that loader and driver share */
  bool has_budget;    /* VK_EXT_memory_budget */
  bool has_shuffle;   /* between the invocations of a subgroup */
  uint32_t subgroup_width, shared_bytes;
  uint32_t n_units;          /* that run workgroups; 0: unknown */
  uint32_t most_invocations; /* of a workgroup */
  /* Workgroups up to so many must ask for their subgroups' width; 0: none must (width.h). */
  uint32_t fixed_width_invocations;
  uint8_t cache_uuid[VK_UUID_SIZE]; /* of the driver */
  uint32_t vendor_id, device_id;
  iso_device_info info;
} vulkan_facts;

typedef struct vulkan_pipeline vulkan_pipeline;
struct vulkan_timeline;

struct iso_device {
  vulkan_api api;
  vulkan_facts facts;
  VkDevice handle;
  VkQueue queue;
  VkPipelineLayout layout; /* push constants only */
  VkPipelineCache cache;
  size_t cache_bytes;          /* of the cache as it was loaded */
  vulkan_pipeline **pipelines; /* hash chains, see pipeline.c */
  uint32_t n_pipelines;
  uint64_t used_bytes;               /* of the device heap, by this device's buffers */
  struct vulkan_timeline *timelines; /* of all queues, see timeline.h */
  /* It was given up and may still use anything: nothing of it is freed, and it is not waited for.
   */
  atomic_bool is_hung;
  pthread_mutex_t lock; /* over the VkQueue, pipelines, used_bytes and timelines */
};

struct iso_buffer {
  iso_device *device;
  VkBuffer handle;
  VkDeviceMemory memory;
  uint64_t address, bytes;
  iso_memory_kind kind;
  void *mapped; /* NULL: not host visible */
};

iso_status vulkan_enumerate(uint32_t capacity, iso_device_info *out_infos, uint32_t *out_count,
                            char *out_reason);
iso_status vulkan_open(uint32_t index, const iso_device_options *options, iso_device **out_device);
extern const iso_device_table vulkan_device_table;
extern const iso_memory_table vulkan_memory_table;
extern const iso_queue_table vulkan_queue_table;

/* ---- Pipelines ---------------------------------------------------------------------------- */

/* What every device has, or is refused for. Shaders keep a number for each subgroup of a workgroup,
 * and have room for as many as there are of 4 invocations. */
enum {
  VULKAN_LEAST_SHARED_BYTES = 32768,
  VULKAN_LEAST_INVOCATIONS = 256,
  VULKAN_LEAST_SUBGROUP = 4
};

enum { VULKAN_MAX_CONSTANTS = 16, VULKAN_PUSH_BYTES = 128 };

/* VULKAN_SHADER_<name> of every line of shaders.def. */
typedef enum vulkan_shader {
#define VULKAN_SHADER(name, file, defines) VULKAN_SHADER_##name,
#include "backends/vulkan/shaders.def"
  VULKAN_SHADER_COUNT
} vulkan_shader;

/* The pipeline of a shader with these specialization constants (ids 0, 1, ...; id 0 is the
 * workgroup's size), made when first asked for. */
iso_status vulkan_pipeline_get(iso_device *device, vulkan_shader shader, const uint32_t *constants,
                               uint32_t n_constants, VkPipeline *out_pipeline);
const char *vulkan_shader_name(vulkan_shader shader);
/* Pipelines and the cache on disk, which is kept in the user's cache folder by driver UUID. */
iso_status vulkan_pipelines_create(iso_device *device);
void vulkan_pipelines_destroy(iso_device *device);

/* ---- Queue -------------------------------------------------------------------------------- */

/* Memory that a dispatch reads or writes: what decides whether it must wait for those before. */
typedef struct vulkan_access {
  uint64_t address, bytes;
  bool writes;
} vulkan_access;

enum { VULKAN_MAX_ACCESSES = ISO_MAX_INPUTS + ISO_MAX_OUTPUTS + 1 };

typedef struct vulkan_dispatch {
  vulkan_shader shader;
  uint32_t constants[VULKAN_MAX_CONSTANTS], n_constants;
  uint32_t groups[3]; /* each at most 65,535 */
  const void *push;
  uint32_t push_bytes; /* at most VULKAN_PUSH_BYTES */
  const vulkan_access *accesses;
  uint32_t n_accesses;
} vulkan_dispatch;

/* ISOMER_VULKAN_SYNC: each command is waited for, and none recorded, so that a fault names it. */
bool vulkan_is_synchronous(void);
iso_status vulkan_enqueue(iso_queue *queue, const vulkan_dispatch *dispatch);
iso_device *vulkan_queue_device(const iso_queue *queue);
/* A mapped buffer of at least `bytes`, which the queue keeps; whoever uses it waits for the end of
 * that before returning. */
iso_status vulkan_queue_staging(iso_queue *queue, uint64_t bytes, iso_buffer **out_buffer);
/* Where the workgroups of one dispatch meet: VULKAN_ARRIVALS counters, all zero, and behind them
 * VULKAN_PARTS_BYTES for what they leave one another. A dispatch that uses it sets the counters
 * back to zero, and lists all of it among its accesses. Not the plan's workspace, which may lie
 * where operands of ops lay that are done by the same dispatch. 0 where ops are not fused, or no
 * allocation may be so large. */
enum { VULKAN_ARRIVALS = 256, VULKAN_PARTS_BYTES = 2113536 };
uint64_t vulkan_queue_arrivals(iso_queue *queue);

/* ---- Arguments ---------------------------------------------------------------------------- */

/* Rows of a tensor as shaders see them: row r starts r / inner_rows * outer + r % inner_rows *
 * inner bytes after the address. Matches `Rows` in shaders/rows.glsl. */
typedef struct vulkan_rows {
  uint64_t address;
  uint32_t outer, inner;
} vulkan_rows;

/* Sizes that the operands of a row-wise op share. */
typedef struct vulkan_sizes {
  uint32_t n_rows, inner_rows, n_columns;
} vulkan_sizes;

uint64_t vulkan_address(const iso_tensor *tensor); /* 0 when absent */
vulkan_rows vulkan_rows_of(const iso_tensor *tensor);
vulkan_sizes vulkan_sizes_of(const iso_tensor *tensor);
uint32_t vulkan_type_of(const iso_tensor *tensor); /* FLOAT_ constants of shaders/types.glsl */
/* Whether four elements of every row of activations lie at a multiple of their size. */
bool vulkan_is_vector_rows(const iso_tensor *tensor);
/* The accesses of all operands and of the workspace; returns how many. */
uint32_t vulkan_accesses_of(const iso_op_arguments *arguments,
                            vulkan_access out_accesses[VULKAN_MAX_ACCESSES]);
/* Splits n groups (at most 2^31), one a row or tile, over the dimensions of a grid; shaders join
 * them again with group_index() of shaders/groups.glsl. The first is 0 where there are none. */
void vulkan_split_groups(uint64_t n, uint32_t out_groups[3]);
/* check() of every record: rows must be regular, and whatever shaders number within 32 bits. */
iso_refusal vulkan_check_rows(const iso_device *device, const iso_op_arguments *arguments,
                              const char **out_detail);

/* Enqueues a dispatch of an op: fills in its accesses. */
iso_status vulkan_enqueue_op(iso_queue *queue, const iso_op_arguments *arguments,
                             vulkan_dispatch *dispatch);

static inline uint32_t vulkan_ceil_div(uint64_t a, uint32_t b) {
  return (uint32_t)((a + b - 1) / b);
}

#endif
