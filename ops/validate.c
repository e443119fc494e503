/* The rules of ops/rules.c and those on storage, for the arguments of one launch. */
#include "ops/rules.h"
#include "ops/shape.h"
#include <isomer/reference.h>
#include <inttypes.h>
#include <string.h>

static iso_status check_strides(const iso_op_info *info, const iso_operand_info *operand,
                                const iso_tensor *tensor) {
  int64_t dense[ISO_MAX_DIMS];
  ISO_TRY(iso_dense_strides(tensor->scheme, tensor->n_dims, tensor->dims, dense));
  bool gaps = operand->kind == ISO_OPERAND_ACTIVATION;
  int64_t inner_bytes = dense[tensor->n_dims - 1]; /* from first to last byte, inside dimension d */
  for (uint32_t d = tensor->n_dims; d-- > 0;) {
    int64_t stride = tensor->strides[d];
    bool last = d == tensor->n_dims - 1;
    if (tensor->dims[d] > 1 && (gaps && !last ? stride < inner_bytes : stride != dense[d]))
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "%s: %s has stride %" PRId64 " in dimension %u where %s %" PRId64 " bytes",
                      info->name, operand->name, stride, d,
                      gaps && !last ? "an item takes" : "only a dense tensor will do:",
                      gaps && !last ? inner_bytes : dense[d]);
    int64_t count = tensor->dims[d];
    if (last)
      count /= iso_scheme_get_info(tensor->scheme)->block_elements;
    int64_t span = 0;
    if (count > 1 && (__builtin_mul_overflow(count - 1, stride, &span) ||
                      __builtin_add_overflow(inner_bytes, span, &inner_bytes)))
      return iso_fail(ISO_ERROR_LIMIT, "%s: %s spans more than 2^63 bytes", info->name,
                      operand->name);
  }
  return ISO_OK;
}

static iso_status check_tensor(const iso_op_info *info, const iso_operand_info *operand,
                               const iso_tensor *tensor, iso_shape *out_shape) {
  if (tensor->n_dims > ISO_MAX_DIMS)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s: %s has %u dimensions", info->name,
                    operand->name, tensor->n_dims);
  *out_shape = (iso_shape){.n_dims = tensor->n_dims};
  for (uint32_t d = 0; d < tensor->n_dims; d++)
    out_shape->dims[d] = iso_dim_constant(tensor->dims[d]);
  if (tensor->layout != ISO_LAYOUT_PLAIN && operand->kind != ISO_OPERAND_WEIGHT)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s: %s is not a weight, yet has layout %u",
                    info->name, operand->name, tensor->layout);
  return ISO_OK;
}

static bool same_shape(const iso_shape *a, const iso_shape *b) {
  if (a->n_dims != b->n_dims)
    return false;
  for (uint32_t d = 0; d < a->n_dims; d++)
    if (a->dims[d].size != b->dims[d].size)
      return false;
  return true;
}

static iso_status check_output(const iso_op_info *info, const iso_op_arguments *arguments,
                               uint32_t index, const iso_shape *shape, iso_scheme scheme) {
  const iso_operand_info *operand = &info->outputs[index];
  const iso_tensor *tensor = &arguments->outputs[index];
  iso_shape given;
  ISO_TRY(check_tensor(info, operand, tensor, &given));
  char given_text[160], wanted_text[160];
  if (!same_shape(&given, shape))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s: %s is %s, the inputs make it %s", info->name,
                    operand->name, iso_shape_format(&given, given_text, sizeof given_text),
                    iso_shape_format(shape, wanted_text, sizeof wanted_text));
  if (tensor->scheme != scheme)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s: %s must be stored as %s", info->name,
                    operand->name, iso_scheme_get_info(scheme)->name);
  if (operand->alias_of >= 0) {
    const iso_tensor *input = &arguments->inputs[operand->alias_of];
    if (tensor->buffer != input->buffer || tensor->offset != input->offset)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s: %s must be the storage of %s", info->name,
                      operand->name, info->inputs[operand->alias_of].name);
  }
  return check_strides(info, operand, tensor);
}

iso_status iso_op_validate(const iso_op_arguments *arguments) {
  const iso_op_info *info = iso_op_get_info(arguments->op);
  if (!info)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "unknown op %d", (int)arguments->op);
  if (arguments->n_inputs > info->n_inputs || arguments->n_outputs != info->n_outputs)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "%s: given %u inputs and %u outputs, takes %u and %u", info->name,
                    arguments->n_inputs, arguments->n_outputs, info->n_inputs, info->n_outputs);
  iso_shape shapes[ISO_MAX_INPUTS], output_shapes[ISO_MAX_OUTPUTS];
  const iso_shape *shape_pointers[ISO_MAX_INPUTS] = {0};
  iso_scheme schemes[ISO_MAX_INPUTS], output_schemes[ISO_MAX_OUTPUTS];
  for (uint32_t i = 0; i < info->n_inputs; i++) {
    const iso_tensor *tensor = &arguments->inputs[i];
    bool present = i < arguments->n_inputs && tensor->n_dims > 0;
    schemes[i] = present ? tensor->scheme : ISO_SCHEME_COUNT;
    if (!present)
      continue;
    ISO_TRY(check_tensor(info, &info->inputs[i], tensor, &shapes[i]));
    shape_pointers[i] = &shapes[i];
  }
  /* ACTIVATION outputs may have any float scheme: infer with the one they have. */
  iso_scheme activation = ISO_SCHEME_F32;
  for (uint32_t i = 0; i < info->n_outputs; i++)
    if (info->outputs[i].kind == ISO_OPERAND_ACTIVATION)
      activation = arguments->outputs[i].scheme;
  ISO_TRY(iso_op_infer(arguments->op, shape_pointers, schemes, arguments->attributes, activation,
                       output_shapes, output_schemes));
  for (uint32_t i = 0; i < arguments->n_inputs; i++)
    if (shape_pointers[i] && arguments->inputs[i].layout == ISO_LAYOUT_PLAIN)
      ISO_TRY(check_strides(info, &info->inputs[i], &arguments->inputs[i]));
  for (uint32_t i = 0; i < info->n_outputs; i++)
    ISO_TRY(check_output(info, arguments, i, &output_shapes[i], output_schemes[i]));
  return ISO_OK;
}
