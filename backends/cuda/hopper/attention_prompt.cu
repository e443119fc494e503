/* Attention of many query rows a sequence over f16, bf16 and Q8_0 caches, on Hopper. */
#include "backends/cuda/hopper/attention_prompt.cuh"

namespace {

iso_refusal check(const iso_device *device, const iso_op_arguments *arguments,
                  const char **out_detail) {
  if (!hopper_is_there(device)) {
    *out_detail = "made for compute capability 9.0";
    return ISO_REFUSED_DEVICE;
  }
  int64_t dim = arguments->inputs[0].dims[2];
  if (dim != 64 && dim != 128) {
    *out_detail = "heads must be 64 or 128 wide";
    return ISO_REFUSED_SHAPE;
  }
  if (attention_prompt_tiles(arguments->inputs[0].dims[0], arguments->inputs[3].dims[0]) > 65535) {
    *out_detail = "more rows than a grid holds";
    return ISO_REFUSED_SIZE;
  }
  for (uint32_t d = 0; d + 1 < arguments->outputs[0].n_dims; d++)
    if (arguments->outputs[0].strides[d] % 8 != 0) {
      *out_detail = "rows must start at multiples of 8 bytes";
      return ISO_REFUSED_STRIDE;
    }
  return attention_check(device, arguments, out_detail);
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  attention_operands o = attention_read(arguments);
  bool wide = arguments->inputs[0].dims[2] == 128;
  iso_scheme scheme = arguments->inputs[1].scheme;
  auto run = scheme == ISO_SCHEME_F16
                 ? wide ? attention_prompt_launch<prompt_floats<simt_f16, 128>, 128>
                        : attention_prompt_launch<prompt_floats<simt_f16, 64>, 64>
             : scheme == ISO_SCHEME_BF16
                 ? wide ? attention_prompt_launch<prompt_floats<simt_bf16, 128>, 128>
                        : attention_prompt_launch<prompt_floats<simt_bf16, 64>, 64>
             : wide ? attention_prompt_launch<prompt_q8_0<128>, 128>
                    : attention_prompt_launch<prompt_q8_0<64>, 64>;
  return run(queue, o);
}

const iso_kernel records[] = {{.size = sizeof(iso_kernel),
                               .op = ISO_OP_PAGED_ATTENTION,
                               .name = "paged_attention.prompt",
                               .schemes = ISO_SCHEME_BIT(ISO_SCHEME_F16) |
                                          ISO_SCHEME_BIT(ISO_SCHEME_BF16) |
                                          ISO_SCHEME_BIT(ISO_SCHEME_Q8_0),
                               .activations = SIMT_FLOATS,
                               .layout = ISO_LAYOUT_PLAIN,
                               .rank = 15,
                               .check = check,
                               .launch = launch}};

} /* namespace */

SIMT_EXPORT_KERNELS(attention_prompt, records)
