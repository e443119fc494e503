/* Kernel records: what this backend can run. */
#include "backends/vulkan/kernels.h"
#include "backends/vulkan/ops.h"
#include "backends/vulkan/weights.h"

#define FLOATS                                                                                     \
  (ISO_SCHEME_BIT(ISO_SCHEME_F32) | ISO_SCHEME_BIT(ISO_SCHEME_F16) |                               \
   ISO_SCHEME_BIT(ISO_SCHEME_BF16))

/* An op without weights that takes any float activations. */
#define PLAIN(op_name, OP_NAME)                                                                    \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_##OP_NAME, .name = #op_name ".plain",                 \
    .schemes = ~(iso_scheme_mask)0, .activations = FLOATS, .layout = ISO_LAYOUT_PLAIN,             \
    .check = vulkan_check_rows, .launch = vulkan_##op_name                                         \
  }

#define WEIGHTS                                                                                    \
  (FLOATS | VULKAN_SPLIT_SCHEMES | ISO_SCHEME_BIT(ISO_SCHEME_Q4_1) |                               \
   ISO_SCHEME_BIT(ISO_SCHEME_Q5_1) | ISO_SCHEME_BIT(ISO_SCHEME_Q2_K) |                             \
   ISO_SCHEME_BIT(ISO_SCHEME_Q4_K) | ISO_SCHEME_BIT(ISO_SCHEME_Q5_K))

/* An op with a weight: one record for weights as files hold them, one for packed ones. */
#define WEIGHTED(OP_NAME, kernel_name, weight_schemes, base_rank, function, check_function,        \
                 workspace_function)                                                               \
  {.size = sizeof(iso_kernel),                                                                     \
   .op = ISO_OP_##OP_NAME,                                                                         \
   .name = kernel_name ".plain",                                                                   \
   .schemes = weight_schemes,                                                                      \
   .activations = FLOATS,                                                                          \
   .layout = ISO_LAYOUT_PLAIN,                                                                     \
   .rank = base_rank,                                                                              \
   .check = check_function,                                                                        \
   .workspace = workspace_function,                                                                \
   .launch = function},                                                                            \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_##OP_NAME, .name = kernel_name ".split",              \
    .schemes = VULKAN_SPLIT_SCHEMES, .activations = FLOATS, .layout = VULKAN_LAYOUT_SPLIT,         \
    .rank = 10 + base_rank, .check = check_function, .workspace = workspace_function,              \
    .packed_bytes = vulkan_packed_bytes, .pack = vulkan_pack, .launch = function                   \
  }

/* Of KV operands; the matrix units' kernel refuses those of f32. */
#define CACHES (FLOATS | ISO_SCHEME_BIT(ISO_SCHEME_Q8_0) | ISO_SCHEME_BIT(ISO_SCHEME_F8_G128))
/* f32 weights keep f32 products: halves would lose what their files hold. */
#define MATRIX_WEIGHTS (WEIGHTS & ~ISO_SCHEME_BIT(ISO_SCHEME_F32))
/* No float may lose anything where halves are added up, too. */
#define BLOCK_WEIGHTS (WEIGHTS & ~(iso_scheme_mask)FLOATS)

const iso_kernel vulkan_kernels[] = {
    WEIGHTED(EMBEDDING, "embedding", WEIGHTS, 1, vulkan_embedding, vulkan_check_rows, NULL),
    WEIGHTED(MATMUL, "matmul.rows", WEIGHTS, 1, vulkan_matmul_rows, vulkan_check_few_rows, NULL),
    WEIGHTED(MATMUL, "matmul.tiles", WEIGHTS, 1, vulkan_matmul_tiles, vulkan_check_many_rows, NULL),
    WEIGHTED(MATMUL, "matmul.fp16", BLOCK_WEIGHTS, 2, vulkan_matmul_fp16, vulkan_check_fp16,
             vulkan_fp16_workspace),
    WEIGHTED(MATMUL, "matmul.matrix", MATRIX_WEIGHTS, 2, vulkan_matmul_matrix, vulkan_check_matrix,
             vulkan_matrix_workspace),
    WEIGHTED(GROUPED_MATMUL, "grouped_matmul", WEIGHTS, 1, vulkan_grouped_matmul, vulkan_check_rows,
             NULL),
    PLAIN(glu, GLU),
    PLAIN(activate, ACTIVATE),
    PLAIN(add, ADD),
    PLAIN(soft_cap, SOFT_CAP),
    PLAIN(convert, CONVERT),
    PLAIN(rms_norm, RMS_NORM),
    PLAIN(layer_norm, LAYER_NORM),
    PLAIN(softmax, SOFTMAX),
    PLAIN(rope, ROPE),
    PLAIN(gather_rows, GATHER_ROWS),
    PLAIN(argmax, ARGMAX),
    PLAIN(route_top_k, ROUTE_TOP_K),
    PLAIN(combine_experts, COMBINE_EXPERTS),
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_KV_WRITE,
     .name = "kv_write.plain",
     .schemes = CACHES,
     .activations = FLOATS,
     .layout = ISO_LAYOUT_PLAIN,
     .check = vulkan_check_rows,
     .launch = vulkan_kv_write},
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_PAGED_ATTENTION,
     .name = "paged_attention.plain",
     .schemes = CACHES,
     .activations = FLOATS,
     .layout = ISO_LAYOUT_PLAIN,
     .check = vulkan_check_attention,
     .workspace = vulkan_attention_workspace,
     .launch = vulkan_paged_attention},
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_PAGED_ATTENTION,
     .name = "paged_attention.matrix",
     .schemes = CACHES,
     .activations = FLOATS,
     .layout = ISO_LAYOUT_PLAIN,
     .rank = 1,
     .check = vulkan_check_attention_matrix,
     .workspace = vulkan_attention_matrix_workspace,
     .launch = vulkan_paged_attention_matrix},
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_SAMPLE,
     .name = "sample.plain",
     .schemes = ~(iso_scheme_mask)0,
     .activations = ~(iso_scheme_mask)0,
     .layout = ISO_LAYOUT_PLAIN,
     .check = vulkan_check_rows,
     .workspace = vulkan_sample_workspace,
     .launch = vulkan_sample},
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_QUANTIZE_ROWS,
     .name = "quantize_rows.plain",
     .schemes = ~(iso_scheme_mask)0,
     .activations = FLOATS,
     .layout = ISO_LAYOUT_PLAIN,
     .check = vulkan_check_quantize,
     .launch = vulkan_quantize_rows},
};

const uint32_t vulkan_kernel_count = sizeof vulkan_kernels / sizeof *vulkan_kernels;
