/* Any op on any operands: an error or outputs, and never a byte outside of an operand, whatever
 * its indices and values. Operands are allocations of their exact size. */
#include "ops/rules.h"
#include "ops/shape.h"
#include <isomer/reference.h>
#include <stdlib.h>
#include <string.h>

typedef struct source {
  const uint8_t *data;
  size_t size, used;
} source;

/* Zeros after the end. */
static uint8_t take(source *from) { return from->used < from->size ? from->data[from->used++] : 0; }

static int64_t choose_size(source *from, char letter) {
  static const int64_t rows[] = {0, 1, 2, 3, 5}, columns[] = {1, 2, 3, 4, 8, 32, 64, 256};
  uint8_t byte = take(from);
  return strchr("TQR*", letter) ? rows[byte % 5] : columns[byte % 8];
}

static iso_scheme choose_scheme(source *from, iso_operand_kind kind) {
  iso_scheme_mask mask = iso_operand_schemes(kind);
  int wanted = take(from) % __builtin_popcountll(mask);
  for (int scheme = 0;; scheme++)
    if ((mask & ISO_SCHEME_BIT(scheme)) && wanted-- == 0)
      return (iso_scheme)scheme;
}

/* Small numbers, or four raw bytes as an integer or a float. */
static void choose_attributes(source *from, const iso_op_info *info, iso_any_attributes *out) {
  for (uint32_t i = 0; i < info->n_attributes; i++) {
    uint8_t *field = (uint8_t *)out + info->attributes[i].offset;
    uint8_t byte = take(from);
    uint32_t integer = byte / 2 % 16;
    float number = (float)integer - 2;
    if (byte % 2)
      for (int b = 0; b < 4; b++)
        field[b] = take(from);
    else
      memcpy(field, strcmp(info->attributes[i].type, "float") == 0 ? (void *)&number : &integer, 4);
  }
}

static void *allocate(source *from, iso_tensor *tensor, const iso_shape *shape, iso_scheme scheme) {
  uint64_t bytes;
  tensor->scheme = scheme;
  tensor->n_dims = shape->n_dims;
  for (uint32_t d = 0; d < shape->n_dims; d++)
    tensor->dims[d] = shape->dims[d].size;
  if (iso_dense_strides(scheme, tensor->n_dims, tensor->dims, tensor->strides) != ISO_OK ||
      iso_shape_bytes(shape, scheme, &bytes) != ISO_OK || bytes > 1 << 15)
    return NULL;
  uint8_t *memory = malloc(bytes ? bytes : 1);
  for (uint64_t i = 0; i < bytes && memory; i++)
    memory[i] = take(from);
  return memory;
}

static iso_shape make_shape(const char *dims, const int64_t *letters, int64_t leading) {
  iso_shape shape = {0};
  for (const char *letter = dims; *letter; letter++) {
    bool any = *letter == '*' || *letter == '?', digit = *letter >= '0' && *letter <= '9';
    int64_t size = any ? leading : digit ? *letter - '0' : letters[(size_t)*letter];
    shape.dims[shape.n_dims++] = iso_dim_constant(size);
  }
  return shape;
}

static void run(source *from, iso_op_arguments *arguments, const iso_op_info *info, void **inputs,
                void **outputs) {
  iso_shape shapes[ISO_MAX_INPUTS], output_shapes[ISO_MAX_OUTPUTS];
  const iso_shape *pointers[ISO_MAX_INPUTS] = {0};
  iso_scheme schemes[ISO_MAX_INPUTS], output_schemes[ISO_MAX_OUTPUTS];
  int64_t letters[128], leading = choose_size(from, '*');
  for (char letter = 'A'; letter <= 'Z'; letter++)
    letters[(size_t)letter] = choose_size(from, letter);
  letters['M'] = (letters['V'] + 31) / 32;
  for (uint32_t i = 0; i < info->n_inputs; i++) {
    schemes[i] = choose_scheme(from, info->inputs[i].kind);
    if (info->inputs[i].optional && take(from) % 2)
      continue;
    shapes[i] = make_shape(info->inputs[i].dims, letters, leading);
    pointers[i] = &shapes[i];
  }
  iso_scheme activation = choose_scheme(from, ISO_OPERAND_ACTIVATION);
  if (iso_op_infer(arguments->op, pointers, schemes, arguments->attributes, activation,
                   output_shapes, output_schemes) != ISO_OK)
    return;
  for (uint32_t i = 0; i < info->n_inputs; i++)
    if (pointers[i] && !(inputs[i] = allocate(from, &arguments->inputs[i], &shapes[i], schemes[i])))
      return;
  for (uint32_t i = 0; i < info->n_outputs; i++)
    if (!(outputs[i] =
              allocate(from, &arguments->outputs[i], &output_shapes[i], output_schemes[i])))
      return;
  (void)!iso_reference_run(arguments, (const void *const *)inputs, outputs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  source from = {data, size, 0};
  iso_op op = (iso_op)(take(&from) % ISO_OP_COUNT);
  const iso_op_info *info = iso_op_get_info(op);
  void *inputs[ISO_MAX_INPUTS] = {0}, *outputs[ISO_MAX_OUTPUTS] = {0};
  iso_any_attributes attributes;
  iso_op_default_attributes(op, &attributes);
  choose_attributes(&from, info, &attributes);
  iso_op_arguments arguments = {.size = sizeof arguments,
                                .op = op,
                                .n_inputs = info->n_inputs,
                                .n_outputs = info->n_outputs,
                                .attributes = &attributes};
  run(&from, &arguments, info, inputs, outputs);
  for (int i = 0; i < ISO_MAX_INPUTS; i++)
    free(inputs[i]);
  for (int i = 0; i < ISO_MAX_OUTPUTS; i++)
    free(outputs[i]);
  return 0;
}
