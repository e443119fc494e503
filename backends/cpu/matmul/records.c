/* The records of matrix products on CPUs, and of what else reads their layout. */
#include "backends/cpu/matmul/embedding.h"
#include "backends/cpu/matmul/generic.h"
#include "backends/cpu/matmul/product.h"

#define QUANTIZED                                                                                  \
  (ISO_SCHEME_BIT(ISO_SCHEME_Q8_0) | ISO_SCHEME_BIT(ISO_SCHEME_Q4_0) |                             \
   ISO_SCHEME_BIT(ISO_SCHEME_Q4_1) | ISO_SCHEME_BIT(ISO_SCHEME_Q5_0) |                             \
   ISO_SCHEME_BIT(ISO_SCHEME_Q5_1) | ISO_SCHEME_BIT(ISO_SCHEME_IQ4_NL) |                           \
   ISO_SCHEME_BIT(ISO_SCHEME_Q2_K) | ISO_SCHEME_BIT(ISO_SCHEME_Q3_K) |                             \
   ISO_SCHEME_BIT(ISO_SCHEME_Q4_K) | ISO_SCHEME_BIT(ISO_SCHEME_Q5_K) |                             \
   ISO_SCHEME_BIT(ISO_SCHEME_Q6_K) | ISO_SCHEME_BIT(ISO_SCHEME_I8_G128) |                          \
   ISO_SCHEME_BIT(ISO_SCHEME_I4_G128))

/* workspace() and launch() of a tier, for the kernels that `family` finds by weight scheme. */
#define DEFINE_MATMUL(name, family)                                                                \
  static uint64_t name##_workspace(const iso_device *device, const iso_op_arguments *arguments) {  \
    return iso_matmul_workspace(family(arguments->inputs[1].scheme), device, arguments);           \
  }                                                                                                \
  static iso_status name##_launch(iso_queue *queue, const iso_op_arguments *arguments) {           \
    return iso_matmul_launch(family(arguments->inputs[1].scheme), queue, arguments);               \
  }
#define DEFINE_PRODUCT(name, family)                                                               \
  DEFINE_MATMUL(name, family)                                                                      \
  static uint64_t name##_grouped_workspace(const iso_device *device,                               \
                                           const iso_op_arguments *arguments) {                    \
    return iso_grouped_matmul_workspace(family(arguments->inputs[1].scheme), device, arguments);   \
  }                                                                                                \
  static iso_status name##_grouped_launch(iso_queue *queue, const iso_op_arguments *arguments) {   \
    return iso_grouped_matmul_launch(family(arguments->inputs[1].scheme), queue, arguments);       \
  }

#if defined(__x86_64__)
DEFINE_PRODUCT(baseline_integer, iso_baseline_integer_kernel)
DEFINE_PRODUCT(baseline_float, iso_baseline_float_kernel)
DEFINE_PRODUCT(avx2_integer, iso_avx2_integer_kernel)
DEFINE_PRODUCT(avx2_float, iso_avx2_float_kernel)
DEFINE_PRODUCT(avx512_integer, iso_avx512_integer_kernel)
DEFINE_PRODUCT(avx512_float, iso_avx512_float_kernel)
DEFINE_PRODUCT(amx_tile, iso_amx_tile_kernel)
DEFINE_MATMUL(avx512_integer8, iso_avx512_integer_kernel8)
DEFINE_MATMUL(amx_tile8, iso_amx_tile8_kernel)
DEFINE_MATMUL(amx_tile16, iso_amx_tile16_kernel)

/* Rows from which on tiles are worth requantizing weights for, to 15 bits and, as rotation takes
 * longer, to 8; and rows of an expert on average. */
#define TILE_MIN_ROWS 16
#define TILE8_MIN_ROWS 32
#define TILE_MIN_EXPERT_ROWS 32
/* Elements under one scale of tiles of 8 bits. */
#define TILE8_NEIGHBOURS 256

static iso_refusal check_tile(const iso_device *device, const iso_op_arguments *arguments,
                              int64_t rows, int64_t min_rows, const char **out_detail) {
  const iso_tensor *weight = &arguments->inputs[1];
  iso_refusal refusal = iso_cpu_check_tier(device, ISO_CPU_TIER_AMX, out_detail);
  if (refusal != ISO_ACCEPTED)
    return refusal;
  if (rows >= min_rows && weight->dims[weight->n_dims - 1] % 64 == 0)
    return ISO_ACCEPTED;
  *out_detail = "tiles take many rows, of whole 64 elements";
  return ISO_REFUSED_SHAPE;
}

/* Whether both sides may be rounded to 8 bits under one scale for so many neighbours. */
static iso_refusal check_8_bits(const iso_op_arguments *arguments, uint32_t neighbours,
                                const char **out_detail) {
  const iso_matmul_attributes *attributes = arguments->attributes;
  if (attributes->operand_bits == 8 && attributes->operand_neighbours >= neighbours)
    return ISO_ACCEPTED;
  *out_detail = attributes->operand_bits == 8
                    ? "too many numbers share a scale of 8 bits"
                    : "rounds operands to 8 bits, which was not asked for";
  return ISO_REFUSED_ATTRIBUTE;
}

static iso_refusal check_integer8(const iso_device *device, const iso_op_arguments *arguments,
                                  const char **out_detail) {
  iso_refusal refusal = check_8_bits(arguments, ISO_ACTIVATION_BLOCK, out_detail);
  return refusal == ISO_ACCEPTED ? iso_cpu_check_avx512(device, arguments, out_detail) : refusal;
}

static iso_refusal check_tile8(const iso_device *device, const iso_op_arguments *arguments,
                               const char **out_detail) {
  iso_refusal refusal = check_8_bits(arguments, TILE8_NEIGHBOURS, out_detail);
  if (refusal != ISO_ACCEPTED)
    return refusal;
  return check_tile(device, arguments, iso_cpu_row_count(&arguments->inputs[0]), TILE8_MIN_ROWS,
                    out_detail);
}

/* Whether both sides may be rounded to bf16, as they may where they may to 8 bits. */
static iso_refusal check_tile16(const iso_device *device, const iso_op_arguments *arguments,
                                const char **out_detail) {
  const iso_matmul_attributes *attributes = arguments->attributes;
  if (attributes->operand_bits == 0) {
    *out_detail = "rounds operands to bf16, which was not asked for";
    return ISO_REFUSED_ATTRIBUTE;
  }
  return check_tile(device, arguments, iso_cpu_row_count(&arguments->inputs[0]), TILE8_MIN_ROWS,
                    out_detail);
}

static iso_refusal check_tile_matmul(const iso_device *device, const iso_op_arguments *arguments,
                                     const char **out_detail) {
  return check_tile(device, arguments, iso_cpu_row_count(&arguments->inputs[0]), TILE_MIN_ROWS,
                    out_detail);
}

static iso_refusal check_tile_grouped(const iso_device *device, const iso_op_arguments *arguments,
                                      const char **out_detail) {
  const iso_tensor *experts = &arguments->inputs[2];
  int64_t n_experts = arguments->inputs[1].dims[0];
  return check_tile(device, arguments,
                    n_experts ? experts->dims[0] * experts->dims[1] / n_experts : 0,
                    TILE_MIN_EXPERT_ROWS, out_detail);
}
#endif

#define PACKED_RECORD(OP, TIER, preference, name_, schemes_, activations_, check_, workspace_,     \
                      launch_)                                                                     \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_##OP, .name = name_, .schemes = schemes_,             \
    .activations = activations_, .layout = ISO_CPU_LAYOUT_GROUPS,                                  \
    .rank = ISO_CPU_RANK(ISO_CPU_TIER_##TIER, preference), .check = check_,                        \
    .workspace = workspace_, .packed_bytes = iso_packed_bytes, .pack = iso_packed_pack,            \
    .launch = launch_                                                                              \
  }
/* matmul and grouped_matmul of a family of kernels. Tier baseline has records beside them that take
 * every scheme. */
#define PACKED_RECORDS(TIER, tier, family, schemes, matmul_check, grouped_check)                   \
  PACKED_RECORD(MATMUL, TIER, 5, "matmul." #family "." #tier, schemes, ISO_CPU_FLOAT_SCHEMES,      \
                matmul_check, tier##_##family##_workspace, tier##_##family##_launch),              \
      PACKED_RECORD(GROUPED_MATMUL, TIER, 5, "grouped_matmul." #family "." #tier, schemes,         \
                    ISO_CPU_FLOAT_SCHEMES, grouped_check, tier##_##family##_grouped_workspace,     \
                    tier##_##family##_grouped_launch)

static const iso_kernel records[] = {
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_MATMUL,
     .name = "matmul.generic",
     .schemes = ISO_CPU_ANY_SCHEME,
     .activations = ISO_CPU_FLOAT_SCHEMES,
     .layout = ISO_LAYOUT_PLAIN,
     .rank = ISO_CPU_RANK(ISO_CPU_TIER_BASELINE, 0),
     .workspace = iso_generic_matmul_workspace,
     .launch = iso_generic_matmul_launch},
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_EMBEDDING,
     .name = "embedding.packed",
     .schemes = QUANTIZED | ISO_CPU_FLOAT_SCHEMES,
     .activations = ISO_CPU_FLOAT_SCHEMES,
     .layout = ISO_CPU_LAYOUT_GROUPS,
     .rank = ISO_CPU_RANK(ISO_CPU_TIER_BASELINE, 0),
     .workspace = iso_packed_embedding_workspace,
     .packed_bytes = iso_packed_bytes,
     .pack = iso_packed_pack,
     .launch = iso_packed_embedding_launch},
#if defined(__x86_64__)
    PACKED_RECORDS(BASELINE, baseline, integer, QUANTIZED, iso_cpu_check_baseline,
                   iso_cpu_check_baseline),
    PACKED_RECORDS(BASELINE, baseline, float, ISO_CPU_FLOAT_SCHEMES, iso_cpu_check_baseline,
                   iso_cpu_check_baseline),
    PACKED_RECORDS(AVX2, avx2, integer, QUANTIZED, iso_cpu_check_avx2, iso_cpu_check_avx2),
    PACKED_RECORDS(AVX2, avx2, float, ISO_CPU_FLOAT_SCHEMES, iso_cpu_check_avx2,
                   iso_cpu_check_avx2),
    PACKED_RECORDS(AVX512, avx512, integer, QUANTIZED, iso_cpu_check_avx512, iso_cpu_check_avx512),
    PACKED_RECORDS(AVX512, avx512, float, ISO_CPU_FLOAT_SCHEMES, iso_cpu_check_avx512,
                   iso_cpu_check_avx512),
    PACKED_RECORD(MATMUL, AVX512, 10, "matmul.integer8.avx512", QUANTIZED, ISO_CPU_FLOAT_SCHEMES,
                  check_integer8, avx512_integer8_workspace, avx512_integer8_launch),
    PACKED_RECORDS(AMX, amx, tile, QUANTIZED | ISO_SCHEME_BIT(ISO_SCHEME_BF16), check_tile_matmul,
                   check_tile_grouped),
    PACKED_RECORD(MATMUL, AMX, 8, "matmul.tile16.amx", QUANTIZED | ISO_SCHEME_BIT(ISO_SCHEME_BF16),
                  ISO_CPU_FLOAT_SCHEMES, check_tile16, amx_tile16_workspace, amx_tile16_launch),
    PACKED_RECORD(MATMUL, AMX, 10, "matmul.tile8.amx", QUANTIZED, ISO_CPU_FLOAT_SCHEMES,
                  check_tile8, amx_tile8_workspace, amx_tile8_launch),
    /* bf16 times bf16: nothing is rounded. */
    PACKED_RECORD(MATMUL, AMX, 20, "matmul.bf16.amx", ISO_SCHEME_BIT(ISO_SCHEME_BF16),
                  ISO_SCHEME_BIT(ISO_SCHEME_BF16), check_tile_matmul, amx_tile16_workspace,
                  amx_tile16_launch),
#endif
};

const iso_kernel *const iso_cpu_matmul_records = records;
const uint32_t iso_cpu_matmul_record_count = sizeof records / sizeof records[0];
