/* Quantized folders that cannot be held exactly are refused by name; E4M3 is exact for every code.
 * What is read right is in test_model_golden.c. */
#include "check.h"

#include <isomer/model.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/formats/safetensors.h"
#include "models/quantized.h"
#include "quant/e4m3.h"

typedef struct part {
  const char *name; /* NULL ends a list */
  iso_scheme scheme;
  int64_t dims[2];
} part;

#define L "model.layers.0.mlp.up_proj."
#define GPTQ_PARTS(columns, groups)                               \
  {                                                               \
    {L "qweight", ISO_SCHEME_I32, {(columns) / 8, 16}},           \
        {L "scales", ISO_SCHEME_F16, {groups, 16}},               \
        {L "qzeros", ISO_SCHEME_I32, {groups, 2}}, {              \
      NULL, ISO_SCHEME_F32, {0, 0}                                \
    }                                                             \
  }
#define CT(format, weights)                                                                    \
  "{\"quant_method\": \"compressed-tensors\", \"format\": \"" format                           \
  "\", \"config_groups\": {\"group_0\": {\"weights\": " weights "}}}"

static const struct {
  const char *description; /* quantization_config */
  const char *message;     /* part of the sentence */
  part parts[5];
  iso_status status; /* ISO_OK: unsupported */
} faults[] = {
    {"{\"group_size\": 64, \"bits\": 4}", "MLX", {{NULL, ISO_SCHEME_F32, {0, 0}}}},
    {"null, \"quantization\": {\"group_size\": 64, \"bits\": 4}", "MLX",
     {{NULL, ISO_SCHEME_F32, {0, 0}}}},
    {"{\"quant_method\": \"bitsandbytes\"}", "bitsandbytes", {{NULL, ISO_SCHEME_F32, {0, 0}}}},
    {"{\"quant_method\": \"gptq\", \"bits\": 3}", "3 bits", GPTQ_PARTS(256, 2)},
    {"{\"quant_method\": \"gptq\", \"bits\": 4, \"desc_act\": true}", "desc_act",
     GPTQ_PARTS(256, 2)},
    {"{\"quant_method\": \"gptq\", \"bits\": 4}", "8 groups in 256 columns", GPTQ_PARTS(256, 8)},
    {"{\"quant_method\": \"gptq\", \"bits\": 4}", "4 groups in 256 columns", GPTQ_PARTS(256, 4)},
    {"{\"quant_method\": \"gptq\", \"bits\": 4}", "1 groups in 96 columns", GPTQ_PARTS(96, 1)},
    {"{\"quant_method\": \"gptq\", \"bits\": 4}", "reorders columns",
     {{L "qweight", ISO_SCHEME_I32, {32, 16}},
      {L "scales", ISO_SCHEME_F16, {2, 16}},
      {L "qzeros", ISO_SCHEME_I32, {2, 2}},
      {L "g_idx", ISO_SCHEME_I32, {256, 0}}}},
    {"{\"quant_method\": \"gptq\", \"bits\": 4, \"format\": \"marlin\"}", "marlin",
     GPTQ_PARTS(256, 2)},
    {"{\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"gemv\"}", "gemv",
     {{NULL, ISO_SCHEME_F32, {0, 0}}}},
    {"{\"quant_method\": \"fp8\", \"weight_block_size\": [64, 128]}", "128x128",
     {{NULL, ISO_SCHEME_F32, {0, 0}}}},
    {CT("marlin-24", "{\"num_bits\": 4}"), "marlin-24", {{NULL, ISO_SCHEME_F32, {0, 0}}}},
    {CT("pack-quantized", "{\"num_bits\": 8}"), "8 bits", {{NULL, ISO_SCHEME_F32, {0, 0}}}},
    {CT("pack-quantized", "{\"num_bits\": 4, \"actorder\": \"group\"}"), "actorder",
     {{NULL, ISO_SCHEME_F32, {0, 0}}}},
    {"{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "
     "\"transform_config\": {\"config_groups\": {\"R4\": {\"apply\": "
     "[{\"location\": \"weight_input\"}, {\"location\": \"input\"}]}}}}",
     "turns values at \"input\"",
     {{NULL, ISO_SCHEME_F32, {0, 0}}}},
    {CT("pack-quantized", "{\"num_bits\": 4, \"symmetric\": false}"), "no weight_zero_point",
     {{L "weight_packed", ISO_SCHEME_I32, {16, 16}}, {L "weight_scale", ISO_SCHEME_BF16, {16, 1}}},
     ISO_ERROR_CORRUPT_DATA},
    {CT("int-quantized", "{\"num_bits\": 8}"), "no weight_scale",
     {{L "weight", ISO_SCHEME_I8, {16, 128}}, {NULL, ISO_SCHEME_F32, {0, 0}}}},
    {CT("int-quantized", "{\"num_bits\": 8}"), "zero points",
     {{L "weight", ISO_SCHEME_I8, {16, 128}},
      {L "weight_scale", ISO_SCHEME_BF16, {16, 1}},
      {L "weight_zero_point", ISO_SCHEME_I8, {16, 1}},
      {NULL, ISO_SCHEME_F32, {0, 0}}}},
    {CT("int-quantized", "{\"num_bits\": 8}"), "no quantization of [16, 128]",
     {{L "weight", ISO_SCHEME_I8, {16, 128}},
      {L "weight_scale", ISO_SCHEME_BF16, {8, 1}},
      {NULL, ISO_SCHEME_F32, {0, 0}}}},
};

static void write_folder(const char *folder, const char *description, const part *parts) {
  char path[128];
  snprintf(path, sizeof path, "%s/config.json", folder);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file, "{\"model_type\": \"llama\", \"quantization_config\": %s}", description);
  fclose(file);
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  iso_safetensors_writer *writer;
  CHECK(iso_safetensors_writer_create(path, &writer));
  static const part embedding = {"model.embed_tokens.weight", ISO_SCHEME_F32, {4, 4}};
  for (int pass = 0; pass < 2; pass++)
    for (int i = -1; i < 5 && (i < 0 || parts[i].name); i++) {
      const part *p = i < 0 ? &embedding : &parts[i];
      int n_dims = p->dims[1] ? 2 : 1;
      size_t bytes = (size_t)p->dims[0] * (size_t)(n_dims == 2 ? p->dims[1] : 1) *
                     iso_scheme_get_info(p->scheme)->block_bytes;
      if (pass == 0) {
        CHECK(iso_safetensors_writer_add_tensor(writer, p->name, p->scheme, n_dims, p->dims));
        continue;
      }
      uint8_t *zeros = calloc(bytes, 1);
      assert_non_null(zeros);
      CHECK(iso_safetensors_writer_append(writer, zeros, bytes));
      free(zeros);
    }
  CHECK(iso_safetensors_writer_finish(writer));
  iso_safetensors_writer_destroy(writer);
}

static void test_refusals(void **state) {
  (void)state;
  char folder[] = "/tmp/isomer-test-quantized-XXXXXX", path[128];
  assert_non_null(mkdtemp(folder));
  for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
    write_folder(folder, faults[i].description, faults[i].parts);
    iso_model *model = NULL;
    iso_model_options options = {.no_tokenizer = true};
    iso_status wanted = faults[i].status != ISO_OK ? faults[i].status : ISO_ERROR_UNSUPPORTED;
    if (iso_model_open(folder, &options, &model) != wanted ||
        !strstr(iso_status_message(), faults[i].message))
      fail_msg("case %zu (%s) was answered: %s", i, faults[i].message, iso_status_message());
  }
  snprintf(path, sizeof path, "%s/config.json", folder);
  unlink(path);
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  unlink(path);
  rmdir(folder);
}

/* Zero points are stored less one but in version 2, whichever key says so. */
static void test_gptq_versions(void **state) {
  (void)state;
  static const struct {
    const char *description;
    int zero_offset;
  } cases[] = {
      {"{\"quant_method\": \"gptq\", \"bits\": 4}", 1},
      {"{\"quant_method\": \"gptq\", \"bits\": 4, \"checkpoint_format\": \"gptq\"}", 1},
      {"{\"quant_method\": \"gptq\", \"bits\": 4, \"checkpoint_format\": \"gptq_v2\"}", 0},
      {"{\"quant_method\": \"gptq\", \"bits\": 4, \"format\": \"gptq_v2\"}", 0},
  };
  static const part parts[5] = GPTQ_PARTS(256, 2);
  char folder[] = "/tmp/isomer-test-quantized-XXXXXX", path[128];
  assert_non_null(mkdtemp(folder));
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    write_folder(folder, cases[i].description, parts);
    iso_hf_folder *opened;
    iso_quantized quantized;
    CHECK(iso_hf_folder_open(folder, false, &opened));
    CHECK(iso_quantized_open(opened, &quantized));
    assert_int_equal(quantized.count, 1);
    assert_int_equal(quantized.tensors[0].zero_offset, cases[i].zero_offset);
    iso_quantized_close(&quantized);
    iso_hf_folder_close(opened);
  }
  snprintf(path, sizeof path, "%s/config.json", folder);
  unlink(path);
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  unlink(path);
  rmdir(folder);
}

/* Values as the format defines them, and back. */
static void test_e4m3(void **state) {
  (void)state;
  for (int code = 0; code < 256; code++) {
    int exponent = code >> 3 & 15, mantissa = code & 7;
    float value = exponent ? ldexpf(1 + (float)mantissa / 8, exponent - 7)
                           : ldexpf((float)mantissa / 8, -6);
    if ((code & 0x7f) == 0x7f) {
      assert_true(isnan(iso_e4m3_to_f32((uint8_t)code)));
      continue;
    }
    value = code & 0x80 ? -value : value;
    assert_true(iso_e4m3_to_f32((uint8_t)code) == value);
    assert_int_equal(iso_e4m3_from_f32(value), code);
  }
  assert_int_equal(iso_e4m3_from_f32(0x1.1p0f), 0x38);  /* a tie goes to the even code */
  assert_int_equal(iso_e4m3_from_f32(0x1.3p0f), 0x3a);
  assert_int_equal(iso_e4m3_from_f32(-1e9f), 0xfe);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_gptq_versions),
                                     cmocka_unit_test(test_e4m3)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
