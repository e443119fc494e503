#include "core/kernel_select.h"
#include <stdio.h>

int32_t iso_op_weight_operand(iso_op op) {
  const iso_op_info *info = iso_op_get_info(op);
  for (uint32_t i = 0; info && i < info->n_inputs; i++)
    if (info->inputs[i].kind == ISO_OPERAND_WEIGHT)
      return (int32_t)i;
  return -1;
}

/* Whether every operand of a kind has a scheme of the mask; absent operands have none. */
static bool mask_takes(iso_scheme_mask mask, iso_operand_kind kind,
                       const iso_operand_info *operands, const iso_tensor *tensors, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (operands[i].kind == kind && tensors[i].n_dims > 0 &&
        !(mask & ISO_SCHEME_BIT(tensors[i].scheme)))
      return false;
  return true;
}

iso_refusal iso_kernel_check(const iso_device *device, const iso_kernel *kernel,
                             const iso_op_arguments *arguments, const char **out_detail) {
  *out_detail = NULL;
  const iso_op_info *info = iso_op_get_info(arguments->op);
  if (!info || kernel->op != arguments->op)
    return ISO_REFUSED_NO_KERNEL;
  iso_operand_kind kind =
      iso_op_weight_operand(arguments->op) >= 0 ? ISO_OPERAND_WEIGHT : ISO_OPERAND_KV;
  if (!mask_takes(kernel->schemes, kind, info->inputs, arguments->inputs, info->n_inputs))
    return ISO_REFUSED_SCHEME;
  if (!mask_takes(kernel->activations, ISO_OPERAND_ACTIVATION, info->inputs, arguments->inputs,
                  info->n_inputs) ||
      !mask_takes(kernel->activations, ISO_OPERAND_ACTIVATION, info->outputs, arguments->outputs,
                  info->n_outputs))
    return ISO_REFUSED_ACTIVATION;
  return kernel->check ? kernel->check(device, arguments, out_detail) : ISO_ACCEPTED;
}

const char *iso_refusal_name(iso_refusal refusal) {
  static const char *const names[ISO_REFUSAL_COUNT] = {
      "nothing",   "op",     "scheme", "activation scheme", "layout", "shape", "stride",
      "attribute", "device", "size"};
  return (unsigned)refusal < ISO_REFUSAL_COUNT ? names[refusal] : "arguments";
}

void iso_refusal_describe(const char *device, iso_op op, const iso_kernel *kernel,
                          iso_refusal refusal, const char *detail, char *out_reason,
                          size_t capacity) {
  const iso_op_info *info = iso_op_get_info(op);
  if (!kernel)
    snprintf(out_reason, capacity, "%s has no kernel for %s", device, info ? info->name : "?");
  else
    snprintf(out_reason, capacity, "%s: %s refuses the %s%s%s", device, kernel->name,
             iso_refusal_name(refusal), detail ? ": " : "", detail ? detail : "");
}

/* How near a refusal came to running: masks are looked at in this order, then check(). */
static int closeness(iso_refusal refusal) {
  switch (refusal) {
  case ISO_REFUSED_NO_KERNEL:
    return 0;
  case ISO_REFUSED_LAYOUT:
    return 1;
  case ISO_REFUSED_SCHEME:
    return 2;
  case ISO_REFUSED_ACTIVATION:
    return 3;
  default:
    return 4;
  }
}

const iso_kernel *iso_kernel_select(const iso_plan_device *device,
                                    const iso_op_arguments *arguments, uint32_t layout,
                                    iso_refusal *out_refusal, char *out_reason,
                                    size_t reason_capacity) {
  const iso_kernel *best = NULL, *closest = NULL;
  const char *closest_detail = NULL;
  iso_refusal closest_refusal = ISO_REFUSED_NO_KERNEL;
  for (uint32_t i = 0; i < device->kernel_count; i++) {
    const iso_kernel *kernel = &device->kernels[i];
    if (kernel->op != arguments->op || (best && kernel->rank <= best->rank))
      continue;
    const char *detail = NULL;
    iso_refusal refusal = layout != ISO_LAYOUT_ANY && kernel->layout != layout
                              ? ISO_REFUSED_LAYOUT
                              : iso_kernel_check(device->device, kernel, arguments, &detail);
    if (refusal == ISO_ACCEPTED) {
      best = kernel;
    } else if (!closest || closeness(refusal) > closeness(closest_refusal) ||
               (closeness(refusal) == closeness(closest_refusal) && kernel->rank > closest->rank)) {
      closest = kernel;
      closest_refusal = refusal;
      closest_detail = detail;
    }
  }
  *out_refusal = best ? ISO_ACCEPTED : closest_refusal;
  if (reason_capacity > 0)
    out_reason[0] = 0;
  if (!best)
    iso_refusal_describe(device->name, arguments->op, closest, closest_refusal, closest_detail,
                         out_reason, reason_capacity);
  return best;
}
