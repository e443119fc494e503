#include "engine/grammar/schema_compiler.h"

#include <math.h>
#include <string.h>

#include "engine/grammar/pattern.h"

/* ---- Strings ------------------------------------------------------------------------------- */

enum { MAX_LENGTH = 2048 };

#define DAY "([12]\\d|0[1-9])"
#define DATE                                                                                       \
  "[12]\\d{3}-((0[13578]|1[02])-(" DAY "|3[01])|(0[469]|11)-(" DAY "|30)|02-(1\\d|0[1-9]|2[0-8]))"
#define TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"

/* RFC 3339, RFC 4122, RFC 2673; a leap day or second is never written. */
static const struct {
  const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"ipv4", "^" BYTE "(\\." BYTE "){3}$"},
};

static const char *pattern_of(const char *format) {
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (strcmp(formats[i].name, format) == 0)
      return formats[i].pattern;
  return NULL;
}

/* Hardly a token has more characters: while so many are left, the same tokens may come. */
enum { TOKEN_LENGTH = 16 };

/* What follows the opening quote. */
static uint32_t rest_of_length(schema_compiler *self, int least, int most) {
  iso_automaton *automaton = self->automaton;
  uint32_t twin = AUTOMATON_DEAD;
  const automaton_edge quote = {'"', '"', AUTOMATON_END};
  const automaton_characters any = iso_automaton_any_character();
  uint32_t state = most < 0 ? iso_automaton_call(automaton, JSON_STRING_REST, AUTOMATON_END)
                            : iso_automaton_range(automaton, '"', '"', AUTOMATON_END);
  for (int i = (most < 0 ? least : most) - 1; i >= 0 && automaton->status == ISO_OK; i--) {
    state = iso_automaton_character(automaton, any, i >= least ? &quote : NULL, state);
    if (i >= least && most - i == TOKEN_LENGTH)
      twin = state;
    else if (i >= least)
      iso_automaton_set_twin(automaton, state, twin);
  }
  return state;
}

uint32_t iso_schema_string(schema_compiler *self, const cJSON *schema) {
  iso_automaton *automaton = self->automaton;
  const cJSON *pattern = iso_schema_get(schema, "pattern"),
              *format = iso_schema_get(schema, "format");
  int least = 0, most = -1;
  if (!iso_schema_count(self, schema, "minLength", MAX_LENGTH, &least) ||
      !iso_schema_count(self, schema, "maxLength", MAX_LENGTH, &most))
    return AUTOMATON_DEAD;
  if (most >= 0 && most < least)
    return AUTOMATON_DEAD;
  if ((pattern && !cJSON_IsString(pattern)) || (format && !cJSON_IsString(format)))
    return iso_schema_refuse(self, schema, ISO_ERROR_INVALID_ARGUMENT,
                             "'pattern' and 'format' are strings");
  if ((pattern != NULL) + (format != NULL) + (least > 0 || most >= 0) > 1)
    return iso_schema_refuse(self, schema, ISO_ERROR_UNSUPPORTED,
                             "'pattern', 'format' and bounds of the length are not supported "
                             "beside each other");
  if (!pattern && !format)
    return iso_automaton_range(automaton, '"', '"', rest_of_length(self, least, most));
  const char *text = pattern ? pattern->valuestring : pattern_of(format->valuestring);
  if (!text)
    return iso_schema_refuse(self, schema, ISO_ERROR_UNSUPPORTED,
                             "the format \"%.60s\" is not supported", format->valuestring);
  return iso_automaton_range(automaton, '"', '"', iso_pattern_add(automaton, text, AUTOMATON_END));
}

/* ---- Numbers ------------------------------------------------------------------------------- */

/* false: it was refused. */
static bool read_bound(schema_compiler *self, const cJSON *schema, const char *key, bool is_integer,
                       double *out_value, bool *out_given) {
  const cJSON *item = iso_schema_get(schema, key);
  *out_given = item != NULL;
  if (!item)
    return true;
  *out_value = item->valuedouble;
  if (!cJSON_IsNumber(item)) {
    iso_schema_refuse(self, schema, ISO_ERROR_INVALID_ARGUMENT, "'%s' is no number", key);
    return false;
  }
  if (!is_integer && floor(*out_value) != *out_value) {
    iso_schema_refuse(self, schema, ISO_ERROR_UNSUPPORTED,
                      "'%s' of numbers is only supported where it is whole", key);
    return false;
  }
  return true;
}

static int64_t within(double value) {
  return value > (double)JSON_MAX_BOUND    ? JSON_MAX_BOUND
         : value < (double)-JSON_MAX_BOUND ? -JSON_MAX_BOUND
                                           : (int64_t)value;
}

/* Of integers, bounds that belong to them. */
static void make_whole(json_bounds *bounds, double least, double most) {
  double first = ceil(least), last = floor(most);
  bounds->least = within(bounds->above && first == least ? first + 1 : first);
  bounds->most = within(bounds->below && last == most ? last - 1 : last);
  bounds->above = bounds->below = false;
}

uint32_t iso_schema_number(schema_compiler *self, const cJSON *schema, bool is_integer) {
  double least = -(double)JSON_MAX_BOUND, most = (double)JSON_MAX_BOUND;
  double above = least, below = most;
  bool given[4];
  json_bounds bounds = {0};
  if (!read_bound(self, schema, "minimum", is_integer, &least, &given[0]) ||
      !read_bound(self, schema, "exclusiveMinimum", is_integer, &above, &given[1]) ||
      !read_bound(self, schema, "maximum", is_integer, &most, &given[2]) ||
      !read_bound(self, schema, "exclusiveMaximum", is_integer, &below, &given[3]))
    return AUTOMATON_DEAD;
  if (!given[0] && !given[1] && !given[2] && !given[3])
    return iso_automaton_call(self->automaton, is_integer ? JSON_INTEGER : JSON_NUMBER,
                              AUTOMATON_END);
  bounds.above = given[1] && (!given[0] || above >= least);
  bounds.below = given[3] && (!given[2] || below <= most);
  least = bounds.above ? above : least;
  most = bounds.below ? below : most;
  if (least > most || least > (double)JSON_MAX_BOUND || most < (double)-JSON_MAX_BOUND)
    return AUTOMATON_DEAD;
  bounds.least = within(least);
  bounds.most = within(most);
  if (!is_integer)
    return iso_json_numbers(self->automaton, &bounds, AUTOMATON_END);
  make_whole(&bounds, least, most);
  return bounds.least > bounds.most ? AUTOMATON_DEAD
                                    : iso_json_integers(self->automaton, &bounds, AUTOMATON_END);
}
