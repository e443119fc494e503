#include "models/chat/jinja/evaluate.h"
#include "models/chat/jinja/session.h"

/* Tries the next source item against the loop's filter. */
static iso_status draw(iso_jinja_session *session, iso_jinja_loop *loop) {
  iso_jinja_value item = loop->source->items[loop->source_next++], passed;
  iso_jinja_scope *scope = session->scope;
  session->scope = loop->outer;
  ISO_TRY(iso_jinja_open_scope(session));
  ISO_TRY(iso_jinja_assign(session, loop->node->first, item));
  ISO_TRY(iso_jinja_evaluate(session, loop->node->third, &passed));
  session->scope = scope;
  return iso_jinja_is_true(passed) ? iso_jinja_list_append(session, loop->items, item) : ISO_OK;
}

iso_status iso_jinja_loop_has(iso_jinja_session *session, iso_jinja_loop *loop, uint32_t index,
                              bool *out_has) {
  while (loop->items != loop->source && loop->items->count <= index &&
         loop->source_next < loop->source->count)
    ISO_TRY(draw(session, loop));
  *out_has = index < loop->items->count;
  return ISO_OK;
}

static iso_status loop_length(iso_jinja_session *session, iso_jinja_loop *loop,
                              int64_t *out_length) {
  bool has;
  ISO_TRY(iso_jinja_loop_has(session, loop, UINT32_MAX, &has));
  *out_length = loop->items->count;
  return ISO_OK;
}

static iso_status get_index(iso_jinja_session *session, iso_jinja_loop *loop,
                            iso_jinja_value *out) {
  (void)session;
  *out = iso_jinja_integer((int64_t)loop->index + 1);
  return ISO_OK;
}

static iso_status get_index0(iso_jinja_session *session, iso_jinja_loop *loop,
                             iso_jinja_value *out) {
  (void)session;
  *out = iso_jinja_integer(loop->index);
  return ISO_OK;
}

static iso_status get_revindex(iso_jinja_session *session, iso_jinja_loop *loop,
                               iso_jinja_value *out) {
  int64_t length;
  ISO_TRY(loop_length(session, loop, &length));
  *out = iso_jinja_integer(length - loop->index);
  return ISO_OK;
}

static iso_status get_revindex0(iso_jinja_session *session, iso_jinja_loop *loop,
                                iso_jinja_value *out) {
  int64_t length;
  ISO_TRY(loop_length(session, loop, &length));
  *out = iso_jinja_integer(length - loop->index - 1);
  return ISO_OK;
}

static iso_status get_first(iso_jinja_session *session, iso_jinja_loop *loop,
                            iso_jinja_value *out) {
  (void)session;
  *out = iso_jinja_boolean(loop->index == 0);
  return ISO_OK;
}

static iso_status get_last(iso_jinja_session *session, iso_jinja_loop *loop, iso_jinja_value *out) {
  bool has;
  ISO_TRY(iso_jinja_loop_has(session, loop, loop->index + 1, &has));
  *out = iso_jinja_boolean(!has);
  return ISO_OK;
}

static iso_status get_length(iso_jinja_session *session, iso_jinja_loop *loop,
                             iso_jinja_value *out) {
  int64_t length;
  ISO_TRY(loop_length(session, loop, &length));
  *out = iso_jinja_integer(length);
  return ISO_OK;
}

/* Loops are not recursive here, so each is at the first level. */
static iso_status get_depth(iso_jinja_session *session, iso_jinja_loop *loop,
                            iso_jinja_value *out) {
  (void)session, (void)loop;
  *out = iso_jinja_integer(1);
  return ISO_OK;
}

static iso_status get_depth0(iso_jinja_session *session, iso_jinja_loop *loop,
                             iso_jinja_value *out) {
  (void)session, (void)loop;
  *out = iso_jinja_integer(0);
  return ISO_OK;
}

static iso_status get_previtem(iso_jinja_session *session, iso_jinja_loop *loop,
                               iso_jinja_value *out) {
  (void)session;
  *out = loop->index > 0 ? loop->items->items[loop->index - 1]
                         : iso_jinja_undefined_because("there is no previous item");
  return ISO_OK;
}

static iso_status get_nextitem(iso_jinja_session *session, iso_jinja_loop *loop,
                               iso_jinja_value *out) {
  bool has;
  ISO_TRY(iso_jinja_loop_has(session, loop, loop->index + 1, &has));
  *out = has ? loop->items->items[loop->index + 1]
             : iso_jinja_undefined_because("there is no next item");
  return ISO_OK;
}

static const struct {
  const char *name;
  iso_status (*get)(iso_jinja_session *session, iso_jinja_loop *loop, iso_jinja_value *out);
} attributes[] = {
    {"index", get_index},         {"index0", get_index0},     {"revindex", get_revindex},
    {"revindex0", get_revindex0}, {"first", get_first},       {"last", get_last},
    {"length", get_length},       {"depth", get_depth},       {"depth0", get_depth0},
    {"previtem", get_previtem},   {"nextitem", get_nextitem},
};

iso_status iso_jinja_loop_attribute(iso_jinja_session *session, iso_jinja_loop *loop,
                                    iso_jinja_value name, iso_jinja_value *out_value) {
  *out_value = (iso_jinja_value){.kind = ISO_JINJA_ABSENT};
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
    if (iso_jinja_is_text(name, attributes[i].name))
      return attributes[i].get(session, loop, out_value);
  return ISO_OK;
}
