#include "ops/rules.h"
#include "ops/shape.h"
#include <isomer/reference.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Letters ------------------------------------------------------------------------------- */

/* What the letters of one op stand for, as far as operands have told. */
typedef struct rule_scope {
  const iso_op_info *info;
  const iso_shape *const *inputs;
  const iso_scheme *schemes;
  iso_any_attributes attributes;
  iso_dim letters[128];             /* by character; size -1 where not known yet */
  const iso_operand_info *who[128]; /* the operand that told */
  uint32_t n_leading;               /* what '*' stands for; who['*'] says whether it is known */
  iso_dim leading[ISO_MAX_DIMS];
  iso_scheme activation; /* of ACTIVATION outputs */
  iso_scheme bytes;      /* of BYTES outputs */
} rule_scope;

enum { SHAPE_TEXT = 160 };

/* "rope: x is [T<=8, 4, 64] where ops.def says THD: <what is wrong>" */
static iso_status misfit(const rule_scope *scope, const iso_operand_info *operand,
                         const iso_shape *shape, const char *problem) {
  char text[SHAPE_TEXT];
  return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s: %s is %s where its dimensions are \"%s\": %s",
                  scope->info->name, operand->name, iso_shape_format(shape, text, sizeof text),
                  operand->dims, problem);
}

static bool counts_rows(char letter) { return strchr("*TQR", letter) != NULL; }

static bool same_dim(iso_dim a, iso_dim b) { return a.symbol == b.symbol && a.size == b.size; }

static const char *format_dim(iso_dim dim, char *text, size_t capacity) {
  iso_shape shape = {1, {dim}};
  return iso_shape_format(&shape, text, capacity);
}

static iso_status check_dim(const rule_scope *scope, const iso_operand_info *operand,
                            const iso_shape *shape, uint32_t index, char letter) {
  iso_dim dim = shape->dims[index];
  int64_t least = counts_rows(letter) ? 0 : 1;
  char problem[128];
  if ((unsigned)dim.symbol >= ISO_SYMBOL_COUNT) {
    snprintf(problem, sizeof problem, "unknown symbol %d", (int)dim.symbol);
  } else if (dim.size < least || dim.size > ISO_MAX_DIM) {
    snprintf(problem, sizeof problem, "dimension %u must be %" PRId64 " to %" PRId64, index, least,
             ISO_MAX_DIM);
  } else if (dim.symbol != ISO_SYMBOL_NONE && (index > 0 || !counts_rows(letter))) {
    snprintf(problem, sizeof problem, "dimension %u cannot be symbolic", index);
  } else {
    return ISO_OK;
  }
  return misfit(scope, operand, shape, problem);
}

/* Gives the leading dimensions of `shape` to '*', or compares them. */
static iso_status unify_leading(rule_scope *scope, const iso_operand_info *operand,
                                const iso_shape *shape, uint32_t n_leading, bool may_be_absent) {
  if (may_be_absent && n_leading == 0)
    return ISO_OK;
  const iso_operand_info *who = scope->who['*'];
  bool same = !who || n_leading == scope->n_leading;
  for (uint32_t d = 0; d < n_leading && same; d++) {
    ISO_TRY(check_dim(scope, operand, shape, d, '*'));
    same = !who || same_dim(shape->dims[d], scope->leading[d]);
  }
  if (!same) {
    char problem[128];
    snprintf(problem, sizeof problem, "the leading dimensions differ from those of %s", who->name);
    return misfit(scope, operand, shape, problem);
  }
  if (!who) {
    scope->who['*'] = operand;
    scope->n_leading = n_leading;
    memcpy(scope->leading, shape->dims, n_leading * sizeof shape->dims[0]);
  }
  return ISO_OK;
}

static iso_status unify_letter(rule_scope *scope, const iso_operand_info *operand,
                               const iso_shape *shape, uint32_t index, char letter) {
  ISO_TRY(check_dim(scope, operand, shape, index, letter));
  iso_dim dim = shape->dims[index];
  char problem[SHAPE_TEXT], text[SHAPE_TEXT];
  if (letter >= '0' && letter <= '9') {
    if (same_dim(dim, iso_dim_constant(letter - '0')))
      return ISO_OK;
    snprintf(problem, sizeof problem, "dimension %u must be %c", index, letter);
    return misfit(scope, operand, shape, problem);
  }
  size_t slot = (size_t)letter;
  if (!scope->who[slot]) {
    scope->who[slot] = operand;
    scope->letters[slot] = dim;
    return ISO_OK;
  }
  if (same_dim(scope->letters[slot], dim))
    return ISO_OK;
  snprintf(problem, sizeof problem, "%s makes %c %s", scope->who[slot]->name, letter,
           format_dim(scope->letters[slot], text, sizeof text));
  return misfit(scope, operand, shape, problem);
}

static iso_status unify(rule_scope *scope, const iso_operand_info *operand,
                        const iso_shape *shape) {
  const char *letters = operand->dims;
  bool absent_leading = letters[0] == '?', leading = absent_leading || letters[0] == '*';
  uint32_t n_letters = (uint32_t)strlen(letters) - leading;
  if (shape->n_dims < 1 || shape->n_dims > ISO_MAX_DIMS || shape->n_dims < n_letters ||
      (!leading && shape->n_dims != n_letters))
    return misfit(scope, operand, shape, "the number of dimensions differs");
  uint32_t n_leading = shape->n_dims - n_letters;
  if (leading)
    ISO_TRY(unify_leading(scope, operand, shape, n_leading, absent_leading));
  for (uint32_t i = 0; i < n_letters; i++)
    ISO_TRY(unify_letter(scope, operand, shape, n_leading + i, letters[leading + i]));
  return ISO_OK;
}

static iso_status check_scheme(const rule_scope *scope, const iso_operand_info *operand,
                               const iso_shape *shape, iso_scheme scheme) {
  const iso_scheme_info *scheme_info = iso_scheme_get_info(scheme);
  if (!scheme_info || !(iso_operand_schemes(operand->kind) & ISO_SCHEME_BIT(scheme)))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s: %s cannot be stored as %s", scope->info->name,
                    operand->name, scheme_info ? scheme_info->name : "an unknown scheme");
  uint64_t bytes;
  if (iso_shape_bytes(shape, scheme, &bytes) != ISO_OK)
    return iso_fail_context(ISO_ERROR_INVALID_ARGUMENT, "%s: %s", scope->info->name, operand->name);
  return ISO_OK;
}

/* Shape of an output, once the inputs and the op's rule have told every letter. */
static iso_status output_shape(const rule_scope *scope, const iso_operand_info *operand,
                               iso_shape *out_shape) {
  const char *letters = operand->dims;
  *out_shape = (iso_shape){0};
  if (*letters == '*') {
    out_shape->n_dims = scope->n_leading;
    memcpy(out_shape->dims, scope->leading, sizeof scope->leading);
    letters++;
  }
  for (; *letters; letters++) {
    if (!scope->who[(size_t)*letters] || out_shape->n_dims == ISO_MAX_DIMS)
      return iso_fail(ISO_ERROR_INTERNAL, "%s: no rule gives dimension %c of %s", scope->info->name,
                      *letters, operand->name);
    out_shape->dims[out_shape->n_dims++] = scope->letters[(size_t)*letters];
  }
  return ISO_OK;
}

/* ---- What letters cannot say ----------------------------------------------------------------- */

static iso_status refuse(const rule_scope *scope, const char *sentence) {
  return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s: %s", scope->info->name, sentence);
}

static int64_t size_of(const rule_scope *scope, char letter) {
  return scope->letters[(size_t)letter].size;
}

static iso_status check_epsilon(const rule_scope *scope, float epsilon) {
  if (!(epsilon >= 0) || isinf(epsilon))
    return refuse(scope, "epsilon must be finite and not negative");
  return ISO_OK;
}

static iso_status rms_norm_rule(rule_scope *scope) {
  return check_epsilon(scope, scope->attributes.rms_norm.epsilon);
}

static iso_status layer_norm_rule(rule_scope *scope) {
  return check_epsilon(scope, scope->attributes.layer_norm.epsilon);
}

static iso_status rope_rule(rule_scope *scope) {
  if (2 * size_of(scope, 'F') > size_of(scope, 'D'))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "rope: %" PRId64 " frequencies rotate %" PRId64
                    " elements, but a head has %" PRId64,
                    size_of(scope, 'F'), 2 * size_of(scope, 'F'), size_of(scope, 'D'));
  if (scope->attributes.rope.interleaved > 1)
    return refuse(scope, "interleaved is 0 or 1");
  return ISO_OK;
}

static iso_status kv_write_rule(rule_scope *scope) {
  /* Slots are i32. */
  if (size_of(scope, 'P') * size_of(scope, 'S') > INT32_MAX)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "kv_write: %" PRId64 " pages of %" PRId64
                    " rows are more than 32-bit slots can number",
                    size_of(scope, 'P'), size_of(scope, 'S'));
  return ISO_OK;
}

static iso_status paged_attention_rule(rule_scope *scope) {
  const iso_paged_attention_attributes *attributes = &scope->attributes.paged_attention;
  if (size_of(scope, 'H') % size_of(scope, 'G') != 0)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "paged_attention: %" PRId64 " query heads are not a multiple of %" PRId64
                    " key and value heads",
                    size_of(scope, 'H'), size_of(scope, 'G'));
  if (!isfinite(attributes->scale))
    return refuse(scope, "scale must be finite");
  if (attributes->causal > 1)
    return refuse(scope, "causal is 0 or 1");
  if (!(attributes->soft_cap >= 0) || isinf(attributes->soft_cap))
    return refuse(scope, "soft_cap must be finite and not negative");
  return ISO_OK;
}

static iso_status check_activation(const rule_scope *scope, uint32_t activation) {
  if (activation >= ISO_ACTIVATION_COUNT)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s: unknown activation %u", scope->info->name,
                    activation);
  return ISO_OK;
}

static iso_status glu_rule(rule_scope *scope) {
  return check_activation(scope, scope->attributes.glu.activation);
}

static iso_status activate_rule(rule_scope *scope) {
  return check_activation(scope, scope->attributes.activate.activation);
}

static iso_status route_top_k_rule(rule_scope *scope) {
  const iso_route_top_k_attributes *attributes = &scope->attributes.route_top_k;
  if (attributes->k < 1 || attributes->k > size_of(scope, 'E'))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "route_top_k: k is %u of %" PRId64 " experts",
                    attributes->k, size_of(scope, 'E'));
  if (attributes->normalize > 1)
    return refuse(scope, "normalize is 0 or 1");
  scope->letters['k'] = iso_dim_constant(attributes->k);
  scope->who['k'] = &scope->info->outputs[0];
  return ISO_OK;
}

static iso_status grouped_matmul_rule(rule_scope *scope) {
  if (size_of(scope, 'J') != 1 && size_of(scope, 'J') != size_of(scope, 'C'))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "grouped_matmul: x has %" PRId64 " rows a token for %" PRId64
                    " experts; it must be 1 or as many",
                    size_of(scope, 'J'), size_of(scope, 'C'));
  return ISO_OK;
}

/* Rows are moved, not rounded. */
static iso_status gather_rows_rule(rule_scope *scope) {
  scope->activation = scope->schemes[0];
  return ISO_OK;
}

static iso_status convert_rule(rule_scope *scope) {
  const iso_scheme_info *target = iso_scheme_get_info((iso_scheme)scope->attributes.convert.scheme);
  if (!target || target->kind != ISO_SCHEME_KIND_PLAIN_FLOAT)
    return refuse(scope, "scheme must be f32, f16 or bf16");
  scope->bytes = (iso_scheme)scope->attributes.convert.scheme;
  return ISO_OK;
}

static iso_status quantize_rows_rule(rule_scope *scope) {
  const iso_scheme_info *target =
      iso_scheme_get_info((iso_scheme)scope->attributes.quantize_rows.scheme);
  if (!target || target->kind != ISO_SCHEME_KIND_BLOCK)
    return refuse(scope, "scheme must be a block scheme");
  scope->bytes = (iso_scheme)scope->attributes.quantize_rows.scheme;
  return ISO_OK;
}

static iso_status soft_cap_rule(rule_scope *scope) {
  if (!(scope->attributes.soft_cap.cap >= 0) || isinf(scope->attributes.soft_cap.cap))
    return refuse(scope, "cap must be finite and not negative");
  return ISO_OK;
}

static iso_status sample_rule(rule_scope *scope) {
  if (scope->who['M'] && size_of(scope, 'M') != (size_of(scope, 'V') + 31) / 32)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "sample: allowed has %" PRId64 " words a row; %" PRId64 " tokens need %" PRId64,
                    size_of(scope, 'M'), size_of(scope, 'V'), (size_of(scope, 'V') + 31) / 32);
  return ISO_OK;
}

/* An op that is not here is fully described by its letters. */
static iso_status (*const rules[ISO_OP_COUNT])(rule_scope *scope) = {
    [ISO_OP_RMS_NORM] = rms_norm_rule,
    [ISO_OP_LAYER_NORM] = layer_norm_rule,
    [ISO_OP_ROPE] = rope_rule,
    [ISO_OP_KV_WRITE] = kv_write_rule,
    [ISO_OP_PAGED_ATTENTION] = paged_attention_rule,
    [ISO_OP_GLU] = glu_rule,
    [ISO_OP_ACTIVATE] = activate_rule,
    [ISO_OP_ROUTE_TOP_K] = route_top_k_rule,
    [ISO_OP_GROUPED_MATMUL] = grouped_matmul_rule,
    [ISO_OP_GATHER_ROWS] = gather_rows_rule,
    [ISO_OP_CONVERT] = convert_rule,
    [ISO_OP_QUANTIZE_ROWS] = quantize_rows_rule,
    [ISO_OP_SOFT_CAP] = soft_cap_rule,
    [ISO_OP_SAMPLE] = sample_rule,
};

/* ---- Entry points ------------------------------------------------------------------------------
 */

void iso_op_read_attributes(iso_op op, const void *attributes, iso_any_attributes *out_attributes) {
  memset(out_attributes, 0, sizeof *out_attributes);
  iso_op_default_attributes(op, out_attributes);
  const iso_op_info *info = iso_op_get_info(op);
  if (!attributes || !info)
    return;
  uint32_t size;
  memcpy(&size, attributes, sizeof size);
  memcpy(out_attributes, attributes, size < info->attributes_bytes ? size : info->attributes_bytes);
  out_attributes->size = info->attributes_bytes;
}

static iso_scheme output_scheme(const rule_scope *scope, const iso_operand_info *operand) {
  if (operand->alias_of >= 0)
    return scope->schemes[operand->alias_of];
  switch (operand->kind) {
  case ISO_OPERAND_ACTIVATION:
    return scope->activation;
  case ISO_OPERAND_BYTES:
    return scope->bytes;
  case ISO_OPERAND_INDEX:
    return ISO_SCHEME_I32;
  default:
    return ISO_SCHEME_F32;
  }
}

iso_status iso_op_infer(iso_op op, const iso_shape *const *input_shapes,
                        const iso_scheme *input_schemes, const void *attributes,
                        iso_scheme activation, iso_shape *out_shapes, iso_scheme *out_schemes) {
  const iso_op_info *info = iso_op_get_info(op);
  if (!info)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "unknown op %d", (int)op);
  rule_scope scope = {.info = info,
                      .inputs = input_shapes,
                      .schemes = input_schemes,
                      .activation = activation,
                      .bytes = ISO_SCHEME_COUNT};
  iso_op_read_attributes(op, attributes, &scope.attributes);
  for (uint32_t i = 0; i < info->n_inputs; i++) {
    const iso_operand_info *operand = &info->inputs[i];
    if (input_shapes[i]) {
      ISO_TRY(unify(&scope, operand, input_shapes[i]));
      ISO_TRY(check_scheme(&scope, operand, input_shapes[i], input_schemes[i]));
    } else if (!operand->optional) {
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s: %s is missing", info->name, operand->name);
    }
  }
  if (rules[op])
    ISO_TRY(rules[op](&scope));
  for (uint32_t i = 0; i < info->n_outputs; i++) {
    const iso_operand_info *operand = &info->outputs[i];
    ISO_TRY(output_shape(&scope, operand, &out_shapes[i]));
    out_schemes[i] = output_scheme(&scope, operand);
    ISO_TRY(check_scheme(&scope, operand, &out_shapes[i], out_schemes[i]));
  }
  return ISO_OK;
}
