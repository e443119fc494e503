/* Attention over f16, bf16, Q8_0 and F8_G128 caches on Hopper: of many query rows a sequence, and
 * of batches in which some sequences have many and others few. */
#include "backends/cuda/hopper/attention_prompt.cuh"

namespace {

iso_refusal check(const iso_device *device, const iso_op_arguments *arguments,
                  const char **out_detail) {
  iso_refusal refusal = hopper_check(device, out_detail);
  if (refusal != ISO_ACCEPTED)
    return refusal;
  int64_t dim = arguments->inputs[0].dims[2];
  if (dim != 64 && dim != 128) {
    *out_detail = "heads must be 64 or 128 wide";
    return ISO_REFUSED_SHAPE;
  }
  /* Slots hold 16 bits a number. Large scores would tell: of Q8_0, codes have lost far more. */
  iso_scheme queries = arguments->inputs[0].scheme, cache = arguments->inputs[1].scheme;
  if ((queries == ISO_SCHEME_F32 && cache != ISO_SCHEME_Q8_0) ||
      (queries != ISO_SCHEME_BF16 && cache == ISO_SCHEME_F8_G128)) {
    *out_detail = "queries would be rounded to the type of the slots";
    return ISO_REFUSED_ACTIVATION;
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
  auto run = scheme == ISO_SCHEME_F8_G128 ? attention_prompt_launch<prompt_f8, 128>
             : scheme == ISO_SCHEME_F16
                 ? wide ? attention_prompt_launch<prompt_floats<simt_f16, 128>, 128>
                        : attention_prompt_launch<prompt_floats<simt_f16, 64>, 64>
             : scheme == ISO_SCHEME_BF16
                 ? wide ? attention_prompt_launch<prompt_floats<simt_bf16, 128>, 128>
                        : attention_prompt_launch<prompt_floats<simt_bf16, 64>, 64>
             : wide ? attention_prompt_launch<prompt_q8_0<128>, 128>
                    : attention_prompt_launch<prompt_q8_0<64>, 64>;
  return run(queue, o);
}

/* ---- Prompts beside sequences that decode ------------------------------------------------------
 */

/* Up to so many rows there may be drafts of all sequences rather than prompts of some, or too few
 * rows of prompts to matter. Many sequences have few drafts, most of which attention_split() takes
 * in both ways. */
int64_t most_drafted_rows(int64_t n_sequences) {
  constexpr int64_t MANY_SEQUENCES = 32, FEW_ROWS = 96, DRAFTED_ROWS = 4;
  int64_t half = n_sequences / 2;
  return n_sequences < MANY_SEQUENCES ? DRAFTED_ROWS * n_sequences
                                      : n_sequences + (half > FEW_ROWS ? half : FEW_ROWS);
}

attention_split_plan plan_of(const iso_device *device, const iso_op_arguments *arguments) {
  const iso_tensor *inputs = arguments->inputs;
  int64_t slots = attention_split_slots(simt_n_units(device), inputs[1].scheme, inputs[0].dims[2]);
  return attention_mixed_plan(slots, inputs[3].dims[0], inputs[0].dims[1], inputs[1].dims[1],
                              inputs[3].dims[1] * inputs[1].dims[2], inputs[0].dims[2]);
}

iso_refusal check_mixed(const iso_device *device, const iso_op_arguments *arguments,
                        const char **out_detail) {
  iso_refusal refusal = check(device, arguments, out_detail);
  if (refusal != ISO_ACCEPTED)
    return refusal;
  int64_t n_sequences = arguments->inputs[3].dims[0];
  if (n_sequences < 2 || arguments->inputs[0].dims[0] <= most_drafted_rows(n_sequences)) {
    *out_detail = "one sequence, or few rows of each";
    return ISO_REFUSED_SHAPE;
  }
  attention_split_plan plan = plan_of(device, arguments);
  if (arguments->inputs[1].dims[1] * plan.head_tiles > 65535 || plan.n_tiles > 65535) {
    *out_detail = "more key heads or sequences than a grid holds";
    return ISO_REFUSED_SIZE;
  }
  return ISO_ACCEPTED;
}

uint64_t workspace_mixed(const iso_device *device, const iso_op_arguments *arguments) {
  return plan_of(device, arguments).workspace_bytes;
}

iso_status launch_mixed(iso_queue *queue, const iso_op_arguments *arguments) {
  bool wide = arguments->inputs[0].dims[2] == 128;
  iso_scheme scheme = arguments->inputs[1].scheme;
  auto run =
      scheme == ISO_SCHEME_F8_G128 ? attention_mixed_launch<prompt_f8, split_f8, 128>
      : scheme == ISO_SCHEME_F16   ? wide ? attention_mixed_launch<prompt_floats<simt_f16, 128>,
                                                                 split_floats<simt_f16, 128>, 128>
                                          : attention_mixed_launch<prompt_floats<simt_f16, 64>,
                                                                 split_floats<simt_f16, 64>, 64>
        : scheme == ISO_SCHEME_BF16 ? wide ? attention_mixed_launch<prompt_floats<simt_bf16, 128>,
                                                                  split_floats<simt_bf16, 128>, 128>
                                           : attention_mixed_launch<prompt_floats<simt_bf16, 64>,
                                                                  split_floats<simt_bf16, 64>, 64>
        : wide ? attention_mixed_launch<prompt_q8_0<128>, split_q8_0<128>, 128>
                                   : attention_mixed_launch<prompt_q8_0<64>, split_q8_0<64>, 64>;
  return run(queue, attention_read(arguments), plan_of(queue->device, arguments),
             simt_workspace(arguments));
}

constexpr iso_scheme_mask CACHES =
    ISO_SCHEME_BIT(ISO_SCHEME_F16) | ISO_SCHEME_BIT(ISO_SCHEME_BF16) |
    ISO_SCHEME_BIT(ISO_SCHEME_Q8_0) | ISO_SCHEME_BIT(ISO_SCHEME_F8_G128);

const iso_kernel records[] = {{.size = sizeof(iso_kernel),
                               .op = ISO_OP_PAGED_ATTENTION,
                               .name = "paged_attention.mixed",
                               .schemes = CACHES,
                               .activations = SIMT_FLOATS,
                               .layout = ISO_LAYOUT_PLAIN,
                               .rank = 25,
                               .check = check_mixed,
                               .workspace = workspace_mixed,
                               .launch = launch_mixed},
                              {.size = sizeof(iso_kernel),
                               .op = ISO_OP_PAGED_ATTENTION,
                               .name = "paged_attention.prompt",
                               .schemes = CACHES,
                               .activations = SIMT_FLOATS,
                               .layout = ISO_LAYOUT_PLAIN,
                               .rank = 15,
                               .check = check,
                               .launch = launch}};

} /* namespace */

SIMT_EXPORT_KERNELS(attention_prompt, records)
