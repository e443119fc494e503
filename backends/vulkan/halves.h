/* Activations as halves, for matrix units and for arithmetic of halves: each row scaled by a power
 * of two, so that none overflows. */
#ifndef ISOMER_VULKAN_HALVES_H
#define ISOMER_VULKAN_HALVES_H

#include "backends/vulkan/vulkan.h"

/* With more rows, halves lie as fragments (vulkan_halves_in_fragments()), and there are whole tiles
 * of rows, of which those past the last one hold anything. */
enum { VULKAN_MANY_ROWS = 512, VULKAN_TILE_ROWS = 128 };

/* Dense rows of halves or fragments of them, and the f32 that each row must be multiplied by. */
typedef struct vulkan_halves {
  uint64_t halves, scales; /* addresses; the scales lie behind the rows */
  uint64_t bytes;          /* of both */
} vulkan_halves;

uint64_t vulkan_halves_bytes(uint64_t n_rows, uint64_t n_columns);
/* Whether halves of so many rows lie as fragments: 16 rows and 16 columns next to each other, as
 * the registers of matmul_large.comp hold them (shaders/shrink.glsl). */
bool vulkan_halves_in_fragments(const iso_device *device, uint64_t n_rows, uint64_t n_columns);
/* Workgroups of a shader that makes halves of so many rows. */
uint64_t vulkan_halves_groups(const iso_device *device, uint32_t n_rows, uint32_t n_columns);
/* The halves of the first input of a matmul, enqueued now unless what the queue converted last is
 * just that and was not written since. They lie in the queue's scratch, or at the start of the op's
 * workspace where there is no memory for that. */
iso_status vulkan_halves_of(iso_queue *queue, const iso_op_arguments *matmul,
                            vulkan_halves *out_halves);
/* For an op that can leave its output as halves besides: whether that is worth while, and where to.
 * It declares that it writes them, and calls vulkan_halves_left() once it is enqueued. */
bool vulkan_halves_wanted(iso_queue *queue, const iso_tensor *y, vulkan_halves *out_halves);
void vulkan_halves_left(iso_queue *queue, const iso_op_arguments *arguments,
                        const vulkan_halves *halves);
/* glu of rows of which halves are wanted. */
iso_status vulkan_launch_glu_halves(iso_queue *queue, const iso_op_arguments *glu,
                                    const vulkan_halves *halves);
/* As vulkan_enqueue_op(), for a dispatch that reads or writes halves too. */
iso_status vulkan_enqueue_halves(iso_queue *queue, const iso_op_arguments *arguments,
                                 const vulkan_halves *halves, bool writes,
                                 vulkan_dispatch *dispatch);

/* What a queue keeps of this: all zero at first. It is forgotten where a recording starts or ends,
 * and at signals, since the host may write x then. */
typedef struct vulkan_converted {
  iso_tensor x;        /* n_dims 0: nothing */
  uint64_t begin, end; /* of its bytes */
  vulkan_halves halves;
} vulkan_converted;

vulkan_converted *vulkan_queue_converted(iso_queue *queue);
/* Memory of the device that the queue keeps until its end, at least so many bytes; 0 where there is
 * none left. */
uint64_t vulkan_queue_scratch(iso_queue *queue, uint64_t bytes);

#endif
