/* Small parts of the server: JSON out, keys, histograms, the mailbox and the workers. */
#include "core/json.h"
#include "server/server_internal.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void written_json_reads_back(void **state) {
  (void)state;
  iso_json_writer w = {0};
  iso_json_begin(&w, NULL, '{');
  iso_json_text(&w, "text", "a\"\\\n\t\x01\x7f\xF0\x9F\xA4\xB7 \xC3 \xED\xA0\x80 \xFF", 19);
  iso_json_begin(&w, "list", '[');
  iso_json_int(&w, NULL, -5);
  iso_json_number(&w, NULL, 0.5);
  iso_json_number(&w, NULL, INFINITY);
  iso_json_number(&w, NULL, NAN);
  iso_json_bool(&w, NULL, true);
  iso_json_end(&w, ']');
  iso_json_begin(&w, "empty", '{');
  iso_json_end(&w, '}');
  iso_json_string(&w, "last", "x");
  iso_json_end(&w, '}');
  assert_false(w.text.failed);
  cJSON *root = NULL;
  assert_int_equal(iso_json_parse(w.text.data, w.text.size, 8, &root), ISO_OK);
  assert_string_equal(cJSON_GetObjectItem(root, "text")->valuestring,
                      "a\"\\\n\t\x01\x7f\xF0\x9F\xA4\xB7 \xEF\xBF\xBD "
                      "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD \xEF\xBF\xBD");
  const cJSON *list = cJSON_GetObjectItem(root, "list");
  assert_int_equal(cJSON_GetArraySize(list), 5);
  assert_true(cJSON_IsNull(cJSON_GetArrayItem(list, 3)));
  assert_true(cJSON_GetArrayItem(list, 2)->valuedouble > 1e307);
  cJSON_Delete(root);
  free(w.text.data);
}

static void every_byte_pair_is_written_as_valid_json(void **state) {
  (void)state;
  for (int i = 0; i < 256 * 256; i++) {
    char bytes[4] = {(char)(i >> 8), (char)i, 'x', 0};
    iso_json_writer w = {0};
    cJSON *root = NULL;
    if (bytes[0] == 0 || bytes[1] == 0)
      continue; /* NUL is written as \u0000, which our own parser refuses */
    iso_json_text(&w, NULL, bytes, 3);
    assert_int_equal(iso_json_parse(w.text.data, w.text.size, 8, &root), ISO_OK);
    cJSON_Delete(root);
    free(w.text.data);
  }
}

static void keys_match_exactly(void **state) {
  (void)state;
  const char *keys[] = {"sk-one", "two"};
  assert_true(iso_api_key_matches(keys, 2, "sk-one"));
  assert_true(iso_api_key_matches(keys, 2, "two"));
  static const char *const wrong[] = {"", "tw", "twoo", "sk-onE", "sk-onesk-one", "twotwo"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_false(iso_api_key_matches(keys, 2, wrong[i]));
}

static void histograms_count(void **state) {
  (void)state;
  iso_metrics metrics;
  iso_metrics_init(&metrics);
  iso_histogram_add(&metrics.first_token_seconds, .001, 1);
  iso_histogram_add(&metrics.first_token_seconds, .002, 2);
  iso_histogram_add(&metrics.first_token_seconds, 1e6, 1);
  iso_metrics_count(&metrics, "/a", 200);
  iso_metrics_count(&metrics, "/a", 404);
  iso_printer text = {0};
  iso_metrics_print(&metrics, NULL, 3, 2, &text);
  assert_false(text.failed);
  static const char *const lines[] = {
      "isomer_first_token_seconds_bucket{le=\"0.001\"} 1\n",
      "isomer_first_token_seconds_bucket{le=\"0.0025\"} 3\n",
      "isomer_first_token_seconds_bucket{le=\"+Inf\"} 4\n",
      "isomer_first_token_seconds_count 4\n",
      "isomer_http_connections 3\n",
      "isomer_http_requests_total{route=\"/a\",status=\"4xx\"} 1\n"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    assert_non_null(strstr(text.data, lines[i]));
  free(text.data);
}

/* ---- Threads ---- */

enum { N_LETTERS = 2000, N_SENDERS = 4 };

typedef struct numbered_letter {
  iso_letter letter;
  int sender, number;
  struct post_box *box;
} numbered_letter;

typedef struct post_box {
  iso_mailbox *mailbox;
  struct event_base *base;
  int next[N_SENDERS], total;
} post_box;

static void deliver(iso_letter *letter) {
  numbered_letter *self = (numbered_letter *)letter;
  post_box *box = self->box;
  assert_int_equal(self->number, box->next[self->sender]++);
  free(self);
  if (++box->total == N_LETTERS * N_SENDERS)
    event_base_loopbreak(box->base);
}

typedef struct sender {
  iso_work work;
  post_box *box;
  int number;
} sender;

static void send_letters(iso_work *work) {
  sender *self = (sender *)work;
  for (int i = 0; i < N_LETTERS; i++) {
    numbered_letter *letter = calloc(1, sizeof *letter);
    assert_non_null(letter);
    *letter = (numbered_letter){{.deliver = deliver}, self->number, i, self->box};
    iso_mailbox_post(self->box->mailbox, &letter->letter);
  }
}

static void letters_of_many_workers_arrive_in_order(void **state) {
  (void)state;
  post_box box = {.base = event_base_new()};
  iso_workers *workers;
  sender senders[N_SENDERS];
  assert_int_equal(iso_mailbox_create(box.base, &box.mailbox), ISO_OK);
  assert_int_equal(iso_workers_create(N_SENDERS, &workers), ISO_OK);
  for (int i = 0; i < N_SENDERS; i++) {
    senders[i] = (sender){{.run = send_letters}, &box, i};
    iso_workers_submit(workers, &senders[i].work);
  }
  event_base_dispatch(box.base);
  assert_int_equal(box.total, N_LETTERS * N_SENDERS);
  iso_workers_destroy(workers);
  iso_mailbox_destroy(box.mailbox);
  event_base_free(box.base);
}

static void count_letter(iso_letter *letter) {
  numbered_letter *self = (numbered_letter *)letter;
  self->box->total++;
}

/* What is put lies there until somebody wakes the loop, which then takes all of it at once. */
static void letters_wait_for_a_wake(void **state) {
  (void)state;
  post_box box = {.base = event_base_new()};
  numbered_letter letters[4];
  assert_int_equal(iso_mailbox_create(box.base, &box.mailbox), ISO_OK);
  for (int i = 0; i < 4; i++)
    letters[i] = (numbered_letter){{.deliver = count_letter}, 0, i, &box};
  for (int round = 0; round < 2; round++) {
    iso_mailbox_wake(box.mailbox);
    iso_mailbox_put(box.mailbox, &letters[0].letter);
    iso_mailbox_put(box.mailbox, &letters[1].letter);
    event_base_loop(box.base, EVLOOP_NONBLOCK);
    assert_int_equal(box.total, 4 * round);
    iso_mailbox_wake(box.mailbox);
    iso_mailbox_put(box.mailbox, &letters[2].letter);
    iso_mailbox_post(box.mailbox, &letters[3].letter);
    event_base_loop(box.base, EVLOOP_NONBLOCK);
    assert_int_equal(box.total, 4 * round + 4);
  }
  iso_mailbox_put(box.mailbox, &letters[0].letter);
  iso_mailbox_destroy(box.mailbox);
  assert_int_equal(box.total, 9);
  event_base_free(box.base);
}

/* ---- Work that nobody waits for ---- */

typedef struct gate {
  iso_work work;
  pthread_mutex_t lock; /* held until it may end */
  int runs;
} gate;

static void pass(iso_work *work) {
  gate *self = (gate *)work;
  self->runs++;
  pthread_mutex_lock(&self->lock);
  pthread_mutex_unlock(&self->lock);
}

static void work_that_has_not_begun_is_taken_back(void **state) {
  (void)state;
  iso_workers *workers;
  gate gates[5] = {0};
  assert_int_equal(iso_workers_create(1, &workers), ISO_OK);
  for (int i = 0; i < 5; i++) {
    pthread_mutex_init(&gates[i].lock, NULL);
    gates[i].work.run = pass;
  }
  pthread_mutex_lock(&gates[0].lock);
  for (int i = 0; i < 4; i++)
    iso_workers_submit(workers, &gates[i].work);
  assert_true(iso_workers_take_back(workers, &gates[3].work)); /* the last */
  assert_false(iso_workers_take_back(workers, &gates[3].work));
  iso_workers_submit(workers, &gates[4].work);
  assert_true(iso_workers_take_back(workers, &gates[2].work)); /* from between */
  pthread_mutex_unlock(&gates[0].lock);
  iso_workers_destroy(workers); /* ends what is left */
  static const int runs[5] = {1, 1, 0, 0, 1};
  for (int i = 0; i < 5; i++) {
    assert_int_equal(gates[i].runs, runs[i]);
    pthread_mutex_destroy(&gates[i].lock);
  }
}

/* ---- The access log ---- */

static void a_log_that_nobody_reads_holds_up_nobody(void **state) {
  (void)state;
  enum { LINE = 3 * 4096 };
  static char line[LINE], taken[1 << 20];
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(fcntl(ends[1], F_SETPIPE_SZ, 4 * 4096), 4 * 4096);
  iso_access_log log = {.descriptor = ends[1]};
  memset(line, 'x', sizeof line);
  line[LINE - 1] = '\n';
  assert_true(iso_access_log_write(&log, line, sizeof line));
  alarm(20); /* a write that waits would wait for ever */
  assert_false(iso_access_log_write(&log, line, sizeof line));
  assert_false(iso_access_log_write(&log, line, sizeof line));
  alarm(0);
  ssize_t size = read(ends[0], taken, sizeof taken);
  assert_int_equal(size, 4 * 4096);
  assert_true(iso_access_log_write(&log, "y\n", 2));
  size = read(ends[0], taken, sizeof taken);
  assert_int_equal(size, 3); /* the line that was cut is ended first */
  assert_memory_equal(taken, "\ny\n", 3);
  close(ends[0]);
  close(ends[1]);
}

static void a_log_that_is_a_pipe_without_a_reader_is_refused(void **state) {
  (void)state;
  char folder[] = "/tmp/isomer-log-XXXXXX", path[64];
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/pipe", folder);
  assert_int_equal(mkfifo(path, 0600), 0);
  iso_access_log log;
  alarm(20);
  assert_int_equal(iso_access_log_open(&log, path), ISO_ERROR_IO);
  alarm(0);
  assert_non_null(strstr(iso_status_message(), path));
  unlink(path);
  rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(written_json_reads_back),
      cmocka_unit_test(every_byte_pair_is_written_as_valid_json),
      cmocka_unit_test(keys_match_exactly),
      cmocka_unit_test(histograms_count),
      cmocka_unit_test(letters_of_many_workers_arrive_in_order),
      cmocka_unit_test(letters_wait_for_a_wake),
      cmocka_unit_test(work_that_has_not_begun_is_taken_back),
      cmocka_unit_test(a_log_that_nobody_reads_holds_up_nobody),
      cmocka_unit_test(a_log_that_is_a_pipe_without_a_reader_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
