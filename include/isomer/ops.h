/* The ops as types: enumeration, attributes, facts. Made from ops.def. */
#ifndef ISOMER_OPS_H
#define ISOMER_OPS_H

#include <isomer/tensor.h>

ISO_BEGIN_DECLS

#define ISO_MAX_INPUTS 12
#define ISO_MAX_OUTPUTS 4

/* ISO_OP_<NAME> */
typedef enum iso_op {
#define ISO_OP_BEGIN(name, NAME, tolerance, summary) ISO_OP_##NAME,
#include <isomer/ops.def>
  ISO_OP_COUNT
} iso_op;

/* iso_<op>_attributes; `size` is sizeof the struct as the writer knew it. */
#define ISO_OP_BEGIN(name, NAME, tolerance, summary) \
  typedef struct iso_##name##_attributes {           \
    uint32_t size;
#define ISO_OP_ATTRIBUTE(op, type, name, default_value, doc) type name;
#define ISO_OP_END(name) \
  }                      \
  iso_##name##_attributes;
#include <isomer/ops.def>

typedef enum iso_activation {
  ISO_ACTIVATION_SILU = 0,      /* x / (1 + exp(-x)) */
  ISO_ACTIVATION_GELU_TANH = 1, /* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
  ISO_ACTIVATION_GELU_ERF = 2,  /* 0.5 x (1 + erf(x / sqrt(2))) */
  ISO_ACTIVATION_RELU = 3,
  ISO_ACTIVATION_SIGMOID = 4,
  ISO_ACTIVATION_COUNT = 5
} iso_activation;

/* Columns of `sample`'s parameters. */
typedef enum iso_sample_parameter {
  ISO_SAMPLE_TEMPERATURE = 0,        /* 0: greedy */
  ISO_SAMPLE_TOP_K = 1,              /* 0: off */
  ISO_SAMPLE_TOP_P = 2,              /* 1: off */
  ISO_SAMPLE_MIN_P = 3,              /* 0: off */
  ISO_SAMPLE_REPETITION_PENALTY = 4, /* 1: off */
  ISO_SAMPLE_PRESENCE_PENALTY = 5,   /* 0: off */
  ISO_SAMPLE_FREQUENCY_PENALTY = 6,  /* 0: off */
  ISO_SAMPLE_RESERVED = 7            /* 0 */
} iso_sample_parameter;

typedef enum iso_operand_kind {
  ISO_OPERAND_ACTIVATION,
  ISO_OPERAND_WEIGHT,
  ISO_OPERAND_PARAMETER,
  ISO_OPERAND_INDEX,
  ISO_OPERAND_KV,
  ISO_OPERAND_FLOAT,
  ISO_OPERAND_BYTES,
  ISO_OPERAND_KIND_COUNT
} iso_operand_kind;

typedef enum iso_tolerance_class {
  ISO_TOLERANCE_EXACT,
  ISO_TOLERANCE_ELEMENTWISE,
  ISO_TOLERANCE_REDUCTION
} iso_tolerance_class;

typedef struct iso_operand_info {
  const char *name;
  iso_operand_kind kind;
  const char *dims; /* the letters of ops.def */
  const char *doc;
  bool optional;
  int32_t alias_of; /* outputs: index of the input whose storage this is, else -1 */
} iso_operand_info;

typedef struct iso_attribute_info {
  const char *name;
  const char *type; /* "float", "int32_t" or "uint32_t" */
  uint32_t offset;  /* bytes from the start of the attribute struct */
  double default_value;
  const char *doc;
} iso_attribute_info;

typedef struct iso_op_info {
  const char *name;
  const char *summary;
  iso_tolerance_class tolerance;
  uint32_t n_inputs, n_outputs, n_attributes;
  const iso_operand_info *inputs;
  const iso_operand_info *outputs;
  const iso_attribute_info *attributes;
  uint32_t attributes_bytes; /* sizeof the attribute struct */
} iso_op_info;

/* Facts of an op; NULL when out of range. */
ISO_API const iso_op_info *iso_op_get_info(iso_op op);
/* Finds an op by name. False when unknown. */
ISO_API bool iso_op_from_name(const char *name, iso_op *out_op);
/* Fills an attribute struct (attributes_bytes large) with its size and defaults. */
ISO_API void iso_op_default_attributes(iso_op op, void *out_attributes);
/* Schemes that an operand kind takes. */
ISO_API iso_scheme_mask iso_operand_schemes(iso_operand_kind kind);

ISO_END_DECLS
#endif
