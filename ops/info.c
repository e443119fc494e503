/* Facts of every op, made from ops.def. */
#include <isomer/ops.h>
#include <string.h>

/* Position of each operand in its op: INDEX_<op>_<operand>. */
#define ISO_OP_BEGIN(name, NAME, tolerance, summary) enum {
#define ISO_OP_INPUT(op, operand, KIND, dims, doc) INPUT_##op##_##operand,
#define ISO_OP_OPTIONAL(op, operand, KIND, dims, doc) INPUT_##op##_##operand,
#define ISO_OP_END(name)                                                                           \
  N_INPUTS_##name                                                                                  \
  }                                                                                                \
  ;
#include <isomer/ops.def>

#define ISO_OP_BEGIN(name, NAME, tolerance, summary) enum {
#define ISO_OP_OUTPUT(op, operand, KIND, dims, doc) OUTPUT_##op##_##operand,
#define ISO_OP_END(name)                                                                           \
  N_OUTPUTS_##name                                                                                 \
  }                                                                                                \
  ;
#include <isomer/ops.def>

#define ISO_OP_BEGIN(name, NAME, tolerance, summary) enum {
#define ISO_OP_ATTRIBUTE(op, type, name, default_value, doc) ATTRIBUTE_##op##_##name,
#define ISO_OP_END(name)                                                                           \
  N_ATTRIBUTES_##name                                                                              \
  }                                                                                                \
  ;
#include <isomer/ops.def>

#define ISO_OP_END(name)                                                                           \
  _Static_assert(N_INPUTS_##name <= ISO_MAX_INPUTS && N_OUTPUTS_##name <= ISO_MAX_OUTPUTS,         \
                 #name " has too many operands");
#include <isomer/ops.def>

#define ISO_OP_BEGIN(name, NAME, tolerance, summary)                                               \
  static const iso_operand_info name##_inputs[] = {
#define ISO_OP_INPUT(op, operand, KIND, dims, doc)                                                 \
  {#operand, ISO_OPERAND_##KIND, dims, doc, false, -1},
#define ISO_OP_OPTIONAL(op, operand, KIND, dims, doc)                                              \
  {#operand, ISO_OPERAND_##KIND, dims, doc, true, -1},
#define ISO_OP_END(name)                                                                           \
  }                                                                                                \
  ;
#include <isomer/ops.def>

/* An alias overrides the -1 of its output. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
#define ISO_OP_BEGIN(name, NAME, tolerance, summary)                                               \
  static const iso_operand_info name##_outputs[] = {
#define ISO_OP_OUTPUT(op, operand, KIND, dims, doc)                                                \
  [OUTPUT_##op##_##operand] = {#operand, ISO_OPERAND_##KIND, dims, doc, false, -1},
#define ISO_OP_ALIAS(op, output, input) [OUTPUT_##op##_##output].alias_of = INPUT_##op##_##input,
#define ISO_OP_END(name)                                                                           \
  }                                                                                                \
  ;
#include <isomer/ops.def>
#pragma GCC diagnostic pop

/* One unused entry at the end, for ops without attributes. */
#define ISO_OP_BEGIN(name, NAME, tolerance, summary)                                               \
  static const iso_attribute_info name##_attributes[] = {
#define ISO_OP_ATTRIBUTE(op, type, name, default_value, doc)                                       \
  {#name, #type, offsetof(iso_##op##_attributes, name), default_value, doc},
#define ISO_OP_END(name)                                                                           \
  { 0 }                                                                                            \
  }                                                                                                \
  ;
#include <isomer/ops.def>

static const iso_op_info infos[ISO_OP_COUNT] = {
#define ISO_OP_BEGIN(name, NAME, tolerance, summary)                                               \
  {#name,                                                                                          \
   summary,                                                                                        \
   ISO_TOLERANCE_##tolerance,                                                                      \
   N_INPUTS_##name,                                                                                \
   N_OUTPUTS_##name,                                                                               \
   N_ATTRIBUTES_##name,                                                                            \
   name##_inputs,                                                                                  \
   name##_outputs,                                                                                 \
   name##_attributes,                                                                              \
   sizeof(iso_##name##_attributes)},
#include <isomer/ops.def>
};

#define ISO_OP_BEGIN(name, NAME, tolerance, summary)                                               \
  static const iso_##name##_attributes name##_defaults = {.size = sizeof(iso_##name##_attributes),
#define ISO_OP_ATTRIBUTE(op, type, name, default_value, doc) .name = default_value,
#define ISO_OP_END(name)                                                                           \
  }                                                                                                \
  ;
#include <isomer/ops.def>

static const void *const defaults[ISO_OP_COUNT] = {
#define ISO_OP_BEGIN(name, NAME, tolerance, summary) &name##_defaults,
#include <isomer/ops.def>
};

const iso_op_info *iso_op_get_info(iso_op op) {
  return (unsigned)op < ISO_OP_COUNT ? &infos[op] : NULL;
}

bool iso_op_from_name(const char *name, iso_op *out_op) {
  for (int op = 0; op < ISO_OP_COUNT; op++)
    if (strcmp(name, infos[op].name) == 0) {
      *out_op = (iso_op)op;
      return true;
    }
  return false;
}

void iso_op_default_attributes(iso_op op, void *out_attributes) {
  if ((unsigned)op < ISO_OP_COUNT)
    memcpy(out_attributes, defaults[op], infos[op].attributes_bytes);
}

iso_scheme_mask iso_operand_schemes(iso_operand_kind kind) {
  static const iso_scheme_mask floats = 0
#define ISO_SCHEME(NAME, name, gguf_type, block_elements, block_bytes, kind)                       \
  | (ISO_SCHEME_KIND_##kind == ISO_SCHEME_KIND_PLAIN_FLOAT ? ISO_SCHEME_BIT(ISO_SCHEME_##NAME) : 0)
#include <isomer/schemes.def>
#undef ISO_SCHEME
      ;
  static const iso_scheme_mask blocks = 0
#define ISO_SCHEME(NAME, name, gguf_type, block_elements, block_bytes, kind)                       \
  | (ISO_SCHEME_KIND_##kind == ISO_SCHEME_KIND_BLOCK ? ISO_SCHEME_BIT(ISO_SCHEME_##NAME) : 0)
#include <isomer/schemes.def>
#undef ISO_SCHEME
      ;
  static const iso_scheme_mask masks[ISO_OPERAND_KIND_COUNT] = {
      [ISO_OPERAND_ACTIVATION] = floats,
      [ISO_OPERAND_WEIGHT] = floats | blocks,
      [ISO_OPERAND_PARAMETER] = ISO_SCHEME_BIT(ISO_SCHEME_F32),
      [ISO_OPERAND_INDEX] = ISO_SCHEME_BIT(ISO_SCHEME_I32),
      [ISO_OPERAND_KV] =
          floats | ISO_SCHEME_BIT(ISO_SCHEME_Q8_0) | ISO_SCHEME_BIT(ISO_SCHEME_F8_G128),
      [ISO_OPERAND_FLOAT] = ISO_SCHEME_BIT(ISO_SCHEME_F32),
      [ISO_OPERAND_BYTES] = floats | blocks,
  };
  return (unsigned)kind < ISO_OPERAND_KIND_COUNT ? masks[kind] : 0;
}
