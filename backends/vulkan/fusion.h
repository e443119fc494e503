/* Neighbouring ops of a decode step in one dispatch.
 *
 * A queue holds an op back while it may be part of a known pattern. Whatever is enqueued next
 * joins it, or is enqueued behind what was held back. Every output of every op is written, unless
 * the pattern itself writes over all of it, so nobody can tell but by the clock and by roundings
 * that are left out. Three patterns:
 *
 *     [rms_norm] matmul{1,3} [add | glu]    of one row of activations (matmul_one.comp)
 *     rope rope kv_write                    of any number of tokens (rope_kv_write.comp)
 *     rope rope kv_write paged_attention    of one token (paged_attention_one.comp)
 *
 * ISOMER_FUSION=0 turns it off. */
#ifndef ISOMER_VULKAN_FUSION_H
#define ISOMER_VULKAN_FUSION_H

#include "backends/vulkan/vulkan.h"

enum { VULKAN_MOST_DEFERRED = 5, VULKAN_MOST_PARTS = 3, VULKAN_ATTRIBUTE_BYTES = 64 };

typedef iso_status (*vulkan_launch)(iso_queue *queue, const iso_op_arguments *arguments);

/* An op with what its caller need not keep. */
typedef struct vulkan_deferred_op {
  iso_op_arguments arguments; /* attributes point to those below once it is used */
  _Alignas(8) uint8_t attributes[VULKAN_ATTRIBUTE_BYTES];
  vulkan_launch launch;
} vulkan_deferred_op;

/* Part of a queue, all zero at first. */
typedef struct vulkan_deferred {
  uint32_t count;
  bool is_off;
  vulkan_deferred_op ops[VULKAN_MOST_DEFERRED];
} vulkan_deferred;

vulkan_deferred *vulkan_queue_deferred(iso_queue *queue);

/* Enqueues an op now, or as part of a pattern; `launch` enqueues it alone. Failures of ops that
 * were held back show at the call that enqueues them. */
iso_status vulkan_defer(iso_queue *queue, const iso_op_arguments *arguments, vulkan_launch launch);
/* Enqueues what is held back. Everything else that a queue enqueues comes after this. */
iso_status vulkan_flush_deferred(iso_queue *queue);

/* Ops that one dispatch of matmul_one.comp does; NULL where there is none. */
typedef struct vulkan_product {
  const iso_op_arguments *norm, *parts[VULKAN_MOST_PARTS], *after;
  uint32_t n_parts;
  bool loses_row; /* `after` writes over the normalised row, which is not written */
} vulkan_product;

/* Whether matmul_one.comp can do this product, and a norm before it. */
bool vulkan_fits_one(const iso_op_arguments *matmul);
bool vulkan_norm_fits_one(const iso_op_arguments *norm);
iso_status vulkan_launch_product(iso_queue *queue, const vulkan_product *product);
/* Of rope, rope and kv_write. */
iso_status vulkan_launch_rope_kv_write(iso_queue *queue, const iso_op_arguments *rope_q,
                                       const iso_op_arguments *rope_k,
                                       const iso_op_arguments *write);
/* The same and the paged_attention behind, by one dispatch where the device and the operands allow.
 */
iso_status vulkan_launch_rope_attention(iso_queue *queue, const iso_op_arguments *rope_q,
                                        const iso_op_arguments *rope_k,
                                        const iso_op_arguments *write,
                                        const iso_op_arguments *attention);

#endif
