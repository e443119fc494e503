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
#define NAME "[a-z0-9]([a-z0-9]{0,20}|[a-z0-9]{0,10}-[a-z0-9]{1,10})"
#define HOST NAME "(\\." NAME "){0,3}\\.[a-z]{2,12}"

/* Part of what RFC 3339, 4122, 2673, 5321 and 3986 take: no leap day or second, and of addresses
 * plain ones. `least` and `most` characters. */
typedef struct string_format {
  const char *name, *pattern;
  int least, most;
} string_format;

static const string_format formats[] = {
    {"date", "^" DATE "$", 10, 10},
    {"time", "^" TIME "$", 9, 21},
    {"date-time", "^" DATE "T" TIME "$", 20, 32},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", 36, 36},
    {"ipv4", "^" BYTE "(\\." BYTE "){3}$", 7, 15},
    {"hostname", "^" HOST "$", 4, 105},
    {"email", "^[A-Za-z0-9_+-]{1,20}(\\.[A-Za-z0-9_+-]{1,20}){0,2}@" HOST "$", 6, 170},
    {"uri",
     "^https?://" HOST
     "(:[1-9]\\d{1,3})?(/[A-Za-z0-9._~-]{0,40}){0,6}(\\?[A-Za-z0-9._~=&-]{1,80})?$",
     11, 450},
};

static const string_format *find_format(const char *name) {
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (strcmp(formats[i].name, name) == 0)
      return &formats[i];
  return NULL;
}

/* The pattern of a format; NULL: it was refused. */
static const char *pattern_of(schema_compiler *self, const cJSON *schema, const char *name,
                              int least, int most) {
  const string_format *format = find_format(name);
  if (!format)
    iso_schema_refuse(self, schema, ISO_ERROR_UNSUPPORTED, "the format \"%.60s\" is not supported",
                      name);
  else if (least > format->least || (most >= 0 && most < format->most))
    iso_schema_refuse(self, schema, ISO_ERROR_UNSUPPORTED,
                      "the format \"%.60s\" has %d to %d characters here, and narrower bounds are "
                      "not supported",
                      name, format->least, format->most);
  else
    return format->pattern;
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
      !iso_schema_count(self, schema, "maxLength", INT32_MAX, &most))
    return AUTOMATON_DEAD;
  if (most >= 0 && most < least)
    return AUTOMATON_DEAD;
  if ((pattern && !cJSON_IsString(pattern)) || (format && !cJSON_IsString(format)))
    return iso_schema_refuse(self, schema, ISO_ERROR_INVALID_ARGUMENT,
                             "'pattern' and 'format' are strings");
  if (pattern && (format || least > 0 || most >= 0))
    return iso_schema_refuse(self, schema, ISO_ERROR_UNSUPPORTED,
                             "'pattern' is not supported beside 'format' or bounds of the length");
  if (!pattern && !format)
    return iso_automaton_range(automaton, '"', '"',
                               rest_of_length(self, least, most > MAX_LENGTH ? MAX_LENGTH : most));
  const char *text =
      pattern ? pattern->valuestring : pattern_of(self, schema, format->valuestring, least, most);
  if (!text)
    return AUTOMATON_DEAD;
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
