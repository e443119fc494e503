/* Answers each line of standard input, all at once: engine MODEL
 *
 *   cc engine.c -o engine $(pkg-config --cflags --libs isomer) */
#include <isomer/engine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct answer {
  char text[4096];
  size_t length;
} answer;

/* Called on the engine's thread. */
static iso_flow on_event(void *context, const iso_event *event) {
  answer *self = context;
  if (event->kind == ISO_EVENT_TEXT && event->length < sizeof self->text - self->length) {
    memcpy(self->text + self->length, event->text, event->length);
    self->length += event->length;
  }
  if (event->kind == ISO_EVENT_DONE)
    fprintf(stderr, "%d tokens, first after %.0f ms %s\n", event->usage.n_output,
            event->usage.first_token_us / 1e3, event->message);
  return ISO_FLOW_CONTINUE;
}

static iso_status ask(iso_engine *engine, const char *line, answer *out) {
  int32_t *ids = NULL, n_ids = 0;
  ISO_TRY(iso_engine_tokenize(engine, line, strlen(line), &ids, &n_ids));
  iso_request request = {.prompt = ids, .n_prompt = n_ids, .max_tokens = 32};
  request.sampling = iso_sampling_default();
  request.on_event = on_event;
  request.context = out;
  iso_status status = iso_engine_submit(engine, &request, NULL);
  free(ids);
  return status;
}

int main(int argc, char **argv) {
  static answer answers[1000];
  char line[4096];
  int n = 0;
  iso_model *model = NULL;
  iso_engine *engine = NULL;
  iso_engine_options options = {.runtime = {.devices = "cpu", .context = 1024}};
  iso_status status = iso_model_open(argc > 1 ? argv[1] : "", NULL, &model);
  if (status == ISO_OK)
    status = iso_engine_create(model, &options, &engine);
  if (status == ISO_OK)
    status = iso_engine_start(engine);
  while (status == ISO_OK && n < 1000 && fgets(line, sizeof line, stdin))
    status = ask(engine, line, &answers[n++]);
  if (status != ISO_OK)
    fprintf(stderr, "%s\n", iso_status_message());
  else
    iso_engine_drain(engine, UINT64_MAX);
  for (int i = 0; status == ISO_OK && i < n; i++)
    printf("%d: %.*s\n", i, (int)answers[i].length, answers[i].text);
  iso_engine_destroy(engine);
  iso_model_close(model);
  return (int)status;
}
