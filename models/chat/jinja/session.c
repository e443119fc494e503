#include "models/chat/jinja/session.h"
#include "models/chat/jinja/text.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Under AddressSanitizer every allocation is a chunk of its own, so that it has red zones. */
#if defined(__SANITIZE_ADDRESS__)
enum { CHUNK_BYTES = 0 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { CHUNK_BYTES = 0 };
#else
enum { CHUNK_BYTES = 32 << 10 };
#endif
#else
enum { CHUNK_BYTES = 32 << 10 };
#endif

enum { ALIGNMENT = 16 };

struct iso_jinja_chunk {
  struct iso_jinja_chunk *next;
  size_t used, capacity;
  _Alignas(ALIGNMENT) char bytes[];
};

void iso_jinja_session_end(iso_jinja_session *session) {
  while (session->chunks) {
    struct iso_jinja_chunk *next = session->chunks->next;
    free(session->chunks);
    session->chunks = next;
  }
}

iso_status iso_jinja_fail(iso_jinja_session *session, iso_status code, const char *format, ...) {
  char text[900];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  for (char *c = text; *c; c++)
    if ((unsigned char)*c < ' ')
      *c = ' ';
  return iso_fail(code, "chat template line %u: %s", session->line, text);
}

static void *fail_allocation(iso_jinja_session *session, iso_status code, size_t bytes) {
  session->status =
      code == ISO_ERROR_LIMIT
          ? iso_jinja_fail(session, code, "%zu more bytes are over the memory limit", bytes)
          : iso_jinja_fail(session, code, "the system has no %zu bytes left", bytes);
  return NULL;
}

void *iso_jinja_allocate(iso_jinja_session *session, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 4)
    return fail_allocation(session, ISO_ERROR_LIMIT, SIZE_MAX);
  struct iso_jinja_chunk *chunk = session->chunks;
  size_t start = chunk ? (chunk->used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : 0;
  if (!chunk || bytes > chunk->capacity || start > chunk->capacity - bytes) {
    size_t capacity = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    size_t total = sizeof *chunk + (capacity ? capacity : 1);
    if (total > session->memory_left)
      return fail_allocation(session, ISO_ERROR_LIMIT, bytes);
    chunk = calloc(1, total);
    if (!chunk)
      return fail_allocation(session, ISO_ERROR_OUT_OF_MEMORY, bytes);
    session->memory_left -= total;
    chunk->capacity = capacity;
    start = 0;
    if (capacity > CHUNK_BYTES && session->chunks) { /* full at once: keep filling the newest */
      chunk->next = session->chunks->next;
      session->chunks->next = chunk;
    } else {
      chunk->next = session->chunks;
      session->chunks = chunk;
    }
  }
  chunk->used = start + bytes;
  return chunk->bytes + start;
}

/* Lengthens the newest allocation where it lies. */
static bool extend_in_place(iso_jinja_session *session, const char *bytes, size_t old_size,
                            size_t new_size) {
  struct iso_jinja_chunk *chunk = session->chunks;
  if (!chunk || !bytes || bytes + old_size != chunk->bytes + chunk->used ||
      new_size - old_size > chunk->capacity - chunk->used)
    return false;
  chunk->used += new_size - old_size;
  return true;
}

iso_status iso_jinja_grow(iso_jinja_session *session, void *array_pointer, uint32_t count,
                          uint32_t *capacity, size_t element_size) {
  if (count < *capacity)
    return ISO_OK;
  void *old;
  memcpy(&old, array_pointer, sizeof old);
  if (*capacity > UINT32_MAX / 2)
    return iso_jinja_fail(session, ISO_ERROR_LIMIT, "a list has too many elements");
  uint32_t wanted = *capacity ? *capacity * 2 : 4;
  if (!extend_in_place(session, old, *capacity * element_size, wanted * element_size)) {
    void *moved = iso_jinja_allocate(session, wanted, element_size);
    if (!moved)
      return iso_jinja_allocation_status(session);
    if (count)
      memcpy(moved, old, count * element_size);
    memcpy(array_pointer, &moved, sizeof moved);
  }
  *capacity = wanted;
  return ISO_OK;
}

iso_status iso_jinja_spend(iso_jinja_session *session, uint64_t steps) {
  if (steps > session->steps_left)
    return iso_jinja_fail(session, ISO_ERROR_LIMIT,
                          "the template takes too many steps; does it loop for ever?");
  session->steps_left -= steps;
  return ISO_OK;
}

iso_status iso_jinja_enter(iso_jinja_session *session) {
  if (session->depth_left == 0)
    return iso_jinja_fail(session, ISO_ERROR_LIMIT,
                          "nested too deeply; does a macro or a value contain itself?");
  session->depth_left--;
  return iso_jinja_spend(session, 1);
}

iso_status iso_jinja_append(iso_jinja_session *session, iso_jinja_buffer *buffer, const char *bytes,
                            size_t length) {
  if (length == 0)
    return ISO_OK;
  ISO_TRY(iso_jinja_spend(session, length / 64));
  if (length > session->buffer_limit - buffer->length)
    return iso_jinja_fail(session, ISO_ERROR_LIMIT, "a text grows past the limit of %zu bytes",
                          session->buffer_limit);
  size_t needed = buffer->length + length;
  if (needed > buffer->capacity) {
    size_t capacity = buffer->capacity * 2 < needed ? needed : buffer->capacity * 2;
    if (capacity < 64)
      capacity = 64;
    if (!extend_in_place(session, buffer->bytes, buffer->capacity, capacity)) {
      char *moved = iso_jinja_allocate(session, capacity, 1);
      if (!moved)
        return iso_jinja_allocation_status(session);
      if (buffer->length)
        memcpy(moved, buffer->bytes, buffer->length);
      buffer->bytes = moved;
    }
    buffer->capacity = capacity;
  }
  memcpy(buffer->bytes + buffer->length, bytes, length);
  buffer->length = needed;
  return ISO_OK;
}

iso_status iso_jinja_append_text(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                 const char *text) {
  return iso_jinja_append(session, buffer, text, strlen(text));
}

iso_status iso_jinja_append_repeated(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                     char character, size_t count) {
  char run[64];
  memset(run, character, sizeof run);
  for (size_t done = 0; done < count; done += sizeof run)
    ISO_TRY(iso_jinja_append(session, buffer, run,
                             count - done < sizeof run ? count - done : sizeof run));
  return ISO_OK;
}

iso_status iso_jinja_append_codepoint(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                      uint32_t codepoint) {
  char bytes[4];
  return iso_jinja_append(session, buffer, bytes, iso_jinja_encode(codepoint, bytes));
}

iso_jinja_value iso_jinja_buffer_string(const iso_jinja_buffer *buffer) {
  return iso_jinja_string(buffer->bytes ? buffer->bytes : "", buffer->length);
}
