/* Executors that replay their steps, and executors whose devices, weights or callers fail: at any
 * call, with nothing leaked. */
#include "tests/unit/executor_case.h"

/* The second run at the same sizes is recorded, later ones replay it, with new inputs each time. */
static void test_recorded(void **state) {
  (void)state;
  static const char *const specs[] = {"left", NULL};
  for (int kind = 0; kind < 2; kind++) {
    reset_fakes();
    fake_configs[0].deferred = kind;
    rig r = make_rig(&plain_model);
    must_open(&r, specs, NULL, -1, false);
    oracle *o = make_oracle(r.graph, r.weights);
    uint64_t random = 11;
    run_batch(&r, o, 3, (int[]){2, 1, 3}, 0, &random);
    for (int i = 0; i < 4; i++)
      run_batch(&r, o, 3, (int[]){1, 1, 1}, 3 + i, &random);
    assert_int_equal(fake_recorded, 1);
    assert_int_equal(fake_replayed, 3);
    /* As many other sizes as are kept: the oldest go, and are recorded anew. */
    for (int twice = 0; twice < 2; twice++)
      for (int n = 1, made = 0; n <= 4; n++)
        for (int rows = n; rows <= 16 && made < EXECUTOR_RECORDINGS; rows++, made++) {
          int lengths[4] = {1, 1, 1, 1};
          for (int i = n; i < rows; i++)
            lengths[i % n]++;
          if (lengths[0] <= FAKE_PAGE)
            run_batch(&r, o, n, lengths, 0, &random);
        }
    int recorded = fake_recorded;
    run_batch(&r, o, 2, (int[]){8, 8}, 0, &random);
    assert_int_equal(fake_recorded, recorded);
    assert_true(recorded > EXECUTOR_RECORDINGS / 2);
    free_oracle(o);
    free_rig(&r);
  }
}

/* Nothing is recorded where inputs are written in place, where a queue cannot, or where a step has
 * parts on two devices. */
static void test_not_recorded(void **state) {
  (void)state;
  static const char *const lists[][3] = {{"left"}, {"right"}, {"left:0", "left:1"}};
  const int32_t at = 1;
  for (int kind = 0; kind < 3; kind++) {
    reset_fakes();
    fake_configs[0].mappable = kind == 0;
    rig r = make_rig(&plain_model);
    must_open(&r, lists[kind], kind == 2 ? &at : NULL, -1, false);
    run_steps(&r);
    assert_int_equal(fake_recorded, 0);
    free_rig(&r);
  }
}

/* Work that fails only while it is recorded runs without, and is tried once. */
static void test_unrecordable(void **state) {
  (void)state;
  static const char *const specs[] = {"left", NULL};
  reset_fakes();
  fake_configs[0].unrecordable = 1 << ISO_OP_SAMPLE | 1 << ISO_OP_MATMUL;
  rig r = make_rig(&plain_model);
  must_open(&r, specs, NULL, -1, false);
  oracle *o = make_oracle(r.graph, r.weights);
  uint64_t random = 23;
  int calls[5];
  for (int i = 0; i < 5; i++) {
    int before = fake_calls;
    run_batch(&r, o, 2, (int[]){1, 1}, i, &random);
    calls[i] = fake_calls - before;
  }
  assert_int_equal(fake_recorded, 1); /* begun, and thrown away */
  assert_int_equal(fake_replayed, 0);
  assert_true(calls[1] > calls[0]);
  for (int i = 2; i < 5; i++)
    assert_int_equal(calls[i], calls[0]);
  /* Other sizes are tried for themselves. */
  fake_configs[0].unrecordable = 0;
  run_batch(&r, o, 1, (int[]){2}, 0, &random);
  run_batch(&r, o, 1, (int[]){2}, 0, &random);
  run_batch(&r, o, 1, (int[]){2}, 0, &random);
  assert_int_equal(fake_recorded, 2);
  assert_int_equal(fake_replayed, 2);
  free_oracle(o);
  free_rig(&r);
}

/* A fault anywhere in a step that is recorded or replayed: an error or the right tokens, and right
 * tokens afterwards. */
static void test_recording_faults(void **state) {
  (void)state;
  static const char *const specs[] = {"left", NULL};
  for (int at = 1; at < 400; at++) {
    reset_fakes();
    rig r = make_rig(&plain_model);
    must_open(&r, specs, NULL, -1, false);
    oracle *o = make_oracle(r.graph, r.weights);
    uint64_t random = 13;
    run_batch(&r, o, 1, (int[]){2}, 0, &random);
    iso_bindings bindings = set_batch(&r, o, 1, (int[]){2}, 0, &random);
    fake_fail_at = fake_calls + at;
    iso_status status = iso_executor_run(r.executor, &bindings);
    bool reached = fake_calls >= fake_fail_at;
    fake_fail_at = 0;
    evaluate(o, &bindings);
    if (status == ISO_OK)
      assert_same(&r, o, iso_graph_find(r.graph, "token"), 1);
    else
      assert_non_null(strstr(iso_status_message(), "injected fault"));
    run_batch(&r, o, 1, (int[]){2}, 0, &random);
    run_batch(&r, o, 1, (int[]){2}, 0, &random);
    free_oracle(o);
    free_rig(&r);
    if (!reached) {
      assert_true(at > 10);
      return;
    }
  }
  fail_msg("a step makes more calls than expected");
}

static void test_bad_runs(void **state) {
  (void)state;
  static const char *const specs[] = {"left", NULL};
  reset_fakes();
  rig r = make_rig(&plain_model);
  must_open(&r, specs, NULL, -1, false);
  const iso_bindings bad[] = {{{0, FAKE_TOKENS + 1, 1, 1}}, {{0, 1, -1, 1}}, {{0, 1, 1, 99}}};
  static const char *const words[] = {"T is 17 in this step; 0 to 16", "S is -1", "R is 99"};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(iso_executor_run(r.executor, &bad[i]), ISO_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(iso_status_message(), words[i]));
  }
  char byte[8];
  iso_value logits = iso_graph_find(r.graph, "logits");
  assert_int_equal(iso_executor_read(r.executor, 9999, byte, 1), ISO_ERROR_INVALID_ARGUMENT);
  assert_int_equal(iso_executor_read(r.executor, logits, byte, 1 << 20),
                   ISO_ERROR_INVALID_ARGUMENT);
  iso_value hidden = iso_graph_get_node(r.graph, 0)->outputs[0];
  assert_int_equal(iso_executor_read(r.executor, hidden, byte, 1), ISO_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(iso_status_message(), "is not kept after a step"));
  assert_null(iso_executor_peek(r.executor, hidden));
  assert_null(iso_executor_peek(r.executor, logits)); /* not mappable */
  assert_null(iso_executor_input(r.executor, logits));
  uint32_t device = 7;
  assert_null(iso_executor_state(r.executor, logits, &device));
  assert_non_null(iso_executor_state(r.executor, iso_graph_find(r.graph, "k_cache.1"), &device));
  assert_int_equal(device, 0);
  /* A slot that is not in the cache: the op fails, the next step works. */
  oracle *o = make_oracle(r.graph, r.weights);
  uint64_t random = 5;
  iso_bindings one = set_batch(&r, o, 1, (int[]){2}, 0, &random);
  int32_t *slots = iso_executor_input(r.executor, iso_graph_find(r.graph, "kv_slots"));
  slots[1] = INT32_MAX;
  assert_int_equal(iso_executor_run(r.executor, &one), ISO_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(iso_status_message(), "(kv_write in layer 0) on left by"));
  run_batch(&r, o, 1, (int[]){2}, 0, &random);
  free_oracle(o);
  free_rig(&r);
}

/* One device without an executor, and memory on it. */
typedef struct lone_device {
  iso_registry *registry;
  iso_open_device *open;
  iso_buffer *buffer;
} lone_device;

static lone_device open_lone(const char *spec, uint64_t bytes) {
  lone_device d;
  assert_int_equal(iso_registry_create(&d.registry), ISO_OK);
  assert_int_equal(iso_registry_add(d.registry, &fake_backends[0]), ISO_OK);
  assert_int_equal(iso_device_open(d.registry, spec, NULL, &d.open), ISO_OK);
  assert_int_equal(d.open->memory.alloc(d.open->device, ISO_MEMORY_DEVICE, bytes, &d.buffer),
                   ISO_OK);
  return d;
}

static void close_lone(lone_device *d) {
  d->open->memory.free(d->open->device, d->buffer);
  iso_device_close(d->open);
  iso_registry_destroy(d->registry);
  assert_int_equal(fake_live, 0);
}

/* Bytes come and go in order with what is already enqueued, in pieces where they must. */
static void test_transfers(void **state) {
  (void)state;
  enum { BYTES = (20 << 20) + 5 };
  char *sent = malloc(BYTES), *got = malloc(BYTES);
  assert_non_null(sent);
  assert_non_null(got);
  for (int i = 0; i < BYTES; i++)
    sent[i] = (char)(i % 251);
  for (int kind = 0; kind < 4; kind++) {
    reset_fakes();
    fake_configs[0].mappable = kind & 1;
    fake_configs[0].deferred = kind & 2;
    lone_device lone = open_lone("left:1", BYTES + 100);
    iso_open_device *device = lone.open;
    iso_buffer *buffer = lone.buffer;
    iso_queue *queue = device->queue;
    assert_int_equal(device->queue_table.fill(queue, buffer, 0, BYTES + 100, 'a'), ISO_OK);
    assert_int_equal(iso_device_download(device, buffer, 50, got, 100), ISO_OK);
    assert_true(got[0] == 'a' && got[99] == 'a');
    assert_int_equal(device->queue_table.fill(queue, buffer, 0, BYTES + 100, 'b'), ISO_OK);
    assert_int_equal(iso_device_upload(device, buffer, 7, sent, BYTES), ISO_OK);
    assert_int_equal(iso_device_download(device, buffer, 7, got, BYTES), ISO_OK);
    assert_memory_equal(got, sent, BYTES);
    assert_int_equal(iso_device_download(device, buffer, 0, got, 7), ISO_OK);
    assert_memory_equal(got, "bbbbbbb", 7);
    close_lone(&lone);
  }
  free(sent);
  free(got);
}

/* A transfer that fails leaves nothing under way in the memory that the next one uses. */
static void test_failed_transfers(void **state) {
  (void)state;
  enum { BYTES = 18 << 20 };
  char *sent = malloc(BYTES), *got = malloc(BYTES);
  assert_non_null(sent);
  assert_non_null(got);
  memset(sent, 'x', BYTES);
  reset_fakes();
  fake_configs[0].deferred = true;
  lone_device lone = open_lone("left", BYTES);
  iso_open_device *device = lone.open;
  iso_buffer *buffer = lone.buffer;
  assert_int_equal(iso_device_upload(device, buffer, 0, sent, BYTES), ISO_OK);
  for (int upload = 0; upload < 2; upload++) {
    iso_status status = ISO_ERROR_DEVICE;
    for (int at = 1; status != ISO_OK; at++) {
      fake_fail_at = fake_calls + at;
      status = upload ? iso_device_upload(device, buffer, 0, sent, BYTES)
                      : iso_device_download(device, buffer, 0, got, BYTES);
      assert_int_equal(device->queue->count, 0);
      if (status != ISO_OK)
        assert_non_null(strstr(iso_status_message(), "injected fault"));
      fake_fail_at = 0;
      assert_true(at < 100);
    }
  }
  close_lone(&lone);
  free(sent);
  free(got);
}

static void test_memory_is_checked_first(void **state) {
  (void)state;
  static const char *const right[] = {"right", NULL}, *const specs[] = {"left", NULL};
  rig r = make_rig(&plain_model);
  reset_fakes();
  fake_configs[1].memory_bytes = 100000;
  assert_int_equal(open_rig(&r, right, NULL, -1, false), ISO_ERROR_OUT_OF_MEMORY);
  if (!strstr(iso_status_message(), "right has 100000 bytes free, and "))
    fail_msg("%s", iso_status_message());
  assert_int_equal(r.weights->gets, 0);
  close_rig(&r);
  /* Weights that could be used in place are not counted; when they do not stay, they are. */
  reset_fakes();
  fake_configs[0] = (fake_config){.memory_bytes = 100000, .imports = true, .mappable = true};
  r.weights->stays = true;
  must_open(&r, specs, NULL, -1, false);
  run_steps(&r);
  close_rig(&r);
  r.weights->stays = false;
  assert_int_equal(open_rig(&r, specs, NULL, -1, false), ISO_ERROR_OUT_OF_MEMORY);
  assert_non_null(strstr(iso_status_message(), "bytes are needed"));
  assert_non_null(strstr(iso_status_message(), "weight "));
  assert_int_equal(r.weights->gets, r.weights->dones);
  free_rig(&r);
}

/* What is to spare for weights that do not stay is not given to each of two CPUs, which have one
 * memory. */
static void test_spare_memory_is_shared(void **state) {
  (void)state;
  static const char *const specs[] = {"left:0", "left:1", NULL};
  const int32_t at = 1;
  rig r = make_rig(&plain_model);
  for (int is_cpu = 0; is_cpu < 2; is_cpu++) {
    reset_fakes();
    fake_configs[0] =
        (fake_config){.memory_bytes = 1 << 26, .imports = true, .mappable = true, .is_cpu = is_cpu};
    must_open(&r, specs, &at, -1, false);
    uint64_t needed[2], copied[2] = {0};
    for (uint32_t i = 0; i < r.plan->n_weights; i++)
      copied[r.plan->weights[i].device] += r.executor->weights[i]->bytes;
    for (int d = 0; d < 2; d++)
      needed[d] = r.executor->devices[d].needed_bytes;
    close_rig(&r);
    /* Room for all that is counted, and for the larger share of the weights. */
    fake_configs[0].memory_bytes = is_cpu                  ? needed[0] + needed[1]
                                   : needed[0] > needed[1] ? needed[0]
                                                           : needed[1];
    fake_configs[0].memory_bytes += copied[0] > copied[1] ? copied[0] : copied[1];
    iso_status status = open_rig(&r, specs, &at, -1, false);
    assert_int_equal(status, is_cpu ? ISO_ERROR_OUT_OF_MEMORY : ISO_OK);
    if (is_cpu)
      assert_non_null(strstr(iso_status_message(), "bytes are needed"));
    close_rig(&r);
  }
  free_rig(&r);
}

static void test_broken_weight(void **state) {
  (void)state;
  static const char *const specs[] = {"left", NULL};
  reset_fakes();
  rig r = make_rig(&plain_model);
  r.weights->broken = "up.1";
  assert_int_equal(open_rig(&r, specs, NULL, -1, false), ISO_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(iso_status_message(), "weight up.1: the graph wants f32 [96, 64]"));
  assert_int_equal(r.weights->gets, r.weights->dones);
  free_rig(&r);
}

/* Packing that fails half-way is over before the weight's bytes go. */
static void test_broken_packing(void **state) {
  (void)state;
  static const char *const specs[] = {"left", NULL};
  reset_fakes();
  fake_configs[0].deferred = fake_configs[0].packs = fake_configs[0].breaks_packing = true;
  rig r = make_rig(&plain_model);
  assert_int_equal(open_rig(&r, specs, NULL, -1, false), ISO_ERROR_DEVICE);
  assert_non_null(strstr(iso_status_message(), "packing broke off"));
  assert_int_equal(r.weights->gets, r.weights->dones);
  assert_int_equal(r.weights->packing, 0);
  free_rig(&r);
}

/* Every call that can fail fails once: an error each time, nothing leaks, nothing crashes. */
static void test_faults(void **state) {
  (void)state;
  static const char *const specs[] = {"left", "right", NULL};
  fake_model model = {2, true, false, ISO_SCHEME_F32};
  const int32_t at = 1;
  rig r = make_rig(&model);
  for (int kind = 0; kind < 4; kind++) {
    bool failed = true;
    for (int n = 1; failed; n++) {
      reset_fakes();
      for (int i = 0; i < 2; i++) {
        fake_configs[i].deferred = kind & 1;
        fake_configs[i].packs = true;
        fake_configs[i].mappable = kind & 2;
        fake_configs[i].imports = true;
      }
      r.weights->stays = true;
      fake_fail_at = n;
      iso_status status = open_rig(&r, specs, &at, -1, false);
      if (status == ISO_OK) {
        iso_bindings bindings = {{0, 4, 1, 1}};
        int32_t *lengths = iso_executor_input(r.executor, iso_graph_find(r.graph, "query_length"));
        lengths[0] = 4;
        int32_t *context =
            iso_executor_input(r.executor, iso_graph_find(r.graph, "context_length"));
        context[0] = 4;
        status = iso_executor_run(r.executor, &bindings);
        float logits[FAKE_VOCABULARY];
        if (status == ISO_OK)
          status = iso_executor_read(r.executor, iso_graph_find(r.graph, "logits"), logits,
                                     sizeof logits);
      }
      failed = fake_calls >= n; /* before closing, whose failures are nobody's */
      /* A failed import or map falls back on a copy, so the fault may go unnoticed. */
      if (status != ISO_OK)
        assert_non_null(strstr(iso_status_message(), "injected fault"));
      fake_fail_at = 0;
      close_rig(&r);
      assert_int_equal(fake_live, 0);
      assert_true(n < 2000);
    }
  }
  free_rig(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_recorded),
      cmocka_unit_test(test_not_recorded),
      cmocka_unit_test(test_unrecordable),
      cmocka_unit_test(test_recording_faults),
      cmocka_unit_test(test_bad_runs),
      cmocka_unit_test(test_transfers),
      cmocka_unit_test(test_failed_transfers),
      cmocka_unit_test(test_memory_is_checked_first),
      cmocka_unit_test(test_spare_memory_is_shared),
      cmocka_unit_test(test_broken_weight),
      cmocka_unit_test(test_broken_packing),
      cmocka_unit_test(test_faults),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
