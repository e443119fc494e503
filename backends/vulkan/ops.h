/* launch() of each op, in the file of its family. */
#ifndef ISOMER_VULKAN_OPS_H
#define ISOMER_VULKAN_OPS_H

#include "backends/vulkan/vulkan.h"

#define VULKAN_LAUNCH(name) iso_status name(iso_queue *queue, const iso_op_arguments *arguments)

/* elementwise.c */
VULKAN_LAUNCH(vulkan_glu);
VULKAN_LAUNCH(vulkan_activate);
VULKAN_LAUNCH(vulkan_add);
VULKAN_LAUNCH(vulkan_soft_cap);
VULKAN_LAUNCH(vulkan_convert);
/* rows.c */
VULKAN_LAUNCH(vulkan_rms_norm);
VULKAN_LAUNCH(vulkan_layer_norm);
VULKAN_LAUNCH(vulkan_softmax);
VULKAN_LAUNCH(vulkan_rope);
VULKAN_LAUNCH(vulkan_gather_rows);
VULKAN_LAUNCH(vulkan_argmax);
/* matmul.c */
VULKAN_LAUNCH(vulkan_embedding);
VULKAN_LAUNCH(vulkan_matmul_rows);
VULKAN_LAUNCH(vulkan_matmul_tiles);
VULKAN_LAUNCH(vulkan_grouped_matmul);
/* check() of products: up to so many rows of activations, and more. */
enum { VULKAN_FEW_ROWS = 8 };
iso_refusal vulkan_check_few_rows(const iso_device *device, const iso_op_arguments *arguments,
                                  const char **out_detail);
iso_refusal vulkan_check_many_rows(const iso_device *device, const iso_op_arguments *arguments,
                                   const char **out_detail);
/* fp16.c */
VULKAN_LAUNCH(vulkan_matmul_fp16);
uint64_t vulkan_fp16_workspace(const iso_device *device, const iso_op_arguments *arguments);
iso_refusal vulkan_check_fp16(const iso_device *device, const iso_op_arguments *arguments,
                              const char **out_detail);
/* matrix.c */
VULKAN_LAUNCH(vulkan_matmul_matrix);
uint64_t vulkan_matrix_workspace(const iso_device *device, const iso_op_arguments *arguments);
iso_refusal vulkan_check_matrix(const iso_device *device, const iso_op_arguments *arguments,
                                const char **out_detail);
/* attention.c */
VULKAN_LAUNCH(vulkan_kv_write);
VULKAN_LAUNCH(vulkan_paged_attention);
uint64_t vulkan_attention_workspace(const iso_device *device, const iso_op_arguments *arguments);
iso_refusal vulkan_check_attention(const iso_device *device, const iso_op_arguments *arguments,
                                   const char **out_detail);
VULKAN_LAUNCH(vulkan_paged_attention_matrix);
uint64_t vulkan_attention_matrix_workspace(const iso_device *device,
                                           const iso_op_arguments *arguments);
iso_refusal vulkan_check_attention_matrix(const iso_device *device,
                                          const iso_op_arguments *arguments,
                                          const char **out_detail);
/* experts.c */
VULKAN_LAUNCH(vulkan_route_top_k);
VULKAN_LAUNCH(vulkan_combine_experts);
/* sample.c */
VULKAN_LAUNCH(vulkan_sample);
uint64_t vulkan_sample_workspace(const iso_device *device, const iso_op_arguments *arguments);
/* quantize.c */
VULKAN_LAUNCH(vulkan_quantize_rows);
iso_refusal vulkan_check_quantize(const iso_device *device, const iso_op_arguments *arguments,
                                  const char **out_detail);

#endif
