/* Chat templates: from a conversation to the text that a model was trained to continue.
 *
 * A template is the jinja2 program that a model's files carry (tokenizer_config.json's or GGUF's
 * "tokenizer.chat_template"). It is rendered byte for byte as transformers renders it: jinja2's
 * immutable sandbox with trim_blocks, lstrip_blocks, loop controls, the generation tag, and
 * transformers' own tojson, raise_exception and strftime_now. What published templates use is
 * there; blocks, imports and includes, recursive loops, autoescape, integers beyond 64 bits, ranges
 * as text, and methods of str that no template is known to use are refused with an error.
 *
 * Both the template and the conversation are untrusted: steps, recursion, memory and output are
 * bounded, and running out is ISO_ERROR_LIMIT. Messages are one line, "chat template line 12:
 * ...". A template that refuses a conversation (raise_exception) is ISO_ERROR_INVALID_ARGUMENT.
 *
 * Thread safety: a template never changes after it is made, so any number of threads may render
 * it at once. */
#ifndef ISOMER_MODELS_CHAT_CHAT_TEMPLATE_H
#define ISOMER_MODELS_CHAT_CHAT_TEMPLATE_H

#include <cjson/cJSON.h>
#include <isomer/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef struct iso_chat_template iso_chat_template;

/* Bounds of one render; zero means the default. */
typedef struct iso_chat_limits {
  uint64_t steps;      /* 20,000,000: nodes evaluated, list elements and 64-byte pieces of text */
  uint32_t depth;      /* 600: nested expressions, statements, macro calls and values */
  size_t output_bytes; /* 32 MiB: the text, and any single string on the way */
  size_t memory_bytes; /* 256 MiB: all values of the render */
} iso_chat_limits;

/* What a template sees. Everything is borrowed for the length of the render. */
typedef struct iso_chat_input {
  const cJSON *messages;      /* array of objects; required */
  const cJSON *tools;         /* array of objects, or NULL: None */
  bool add_generation_prompt; /* end with the start of the assistant's turn */
  const char *bos_token;      /* NULL: undefined */
  const char *eos_token;      /* NULL: undefined */
  const cJSON *extra;         /* object of further variables (documents, enable_thinking, ...), or
                                 NULL; takes precedence over the above */
  time_t now;                 /* for strftime_now, in the process's time zone; 0: the clock */
  iso_chat_limits limits;
} iso_chat_input;

/* Parses `length` bytes of template source, at most 4 MiB; the source is copied. */
iso_status iso_chat_template_create(const char *source, size_t length,
                                    iso_chat_template **out_template);
void iso_chat_template_destroy(iso_chat_template *chat_template);

/* Renders a conversation. `*out_text` is NUL-terminated, `*out_length` its bytes without the NUL;
 * the caller frees it with free(). On failure neither is set. */
iso_status iso_chat_template_render(const iso_chat_template *chat_template,
                                    const iso_chat_input *input, char **out_text,
                                    size_t *out_length);

/* Lets templates print numbers as they were written: cJSON keeps only a double, so that 1 and 1.0
 * look alike and integers beyond 2^53 are rounded. Walks `json`, the `length` bytes that `root`
 * was parsed from, and keeps each number's spelling in its item's valuestring, which cJSON frees
 * and copies with the item and otherwise ignores. Without this, whole numbers up to 2^53 are
 * integers and all others floats. Fails, with `root` still usable, if memory runs out or the text
 * is not that of `root`. */
iso_status iso_chat_keep_number_spelling(cJSON *root, const char *json, size_t length);

#endif
