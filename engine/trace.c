#include "engine/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <isomer/tensor.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "traces are written as they lie in the memory of a little-endian host"
#endif

typedef enum record_kind {
  RECORD_MODEL = 1,
  RECORD_STEP = 2,
  RECORD_VALUE = 3,
  RECORD_OUTPUT = 4,
  RECORD_END = 5
} record_kind;

typedef struct file_head {
  char magic[8];
  uint32_t version, reserved;
} file_head;

typedef struct record_head {
  uint32_t kind, reserved;
  uint64_t bytes;
} record_head;

typedef struct step_body {
  int32_t first_token, n_tokens;
} step_body;

typedef struct output_body {
  int32_t count, reserved;
} output_body;

static const char magic[8] = {'I', 'S', 'O', 'T', 'R', 'A', 'C', 'E'};

_Static_assert(sizeof(file_head) == 16 && sizeof(record_head) == 16 && sizeof(step_body) == 8 &&
                   sizeof(output_body) == 8 && sizeof(iso_trace_model) == 280 &&
                   sizeof(iso_trace_value_info) == 192 && sizeof(iso_trace_output) == 8,
               "the format has no padding");

static uint64_t padding_of(uint64_t bytes) { return -bytes & 7; }

/* ---- Writing --------------------------------------------------------------------------------- */

struct iso_trace_writer {
  iso_file_writer *file;
  uint64_t n_records;
};

/* Writes a record whose body is two parts. */
static iso_status write_record(iso_trace_writer *writer, record_kind kind, const void *first,
                               uint64_t first_bytes, const void *second, uint64_t second_bytes) {
  uint64_t bytes = first_bytes + second_bytes;
  record_head head = {.kind = kind, .bytes = bytes + padding_of(bytes)};
  ISO_TRY(iso_file_writer_append(writer->file, &head, sizeof head));
  ISO_TRY(iso_file_writer_append(writer->file, first, first_bytes));
  ISO_TRY(iso_file_writer_append(writer->file, second, second_bytes));
  ISO_TRY(iso_file_writer_pad(writer->file, padding_of(bytes)));
  writer->n_records++;
  return ISO_OK;
}

/* What is behind the NUL is zeroed too: equal traces are equal files. */
static void make_printable(char *text, size_t capacity) {
  size_t length = strnlen(text, capacity - 1);
  for (size_t i = 0; i < length; i++)
    if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7E)
      text[i] = '?';
  memset(text + length, 0, capacity - length);
}

static iso_status begin(iso_trace_writer *writer, const iso_trace_model *model,
                        const int32_t *tokens) {
  file_head head = {.version = ISO_TRACE_VERSION};
  memcpy(head.magic, magic, sizeof magic);
  ISO_TRY(iso_file_writer_append(writer->file, &head, sizeof head));
  iso_trace_model copy = *model;
  make_printable(copy.model, sizeof copy.model);
  make_printable(copy.device, sizeof copy.device);
  return write_record(writer, RECORD_MODEL, &copy, sizeof copy, tokens,
                      (uint64_t)model->n_tokens * sizeof *tokens);
}

iso_status iso_trace_writer_create(const char *path, const iso_trace_model *model,
                                   const int32_t *tokens, iso_trace_writer **out_writer) {
  iso_trace_writer *writer = calloc(1, sizeof *writer);
  if (!writer)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a trace");
  iso_status status = iso_file_writer_create(path, &writer->file);
  if (status == ISO_OK)
    status = begin(writer, model, tokens);
  if (status != ISO_OK) {
    iso_trace_writer_destroy(writer);
    return status;
  }
  *out_writer = writer;
  return ISO_OK;
}

iso_status iso_trace_write_step(iso_trace_writer *writer, int32_t first_token, int32_t n_tokens) {
  step_body body = {first_token, n_tokens};
  return write_record(writer, RECORD_STEP, &body, sizeof body, "", 0);
}

iso_status iso_trace_write_value(iso_trace_writer *writer, const iso_trace_value_info *info,
                                 const float *values) {
  iso_trace_value_info copy = *info;
  make_printable(copy.name, sizeof copy.name);
  make_printable(copy.kernel, sizeof copy.kernel);
  make_printable(copy.op, sizeof copy.op);
  return write_record(writer, RECORD_VALUE, &copy, sizeof copy, values,
                      (uint64_t)info->n_rows * (uint64_t)info->n_columns * sizeof *values);
}

iso_status iso_trace_write_output(iso_trace_writer *writer, const iso_trace_output *output,
                                  int32_t count) {
  output_body body = {.count = count};
  return write_record(writer, RECORD_OUTPUT, &body, sizeof body, output,
                      (uint64_t)count * sizeof *output);
}

iso_status iso_trace_writer_finish(iso_trace_writer *writer) {
  uint64_t n_records = writer->n_records;
  ISO_TRY(write_record(writer, RECORD_END, &n_records, sizeof n_records, "", 0));
  return iso_file_writer_commit(writer->file);
}

void iso_trace_writer_destroy(iso_trace_writer *writer) {
  if (!writer)
    return;
  iso_file_writer_destroy(writer->file);
  free(writer);
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* The bytes and how far they are read; records are walked twice, to count and to keep. */
typedef struct parser {
  const uint8_t *data;
  uint64_t size, offset;
  uint64_t n_records;
  iso_trace *trace;
  int32_t next_token;
  bool has_output, ended;
} parser;

static iso_status broken(const parser *p, const char *what) {
  return iso_fail(ISO_ERROR_CORRUPT_DATA, "trace: %s, in the record at byte %" PRIu64, what,
                  p->offset);
}

static bool is_text(const char *text, size_t capacity) {
  size_t length = strnlen(text, capacity);
  for (size_t i = 0; i < length; i++)
    if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7E)
      return false;
  return length < capacity;
}

/* Whether a body of `bytes` bytes holds a head and `count` elements, neither more nor less. */
static bool holds(uint64_t bytes, uint64_t head_bytes, uint64_t count, uint64_t element_bytes) {
  uint64_t needed;
  return !__builtin_mul_overflow(count, element_bytes, &needed) &&
         !__builtin_add_overflow(needed, head_bytes, &needed) &&
         !__builtin_add_overflow(needed, padding_of(needed), &needed) && needed == bytes;
}

static iso_status read_model(parser *p, const uint8_t *body, uint64_t bytes) {
  const iso_trace_model *model = (const void *)body;
  if (p->n_records != 0)
    return broken(p, "a second model");
  if (bytes < sizeof *model || model->n_tokens < 1 ||
      !holds(bytes, sizeof *model, (uint64_t)model->n_tokens, sizeof(int32_t)))
    return broken(p, "the model's size is wrong");
  if (!is_text(model->model, sizeof model->model) || !is_text(model->device, sizeof model->device))
    return broken(p, "a name is no text");
  if (model->n_layers < 1 || model->vocabulary_size < 1)
    return broken(p, "a model without layers or vocabulary");
  p->trace->model = model;
  p->trace->tokens = (const int32_t *)(const void *)(body + sizeof *model);
  for (int32_t i = 0; i < model->n_tokens; i++)
    if (p->trace->tokens[i] < 0 || p->trace->tokens[i] >= model->vocabulary_size)
      return broken(p, "a token outside the vocabulary");
  return ISO_OK;
}

static iso_status read_step(parser *p, const uint8_t *body, uint64_t bytes) {
  const step_body *step = (const void *)body;
  if (bytes != sizeof *step)
    return broken(p, "a step's size is wrong");
  if (p->has_output || step->first_token != p->next_token || step->n_tokens < 1 ||
      step->n_tokens > p->trace->model->n_tokens - p->next_token)
    return broken(p, "a step that does not follow the one before");
  p->next_token += step->n_tokens;
  if (p->trace->steps)
    p->trace->steps[p->trace->n_steps] =
        (iso_trace_step){step->first_token, step->n_tokens, p->trace->n_values, 0};
  p->trace->n_steps++;
  return ISO_OK;
}

static iso_status read_value(parser *p, const uint8_t *body, uint64_t bytes) {
  const iso_trace_value_info *info = (const void *)body;
  iso_trace *trace = p->trace;
  if (trace->n_steps == 0 || p->has_output)
    return broken(p, "a value outside the steps");
  if (bytes < sizeof *info || info->n_rows < 1 || info->n_rows > ISO_MAX_DIM ||
      info->n_columns < 1 || info->n_columns > ISO_MAX_DIM ||
      !holds(bytes, sizeof *info, (uint64_t)info->n_rows * (uint64_t)info->n_columns,
             sizeof(float)))
    return broken(p, "a value's size is wrong");
  if (!is_text(info->name, sizeof info->name) || !is_text(info->kernel, sizeof info->kernel) ||
      !is_text(info->op, sizeof info->op))
    return broken(p, "a name is no text");
  if (info->layer < -1 || info->layer > trace->model->n_layers || !isfinite(info->rounding) ||
      info->rounding < 0)
    return broken(p, "a value's layer or rounding is out of range");
  if (trace->values) {
    trace->values[trace->n_values] =
        (iso_trace_value){info, (const float *)(const void *)(body + sizeof *info)};
    trace->steps[trace->n_steps - 1].n_values++;
  }
  trace->n_values++;
  return ISO_OK;
}

static iso_status read_output(parser *p, const uint8_t *body, uint64_t bytes) {
  const output_body *head = (const void *)body;
  if (p->has_output || p->next_token != p->trace->model->n_tokens)
    return broken(p, "greedy tokens twice, or before the steps are through");
  if (bytes < sizeof *head || head->count < 0 ||
      !holds(bytes, sizeof *head, (uint64_t)head->count, sizeof(iso_trace_output)))
    return broken(p, "the size of the greedy tokens is wrong");
  const iso_trace_output *output = (const void *)(body + sizeof *head);
  for (int32_t i = 0; i < head->count; i++)
    if (output[i].token < 0 || output[i].token >= p->trace->model->vocabulary_size)
      return broken(p, "a token outside the vocabulary");
  p->has_output = true;
  p->trace->n_output = head->count;
  p->trace->output = output;
  return ISO_OK;
}

static iso_status read_end(parser *p, const uint8_t *body, uint64_t bytes) {
  uint64_t n_records;
  if (bytes != sizeof n_records)
    return broken(p, "the end's size is wrong");
  memcpy(&n_records, body, sizeof n_records);
  if (n_records != p->n_records || p->next_token != p->trace->model->n_tokens)
    return broken(p, "records are missing before the end");
  if (p->offset + sizeof(record_head) + bytes != p->size)
    return broken(p, "bytes after the end");
  p->ended = true;
  return ISO_OK;
}

static iso_status read_record(parser *p) {
  const record_head *head = (const void *)(p->data + p->offset);
  uint64_t left = p->size - p->offset;
  if (left < sizeof *head || head->bytes > left - sizeof *head || head->bytes % 8 != 0)
    return broken(p, "the file ends early, or a size is wrong");
  const uint8_t *body = p->data + p->offset + sizeof *head;
  if ((head->kind == RECORD_MODEL) != (p->n_records == 0))
    return broken(p, "the model is not the first record");
  switch (head->kind) {
  case RECORD_MODEL:
    ISO_TRY(read_model(p, body, head->bytes));
    break;
  case RECORD_STEP:
    ISO_TRY(read_step(p, body, head->bytes));
    break;
  case RECORD_VALUE:
    ISO_TRY(read_value(p, body, head->bytes));
    break;
  case RECORD_OUTPUT:
    ISO_TRY(read_output(p, body, head->bytes));
    break;
  case RECORD_END:
    ISO_TRY(read_end(p, body, head->bytes));
    break;
  default:
    return broken(p, "an unknown kind of record");
  }
  p->n_records++;
  p->offset += sizeof *head + head->bytes;
  return ISO_OK;
}

static iso_status walk(const uint8_t *data, uint64_t size, iso_trace *trace) {
  parser p = {.data = data, .size = size, .offset = sizeof(file_head), .trace = trace};
  trace->n_steps = trace->n_values = 0;
  while (!p.ended)
    ISO_TRY(read_record(&p));
  return ISO_OK;
}

static iso_status parse(const uint8_t *data, uint64_t size, iso_trace *trace) {
  file_head head;
  if ((uintptr_t)data % 8 != 0)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "trace: memory is not aligned to 8 bytes");
  if (size < sizeof head || memcmp(data, magic, sizeof magic) != 0)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "trace: the file is no trace");
  memcpy(&head, data, sizeof head);
  if (head.version != ISO_TRACE_VERSION)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "trace: the file has version %u, this program reads %d",
                    head.version, ISO_TRACE_VERSION);
  ISO_TRY(walk(data, size, trace));
  trace->steps = calloc((size_t)trace->n_steps, sizeof *trace->steps);
  trace->values = calloc((size_t)trace->n_values + 1, sizeof *trace->values);
  if (!trace->steps || !trace->values)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for the index of a trace");
  return walk(data, size, trace);
}

iso_status iso_trace_open_memory(const uint8_t *data, uint64_t size, iso_trace **out_trace) {
  iso_trace *trace = calloc(1, sizeof *trace);
  if (!trace)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a trace");
  iso_status status = parse(data, size, trace);
  if (status != ISO_OK) {
    iso_trace_close(trace);
    return status;
  }
  *out_trace = trace;
  return ISO_OK;
}

iso_status iso_trace_open(const char *path, iso_trace **out_trace) {
  iso_file_map map;
  ISO_TRY(iso_file_map_open(path, &map));
  iso_status status =
      iso_fail_context(iso_trace_open_memory(map.data, map.size, out_trace), "%s", path);
  if (status != ISO_OK)
    iso_file_map_close(&map);
  else
    (*out_trace)->map = map;
  return status;
}

void iso_trace_close(iso_trace *trace) {
  if (!trace)
    return;
  iso_file_map_close(&trace->map);
  free(trace->steps);
  free(trace->values);
  free(trace);
}

const iso_trace_value *iso_trace_find(const iso_trace *trace, uint32_t step, const char *name,
                                      uint32_t hint) {
  const iso_trace_step *in = &trace->steps[step];
  for (uint32_t i = 0; i < in->n_values; i++) {
    const iso_trace_value *value =
        &trace->values[in->first_value + (uint32_t)(((uint64_t)hint + i) % in->n_values)];
    if (strcmp(value->info->name, name) == 0)
      return value;
  }
  return NULL;
}
