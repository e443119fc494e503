/* Attention of few query rows a sequence over f16, bf16, Q8_0 and F8_G128 caches. */
#include "backends/simt/attention_decode.cuh"

namespace {

/* Beyond this many rows a sequence, on average, keys are better shared by more rows. */
enum { MOST_ROWS = 8 };

/* attention_decode() for caches of a type and heads of a width; no launch where there is none. */
struct decode_kernel {
  iso_status (*launch)(iso_queue *, const attention_operands &, const attention_split_plan &,
                       uint8_t *);
  int64_t row_bytes;
  int per_unit; /* blocks that a multiprocessor holds */
};

template <typename Cache, typename Act, int Dim> decode_kernel decode_kernel_of() {
  return {attention_decode_launch<Cache, Act, Dim>, Cache::row_bytes,
          attention_decode_shared<Cache, Dim>::per_unit};
}

template <typename Act> decode_kernel find_decode_kernel(iso_scheme scheme, int64_t dim) {
  constexpr iso_scheme own = __is_same(Act, simt_bf16) ? ISO_SCHEME_BF16 : ISO_SCHEME_F16;
  if (scheme == own && dim == 128)
    return decode_kernel_of<decode_floats<Act, 128>, Act, 128>();
  if (scheme == own && dim == 64)
    return decode_kernel_of<decode_floats<Act, 64>, Act, 64>();
  if (scheme == ISO_SCHEME_Q8_0 && dim == 128)
    return decode_kernel_of<decode_blocks<split_q8_0<128>>, Act, 128>();
  if (scheme == ISO_SCHEME_F8_G128 && dim == 128)
    return decode_kernel_of<decode_blocks<split_f8>, Act, 128>();
  return {};
}

decode_kernel find_decode_kernel(const iso_op_arguments *arguments) {
  const iso_tensor &q = arguments->inputs[0];
  iso_scheme cache = arguments->inputs[1].scheme;
  return q.scheme == ISO_SCHEME_BF16  ? find_decode_kernel<simt_bf16>(cache, q.dims[2])
         : q.scheme == ISO_SCHEME_F16 ? find_decode_kernel<simt_f16>(cache, q.dims[2])
                                      : decode_kernel{};
}

attention_split_plan plan_for(int64_t slots, const iso_op_arguments *arguments) {
  const iso_tensor *inputs = arguments->inputs;
  return attention_split_of(slots, inputs[0].dims[0], inputs[3].dims[0], inputs[0].dims[1],
                            inputs[1].dims[1], inputs[3].dims[1] * inputs[1].dims[2],
                            inputs[0].dims[2]);
}

attention_split_plan plan_of(const iso_device *device, const iso_op_arguments *arguments) {
  const iso_tensor *inputs = arguments->inputs;
  return plan_for(attention_split_slots(simt_n_units(device), inputs[1].scheme, inputs[0].dims[2]),
                  arguments);
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
  if (inputs[1].scheme == ISO_SCHEME_F8_G128 && inputs[0].scheme == ISO_SCHEME_F32) {
    *out_detail = "queries would be rounded to f16";
    return ISO_REFUSED_ACTIVATION;
  }
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

/* Enough for either kernel: which one it will be strides and addresses have a say in. */
uint64_t workspace(const iso_device *device, const iso_op_arguments *arguments) {
  int slots = find_decode_kernel(arguments).per_unit * simt_n_units(device);
  uint64_t bytes = plan_of(device, arguments).workspace_bytes;
  uint64_t others = slots > 0 ? plan_for(slots, arguments).workspace_bytes : 0;
  return bytes > others ? bytes : others;
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

iso_status run(iso_queue *queue, const iso_op_arguments *arguments) {
  decode_kernel decode = find_decode_kernel(arguments);
  attention_operands o = attention_read(arguments);
  if (decode.launch && attention_decode_takes(o, arguments->inputs[0].scheme, decode.row_bytes))
    return decode.launch(queue, o,
                         plan_for(decode.per_unit * simt_n_units(queue->device), arguments),
                         simt_workspace(arguments));
  switch (arguments->inputs[1].scheme) {
  case ISO_SCHEME_F16:
    return launch_floats<simt_f16>(queue, arguments);
  case ISO_SCHEME_BF16:
    return launch_floats<simt_bf16>(queue, arguments);
  case ISO_SCHEME_F8_G128:
    return attention_split_launch<split_f8, 128>(queue, o, plan_of(queue->device, arguments),
                                                 simt_workspace(arguments));
  default:
    return launch_q8_0(queue, arguments);
  }
}

/* Held back for the product that may want the result rounded. */
iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  return simt_defer(queue, simt_queue_deferred(queue), arguments, run);
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
