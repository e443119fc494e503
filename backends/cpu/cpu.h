/* What the files of the CPU backend share: objects, tiers, addresses of operands, records.
 *
 * The backend is synchronous: launch() returns when the op is done. Device memory is host memory,
 * so a buffer is an address. */
#ifndef ISOMER_BACKENDS_CPU_CPU_H
#define ISOMER_BACKENDS_CPU_CPU_H

#include "backends/cpu/threads.h"
#include "backends/cpu/tier.h"

#include <isomer/backend.h>

#include <pthread.h>

typedef struct iso_cpu_slab iso_cpu_slab; /* memory.c */

struct iso_device {
  iso_cpu_tier tier;
  bool is_lowered;       /* a tier below the machine's highest was forced */
  uint32_t cpu_features; /* ISO_CPU_HAS_ bits that the tier in force may use */
  bool asks_ahead;       /* streams of weights are asked for in software; see README.md */
  bool asks_for_codes;   /* those of one row, but for F32 */
  iso_cpu_pool *pool;
  iso_device_info info;
  pthread_mutex_t slab_lock;
  uint64_t memory_nodes; /* NUMA nodes its threads run on, a bit a node; 0: not told */
  iso_cpu_slab *slab;    /* small buffers are cut from it; NULL before the first */
};

struct iso_buffer {
  uint8_t *data;
  uint64_t bytes;
  bool imported;      /* memory of the caller: read only, never freed here */
  iso_cpu_slab *slab; /* what it was cut from, or NULL */
};

struct iso_queue {
  iso_device *device;
};

/* The host's services; set once by iso_cpu_backend_query() before any other call. */
extern const iso_host *iso_cpu_host;
#define iso_cpu_fail(code, ...) iso_backend_fail(iso_cpu_host, code, __VA_ARGS__)

/* The entry, under its own name because the backend is linked in. */
const iso_backend *iso_cpu_backend_query(uint32_t host_abi, const iso_host *host);

/* ---- Kernel records ------------------------------------------------------------------------- */

/* Offset of every buffer an op is given, and of allocations; imported weights may lie at any
 * address. */
#define ISO_CPU_ALIGNMENT 64u

/* Rank of a record: the tier decides first, then `preference` (0 to 99) among kernels of one. */
#define ISO_CPU_RANK(tier, preference) ((int32_t)(tier)*100 + (preference))

#define ISO_CPU_FLOAT_SCHEMES                                                                      \
  (ISO_SCHEME_BIT(ISO_SCHEME_F32) | ISO_SCHEME_BIT(ISO_SCHEME_F16) |                               \
   ISO_SCHEME_BIT(ISO_SCHEME_BF16))
#define ISO_CPU_ANY_SCHEME ((ISO_SCHEME_BIT(ISO_SCHEME_COUNT)) - 1)
#define ISO_CPU_CACHE_SCHEMES                                                                      \
  (ISO_CPU_FLOAT_SCHEMES | ISO_SCHEME_BIT(ISO_SCHEME_Q8_0) | ISO_SCHEME_BIT(ISO_SCHEME_F8_G128))

/* What a file of kernels hands to kernels.c. */
typedef struct iso_cpu_records {
  const iso_kernel *records;
  uint32_t count;
} iso_cpu_records;

/* check() of a record that only needs an instruction tier; one a tier. A record with
 * conditions of its own calls iso_cpu_check_tier() first. */
iso_refusal iso_cpu_check_baseline(const iso_device *device, const iso_op_arguments *arguments,
                                   const char **out_detail);
iso_refusal iso_cpu_check_avx2(const iso_device *device, const iso_op_arguments *arguments,
                               const char **out_detail);
iso_refusal iso_cpu_check_avx512(const iso_device *device, const iso_op_arguments *arguments,
                                 const char **out_detail);
iso_refusal iso_cpu_check_amx(const iso_device *device, const iso_op_arguments *arguments,
                              const char **out_detail);
iso_refusal iso_cpu_check_tier(const iso_device *device, iso_cpu_tier tier,
                               const char **out_detail);

/* All records of the backend, gathered from the tables of its files. Valid for the life of the
 * process. */
const iso_kernel *iso_cpu_kernels(uint32_t *out_count);

/* The products' records, made in backends/cpu/matmul/. */
extern const iso_kernel *const iso_cpu_matmul_records;
extern const uint32_t iso_cpu_matmul_record_count;

/* ---- Operands ------------------------------------------------------------------------------- */

/* Address of a tensor's first element; NULL for an absent optional operand. */
static inline void *iso_cpu_address(const iso_tensor *tensor) {
  return tensor->buffer ? tensor->buffer->data + tensor->offset : NULL;
}

/* Address of input `index`; NULL when it is optional and absent. */
static inline void *iso_cpu_input(const iso_op_arguments *arguments, uint32_t index) {
  bool given = index < arguments->n_inputs && arguments->inputs[index].n_dims > 0;
  return given ? iso_cpu_address(&arguments->inputs[index]) : NULL;
}

/* Address of the scratch memory of an op; NULL when it asked for none. */
static inline void *iso_cpu_workspace(const iso_op_arguments *arguments) {
  return arguments->workspace ? arguments->workspace->data + arguments->workspace_offset : NULL;
}

/* Elements of a tensor's leading dimensions: the rows of a "*D" operand. */
static inline int64_t iso_cpu_row_count(const iso_tensor *tensor) {
  int64_t rows = 1;
  for (uint32_t i = 0; i + 1 < tensor->n_dims; i++)
    rows *= tensor->dims[i];
  return rows;
}

/* Address of row `row` of a tensor in layout PLAIN, counting through all leading dimensions. */
static inline void *iso_cpu_row(const iso_tensor *tensor, int64_t row) {
  uint8_t *address = iso_cpu_address(tensor);
  for (uint32_t i = tensor->n_dims - 1; i-- > 1;) {
    address += row % tensor->dims[i] * tensor->strides[i];
    row /= tensor->dims[i];
  }
  return tensor->n_dims > 1 ? address + row * tensor->strides[0] : address;
}

#endif
