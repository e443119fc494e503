/* Operands as shaders see them. */
#include "backends/vulkan/vulkan.h"

uint64_t vulkan_address(const iso_tensor *tensor) {
  return tensor->n_dims > 0 && tensor->buffer ? tensor->buffer->address + tensor->offset : 0;
}

/* Three leading dimensions count as two when the outer pair lies evenly. */
static bool is_regular(const iso_tensor *tensor) {
  return tensor->n_dims < 4 || tensor->dims[0] <= 1 ||
         tensor->strides[0] == tensor->dims[1] * tensor->strides[1];
}

vulkan_rows vulkan_rows_of(const iso_tensor *tensor) {
  vulkan_rows rows = {.address = vulkan_address(tensor)};
  uint32_t leading = tensor->n_dims > 0 ? tensor->n_dims - 1 : 0;
  if (leading > 0)
    rows.inner = (uint32_t)tensor->strides[leading - 1];
  if (leading > 1)
    rows.outer = (uint32_t)tensor->strides[leading - 2];
  return rows;
}

vulkan_sizes vulkan_sizes_of(const iso_tensor *tensor) {
  vulkan_sizes sizes = {.n_rows = 1, .inner_rows = 1};
  for (uint32_t d = 0; d + 1 < tensor->n_dims; d++) {
    sizes.n_rows *= (uint32_t)tensor->dims[d];
    sizes.inner_rows = (uint32_t)tensor->dims[d];
  }
  sizes.inner_rows = sizes.inner_rows ? sizes.inner_rows : 1;
  sizes.n_columns = (uint32_t)tensor->dims[tensor->n_dims - 1];
  return sizes;
}

uint32_t vulkan_type_of(const iso_tensor *tensor) {
  return tensor->scheme == ISO_SCHEME_F16 ? 1 : tensor->scheme == ISO_SCHEME_BF16 ? 2 : 0;
}

bool vulkan_is_vector_rows(const iso_tensor *tensor) {
  int64_t bytes = tensor->scheme == ISO_SCHEME_F32 ? 16 : 8;
  bool even =
      vulkan_address(tensor) % (uint64_t)bytes == 0 && tensor->dims[tensor->n_dims - 1] % 4 == 0;
  for (uint32_t d = 0; d + 1 < tensor->n_dims; d++)
    even = even && tensor->strides[d] % bytes == 0;
  return even;
}

/* An upper bound of the bytes of an operand: whole rows at their strides. */
static uint64_t extent(const iso_tensor *tensor) {
  if (tensor->layout != ISO_LAYOUT_PLAIN && tensor->buffer)
    return tensor->buffer->bytes - tensor->offset;
  uint64_t bytes = 0;
  for (uint32_t d = 0; d < tensor->n_dims; d++) {
    if (tensor->dims[d] == 0)
      return 0;
    uint64_t along = (uint64_t)tensor->dims[d] * (uint64_t)tensor->strides[d];
    bytes = along > bytes ? along : bytes;
  }
  return bytes;
}

uint32_t vulkan_accesses_of(const iso_op_arguments *arguments,
                            vulkan_access out_accesses[VULKAN_MAX_ACCESSES]) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < arguments->n_inputs; i++)
    if (vulkan_address(&arguments->inputs[i]))
      out_accesses[n++] = (vulkan_access){vulkan_address(&arguments->inputs[i]),
                                          extent(&arguments->inputs[i]), false};
  for (uint32_t i = 0; i < arguments->n_outputs; i++)
    out_accesses[n++] = (vulkan_access){vulkan_address(&arguments->outputs[i]),
                                        extent(&arguments->outputs[i]), true};
  if (arguments->workspace && arguments->workspace_bytes > 0)
    out_accesses[n++] = (vulkan_access){arguments->workspace->address + arguments->workspace_offset,
                                        arguments->workspace_bytes, true};
  return n;
}

void vulkan_split_groups(uint64_t n, uint32_t out_groups[3]) {
  const uint32_t most = 65535; /* of a dimension: what every device takes */
  out_groups[0] = n < most ? (uint32_t)n : most;
  out_groups[1] = n < most ? 1 : vulkan_ceil_div(n, most);
  out_groups[2] = 1;
}

/* Indices of memory are signed in SPIR-V, whatever the shader declares. */
static const int64_t MOST = INT32_MAX;

static iso_refusal check_operand(const iso_tensor *tensor, bool is_output,
                                 const char **out_detail) {
  int64_t rows = 1, columns = tensor->n_dims > 0 ? tensor->dims[tensor->n_dims - 1] : 1;
  bool is_plain = tensor->layout == ISO_LAYOUT_PLAIN;
  for (uint32_t d = 0; d + 1 < tensor->n_dims; d++) {
    if (is_plain && tensor->strides[d] > UINT32_MAX) {
      *out_detail = "rows lie more than 4 GiB apart";
      return ISO_REFUSED_SIZE;
    }
    if (__builtin_mul_overflow(rows, tensor->dims[d], &rows) || rows > MOST) {
      *out_detail = "2^31 rows or more";
      return ISO_REFUSED_SIZE;
    }
  }
  if (columns > MOST) {
    *out_detail = "rows of 2^31 elements or more";
    return ISO_REFUSED_SIZE;
  }
  /* No op takes more workgroups than one for four elements of a row. */
  if (is_output && rows * ((columns + 3) / 4) > MOST) {
    *out_detail = "more workgroups than 32 bits can number";
    return ISO_REFUSED_SIZE;
  }
  if (is_plain && !is_regular(tensor)) {
    *out_detail = "three leading dimensions must lie evenly";
    return ISO_REFUSED_STRIDE;
  }
  return ISO_ACCEPTED;
}

iso_refusal vulkan_check_rows(const iso_device *device, const iso_op_arguments *arguments,
                              const char **out_detail) {
  (void)device;
  iso_refusal refusal = ISO_ACCEPTED;
  for (uint32_t i = 0; i < arguments->n_inputs && refusal == ISO_ACCEPTED; i++)
    refusal = check_operand(&arguments->inputs[i], false, out_detail);
  for (uint32_t i = 0; i < arguments->n_outputs && refusal == ISO_ACCEPTED; i++)
    refusal = check_operand(&arguments->outputs[i], true, out_detail);
  return refusal;
}

iso_status vulkan_enqueue_op(iso_queue *queue, const iso_op_arguments *arguments,
                             vulkan_dispatch *dispatch) {
  vulkan_access accesses[VULKAN_MAX_ACCESSES];
  if (dispatch->groups[0] == 0 || dispatch->groups[1] == 0 || dispatch->groups[2] == 0)
    return ISO_OK;
  dispatch->accesses = accesses;
  dispatch->n_accesses = vulkan_accesses_of(arguments, accesses);
  return vulkan_enqueue(queue, dispatch);
}
