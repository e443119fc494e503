/* The engine on other devices than one CPU, on memory full of rubbish, and on a device that fails.
 */
#include "tests/unit/engine_case.h"

#include "engine/engine.h"

enum { N = 12 };
static collected alone[N], out[N];

static iso_request make_request(int i, int32_t *prompt) {
  fill_prompt(prompt, 10 + 4 * i, (uint32_t)i);
  iso_request request = case_request(prompt, 10 + 4 * i, 30);
  request.n = 1 + i % 3;
  request.sampling.temperature = i % 2 ? 1.0f : 0;
  request.sampling.seed = (uint64_t)i;
  return request;
}

/* Pages are copied and swapped on whatever devices the layers are. */
static void check_devices(const char *devices, const char *split, const char *kv_type) {
  iso_engine_options options = case_options();
  options.runtime.devices = devices;
  options.runtime.split = split;
  options.runtime.kv_type = kv_type;
  iso_engine *engine = make_engine(model, &options);
  int32_t prompt[CASE_CONTEXT];
  for (int i = 0; i < N; i++)
    generate(engine, make_request(i, prompt), &alone[i]);
  iso_engine_destroy(engine);
  options.runtime.n_pages = 10;
  options.swap_memory_bytes = 4 << 20;
  options.speculation = ISO_SPECULATION_NGRAM;
  engine = make_engine(model, &options);
  memset(out, 0, sizeof out);
  for (int i = 0; i < N; i++)
    submit(engine, make_request(i, prompt), &out[i]);
  run_all(engine);
  for (int i = 0; i < N; i++)
    for (int c = 0; c < 1 + i % 3; c++)
      assert_same_tokens(&alone[i], c, &out[i], c);
  assert_true(stats_of(engine).n_swapped_pages > 0);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

static void test_one_cpu(void **state) {
  (void)state;
  check_devices("cpu", NULL, NULL);
  check_devices("cpu", NULL, "q8_0");
}

/* The cache takes the type of activations unless told otherwise. This model's heads are no whole
 * 128s. */
static void test_cache_type(void **state) {
  (void)state;
  const struct {
    const char *activation, *asked, *in_force; /* NULL: refused */
  } cases[] = {{NULL, NULL, "f32"},     {"bf16", NULL, "bf16"}, {"bf16", "q8_0", "q8_0"},
               {"int8", NULL, "bf16"},  {NULL, "q4_0", NULL},   {NULL, "i32", NULL},
               {NULL, "f8_g128", NULL}, {NULL, "nothing", NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    iso_runtime_options options = {.activation = cases[i].activation, .kv_type = cases[i].asked};
    iso_runtime *runtime = NULL;
    iso_status status = iso_runtime_create(model, &options, &runtime);
    if (cases[i].in_force) {
      CHECK(status);
      assert_string_equal(iso_runtime_get_options(runtime)->kv_type, cases[i].in_force);
    } else {
      assert_int_equal(status, ISO_ERROR_INVALID_ARGUMENT);
      assert_non_null(strstr(iso_status_message(), cases[i].asked));
    }
    iso_runtime_destroy(runtime);
  }
}

/* What a device may refuse to the host changes nothing of a device that refuses nothing, not even
 * where that is the host. */
static void test_host_as_its_own_fallback(void **state) {
  (void)state;
  iso_runtime *runtimes[2];
  for (int i = 0; i < 2; i++) {
    iso_runtime_options options = {.devices = "host", .allow_fallback = i == 1};
    CHECK(iso_runtime_create(model, &options, &runtimes[i]));
    const iso_runtime_options *in_force = iso_runtime_get_options(runtimes[i]);
    assert_string_equal(in_force->activation, "f32");
    assert_string_equal(in_force->kv_type, "f32");
    assert_int_equal(in_force->max_tokens, iso_runtime_get_options(runtimes[0])->max_tokens);
  }
  assert_non_null(strstr(iso_runtime_describe(runtimes[0]), "host ("));
  assert_string_equal(iso_runtime_describe(runtimes[0]), iso_runtime_describe(runtimes[1]));
  for (int i = 0; i < 2; i++)
    iso_runtime_destroy(runtimes[i]);
}

static void test_one_device_twice(void **state) {
  (void)state;
  static const char *const lists[] = {"cpu,cpu", "cpu,cpu:0", "host:0,cpu,host"};
  static const char *const words[] = {"device cpu is named twice", "device cpu:0 is named twice",
                                      "device host is named twice"};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    iso_device_list devices = {0};
    assert_int_equal(iso_device_list_open(lists[i], NULL, 3, NULL, false, &devices),
                     ISO_ERROR_INVALID_ARGUMENT);
    assert_string_equal(iso_status_message(), words[i]);
    iso_device_list_close(&devices);
  }
}

static void test_layers_on_two_devices(void **state) {
  (void)state;
  check_devices("host,cpu", "1,2", "f32");
  check_devices("cpu,host", "2,1", "f16");
}

/* Two CPUs have one memory, and its share is not given to each. Nothing is allocated: what is free
 * may change between the two, but not by half. */
static void test_share_of_one_memory(void **state) {
  (void)state;
  int32_t pages[2];
  for (int i = 0; i < 2; i++) {
    iso_device_list devices = {0};
    iso_runtime_options options = {
        .context = 64, .n_pages = INT32_MAX, .page_size = 64, .kv_type = "f32"};
    const iso_kv_budget budget = {.share = 0.5f};
    CHECK(iso_device_list_open(i ? "host,cpu" : "cpu", NULL, iso_model_get_config(model)->n_layers,
                               NULL, false, &devices));
    CHECK(iso_kv_budget_pages(&budget, model, &options, &devices, &pages[i]));
    iso_device_list_close(&devices);
  }
  assert_in_range(pages[1], pages[0] / 4 * 3, pages[0] / 4 * 5);
}

/* Pages are used again with NaN in them. */
static void test_rubbish_in_pages(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[CASE_CONTEXT];
  void *rubbish = malloc(engine->kv.page_bytes);
  assert_non_null(rubbish);
  memset(rubbish, 0xff, engine->kv.page_bytes);
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < N; i++) {
      collected *to = round == 0 ? &alone[i] : &out[i];
      iso_request request = make_request(i, prompt);
      request.no_prefix_cache = true;
      for (int32_t page = 0; round == 1 && page < engine->pool.n_pages; page++)
        CHECK(iso_kv_pages_upload(&engine->kv, page, rubbish));
      generate(engine, request, to);
      for (int c = 0; round == 1 && c < request.n; c++)
        assert_same_tokens(&alone[i], c, to, c);
    }
  free(rubbish);
  iso_engine_destroy(engine);
}

/* A step that fails ends everything with its sentence; nothing hangs, nothing is lost. */
static void test_failed_step(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[CASE_CONTEXT];
  memset(out, 0, sizeof out);
  CHECK(iso_engine_health(engine));
  engine->max_tokens = CASE_CONTEXT; /* more than the runtime takes */
  fill_prompt(prompt, 100, 1);
  submit(engine, case_request(prompt, 10, 10), &out[0]);
  submit(engine, case_request(prompt, 100, 10), &out[1]);
  bool is_busy;
  iso_status status = iso_engine_step(engine, &is_busy);
  assert_int_equal(status, ISO_ERROR_LIMIT);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(out[i].n_done, 1);
    assert_int_equal(out[i].status, status);
    assert_non_null(strstr(out[i].message, "tokens"));
  }
  assert_int_equal(iso_engine_health(engine), status);
  assert_int_equal(iso_engine_step(engine, &is_busy), status);
  iso_request request = case_request(prompt, 10, 10);
  assert_int_equal(iso_engine_submit(engine, &request, NULL), status);
  assert_non_null(strstr(iso_status_message(), "tokens"));
  assert_idle(engine);
  iso_engine_drain(engine, 0);
  iso_engine_destroy(engine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_cpu),
      cmocka_unit_test(test_cache_type),
      cmocka_unit_test(test_host_as_its_own_fallback),
      cmocka_unit_test(test_one_device_twice),
      cmocka_unit_test(test_layers_on_two_devices),
      cmocka_unit_test(test_share_of_one_memory),
      cmocka_unit_test(test_rubbish_in_pages),
      cmocka_unit_test(test_failed_step),
  };
  return cmocka_run_group_tests(tests, open_model, close_model);
}
