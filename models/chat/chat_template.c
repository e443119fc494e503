#include "models/chat/chat_template.h"
#include "core/c_locale.h"
#include "models/chat/chat_values.h"
#include "models/chat/jinja/evaluate.h"
#include "models/chat/jinja/session.h"
#include <stdlib.h>
#include <string.h>

enum {
  SOURCE_LIMIT = 4 << 20,
  PARSE_DEPTH = 200,
  /* A node is 120 bytes, and a source byte makes one node and one token at most. */
  PARSE_MEMORY_PER_BYTE = 400,
  PARSE_MEMORY = 1 << 20
};

struct iso_chat_template {
  iso_jinja_session parsed; /* holds the nodes */
  iso_jinja_node *body;
};

iso_status iso_chat_template_create(const char *source, size_t length,
                                    iso_chat_template **out_template) {
  if (!source || !out_template)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "chat template: no source given");
  if (length > SOURCE_LIMIT)
    return iso_fail(ISO_ERROR_LIMIT, "chat template: %zu bytes of source, at most %d are allowed",
                    length, SOURCE_LIMIT);
  iso_chat_template *made = calloc(1, sizeof *made);
  if (!made)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "chat template: the system has no memory left");
  made->parsed.memory_left = PARSE_MEMORY + PARSE_MEMORY_PER_BYTE * length;
  made->parsed.buffer_limit = SOURCE_LIMIT;
  made->parsed.steps_left = UINT64_MAX; /* parsing is linear in the source */
  made->parsed.depth_left = PARSE_DEPTH;
  made->parsed.line = 1;
  iso_c_locale locale = iso_c_locale_enter();
  iso_status status = iso_jinja_parse(&made->parsed, source, length, &made->body);
  iso_c_locale_leave(locale);
  if (status != ISO_OK) {
    iso_chat_template_destroy(made);
    return status;
  }
  *out_template = made;
  return ISO_OK;
}

void iso_chat_template_destroy(iso_chat_template *chat_template) {
  if (!chat_template)
    return;
  iso_jinja_session_end(&chat_template->parsed);
  free(chat_template);
}

static iso_status define(iso_jinja_session *session, const char *name, iso_jinja_value value) {
  return iso_jinja_assign_name(session, iso_jinja_literal(name), value);
}

static iso_status define_json(iso_jinja_session *session, const char *name, const cJSON *item) {
  iso_jinja_value value;
  ISO_TRY(iso_chat_value_from_json(session, item, &value));
  return define(session, name, value);
}

static iso_status define_variables(iso_jinja_session *session, const iso_chat_input *input) {
  ISO_TRY(define_json(session, "messages", input->messages));
  ISO_TRY(define_json(session, "tools", input->tools));
  ISO_TRY(define(session, "documents", iso_jinja_none()));
  ISO_TRY(
      define(session, "add_generation_prompt", iso_jinja_boolean(input->add_generation_prompt)));
  if (input->bos_token)
    ISO_TRY(define(session, "bos_token", iso_jinja_literal(input->bos_token)));
  if (input->eos_token)
    ISO_TRY(define(session, "eos_token", iso_jinja_literal(input->eos_token)));
  for (const cJSON *item = input->extra ? input->extra->child : NULL; item; item = item->next)
    ISO_TRY(define_json(session, item->string, item));
  return ISO_OK;
}

static iso_status render(iso_jinja_session *session, const iso_jinja_node *body,
                         const iso_chat_input *input, char **out_text, size_t *out_length) {
  iso_jinja_buffer output = {0};
  session->output = &output;
  ISO_TRY(iso_jinja_open_scope(session));
  ISO_TRY(define_variables(session, input));
  ISO_TRY(iso_jinja_execute(session, body));
  char *text = malloc(output.length + 1);
  if (!text)
    return iso_jinja_fail(session, ISO_ERROR_OUT_OF_MEMORY, "the system has no %zu bytes left",
                          output.length + 1);
  if (output.length)
    memcpy(text, output.bytes, output.length);
  text[output.length] = 0;
  *out_text = text;
  *out_length = output.length;
  return ISO_OK;
}

static size_t or_default(size_t given, size_t fallback) { return given ? given : fallback; }

iso_status iso_chat_template_render(const iso_chat_template *chat_template,
                                    const iso_chat_input *input, char **out_text,
                                    size_t *out_length) {
  if (!chat_template || !input || !out_text || !out_length)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "chat template: an argument is NULL");
  if (!cJSON_IsArray(input->messages))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "chat template: messages must be an array");
  if (input->tools && !cJSON_IsArray(input->tools) && !cJSON_IsNull(input->tools))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "chat template: tools must be an array");
  if (input->extra && !cJSON_IsObject(input->extra))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "chat template: extra must be an object");
  const iso_chat_limits *limits = &input->limits;
  iso_jinja_session session = {
      .memory_left = or_default(limits->memory_bytes, (size_t)256 << 20),
      .buffer_limit = or_default(limits->output_bytes, (size_t)32 << 20),
      .steps_left = limits->steps ? limits->steps : 20000000,
      .depth_left = limits->depth ? limits->depth : 600,
      .line = 1,
      .now = input->now ? input->now : time(NULL),
  };
  iso_c_locale locale = iso_c_locale_enter(); /* dates, too, are as in English */
  iso_status status = render(&session, chat_template->body, input, out_text, out_length);
  iso_c_locale_leave(locale);
  iso_jinja_session_end(&session);
  return status;
}
