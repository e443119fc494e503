/* Mixture of experts: route_top_k and combine_experts. */
#include "backends/simt/simt.cuh"

namespace {

/* ---- route_top_k: a subgroup a token --------------------------------------------------------- */

struct routing {
  simt_rows logits;
  int32_t *experts; /* [T, k] */
  float *weights;
  int32_t n_experts, k;
  uint32_t normalize;
  float scale;
};

/* NaN counts as -infinity. */
__device__ float order_of(float value) { return value == value ? value : -INFINITY; }

struct best {
  float value;
  int32_t index;
};
struct better { /* the lower index among equals; -1 is none */
  __device__ best operator()(best a, best b) const {
    bool first = b.index < 0 ||
                 (a.index >= 0 && (a.value > b.value || (a.value == b.value && a.index < b.index)));
    return first ? a : b;
  }
};

/* The best of all lanes, in every lane. */
__device__ best subgroup_best(best mine) {
  for (int mask = SIMT_SUBGROUP / 2; mask > 0; mask /= 2) {
    best other = {simt_shuffle_xor(mine.value, mask), simt_shuffle_xor(mine.index, mask)};
    mine = better()(mine, other);
  }
  return mine;
}

/* `taken` has a bit an expert, in the words of the lanes that own them: expert e is lane
 * e % SIMT_SUBGROUP's bit e / SIMT_SUBGROUP. */
enum { TAKEN_WORDS = 4, MOST_EXPERTS = SIMT_SUBGROUP * 32 * TAKEN_WORDS };

__global__ void route_top_k(routing o) {
  simt_begin();
  const uint8_t *row = o.logits.row(blockIdx.x);
  int32_t *experts = o.experts + (int64_t)blockIdx.x * o.k;
  float *weights = o.weights + (int64_t)blockIdx.x * o.k;
  int lane = (int)threadIdx.x;
  uint32_t taken[TAKEN_WORDS] = {};
  float largest = 0, sum = 0;
  for (int c = 0; c < o.k; c++) {
    best mine = {-INFINITY, -1};
    for (int e = lane, bit = 0; e < o.n_experts; e += SIMT_SUBGROUP, bit++) {
      bool is_taken = false;
#pragma unroll
      for (int w = 0; w < TAKEN_WORDS; w++)
        is_taken |= w == bit / 32 && (taken[w] >> (bit % 32) & 1);
      if (!is_taken)
        mine = better()(mine, best{order_of(simt_load(o.logits.scheme, row, e)), e});
    }
    best chosen = subgroup_best(mine);
    if (chosen.index % SIMT_SUBGROUP == lane) {
      int bit = chosen.index / SIMT_SUBGROUP;
#pragma unroll
      for (int w = 0; w < TAKEN_WORDS; w++)
        taken[w] |= w == bit / 32 ? 1u << (bit % 32) : 0u;
    }
    float value = simt_load(o.logits.scheme, row, chosen.index);
    if (c == 0)
      largest = value;
    float weight = expf(value - largest);
    sum += weight;
    if (lane == 0) {
      experts[c] = chosen.index;
      weights[c] = weight;
    }
  }
  if (!o.normalize) {
    sum = 0;
    for (int e = lane; e < o.n_experts; e += SIMT_SUBGROUP)
      sum += expf(simt_load(o.logits.scheme, row, e) - largest);
    sum = simt_subgroup_reduce(sum, simt_sum());
  }
  for (int c = 0; lane == 0 && c < o.k; c++)
    weights[c] = o.scale * weights[c] / sum;
}

iso_refusal check_route(const iso_device *, const iso_op_arguments *arguments,
                        const char **out_detail) {
  if (arguments->inputs[0].dims[1] <= MOST_EXPERTS)
    return ISO_ACCEPTED;
  *out_detail = "more experts than 4096";
  return ISO_REFUSED_SIZE;
}

iso_status launch_route(iso_queue *queue, const iso_op_arguments *arguments) {
  auto *attributes = (const iso_route_top_k_attributes *)arguments->attributes;
  routing o = {};
  o.logits = simt_rows_of(arguments->inputs[0]);
  o.experts = (int32_t *)simt_address(arguments->outputs[0]);
  o.weights = (float *)simt_address(arguments->outputs[1]);
  o.n_experts = (int32_t)o.logits.n_columns;
  o.k = (int32_t)attributes->k;
  o.normalize = attributes->normalize;
  o.scale = attributes->scale;
  if (o.logits.n_rows == 0)
    return ISO_OK;
  return simt_launch_early(queue, "route_top_k", route_top_k, dim3((unsigned)o.logits.n_rows),
                           dim3(SIMT_SUBGROUP), 0, o);
}

/* ---- combine_experts ------------------------------------------------------------------------- */

struct combination {
  simt_rows x, y;
  const float *weights; /* [T, C] */
  int32_t n_choices;
};

__global__ void combine_experts(combination o) {
  simt_begin();
  int64_t i = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= o.y.n_columns)
    return;
  int64_t t = blockIdx.x;
  float sum = 0;
  for (int c = 0; c < o.n_choices; c++)
    sum += o.weights[t * o.n_choices + c] * simt_load(o.x.scheme, o.x.row(t * o.n_choices + c), i);
  simt_store(o.y.scheme, o.y.row(t), i, sum);
}

iso_status launch_combine(iso_queue *queue, const iso_op_arguments *arguments) {
  combination o = {};
  o.x = simt_rows_of(arguments->inputs[0]);
  o.weights = (const float *)simt_address(arguments->inputs[1]);
  o.y = simt_rows_of(arguments->outputs[0]);
  o.n_choices = (int32_t)arguments->inputs[0].dims[1];
  if (o.y.n_rows == 0)
    return ISO_OK;
  unsigned block = simt_block_size(o.y.n_columns, 256);
  dim3 grid((unsigned)o.y.n_rows, (unsigned)((o.y.n_columns + block - 1) / block));
  return simt_launch_early(queue, "combine_experts", combine_experts, grid, dim3(block), 0, o);
}

const iso_kernel records[] = {
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_ROUTE_TOP_K,
     .name = "route_top_k.simt",
     .schemes = SIMT_ALL,
     .activations = SIMT_FLOATS,
     .layout = ISO_LAYOUT_PLAIN,
     .rank = 0,
     .check = check_route,
     .launch = launch_route},
    SIMT_RECORD(COMBINE_EXPERTS, "combine_experts.simt", launch_combine),
};

} /* namespace */

SIMT_EXPORT_KERNELS(experts, records)
