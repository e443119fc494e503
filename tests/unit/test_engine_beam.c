/* Beam search against Hugging Face transformers (tests/golden/engine/generate.py). */
#include "tests/unit/engine_case.h"

#include "core/file.h"
#include <cjson/cJSON.h>

static cJSON *cases;
static collected out;

static int set_up(void **state) {
  (void)state;
  model = open_case_model();
  char *text;
  size_t length;
  CHECK(iso_file_read(TEST_SOURCE_DIR "/tests/golden/engine/beams.json", 1 << 20, &text, &length));
  cases = cJSON_ParseWithLength(text, length);
  free(text);
  assert_true(cJSON_GetArraySize(cases) >= 20);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  cJSON_Delete(cases);
  iso_model_close(model);
  return 0;
}

static int32_t number(const cJSON *object, const char *name) {
  return (int32_t)cJSON_GetObjectItem(object, name)->valuedouble;
}

static int32_t read_tokens(const cJSON *array, int32_t *tokens) {
  int32_t n = 0;
  const cJSON *item;
  cJSON_ArrayForEach(item, array) tokens[n++] = (int32_t)item->valuedouble;
  return n;
}

static iso_request make_request(const cJSON *object, int32_t *prompt, int32_t *end) {
  int32_t n_prompt = read_tokens(cJSON_GetObjectItem(object, "prompt"), prompt);
  *end = number(object, "end");
  iso_request request = case_request(prompt, n_prompt, number(object, "max_tokens"));
  request.n = number(object, "n");
  request.beam_width = number(object, "beam_width");
  request.length_penalty = (float)cJSON_GetObjectItem(object, "length_penalty")->valuedouble;
  request.early_stopping = cJSON_IsTrue(cJSON_GetObjectItem(object, "early_stopping"));
  request.stop_tokens = end;
  request.n_stop_tokens = 1;
  return request;
}

static void compare(const cJSON *object, const collected *found) {
  const cJSON *answers = cJSON_GetObjectItem(object, "answers");
  assert_int_equal(found->status, ISO_OK);
  assert_int_equal(found->n_choices, cJSON_GetArraySize(answers));
  for (int i = 0; i < found->n_choices; i++) {
    const cJSON *answer = cJSON_GetArrayItem(answers, i);
    int32_t tokens[64], n = read_tokens(cJSON_GetObjectItem(answer, "tokens"), tokens);
    bool ended = cJSON_IsTrue(cJSON_GetObjectItem(answer, "ended"));
    assert_int_equal(found->reason[i], ended ? ISO_STOP_END : ISO_STOP_LENGTH);
    assert_int_equal(found->n_tokens[i], n);
    assert_memory_equal(found->tokens[i], tokens, (size_t)n * sizeof *tokens);
    double length = pow(n + ended, cJSON_GetObjectItem(object, "length_penalty")->valuedouble);
    assert_float_equal(found->cumulative[i] / length,
                       cJSON_GetObjectItem(answer, "score")->valuedouble, 1e-3);
  }
}

static void run_cases(const iso_engine_options *options) {
  iso_engine *engine = make_engine(model, options);
  const cJSON *object;
  int32_t prompt[CASE_CONTEXT], end;
  cJSON_ArrayForEach(object, cases) {
    generate(engine, make_request(object, prompt, &end), &out);
    compare(object, &out);
    assert_idle(engine);
  }
  iso_engine_destroy(engine);
}

static void test_equals_transformers(void **state) {
  (void)state;
  run_cases(NULL);
}

/* Fewer pages than the beams need together, one sequence a step: slower, not different. */
static void test_few_pages(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  options.runtime.n_pages = 4;
  options.runtime.max_sequences = 1;
  run_cases(&options);
  options.no_prefix_cache = true;
  options.swap_memory_bytes = 1 << 20;
  run_cases(&options);
}

/* All at once, beside requests of other kinds. */
static void test_together(void **state) {
  (void)state;
  enum { MOST = 32 };
  static collected found[MOST], other, alone;
  static int32_t ends[MOST];
  iso_engine_options options = case_options();
  options.runtime.max_sequences = 6;
  options.runtime.n_pages = 40;
  iso_engine *engine = make_engine(model, &options);
  int32_t prompt[CASE_CONTEXT];
  fill_prompt(prompt, 20, 77);
  iso_request plain = case_request(prompt, 20, 40);
  generate(engine, plain, &alone);
  memset(found, 0, sizeof found);
  memset(&other, 0, sizeof other);
  int n = cJSON_GetArraySize(cases);
  for (int i = 0; i < n; i++) {
    if (i == 5) {
      fill_prompt(prompt, 20, 77);
      submit(engine, plain, &other);
    }
    submit(engine, make_request(cJSON_GetArrayItem(cases, i), prompt, &ends[i]), &found[i]);
  }
  run_all(engine);
  for (int i = 0; i < n; i++)
    compare(cJSON_GetArrayItem(cases, i), &found[i]);
  assert_same_tokens(&other, 0, &alone, 0);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* The likeliest tokens of each place are those of the place. */
static void test_logprobs_of_beams(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[CASE_CONTEXT];
  fill_prompt(prompt, 20, 3);
  iso_request request = case_request(prompt, 20, 8);
  request.beam_width = request.n = 4;
  request.logprobs = true;
  request.n_top_logprobs = 1;
  generate(engine, request, &out);
  for (int c = 0; c < 4; c++) {
    static collected check;
    memcpy(prompt + 20, out.tokens[c], 8 * sizeof *prompt);
    iso_request replay = case_request(prompt, 28, 1);
    replay.prompt_logprobs = true;
    generate(engine, replay, &check);
    double sum = 0;
    for (int i = 0; i < 8; i++) {
      assert_float_equal(out.logprobs[c][i], check.prompt[20 + i].logprob, 1e-4);
      assert_true(out.top[c][i].logprob >= out.logprobs[c][i] - 1e-6f);
      sum += (double)out.logprobs[c][i];
    }
    assert_float_equal(out.cumulative[c], sum, 1e-3);
  }
  iso_engine_destroy(engine);
}

static void test_stop_string_ends_a_beam(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  static collected whole;
  int32_t prompt[CASE_CONTEXT];
  fill_prompt(prompt, 20, 8);
  iso_request request = case_request(prompt, 20, 12);
  request.beam_width = 3;
  generate(engine, request, &whole);
  char stop[2] = {0};
  for (size_t i = 1; i < whole.length[0] && !stop[0]; i++)
    if (!(whole.text[0][i] & 0x80))
      stop[0] = whole.text[0][i];
  assert_true(stop[0] != 0);
  const char *const stops[] = {stop};
  request.stop = stops;
  request.n_stop = 1;
  generate(engine, request, &out);
  assert_int_equal(out.n_choices, 1);
  assert_null(strchr(out.text[0], stop[0]));
  assert_idle(engine);
  iso_engine_destroy(engine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_equals_transformers),
      cmocka_unit_test(test_few_pages),
      cmocka_unit_test(test_together),
      cmocka_unit_test(test_logprobs_of_beams),
      cmocka_unit_test(test_stop_string_ends_a_beam),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
