#include "tools/conversation.h"
#include "tools/generate.h"
#include "tools/tool.h"

#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

enum { MAX_LINE = 16 << 20 };

typedef struct chat {
  const iso_options *options;
  const iso_model *model;
  iso_engine *engine;
  iso_conversation conversation;
  char *answer; /* of this turn */
  size_t answer_length;
  EditLine *editor; /* NULL when standard input is no terminal */
  History *history;
} chat;

static char *prompt(EditLine *editor) {
  (void)editor;
  static char text[] = "> ";
  return text;
}

static bool on_text(void *context, const char *text, size_t length) {
  chat *self = context;
  char *grown = realloc(self->answer, self->answer_length + length + 1);
  if (!grown)
    return false;
  self->answer = grown;
  memcpy(grown + self->answer_length, text, length);
  self->answer_length += length;
  grown[self->answer_length] = 0;
  return fwrite(text, 1, length, stdout) == length && fflush(stdout) == 0;
}

/* What Ctrl-C cut short, a write too, is no failure. */
static void forget_interrupt(void) {
  if (iso_tool_interrupted()) {
    clearerr(stdin);
    clearerr(stdout);
  }
  iso_tool_clear_interrupt();
}

/* Answers the conversation as it stands. A context that is full says so and keeps the chat. */
static iso_status answer(chat *self) {
  int32_t *ids = NULL;
  size_t n_ids = 0;
  ISO_TRY(iso_conversation_tokenize(&self->conversation, self->model, &ids, &n_ids));
  iso_generation generation = {.on_text = on_text, .context = self};
  self->answer_length = 0;
  iso_tool_clear_interrupt();
  iso_tool_set_asking(false);
  iso_status status = iso_tool_generate(self->engine, self->options, ids, n_ids, &generation);
  iso_tool_set_asking(true);
  forget_interrupt();
  free(ids);
  ISO_TRY(status);
  printf("%s\n", generation.reason == ISO_STOP_CANCELLED ? " [stopped]" : "");
  if (generation.reason == ISO_STOP_LENGTH)
    puts("[the context or the token limit ended this answer]");
  const iso_usage *usage = &generation.usage;
  double output_us = iso_generation_output_us(&generation);
  if (self->options->verbose)
    fprintf(stderr, "[%d + %d tokens, %.1f/s]\n", usage->n_prompt - usage->n_cached,
            usage->n_output, usage->n_output / (output_us > 0 ? output_us : 1) * 1e6);
  return iso_conversation_add(&self->conversation, "assistant", self->answer ? self->answer : "");
}

static iso_status start_over(chat *self, const char *system) {
  iso_conversation_truncate(&self->conversation, 0);
  return system && *system ? iso_conversation_add(&self->conversation, "system", system) : ISO_OK;
}

/* A line that starts with '/'. */
static iso_status command(chat *self, const char *line, bool *out_leave) {
  if (strcmp(line, "/exit") == 0 || strcmp(line, "/quit") == 0) {
    *out_leave = true;
    return ISO_OK;
  }
  if (strcmp(line, "/reset") == 0)
    return start_over(self, self->options->system);
  if (strncmp(line, "/system ", 8) == 0)
    return start_over(self, line + 8);
  puts("/reset         forget the conversation\n"
       "/system TEXT   forget it and set the system prompt\n"
       "/exit          leave (so does Ctrl-D); Ctrl-C stops an answer");
  return ISO_OK;
}

/* Next line without its newline; NULL at the end of input. */
static iso_status read_line(chat *self, char **out_line) {
  *out_line = NULL;
  if (self->editor) {
    int count = 0;
    const char *text = el_gets(self->editor, &count);
    if (!text || count <= 0)
      return ISO_OK;
    *out_line = strndup(text, strcspn(text, "\n"));
    HistEvent event;
    if (*out_line && **out_line)
      history(self->history, &event, H_ENTER, *out_line);
    return ISO_OK;
  }
  size_t capacity = 0;
  ssize_t length = iso_tool_read_line(out_line, &capacity, MAX_LINE, stdin);
  if (length > MAX_LINE || length < 0) {
    free(*out_line);
    *out_line = NULL;
  }
  if (length > MAX_LINE)
    return iso_fail(ISO_ERROR_LIMIT, "a line of standard input is longer than %d bytes", MAX_LINE);
  if (!*out_line)
    return ISO_OK;
  length -= (*out_line)[length - 1] == '\n';
  length -= length > 0 && (*out_line)[length - 1] == '\r'; /* a file from elsewhere has both */
  (*out_line)[length] = 0;
  size_t first_nul = strlen(*out_line);
  if (first_nul == (size_t)length)
    return ISO_OK;
  free(*out_line);
  *out_line = NULL;
  return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                  "a line has a NUL byte at offset %zu; a chat message cannot", first_nul);
}

static iso_status turn(chat *self, const char *line) {
  int count = iso_conversation_count(&self->conversation);
  ISO_TRY(iso_conversation_add(&self->conversation, "user", line));
  iso_status status = answer(self);
  if (status == ISO_OK)
    return ISO_OK;
  /* The turn failed, the chat goes on: nothing of the turn stays. */
  iso_conversation_truncate(&self->conversation, count);
  fprintf(stderr, "isomer: %s\n", iso_status_message());
  return status == ISO_ERROR_LIMIT || status == ISO_ERROR_INVALID_ARGUMENT ? ISO_OK : status;
}

static iso_status loop(chat *self) {
  ISO_TRY(start_over(self, self->options->system));
  iso_tool_set_asking(true);
  for (bool leave = false; !leave;) {
    char *line;
    ISO_TRY(read_line(self, &line));
    bool is_interrupted = !line && iso_tool_interrupted();
    if (is_interrupted)
      putchar('\n');
    forget_interrupt();
    if (is_interrupted)
      continue;
    if (!line)
      break;
    iso_status status = ISO_OK;
    if (line[0] == '/')
      status = command(self, line, &leave);
    else if (line[strspn(line, " \t")])
      status = turn(self, line);
    free(line);
    ISO_TRY(status);
  }
  return ISO_OK;
}

static struct termios terminal; /* as it was before the editor */

static void on_end(int number) {
  if (tcgetpgrp(STDIN_FILENO) == getpgrp())
    tcsetattr(STDIN_FILENO, TCSANOW, &terminal);
  raise(number);
}

/* The editor reads keys one by one, unseen: whoever ends the program in the midst of a line must
 * not leave the terminal so to the shell. */
static void restore_terminal_at_end(void) {
  static const int numbers[] = {SIGTERM, SIGHUP, SIGQUIT};
  const struct sigaction action = {.sa_handler = on_end, .sa_flags = SA_RESETHAND};
  struct sigaction before;
  if (tcgetattr(STDIN_FILENO, &terminal) != 0)
    return;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
      sigaction(numbers[i], &action, NULL);
}

/* The editor drops letters that its locale does not have, and the program's is "C" until it says
 * otherwise. Text is UTF-8 here, whatever the environment says. */
static void take_all_letters(void) {
  if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
    (void)setlocale(LC_CTYPE, "C.UTF-8");
}

static void open_editor(chat *self) {
  HistEvent event;
  if (!isatty(STDIN_FILENO))
    return;
  restore_terminal_at_end();
  take_all_letters();
  self->history = history_init();
  self->editor = el_init("isomer", stdin, stdout, stderr);
  if (!self->editor || !self->history)
    return;
  history(self->history, &event, H_SETSIZE, 1000);
  el_set(self->editor, EL_PROMPT, prompt);
  el_set(self->editor, EL_EDITOR, "emacs");
  el_set(self->editor, EL_HIST, history, self->history);
  el_set(self->editor, EL_SIGNAL, 0);
  puts("Ctrl-C stops an answer, Ctrl-D leaves, /help lists commands.");
}

iso_status iso_command_chat(iso_options *options, int *out_exit) {
  (void)out_exit;
  iso_model *model, *draft = NULL;
  ISO_TRY(iso_tool_open_model(options, false, &model));
  chat self = {.options = options, .model = model};
  iso_status status = iso_model_get_chat_template(model)
                          ? iso_tool_create_single_engine(model, options, &draft, &self.engine)
                          : iso_fail(ISO_ERROR_UNSUPPORTED,
                                     "%s has no chat template; continue text with isomer "
                                     "run --raw",
                                     options->model);
  if (status == ISO_OK)
    status = iso_conversation_create(&self.conversation);
  if (status == ISO_OK) {
    iso_tool_catch_interrupt();
    open_editor(&self);
    status = loop(&self);
  }
  if (self.editor)
    el_end(self.editor);
  if (self.history)
    history_end(self.history);
  free(self.answer);
  iso_conversation_destroy(&self.conversation);
  iso_engine_destroy(self.engine);
  iso_model_close(draft);
  iso_model_close(model);
  return status;
}
