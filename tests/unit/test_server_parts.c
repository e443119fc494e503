/* Small parts of the server: JSON out, keys, histograms, the mailbox and the workers. */
#include "core/json.h"
#include "server/server_internal.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(written_json_reads_back),
                                     cmocka_unit_test(every_byte_pair_is_written_as_valid_json),
                                     cmocka_unit_test(keys_match_exactly),
                                     cmocka_unit_test(histograms_count),
                                     cmocka_unit_test(letters_of_many_workers_arrive_in_order)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
