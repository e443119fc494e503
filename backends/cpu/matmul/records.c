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
   ISO_SCHEME_BIT(ISO_SCHEME_Q6_K))

/* workspace() and launch() of a tier, for the kernels that `family` finds by weight scheme. */
#define DEFINE_PRODUCT(name, family)                                                               \
  static uint64_t name##_workspace(const iso_device *device, const iso_op_arguments *arguments) {  \
    return iso_product_workspace(family(arguments->inputs[1].scheme), device, arguments);          \
  }                                                                                                \
  static iso_status name##_launch(iso_queue *queue, const iso_op_arguments *arguments) {           \
    return iso_product_launch(family(arguments->inputs[1].scheme), queue, arguments);              \
  }

#if defined(__x86_64__)
DEFINE_PRODUCT(avx2_integer, iso_avx2_integer_kernel)
DEFINE_PRODUCT(avx2_float, iso_avx2_float_kernel)
DEFINE_PRODUCT(avx512_integer, iso_avx512_integer_kernel)
DEFINE_PRODUCT(avx512_float, iso_avx512_float_kernel)
#endif

#define PACKED_RECORD(TIER, tier_, family_, schemes_)                                              \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_MATMUL, .name = "matmul." #family_ "." #tier_,        \
    .schemes = schemes_, .activations = ISO_CPU_FLOAT_SCHEMES, .layout = ISO_CPU_LAYOUT_GROUPS,    \
    .rank = ISO_CPU_RANK(ISO_CPU_TIER_##TIER, 0), .check = iso_cpu_check_##tier_,                  \
    .workspace = tier_##_##family_##_workspace, .packed_bytes = iso_packed_bytes,                  \
    .pack = iso_packed_pack, .launch = tier_##_##family_##_launch                                  \
  }

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
    PACKED_RECORD(AVX2, avx2, integer, QUANTIZED),
    PACKED_RECORD(AVX2, avx2, float, ISO_CPU_FLOAT_SCHEMES),
    PACKED_RECORD(AVX512, avx512, integer, QUANTIZED),
    PACKED_RECORD(AVX512, avx512, float, ISO_CPU_FLOAT_SCHEMES),
#endif
};

const iso_kernel *const iso_cpu_matmul_records = records;
const uint32_t iso_cpu_matmul_record_count = sizeof records / sizeof records[0];
