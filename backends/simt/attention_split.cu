/* Attention of few query rows a sequence over f16, bf16, Q8_0 and F8_G128 caches. */
#include "backends/simt/attention_split.cuh"

namespace {

/* Beyond this many rows a sequence, on average, keys are better shared by more rows. */
enum { MOST_ROWS = 8 };

attention_split_plan plan_of(const iso_device *device, const iso_op_arguments *arguments) {
  const iso_tensor *inputs = arguments->inputs;
  int64_t slots = attention_split_slots(simt_n_units(device), inputs[1].scheme, inputs[0].dims[2]);
  return attention_split_of(slots, inputs[0].dims[0], inputs[3].dims[0], inputs[0].dims[1],
                            inputs[1].dims[1], inputs[3].dims[1] * inputs[1].dims[2],
                            inputs[0].dims[2]);
}

/* Shared memory of a block. Beside what a launch asks for a kernel has some of its own. */
template <typename V> int shared_bytes_of_floats(int64_t dim) {
  return dim == 64    ? attention_split_shared<split_floats<V, 64>, 64>::bytes
         : dim == 96  ? attention_split_shared<split_floats<V, 96>, 96>::bytes
         : dim == 128 ? attention_split_shared<split_floats<V, 128>, 128>::bytes
                      : attention_split_shared<split_floats<V, 256>, 256>::bytes;
}
int shared_bytes(const iso_tensor &cache) {
  enum { OWN_BYTES = 1024 };
  int64_t dim = cache.dims[3];
  if (cache.scheme == ISO_SCHEME_F8_G128)
    return attention_split_shared<split_f8, 128>::bytes + OWN_BYTES;
  int bytes = cache.scheme != ISO_SCHEME_Q8_0 ? shared_bytes_of_floats<simt_f16>(dim)
              : dim == 64                     ? attention_split_shared<split_q8_0<64>, 64>::bytes
              : dim == 128                    ? attention_split_shared<split_q8_0<128>, 128>::bytes
                                              : attention_split_shared<split_q8_0<256>, 256>::bytes;
  return bytes + OWN_BYTES;
}

iso_refusal check(const iso_device *device, const iso_op_arguments *arguments,
                  const char **out_detail) {
  const iso_tensor *inputs = arguments->inputs;
  iso_refusal refusal = attention_check(device, arguments, out_detail);
  if (refusal != ISO_ACCEPTED)
    return refusal;
  if (shared_bytes(inputs[1]) > simt_shared_bytes(device)) {
    *out_detail = "needs more shared memory than a block has here";
    return ISO_REFUSED_DEVICE;
  }
  if (inputs[0].dims[0] > MOST_ROWS * inputs[3].dims[0]) {
    *out_detail = "more than 8 rows a sequence";
    return ISO_REFUSED_SHAPE;
  }
  attention_split_plan plan = plan_of(device, arguments);
  if (inputs[1].dims[1] * plan.head_tiles > 65535 || plan.n_tiles > 65535) {
    *out_detail = "more key heads or rows than a grid holds";
    return ISO_REFUSED_SIZE;
  }
  return ISO_ACCEPTED;
}

uint64_t workspace(const iso_device *device, const iso_op_arguments *arguments) {
  return plan_of(device, arguments).workspace_bytes;
}

template <typename V>
iso_status launch_floats(iso_queue *queue, const iso_op_arguments *arguments) {
  int64_t dim = arguments->inputs[0].dims[2];
  auto launch = dim == 64    ? attention_split_launch<split_floats<V, 64>, 64>
                : dim == 96  ? attention_split_launch<split_floats<V, 96>, 96>
                : dim == 128 ? attention_split_launch<split_floats<V, 128>, 128>
                             : attention_split_launch<split_floats<V, 256>, 256>;
  return launch(queue, attention_read(arguments), plan_of(queue->device, arguments),
                simt_workspace(arguments));
}

iso_status launch_q8_0(iso_queue *queue, const iso_op_arguments *arguments) {
  int64_t dim = arguments->inputs[0].dims[2];
  auto launch = dim == 64    ? attention_split_launch<split_q8_0<64>, 64>
                : dim == 128 ? attention_split_launch<split_q8_0<128>, 128>
                             : attention_split_launch<split_q8_0<256>, 256>;
  return launch(queue, attention_read(arguments), plan_of(queue->device, arguments),
                simt_workspace(arguments));
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  switch (arguments->inputs[1].scheme) {
  case ISO_SCHEME_F16:
    return launch_floats<simt_f16>(queue, arguments);
  case ISO_SCHEME_BF16:
    return launch_floats<simt_bf16>(queue, arguments);
  case ISO_SCHEME_F8_G128:
    return attention_split_launch<split_f8, 128>(queue, attention_read(arguments),
                                                 plan_of(queue->device, arguments),
                                                 simt_workspace(arguments));
  default:
    return launch_q8_0(queue, arguments);
  }
}

const iso_kernel records[] = {
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_PAGED_ATTENTION,
     .name = "paged_attention.split",
     .schemes = ISO_SCHEME_BIT(ISO_SCHEME_F16) | ISO_SCHEME_BIT(ISO_SCHEME_BF16) |
                ISO_SCHEME_BIT(ISO_SCHEME_Q8_0) | ISO_SCHEME_BIT(ISO_SCHEME_F8_G128),
     .activations = SIMT_FLOATS,
     .layout = ISO_LAYOUT_PLAIN,
     .rank = 20,
     .check = check,
     .workspace = workspace,
     .launch = launch}};

} /* namespace */

SIMT_EXPORT_KERNELS(attention_split, records)
