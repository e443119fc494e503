/* Drawing tokens: checks backends/simt/sample.cu against ops/sampling.c row by row, then times
 * every kind of row on its own, over logits of several shapes.
 *
 *   cuda_sample [ROWS]      (1 and 64 without)
 *
 * Wants the object of ops/sampling.c beside those that bench/kernels/cuda_bench.cuh names. */
#include "backends/simt/sample.cu"
#include "bench/kernels/cuda_bench.cuh"
extern "C" {
#include "ops/sampling.h"
}

static bench_card card;
static int failures;

enum { N_LOGITS = 128256, N_HISTORY = 4096 };

/* What rows ask for, in the order of iso_sample_parameter; the last number is reserved. */
static const struct {
  const char *name;
  float of[N_PARAMETERS];
} kinds[] = {
    {"greedy", {0, 0, 1, 0, 1, 0, 0, 0}},
    {"temperature", {1, 0, 1, 0, 1, 0, 0, 0}},
    {"top-k 40", {0.8f, 40, 1, 0, 1, 0, 0, 0}},
    {"top-k 40, top-p 0.95", {0.8f, 40, 0.95f, 0, 1, 0, 0, 0}},
    {"top-k 40, top-p, min-p", {0.8f, 40, 0.95f, 0.05f, 1, 0, 0, 0}},
    {"top-k 1000, top-p 0.95", {0.8f, 1000, 0.95f, 0, 1, 0, 0, 0}},
    {"top-p 0.95", {1, 0, 0.95f, 0, 1, 0, 0, 0}},
    {"top-p 0.5", {0.7f, 0, 0.5f, 0, 1, 0, 0, 0}},
    {"min-p 0.05", {1, 0, 1, 0.05f, 1, 0, 0, 0}},
    {"top-p 0.95, min-p 0.05", {1, 0, 0.95f, 0.05f, 1, 0, 0, 0}},
    {"temperature, penalties", {1, 0, 1, 0, 1.1f, 0.5f, 0.25f, 0}},
    {"top-k, top-p, penalties", {0.8f, 40, 0.95f, 0, 1.1f, 0.5f, 0.25f, 0}},
};

static float of_words(int64_t i) { /* as a language model has them: few likely, a long tail */
  double rank = 1 + (double)(i * 48271 % N_LOGITS);
  return (float)(18 - 1.3 * log(rank)) + 0.7f * bench_normal();
}
static float of_flat(int64_t) { return bench_normal(); }
static float of_steep(int64_t) { return 4 * bench_normal(); }
static float of_equal(int64_t i) { return i % 3 ? 0.5f : 0.25f; }
static const struct {
  const char *name;
  float (*logit)(int64_t token);
} shapes[] = {{"words", of_words}, {"flat", of_flat}, {"steep", of_steep}, {"equal", of_equal}};

static iso_tensor tensor_of(iso_buffer *buffer, iso_scheme scheme, int64_t rows, int64_t columns) {
  iso_tensor tensor = {};
  tensor.scheme = scheme, tensor.n_dims = columns > 0 ? 2 : 1, tensor.buffer = buffer;
  tensor.dims[0] = rows, tensor.dims[1] = columns;
  tensor.strides[0] = columns > 0 ? columns * 4 : 4, tensor.strides[1] = 4;
  return tensor;
}

template <typename T> static iso_buffer buffer_of(const std::vector<T> &from) {
  iso_buffer buffer = {};
  buffer.data = (uint8_t *)bench_device(from.data(), from.size());
  buffer.bytes = from.size() * sizeof(T);
  return buffer;
}

static void run(const char *shape, const std::vector<float> &logits, const char *kind,
                const float *of_kind, int rows) {
  std::vector<float> parameters;
  std::vector<int32_t> state, history((size_t)rows * N_HISTORY);
  for (int r = 0; r < rows; r++) {
    parameters.insert(parameters.end(), of_kind, of_kind + N_PARAMETERS);
    int32_t of_row[4] = {(int32_t)bench_random(), (int32_t)bench_random(),
                         (int32_t)(bench_random() % 1000), N_HISTORY / 2};
    state.insert(state.end(), of_row, of_row + 4);
  }
  for (auto &token : history)
    token = bench_random() % 2 ? -1 : (int32_t)(bench_random() % N_LOGITS);
  std::vector<int32_t> tokens(rows, -7);
  iso_buffer in[4] = {buffer_of(logits), buffer_of(parameters), buffer_of(state),
                      buffer_of(history)};
  iso_buffer out = buffer_of(tokens), scratch = {};
  iso_op_arguments a = {};
  a.size = sizeof a, a.op = ISO_OP_SAMPLE, a.n_inputs = 5, a.n_outputs = 1;
  a.inputs[0] = tensor_of(&in[0], ISO_SCHEME_F32, rows, N_LOGITS);
  a.inputs[1] = tensor_of(&in[1], ISO_SCHEME_F32, rows, N_PARAMETERS);
  a.inputs[2] = tensor_of(&in[2], ISO_SCHEME_I32, rows, 4);
  a.inputs[3] = tensor_of(&in[3], ISO_SCHEME_I32, rows, N_HISTORY);
  a.outputs[0] = tensor_of(&out, ISO_SCHEME_I32, rows, 0);
  scratch.bytes = workspace(&card.device, &a);
  scratch.data = bench_device<uint8_t>(nullptr, scratch.bytes);
  a.workspace = &scratch, a.workspace_bytes = scratch.bytes;
  BENCH_TRY(cudaMemset(scratch.data, 0xff, scratch.bytes));
  double us = bench_time(&card, 10, [&](int) { return launch(&card.queue, &a); });
  BENCH_TRY(cudaMemcpy(tokens.data(), out.data, rows * sizeof(int32_t), cudaMemcpyDeviceToHost));
  std::vector<iso_sample_candidate> candidates(N_LOGITS);
  int wrong = 0;
  for (int r = 0; r < rows; r++) {
    iso_sample_row row = {};
    row.logits = &logits[(size_t)r * N_LOGITS], row.n_logits = N_LOGITS;
    row.parameters = &parameters[(size_t)r * N_PARAMETERS];
    row.seed = (uint32_t)state[r * 4] | (uint64_t)(uint32_t)state[r * 4 + 1] << 32;
    row.draw = (uint32_t)state[r * 4 + 2];
    row.history = &history[(size_t)r * N_HISTORY], row.n_history = N_HISTORY;
    row.output_start = state[r * 4 + 3];
    int32_t token = -1;
    if (iso_sample_token(&row, candidates.data(), &token) != ISO_OK || token != tokens[r])
      wrong++;
  }
  failures += wrong;
  double floor = 4.0 * rows * (int)N_LOGITS / card.copy_bytes_per_us;
  printf("%2d rows, %-6s %-24s %8.1f us, floor %.1f, %d tokens differ\n", rows, shape, kind, us,
         floor, wrong);
  for (auto &buffer : in)
    BENCH_TRY(cudaFree(buffer.data));
  BENCH_TRY(cudaFree(out.data));
  BENCH_TRY(cudaFree(scratch.data));
}

int main(int argc, char **argv) {
  bench_open(&card);
  for (int rows : {1, 64}) {
    if (argc > 1 && atoi(argv[1]) != rows)
      continue;
    for (auto &shape : shapes) {
      std::vector<float> logits((size_t)rows * N_LOGITS);
      for (size_t i = 0; i < logits.size(); i++)
        logits[i] = shape.logit((int64_t)(i % N_LOGITS));
      for (auto &kind : kinds)
        run(shape.name, logits, kind.name, kind.of, rows);
    }
  }
  return failures != 0;
}
