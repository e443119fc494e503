/* A file of requests through the engine. Lines are read as there is room, answers wait in a ring
 * for their turn and are written in the order of the lines; so what the output holds is always a
 * prefix of the answers, and a run that was cut goes on behind it. */
#include "tools/batch_line.h"
#include "tools/engine_options.h"
#include "tools/tool.h"

#include "core/json.h"
#include "core/progress.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_LINE = 64 << 20, MAX_ANSWER = 1 << 30, RING = 1024 };

typedef struct batch batch;

typedef struct ring_entry {
  batch *batch;
  iso_batch_line line;
  iso_request_id id;
  uint64_t n_bytes; /* of the line, and of blank ones before it */
  char *result;     /* ready to be written */
} ring_entry;

struct batch {
  const iso_options *options;
  iso_engine *engine;
  iso_sampling sampling;
  FILE *input, *output;
  char *line; /* read and not yet started */
  size_t line_capacity;
  ssize_t line_length;
  ring_entry ring[RING];
  int64_t first, next; /* lines in the ring: first <= index < next */
  int64_t n_kept, n_failed;
  uint64_t n_prompt, n_output;
  bool is_at_end;
  iso_progress_bar bar;
  /* Of the input, 0 where it is no file: from the first line to answer; of lines that were taken,
   * and of those that are answered. */
  uint64_t input_bytes, taken_bytes, answered_bytes;
};

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* ---- Answers ------------------------------------------------------------------------------- */

static iso_status finish_entry(ring_entry *entry, const char *error) {
  iso_status status = iso_batch_line_print(&entry->line, error, &entry->result);
  entry->batch->answered_bytes += entry->n_bytes;
  entry->batch->n_failed += error != NULL;
  iso_batch_line_destroy(&entry->line);
  return status;
}

static iso_flow on_event(void *context, const iso_event *event) {
  ring_entry *entry = context;
  iso_batch_line *line = &entry->line;
  switch (event->kind) {
  case ISO_EVENT_TEXT: {
    iso_text *text = &line->choices[event->choice].text;
    if (event->length > 0 && (iso_text_append(text, event->text, event->length) != ISO_OK ||
                              iso_text_append(text, "", 1) != ISO_OK))
      return ISO_FLOW_CANCEL;
    text->length -= event->length > 0; /* the NUL is behind the text */
    break;
  }
  case ISO_EVENT_CHOICE:
    line->choices[event->choice].reason = event->reason;
    break;
  case ISO_EVENT_DONE:
    line->usage = event->usage;
    entry->batch->n_prompt += (uint64_t)event->usage.n_prompt;
    entry->batch->n_output += (uint64_t)event->usage.n_output;
    /* Without memory for a result there is none, and the run ends when its turn comes. */
    if (finish_entry(entry, event->status == ISO_OK ? NULL : event->message) != ISO_OK)
      entry->result = NULL;
    entry->id = 0;
    break;
  }
  return ISO_FLOW_CONTINUE;
}

/* Writes the answers whose turn it is. */
static iso_status write_ready(batch *self) {
  for (; self->first < self->next; self->first++) {
    ring_entry *entry = &self->ring[self->first % RING];
    if (entry->id != 0)
      break;
    if (!entry->result)
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for the answer to line %lld",
                      (long long)self->first + 1);
    bool written = fputs(entry->result, self->output) >= 0 && fputc('\n', self->output) != EOF;
    free(entry->result);
    entry->result = NULL;
    if (!written)
      return iso_fail(ISO_ERROR_IO, "cannot write the answers: %s", strerror(errno));
  }
  return fflush(self->output) == 0
             ? ISO_OK
             : iso_fail(ISO_ERROR_IO, "cannot write the answers: %s", strerror(errno));
}

/* ---- Requests ------------------------------------------------------------------------------ */

/* The next line that is not blank, cut where it is longer than MAX_LINE; length -1 at the end. */
static iso_status read_line(batch *self) {
  do {
    self->line_length =
        iso_tool_read_line(&self->line, &self->line_capacity, MAX_LINE, self->input);
    if (self->line_length < 0 && !feof(self->input))
      return iso_fail(ISO_ERROR_IO, "cannot read the requests: %s", strerror(errno));
    bool is_cut = self->line_length > MAX_LINE && self->line[MAX_LINE] != '\n';
    for (int byte = 0; is_cut && byte != EOF && byte != '\n' && !iso_tool_interrupted();)
      byte = getc_unlocked(self->input);
  } while (self->line_length > 0 && strspn(self->line, " \t\r\n") == (size_t)self->line_length);
  return ISO_OK;
}

/* How far a file of requests has been read. */
static uint64_t bytes_read(const batch *self) {
  long at = self->input_bytes > 0 ? ftell(self->input) : -1;
  return at >= 0 ? (uint64_t)at : self->taken_bytes;
}

/* Starts the line at hand; false when the engine's queue is full. */
static iso_status start_line(batch *self, bool *out_started) {
  ring_entry *entry = &self->ring[self->next % RING];
  *entry = (ring_entry){.batch = self, .n_bytes = bytes_read(self) - self->taken_bytes};
  *out_started = true;
  iso_status status =
      self->line_length > MAX_LINE
          ? iso_fail(ISO_ERROR_LIMIT, "the line is longer than %d bytes", MAX_LINE)
          : iso_batch_line_read(self->engine, self->options, &self->sampling, self->line,
                                (size_t)self->line_length, self->next, &entry->line);
  entry->line.index = self->next;
  entry->line.hash = iso_batch_line_hash(self->line, (size_t)self->line_length);
  if (status == ISO_OK) {
    entry->line.request.on_event = on_event;
    entry->line.request.context = entry;
    status = iso_engine_submit(self->engine, &entry->line.request, &entry->id);
    if (status == ISO_ERROR_BUSY) {
      iso_batch_line_destroy(&entry->line);
      *out_started = false;
      return ISO_OK;
    }
  }
  self->next++;
  self->taken_bytes += entry->n_bytes;
  return status == ISO_OK ? ISO_OK : finish_entry(entry, iso_status_message());
}

static iso_status fill_ring(batch *self) {
  bool started = true;
  while (!self->is_at_end && started && self->next - self->first < RING) {
    if (self->line_length == 0)
      ISO_TRY(read_line(self));
    if (self->line_length < 0) {
      self->is_at_end = true;
      break;
    }
    ISO_TRY(start_line(self, &started));
    if (started)
      self->line_length = 0;
  }
  return ISO_OK;
}

/* Of what is answered, not of what was read ahead. The bar's end is that of the run. */
static void draw_progress(batch *self, bool is_over) {
  uint64_t all = self->input_bytes, done = self->answered_bytes;
  if (all > 0 && is_over)
    iso_progress_bar_update(&self->bar, "requests", all, all);
  else if (all > 0)
    iso_progress_bar_update(&self->bar, "requests", done < all ? done : all - 1, all);
}

static iso_status run(batch *self) {
  while (!iso_tool_interrupted()) {
    bool is_busy;
    ISO_TRY(fill_ring(self));
    ISO_TRY(write_ready(self));
    if (self->is_at_end && self->first == self->next) {
      draw_progress(self, true);
      return ISO_OK;
    }
    ISO_TRY(iso_engine_step(self->engine, &is_busy));
    draw_progress(self, false);
  }
  return write_ready(self);
}

/* ---- Files --------------------------------------------------------------------------------- */

/* Whether a line of the output is an answer to line `index`, and the hash of that line, 0 where it
 * is not told. */
static bool is_answer(const char *text, ssize_t length, int64_t index, uint64_t *out_hash) {
  cJSON *root = NULL;
  int64_t found = -1;
  const char *hash = "0";
  if (length < 2 || text[length - 1] != '\n' ||
      iso_json_parse(text, (size_t)length, 64, &root) != ISO_OK)
    return false;
  bool ok = iso_json_get_int(root, "index", 0, INT64_C(1) << 53, &found) == ISO_OK &&
            iso_json_get_optional_string(root, "line", &hash) == ISO_OK;
  *out_hash = strtoull(hash, NULL, 16);
  cJSON_Delete(root);
  return ok && found == index;
}

/* Whether a line is the beginning of the answer to line `index`, as a killed run leaves it. */
static bool is_cut_answer(const char *text, ssize_t length, int64_t index) {
  char head[40];
  int head_length = snprintf(head, sizeof head, "{\"index\":%lld,", (long long)index);
  size_t compared = (size_t)(length < head_length ? length : head_length);
  return text[length - 1] != '\n' && memcmp(text, head, compared) == 0;
}

/* Takes the line that an answer is there to: it is not asked again. */
static iso_status skip_line(batch *self, const char *path, uint64_t hash) {
  ISO_TRY(read_line(self));
  if (self->line_length < 0)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "%s is there already, and holds more answers than the %lld requests; give "
                    "another output, or remove it",
                    path, (long long)self->n_kept);
  if (hash != 0 && hash != iso_batch_line_hash(self->line, (size_t)self->line_length))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "%s is there already, and its line %lld answers another request than this "
                    "batch's; give another output, or remove it",
                    path, (long long)self->n_kept + 1);
  self->line_length = 0;
  return ISO_OK;
}

/* Goes behind the answers that the output holds. One that is cut is made again; anything else is no
 * file of answers, and is left as it is. */
static iso_status resume(batch *self, const char *path) {
  char *line = NULL;
  size_t capacity = 0;
  ssize_t length;
  off_t end = 0;
  uint64_t hash;
  iso_status status = ISO_OK;
  while (status == ISO_OK &&
         (length = iso_tool_read_line(&line, &capacity, MAX_ANSWER, self->output)) > 0 &&
         is_answer(line, length, self->n_kept, &hash)) {
    status = skip_line(self, path, hash);
    self->n_kept++;
    end += length;
  }
  bool is_foreign = length > 0 && !is_cut_answer(line, length, self->n_kept);
  free(line);
  ISO_TRY(status);
  if (length < 0 && !feof(self->output))
    return iso_fail(ISO_ERROR_IO, "cannot read %s: %s", path, strerror(errno));
  if (is_foreign)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "%s is there already, and its line %lld is no answer of this batch; give "
                    "another output, or remove it",
                    path, (long long)self->n_kept + 1);
  clearerr(self->output);
  if (fseeko(self->output, end, SEEK_SET) != 0 || ftruncate(fileno(self->output), end) != 0)
    return iso_fail(ISO_ERROR_IO, "cannot go on with %s: %s", path, strerror(errno));
  return ISO_OK;
}

/* Whether two open files are one. */
static bool is_same_file(FILE *a, FILE *b) {
  struct stat x, y;
  return fstat(fileno(a), &x) == 0 && fstat(fileno(b), &y) == 0 && x.st_dev == y.st_dev &&
         x.st_ino == y.st_ino;
}

static iso_status open_output(batch *self, const char *path) {
  struct stat facts;
  bool is_there = stat(path, &facts) == 0;
  /* A pipe or a device holds no answers, and reading it would wait for ever. */
  bool is_file = !is_there || S_ISREG(facts.st_mode);
  /* Nothing that is there is cut off, by another run meanwhile either. */
  int descriptor = is_file ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
  FILE *file = !is_file ? fopen(path, "w") : descriptor >= 0 ? fdopen(descriptor, "r+") : NULL;
  if (!file)
    return iso_fail(ISO_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
  self->output = file;
  if (is_file && is_same_file(self->input, file))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s holds the requests; give another output", path);
  /* Until the file is closed. Where the file system has no locks there is none. */
  if (is_file && flock(fileno(file), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return iso_fail(ISO_ERROR_BUSY,
                    "%s is being written by another program; wait for its end, or give another "
                    "output",
                    path);
  return is_file ? resume(self, path) : ISO_OK;
}

static iso_status open_files(batch *self) {
  const iso_options *options = self->options;
  if (options->words.n != 1)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "give one file of requests, one JSON object a "
                                                "line; - is standard input");
  const char *path = options->words.items[0];
  bool is_stdin = strcmp(path, "-") == 0;
  self->input = is_stdin ? stdin : fopen(path, "r");
  if (!self->input)
    return iso_fail(ISO_ERROR_NOT_FOUND, "cannot read %s: %s", path, strerror(errno));
  struct stat facts;
  if (!is_stdin && fstat(fileno(self->input), &facts) == 0 && S_ISREG(facts.st_mode))
    self->input_bytes = (uint64_t)facts.st_size;
  self->output = stdout;
  if (options->output && strcmp(options->output, "-") != 0)
    ISO_TRY(open_output(self, options->output));
  self->first = self->next = self->n_kept;
  uint64_t kept = bytes_read(self);
  self->input_bytes -= kept < self->input_bytes ? kept : self->input_bytes;
  self->taken_bytes = kept;
  return ISO_OK;
}

/* ---- The command --------------------------------------------------------------------------- */

static void print_summary(const batch *self, double seconds) {
  FILE *stream = stderr;
  if (self->n_kept > 0)
    fprintf(stream, "%lld answers were there already; ", (long long)self->n_kept);
  fprintf(stream,
          "%lld requests, %lld failed; %llu prompt and %llu output tokens in %.2f s: "
          "%.1f output tokens/s\n",
          (long long)(self->first - self->n_kept), (long long)self->n_failed,
          (unsigned long long)self->n_prompt, (unsigned long long)self->n_output, seconds,
          seconds > 0 ? (double)self->n_output / seconds : 0);
}

static void print_engine(iso_engine *engine) {
  iso_engine_stats stats;
  iso_engine_get_stats(engine, &stats);
  fprintf(stderr,
          "%s\n%llu steps of %.2f ms, %.3f ms between them; %llu tokens from the prefix cache, "
          "%llu preemptions, "
          "%llu of %llu drafts accepted\n",
          iso_engine_describe(engine), (unsigned long long)stats.n_steps,
          stats.step_us / 1e3 / (double)(stats.n_steps ? stats.n_steps : 1),
          stats.idle_us / 1e3 / (double)(stats.n_steps ? stats.n_steps : 1),
          (unsigned long long)stats.n_prefix_hit_tokens, (unsigned long long)stats.n_preempted,
          (unsigned long long)stats.n_accepted, (unsigned long long)stats.n_drafted);
}

static iso_status run_and_report(batch *self) {
  iso_tool_catch_end();
  double start = now();
  iso_status status = run(self);
  double seconds = now() - start;
  iso_progress_bar_end(&self->bar);
  if (status == ISO_OK)
    print_summary(self, seconds);
  if (status == ISO_OK && self->options->verbose)
    print_engine(self->engine);
  return status;
}

static void close_all(batch *self) {
  for (int64_t i = self->first; i < self->next; i++) {
    iso_batch_line_destroy(&self->ring[i % RING].line);
    free(self->ring[i % RING].result);
  }
  if (self->input && self->input != stdin)
    fclose(self->input);
  if (self->output && self->output != stdout)
    fclose(self->output);
  free(self->line);
  free(self);
}

iso_status iso_command_batch(iso_options *options, int *out_exit) {
  iso_model *model, *draft = NULL;
  ISO_TRY(iso_tool_open_model(options, false, &model));
  batch *self = calloc(1, sizeof *self);
  iso_status status = self ? ISO_OK : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a batch");
  iso_engine *engine = NULL;
  if (status == ISO_OK) {
    self->options = options;
    self->sampling = iso_tool_sampling(options);
    iso_progress_bar_begin(&self->bar, stderr);
    status = open_files(self);
  }
  if (status == ISO_OK)
    status = iso_tool_create_engine(model, options, &self->bar, &draft, &engine);
  if (status == ISO_OK) {
    self->engine = engine;
    status = run_and_report(self);
  }
  if (status == ISO_OK && (iso_tool_interrupted() || self->n_failed > 0))
    *out_exit = 1;
  /* What is under way ends here, with events into the ring, whose sentences are not the command's.
   */
  char reason[1024];
  snprintf(reason, sizeof reason, "%s", iso_status_message());
  iso_engine_destroy(engine);
  if (self)
    close_all(self);
  iso_model_close(draft);
  iso_model_close(model);
  return status == ISO_OK ? ISO_OK : iso_fail(status, "%s", reason);
}
