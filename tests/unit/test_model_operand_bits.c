/* Which products of a graph may not round their operands to 8 bits under one scale for 256, by the
 * scheme of weights. */
#include "check.h"

#include <isomer/graph.h>
#include <isomer/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/formats/gguf_writer.h"

enum { WIDTH = 256, LAYERS = 2, HEADS = 2 };

static char path[] = "/tmp/isomer-test-bits-XXXXXX";

/* A llama of zeros, all of whose matrices are square. */
static void write_model(iso_scheme scheme) {
  static const char *const keys[] = {"block_count",          "embedding_length",
                                     "attention.head_count", "attention.head_count_kv",
                                     "feed_forward_length",  "context_length"};
  static const uint32_t numbers[] = {LAYERS, WIDTH, HEADS, HEADS, WIDTH, 128};
  static const char *const parts[] = {"attn_norm", "attn_q",   "attn_k", "attn_v",  "attn_output",
                                      "ffn_norm",  "ffn_gate", "ffn_up", "ffn_down"};
  const int n_parts = sizeof parts / sizeof parts[0];
  const int64_t dims[2] = {WIDTH, WIDTH};
  static uint8_t zeros[WIDTH * WIDTH * sizeof(float)];
  iso_gguf_writer *writer;
  CHECK(iso_gguf_writer_create(path, &writer));
  CHECK(iso_gguf_writer_add_string(writer, "general.architecture", "llama"));
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    char key[64];
    snprintf(key, sizeof key, "llama.%s", keys[i]);
    CHECK(iso_gguf_writer_add_u32(writer, key, numbers[i]));
  }
  const iso_scheme_info *info = iso_scheme_get_info(scheme);
  for (int pass = 0; pass < 2; pass++)
    for (int i = -2; i < LAYERS * n_parts; i++) {
      char name[64];
      if (i < 0)
        snprintf(name, sizeof name, "%s.weight", i == -2 ? "token_embd" : "output_norm");
      else
        snprintf(name, sizeof name, "blk.%d.%s.weight", i / n_parts, parts[i % n_parts]);
      bool is_norm = strstr(name, "norm") != NULL;
      if (pass == 0)
        CHECK(iso_gguf_writer_add_tensor(writer, name, is_norm ? ISO_SCHEME_F32 : scheme,
                                         is_norm ? 1 : 2, dims));
      else
        CHECK(iso_gguf_writer_append(writer, zeros,
                                     is_norm ? WIDTH * sizeof(float)
                                             : (uint64_t)WIDTH * WIDTH / info->block_elements *
                                                   info->block_bytes));
    }
  CHECK(iso_gguf_writer_finish(writer));
  iso_gguf_writer_destroy(writer);
}

/* Names the products of the layers that may round to less, without "blk." and ".weight", and to
 * what: bits, or the neighbours of a scale of 8. */
static void list_finer(const char *model_path, uint32_t operand_bits, char *out, size_t capacity) {
  iso_model *model;
  iso_model_options options = {.no_tokenizer = true};
  CHECK(iso_model_open(model_path, &options, &model));
  iso_model_graph_options graph_options = {.max_tokens = 8,
                                           .max_sequences = 1,
                                           .max_logit_rows = 1,
                                           .n_pages = 2,
                                           .page_size = 64,
                                           .max_context = 128,
                                           .kv_scheme = ISO_SCHEME_F32,
                                           .activation = ISO_SCHEME_F32,
                                           .operand_bits = operand_bits};
  iso_graph *graph;
  CHECK(iso_model_build_graph(model, &graph_options, &graph));
  size_t length = 0;
  out[0] = 0;
  for (int32_t i = 0; i < iso_graph_node_count(graph); i++) {
    const iso_node_info *node = iso_graph_get_node(graph, i);
    if (node->op != ISO_OP_MATMUL || node->layer >= iso_model_get_config(model)->n_layers)
      continue;
    const iso_matmul_attributes *attributes = node->attributes;
    const char *name = iso_graph_get_value(graph, node->inputs[1])->name + strlen("blk.");
    bool by_neighbours = attributes->operand_bits == 8;
    if (!by_neighbours || attributes->operand_neighbours != 256)
      length += (size_t)snprintf(
          out + length, capacity - length, "%.*s%s%u ", (int)(strlen(name) - strlen(".weight")),
          name, by_neighbours ? "/" : ":",
          by_neighbours ? attributes->operand_neighbours : attributes->operand_bits);
    assert_true(length < capacity);
  }
  iso_graph_destroy(graph);
  iso_model_close(model);
}

static void test_files(void **state) {
  (void)state;
  static const struct {
    iso_scheme scheme;
    uint32_t operand_bits;
    const char *finer;
  } cases[] = {
      {ISO_SCHEME_Q4_0, 8, "0.attn_v:16 1.attn_v:16 1.ffn_up:16 1.ffn_down:16 "},
      {ISO_SCHEME_Q8_0, 8, "0.attn_v:16 1.attn_v:16 1.ffn_up:16 1.ffn_down:16 "},
      {ISO_SCHEME_Q4_K, 8, "0.attn_v:16 0.ffn_down/32 1.attn_v:16 1.ffn_up:16 1.ffn_down:16 "},
      {ISO_SCHEME_Q2_K, 8,
       "0.attn_q:16 0.attn_k:16 0.attn_v:16 0.attn_output:16 0.ffn_gate:16 0.ffn_up:16 "
       "0.ffn_down:16 "
       "1.attn_q:16 1.attn_k:16 1.attn_v:16 1.attn_output:16 1.ffn_gate:16 1.ffn_up:16 "
       "1.ffn_down:16 "},
      {ISO_SCHEME_BF16, 8, ""},
      {ISO_SCHEME_Q4_0, 0,
       "0.attn_q:0 0.attn_k:0 0.attn_v:0 0.attn_output:0 0.ffn_gate:0 0.ffn_up:0 0.ffn_down:0 "
       "1.attn_q:0 1.attn_k:0 1.attn_v:0 1.attn_output:0 1.ffn_gate:0 1.ffn_up:0 1.ffn_down:0 "}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char found[512];
    write_model(cases[i].scheme);
    list_finer(path, cases[i].operand_bits, found, sizeof found);
    assert_string_equal(found, cases[i].finer);
  }
}

/* Codes of 8 bits need no rounding, those of 4 bits do. */
static void test_checkpoints(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"quantized-int4", "0.attn_v:16 0.ffn_up:16 0.ffn_down:16 "},
      {"quantized-int8", ""},
      {"quantized-fp8", ""}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char folder[512], found[512];
    snprintf(folder, sizeof folder, "%s/tests/golden/models/%s", TEST_SOURCE_DIR, cases[i][0]);
    list_finer(folder, 8, found, sizeof found);
    assert_string_equal(found, cases[i][1]);
  }
}

int main(void) {
  int file = mkstemp(path);
  if (file < 0)
    return 1;
  close(file);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_files),
                                     cmocka_unit_test(test_checkpoints)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  unlink(path);
  return failed;
}
