/* Requests whose answers are held to a grammar, among others. */
#include "core/json.h"
#include "engine_case.h"

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"ab\",\"cd\",\"ef\"]},\"n\":{\"type\":"
    "\"integer\",\"minimum\":10,\"maximum\":99},\"l\":{\"type\":\"array\",\"items\":{\"type\":"
    "\"boolean\"},\"maxItems\":2}},\"required\":[\"k\",\"n\",\"l\"]}";

static iso_grammar *grammar_of(iso_engine *engine, const char *text) {
  iso_grammar *grammar;
  CHECK(iso_grammar_create(engine, text, strlen(text), &grammar));
  return grammar;
}

static iso_request held_request(const int32_t *prompt, int32_t n, iso_grammar *grammar) {
  iso_request request = case_request(prompt, n, 90);
  request.ignore_end = false;
  request.grammar = grammar;
  return request;
}

/* An object with the three members, within their bounds. */
static void assert_fits(const collected *got, int choice) {
  cJSON *root = NULL;
  assert_int_equal(got->status, ISO_OK);
  assert_int_equal(got->reason[choice], ISO_STOP_END);
  CHECK(iso_json_parse(got->text[choice], got->length[choice], 8, &root));
  const cJSON *k = cJSON_GetObjectItemCaseSensitive(root, "k"),
              *n = cJSON_GetObjectItemCaseSensitive(root, "n"),
              *l = cJSON_GetObjectItemCaseSensitive(root, "l");
  assert_true(cJSON_IsString(k) && strlen(k->valuestring) == 2);
  assert_true(cJSON_IsNumber(n) && n->valueint >= 10 && n->valueint <= 99);
  assert_true(cJSON_IsArray(l) && cJSON_GetArraySize(l) <= 2);
  assert_int_equal(cJSON_GetArraySize(root), 3);
  cJSON_Delete(root);
}

static void test_answers_fit(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  iso_grammar *grammar = grammar_of(engine, schema);
  static collected got;
  int32_t prompt[5];
  for (uint32_t seed = 0; seed < 8; seed++) {
    fill_prompt(prompt, 5, seed);
    iso_request request = held_request(prompt, 5, grammar);
    request.sampling.temperature = seed % 2 ? 2.0f : 0;
    request.sampling.seed = seed;
    request.sampling.top_p = seed % 4 == 1 ? 0.9f : 1;
    request.sampling.repetition_penalty = seed % 4 == 3 ? 1.3f : 1;
    request.n = seed % 4 == 3 ? 4 : 1;
    generate(engine, request, &got);
    int n_shown = 0;
    for (int i = 0; i < (request.n ? request.n : 1); i++) {
      assert_fits(&got, i);
      n_shown += got.n_tokens[i];
    }
    assert_int_equal(n_shown, got.usage.n_output); /* the last one closes the object */
  }
  iso_grammar_release(grammar);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* Held and free requests in one batch: each as it is alone. */
static void test_others_do_not_notice(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  iso_grammar *grammar = grammar_of(engine, schema);
  static collected alone[8], together[8];
  int32_t prompt[8][6];
  for (int round = 0; round < 2; round++) {
    for (uint32_t i = 0; i < 8; i++) {
      fill_prompt(prompt[i], 6, 100 + i);
      iso_request request =
          i % 2 ? held_request(prompt[i], 6, grammar) : case_request(prompt[i], 6, 40);
      request.logprobs = true;
      request.sampling.temperature = i % 4 < 2 ? 0 : 1.5f;
      request.sampling.seed = i;
      memset(&together[i], 0, sizeof together[i]);
      if (round == 0)
        generate(engine, request, &alone[i]);
      else
        submit(engine, request, &together[i]);
    }
    run_all(engine);
  }
  for (int i = 0; i < 8; i++) {
    assert_same_tokens(&alone[i], 0, &together[i], 0);
    if (i % 2)
      assert_fits(&together[i], 0);
  }
  iso_grammar_release(grammar);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* With drafts for others, few pages and preemption, and several of a prompt. */
static void test_drafts_and_preemption(void **state) {
  (void)state;
  static collected expected, got[6];
  int32_t prompt[9];
  fill_prompt(prompt, 9, 5);
  iso_engine *plain = make_engine(model, NULL);
  iso_grammar *grammar = grammar_of(plain, schema);
  iso_request request = held_request(prompt, 9, grammar);
  generate(plain, request, &expected);
  assert_fits(&expected, 0);
  iso_grammar_release(grammar);
  iso_engine_destroy(plain);
  iso_engine_options options = case_options();
  options.speculation = ISO_SPECULATION_NGRAM;
  options.runtime.n_pages = 12;
  iso_engine *engine = make_engine(model, &options);
  grammar = grammar_of(engine, schema);
  request = held_request(prompt, 9, grammar);
  memset(got, 0, sizeof got);
  for (int i = 0; i < 6; i++)
    submit(engine, i < 4 ? request : case_request(prompt, 9, 80), &got[i]);
  iso_grammar_release(grammar); /* those under way hold it */
  run_all(engine);
  for (int i = 0; i < 4; i++) {
    assert_same_tokens(&expected, 0, &got[i], 0);
    assert_int_equal(got[i].usage.n_drafted, 0);
  }
  assert_true(stats_of(engine).n_preempted > 0);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

static void test_ends(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  static collected got;
  int32_t prompt[4];
  fill_prompt(prompt, 4, 9);
  /* Cut by the limit: the beginning of a text that fits. */
  iso_grammar *grammar = grammar_of(engine, schema);
  iso_request request = held_request(prompt, 4, grammar);
  request.max_tokens = 7;
  generate(engine, request, &got);
  assert_int_equal(got.reason[0], ISO_STOP_LENGTH);
  assert_int_equal(got.n_tokens[0], 7);
  assert_memory_equal(got.text[0], "{\"k\":", 5);
  /* A stop string cuts too, and is not shown. */
  static const char *const stop[] = {"\"n\""};
  request.max_tokens = 90;
  request.stop = stop;
  request.n_stop = 1;
  generate(engine, request, &got);
  assert_int_equal(got.reason[0], ISO_STOP_STRING);
  assert_null(strstr(got.text[0], "\"n\""));
  iso_grammar_release(grammar);
  /* A number may go on or end: the end token ends it. */
  grammar = grammar_of(engine, "{\"type\":\"integer\"}");
  request = held_request(prompt, 4, grammar);
  request.sampling.temperature = 3;
  int n_ends = 0;
  for (uint64_t seed = 0; seed < 20; seed++) {
    request.sampling.seed = seed;
    generate(engine, request, &got);
    char *end;
    strtoll(got.text[0], &end, 10);
    assert_true(got.length[0] > 0 && end == got.text[0] + got.length[0]);
    n_ends += got.length[0] < 18; /* of as many digits as there can be */
  }
  assert_true(n_ends > 0);
  /* A vocabulary that cannot write it, without the byte 0xC2 here, is told so. */
  iso_grammar_release(grammar);
  grammar = grammar_of(engine, "{\"const\":\"\xc2\xbf\"}");
  generate(engine, held_request(prompt, 4, grammar), &got);
  assert_int_equal(got.status, ISO_ERROR_UNSUPPORTED);
  assert_non_null(strstr(got.message, "vocabulary"));
  iso_grammar_release(grammar);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

static void test_what_does_not_go_together(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  iso_grammar *grammar = grammar_of(engine, schema);
  int32_t prompt[4];
  fill_prompt(prompt, 4, 9);
  for (int i = 0; i < 4; i++) {
    iso_request request = held_request(prompt, 4, grammar);
    request.beam_width = i == 0 ? 2 : 0;
    request.ignore_end = i == 1;
    request.min_tokens = i == 2 ? 5 : 0;
    request.embed = i == 3;
    assert_int_equal(iso_engine_submit(engine, &request, NULL), ISO_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(iso_status_message(), "grammar"));
  }
  iso_grammar_release(grammar);
  assert_int_equal(iso_grammar_create(engine, "{\"not\":{}}", 10, &grammar), ISO_ERROR_UNSUPPORTED);
  iso_grammar_release(NULL);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_answers_fit),
      cmocka_unit_test(test_others_do_not_notice),
      cmocka_unit_test(test_drafts_and_preemption),
      cmocka_unit_test(test_ends),
      cmocka_unit_test(test_what_does_not_go_together),
  };
  return cmocka_run_group_tests(tests, open_model, close_model);
}
