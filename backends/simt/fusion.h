/* Neighbouring small ops in one kernel.
 *
 * A queue holds an op back when it may be the first of a known pattern. Whatever is enqueued next
 * either completes the pattern, and one kernel does the work of all, or is enqueued behind what was
 * held back. Every output of every op is written, bit for bit as without fusion, so nobody can
 * tell but by the clock; only sums over K may be split otherwise, where products share a launch.
 * Products of the same rows that no kernel takes together run beside each other. ISOMER_FUSION=0
 * turns it all off. */
#ifndef ISOMER_SIMT_FUSION_H
#define ISOMER_SIMT_FUSION_H

#include <isomer/backend.h>

/* Up to SIMT_SLAB rows of E4M3 codes, in the order that rounding.cuh tells. */
enum { SIMT_ROUNDED_GROUP = 128, SIMT_SLAB = 64 };
struct simt_rounded_rows {
  uint8_t *image; /* [group][SIMT_SLAB][SIMT_ROUNDED_GROUP]; NULL: nobody asks for them */
  float *scales;  /* [group][SIMT_SLAB] */
};

/* What a product's launch_group asks of the launch that makes its rows: to round them, as they are
 * stored, too. A launch that does so says that it did. */
struct simt_rounding {
  simt_rounded_rows to;
  bool is_done;
};

enum { SIMT_MOST_DEFERRED = 5, SIMT_ATTRIBUTE_BYTES = 64 };

struct simt_deferred_op;
typedef iso_status (*simt_launch_function)(iso_queue *queue, const iso_op_arguments *arguments);
typedef iso_status (*simt_group_function)(iso_queue *queue, const simt_deferred_op *ops,
                                          uint32_t count);

/* An op with what its caller need not keep. */
struct simt_deferred_op {
  iso_op_arguments arguments;
  alignas(8) uint8_t attributes[SIMT_ATTRIBUTE_BYTES];
  simt_launch_function launch;
  simt_group_function launch_group; /* of products and attention: a whole pattern */
  bool rounds; /* launch_group takes what makes its few rows, too, which it wants rounded */
};

/* Part of a queue, all zero at first. */
struct simt_deferred {
  uint32_t count;
  bool off;
  simt_rounding *rounding; /* asked of the op that is being launched; NULL: none */
  simt_deferred_op ops[SIMT_MOST_DEFERRED];
};

/* Enqueues an op of a pattern now, or as part of one. Of several patterns the longest is taken.
 * Failures of ops that were held back show at the call that enqueues them. */
iso_status simt_defer(iso_queue *queue, simt_deferred *deferred, const iso_op_arguments *arguments,
                      simt_launch_function launch, simt_group_function launch_group = nullptr,
                      bool rounds = false);
/* Enqueues what is held back. Everything else that a queue enqueues comes after this. */
iso_status simt_flush_deferred(iso_queue *queue, simt_deferred *deferred);
/* One op that was held back, by itself. */
iso_status simt_launch_deferred(iso_queue *queue, const simt_deferred_op &op);

/* Where rows are to be rounded to by the op that is being launched, which will: the image is NULL
 * where nobody asks. */
simt_rounded_rows simt_take_rounding(simt_deferred *deferred);

/* The fused kernels; each takes the arguments of its ops in order, after its fits(). */
bool simt_add_rms_norm_fits(const simt_deferred_op *ops, uint32_t count);
iso_status simt_add_rms_norm(iso_queue *queue, const simt_deferred_op *ops, uint32_t count);
bool simt_rope_kv_write_fits(const simt_deferred_op *ops, uint32_t count);
iso_status simt_rope_kv_write(iso_queue *queue, const simt_deferred_op *ops, uint32_t count);
/* Those and the paged_attention of what they make; by the latter's launch_group. */
bool simt_rope_attention_fits(const simt_deferred_op *ops, uint32_t count);
/* Products of the same rows, or two such and the glu of them; by the first one's launch_group. */
bool simt_matmuls_fit(const simt_deferred_op *ops, uint32_t count);
bool simt_matmul_glu_fits(const simt_deferred_op *ops, uint32_t count);
/* The same after the add and the rms_norm that make their rows. */
bool simt_norm_matmuls_fit(const simt_deferred_op *ops, uint32_t count);
bool simt_norm_matmul_glu_fits(const simt_deferred_op *ops, uint32_t count);
/* The same where the products want their rows rounded, or such a product after the attention that
 * makes its rows. */
bool simt_rounded_norm_matmuls_fit(const simt_deferred_op *ops, uint32_t count);
bool simt_rounded_norm_matmul_glu_fits(const simt_deferred_op *ops, uint32_t count);
bool simt_rounded_attention_fits(const simt_deferred_op *ops, uint32_t count);
/* Products of the same rows: the widest enqueued as ever, the others beside it, where that may pay;
 * else one after another. */
iso_status simt_launch_beside(iso_queue *queue, const simt_deferred_op *ops, uint32_t count);

/* The backend's part of running ops beside each other. simt_fork() opens lanes 0 .. n - 1 (at most
 * SIMT_LANES), which begin after all that the queue holds; between enter and leave, what is
 * enqueued goes to a lane; what is enqueued after simt_join() waits for all of them. */
enum { SIMT_LANES = 2, SIMT_COUNTERS = 8192 };
iso_status simt_fork(iso_queue *queue, uint32_t n_lanes);
void simt_enter_lane(iso_queue *queue, uint32_t lane);
void simt_leave_lane(iso_queue *queue);
iso_status simt_join(iso_queue *queue, uint32_t n_lanes);

/* Whether two operands are the same values in the same place. */
bool simt_is_same(const iso_tensor *a, const iso_tensor *b);
/* Whether two operands of plain elements share no byte. What one op reads and a later one writes
 * must be apart for both to run at once. */
bool simt_is_apart(const iso_tensor *a, const iso_tensor *b);

#endif
