/* Schemas as automata: what they take, and that the tokens allowed are those that lead on. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/json.h"
#include "engine/grammar/grammar.h"
#include "models/tokenizer/byte_level.h"

/* ---- A vocabulary: a token a byte, some longer ones, special ones ---------------------------- */

enum { FIRST_BYTE = 2, N_VOCABULARY = 330 };

static const char *const longer[] = {
    "{\"",          "\":",  "\",",     "\": ", "\", \"", "\"}",      "\"}]}",     "}}",  "]]]]]]]]",
    "[[[[[[[[[[[[", "tr",   "true",    "alse", "null,",  "12",       "123456789", "0.",  "e5",
    "a\"",          "ab",   "abab",    "é",    "\xc3",   "\xa9\"",   "日本",      "\\n", "\\\"",
    "\\u00",        "name", "name\":", " ",    "  ",     "{\"a\": ", ", \"",      "1}",  "-1"};

static iso_tokenizer *tokenizer;
static iso_grammar_shelf shelf;

static void write_token(FILE *file, const char *bytes, size_t length, int id) {
  iso_text text = {0};
  CHECK(iso_byte_level_encode(bytes, length, &text));
  fprintf(file, ",\"");
  for (size_t i = 0; i < text.length; i++)
    fprintf(file, "%s%c", text.data[i] == '"' || text.data[i] == '\\' ? "\\" : "", text.data[i]);
  fprintf(file, "\":%d", id);
  iso_text_free(&text);
}

static void write_files(const char *folder) {
  char path[300];
  snprintf(path, sizeof path, "%s/tokenizer.json", folder);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file,
          "{\"added_tokens\":[{\"id\":1,\"content\":\"</s>\",\"special\":true,\"single_word\":"
          "false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false}],\"pre_tokenizer\":{"
          "\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},\"decoder\":{"
          "\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{"
          "\"<unk>\":0,\"</s>\":1");
  for (int i = 0; i < 256; i++)
    write_token(file, &(char){(char)i}, 1, FIRST_BYTE + i);
  int n = FIRST_BYTE + 256;
  for (size_t i = 0; i < sizeof longer / sizeof *longer; i++)
    if (strlen(longer[i]) > 1)
      write_token(file, longer[i], strlen(longer[i]), n++);
  assert_true(n <= N_VOCABULARY);
  fprintf(file, "}}}");
  fclose(file);
  snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
  file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file, "{\"eos_token\":\"</s>\"}");
  fclose(file);
}

static int set_up(void **state) {
  (void)state;
  char folder[] = "/tmp/isomer-grammar-XXXXXX", path[300];
  static const char *const made[] = {"tokenizer.json", "tokenizer_config.json"};
  assert_non_null(mkdtemp(folder));
  write_files(folder);
  CHECK(iso_tokenizer_create_from_folder(folder, &tokenizer));
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, made[i]);
    unlink(path);
  }
  rmdir(folder);
  CHECK(iso_grammar_shelf_init(&shelf));
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  iso_grammar_shelf_destroy(&shelf);
  iso_tokenizer_destroy(tokenizer);
  return 0;
}

static iso_grammar *compiled(const char *schema) {
  iso_grammar *grammar;
  const grammar_source source = {schema, strlen(schema), NULL};
  if (iso_grammar_shelf_get(&shelf, tokenizer, N_VOCABULARY, &source, &grammar) != ISO_OK)
    fail_msg("%s: %s", schema, iso_status_message());
  return grammar;
}

/* ---- What schemas take ----------------------------------------------------------------------- */

static bool takes(const char *schema, const char *text) {
  iso_grammar *grammar = compiled(schema);
  iso_grammar_state state;
  CHECK(iso_grammar_start(grammar, &state));
  bool ok = true;
  for (const char *at = text; ok && *at; at++)
    ok = iso_grammar_take(&state, FIRST_BYTE + (unsigned char)*at) == ISO_OK;
  ok = ok && iso_matcher_may_end(&state.matcher);
  iso_grammar_stop(&state);
  iso_grammar_release(grammar);
  return ok;
}

/* Texts that are taken, then those that are not; each list ends with NULL. */
typedef struct taken_case {
  const char *schema;
  const char *good[10], *bad[12];
} taken_case;

static const taken_case cases[] = {
    {"{}",
     {"1", "-0.5e-10", "\"a\\n\xc3\xa9\"", "[]", "[1, [2],{}]", "{\"a\":{\"b\": null}}", "true"},
     {"", "01", "+1", "[1,]", "{a:1}", " 1", "1 ", "\"\\x\"", "\"\xc3\"", "\"\n\"", "[ 1]"}},
    {"{\"type\":\"object\"}", {"{}", "{\"\":1}"}, {"[]", "1", "{", "{}{}"}},
    {"{\"type\":[\"integer\",\"null\"]}",
     {"0", "-7", "123456789012345678", "null"},
     {"-0", "1.0", "1234567890123456789", "nul", "\"1\""}},
    {"{\"type\":\"integer\",\"minimum\":-12,\"maximum\":105}",
     {"-12", "-1", "0", "9", "10", "99", "100", "105"},
     {"-13", "-20", "-100", "106", "110", "200", "1000", "00", "-0"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":1.5,\"exclusiveMaximum\":4}",
     {"2", "3"},
     {"1", "4", "-2"}},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
     {"0", "0.25", "0.999999999", "1", "1.0", "1.000"},
     {"1.01", "-0.1", "-1", "2", "1e0"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":-1,\"exclusiveMaximum\":0}",
     {"-0.5", "-0.001", "-0.999"},
     {"0", "-1", "-1.0", "-0", "-0.0", "0.1", "-1.5"}},
    {"{\"type\":\"string\",\"minLength\":1,\"maxLength\":2}",
     {"\"a\"", "\"ab\"", "\"\xc3\xa9\xe6\x97\xa5\"", "\"\\n\\\"\""},
     {"\"\"", "\"abc\"", "\"a", "\"\\u0041\""}},
    {"{\"type\":\"string\",\"minLength\":2}", {"\"ab\"", "\"abcdef\""}, {"\"a\"", "\"\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[A-Z]{2}-\\\\d+$\"}",
     {"\"AB-1\"", "\"ZZ-0123\""},
     {"\"AB-\"", "\"aB-1\"", "\"ABC-1\"", "\"AB-1x\""}},
    {"{\"type\":\"string\",\"pattern\":\"b|cd?\"}",
     {"\"b\"", "\"xxcdy\"", "\"\\nb\xc3\xa9\""},
     {"\"a\"", "\"\"", "\"d\""}},
    {"{\"type\":\"string\",\"pattern\":\"^(a\\\"|[^a-z])*$\"}",
     {"\"\"", "\"a\\\"\"", "\"A\\\\1\xc3\xa9\""},
     {"\"a\"", "\"b\""}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-28\"", "\"1999-12-31\"", "\"2001-04-30\""},
     {"\"2024-02-30\"", "\"1999-13-01\"", "\"2001-04-31\"", "\"0000-01-01\"", "\"x\""}},
    {"{\"type\":\"string\",\"format\":\"date-time\"}",
     {"\"2024-02-28T23:59:59Z\"", "\"2024-02-28T00:00:00.5+02:00\""},
     {"\"2024-02-28\"", "\"2024-02-28T24:00:00Z\"", "\"2024-02-28T23:59:59\""}},
    {"{\"type\":\"string\",\"format\":\"ipv4\"}",
     {"\"0.0.0.0\"", "\"255.249.199.10\""},
     {"\"256.1.1.1\"", "\"1.1.1\"", "\"01.1.1.1\""}},
    {"{\"type\":\"string\",\"format\":\"email\",\"maxLength\":320}",
     {"\"a@b.de\"", "\"a.b+c@sub.do-main.org\""},
     {"\"a\"", "\"a@b\"", "\".a@b.de\"", "\"a..b@c.de\"", "\"a@-b.de\""}},
    {"{\"type\":\"string\",\"format\":\"uri\",\"minLength\":1,\"maxLength\":2083}",
     {"\"http://a.de\"", "\"https://a.b-c.org:8080/x/y.html?q=1&r=2\""},
     {"\"a\"", "\"http://a\"", "\"http://a.de/ x\"", "\"ftp://a.de\""}},
    {"{\"type\":\"array\",\"maxItems\":1000000,\"items\":{\"maxLength\":100000}}",
     {"[\"a\"]"},
     {"[1]"}},
    {"{\"enum\":[\"a\",\"ab\",1,12,null,{\"x\":[1,2]},\"\xc3\xa9\\\"\"]}",
     {"\"a\"", "\"ab\"", "1", "12", "null", "{\"x\":[1,2]}", "\"\xc3\xa9\\\"\""},
     {"\"b\"", "2", "123", "\"abc\"", "{\"x\":[1, 2]}"}},
    {"{\"type\":\"string\",\"enum\":[\"a\",1]}", {"\"a\""}, {"1"}},
    {"{\"const\":false}", {"false"}, {"true"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"},"
     "\"c\":{}},\"required\":[\"b\"]}",
     {"{\"b\":null}", "{\"a\":1,\"b\":null}", "{\"a\": 1, \"b\": null, \"c\": [2]}",
      "{\"b\":null,\"c\":1}"},
     {"{}", "{\"a\":1}", "{\"b\":null,\"a\":1}", "{\"b\":null,\"d\":1}", "{\"a\":\"1\",\"b\":null}",
      "{,\"b\":null}", "{\"b\":null,}", "{\"b\":null,\"b\":null}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"ab\":{\"type\":"
     "\"integer\"},"
     "\"\xc3\xa9\":{\"type\":\"integer\"}},\"additionalProperties\":{\"type\":\"boolean\"}}",
     {"{}", "{\"a\":1}", "{\"a\":1,\"b\":true}", "{\"x\":true,\"y\":false}", "{\"abc\":true}",
      "{\"\xc3\xaa\":true}", "{\"\":true}", "{\"A\\n\":true}"},
     {"{\"a\":true}", "{\"x\":1}", "{\"x\":true,\"a\":true}", "{\"\xc3\xa9\":true}",
      "{\"ab\":true}", "{\"\\u0061\":true}", "{\"x\":true,\"a\":1}"}},
    {"{\"type\":\"object\",\"required\":[\"a\"]}", {"{\"a\":[1]}"}, {"{}", "{\"b\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":true}}",
     {"{}", "{\"b\":1}"},
     {"{\"a\":1}", "{\"a\":null,\"b\":1}"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":3}",
     {"[true]", "[true,false]", "[true, true, true]"},
     {"[]", "[1]", "[true,true,true,true]", "[true,]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":2}",
     {"[null,null]", "[null,null,null,null]"},
     {"[]", "[null]"}},
    {"{\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"integer\"}],\"items\":false}",
     {"[]", "[null]", "[null,1]"},
     {"[1]", "[null,1,2]", "[null,null]"}},
    {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"$ref\":\"#/$defs/"
     "s\"}],\"$defs\":{\"s\":{\"const\":\"x\"}}}",
     {"1", "\"x\""},
     {"\"y\"", "true"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"v\":{\"type\":"
     "\"null\"}},\"required\":[\"k\",\"v\"]},{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":["
     "\"b\",\"c\"]}},\"required\":[\"k\"]}]}",
     {"{\"k\":\"a\",\"v\":null}", "{\"k\":\"c\"}"},
     {"{\"k\":\"a\"}", "{\"k\":\"d\"}"}},
    {"{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":[{"
     "\"type\":\"null\"},{\"$ref\":\"#\"}]}},\"required\":[\"v\",\"next\"]}",
     {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3,\"next\":null}}}"},
     {"{\"v\":1}", "{\"v\":1,\"next\":1}"}},
    {"{\"allOf\":[{\"type\":\"null\"}],\"title\":\"t\",\"default\":1}", {"null"}, {"1"}},
    {"{\"type\":\"string\",\"maxLength\":40}",
     {"\"\"", "\"0123456789012345678901234567890123456789\""},
     {"\"01234567890123456789012345678901234567890\""}},
    /* Reads itself before it reads a byte. */
    {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", {"null"}, {"1"}},
    {"true", {"1", "{}"}, {"x"}},
};

static void test_what_schemas_take(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (const char *const *text = cases[i].good; *text; text++)
      if (!takes(cases[i].schema, *text))
        fail_msg("%s does not take %s", cases[i].schema, *text);
    for (const char *const *text = cases[i].bad; *text; text++)
      if (takes(cases[i].schema, *text))
        fail_msg("%s takes %s", cases[i].schema, *text);
  }
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

static bool is_allowed(const uint32_t *allowed, int32_t token) {
  return (allowed[token / 32] >> token % 32 & 1) != 0;
}

/* Each token that is allowed can be taken, each other one cannot. Returns how many are. */
static int check_mask(const iso_grammar_state *state, const uint32_t *allowed,
                      int32_t *out_tokens) {
  int n = 0;
  for (int32_t token = 0; token < N_VOCABULARY; token++) {
    if (token == 1 || token >= iso_tokenizer_vocabulary_size(tokenizer)) {
      if (is_allowed(allowed, token) != (token == 1 && iso_matcher_may_end(&state->matcher)))
        fail_msg("token %d is %d", token, is_allowed(allowed, token));
      continue;
    }
    iso_grammar_state copy;
    CHECK(iso_grammar_clone(state, &copy));
    bool can = iso_grammar_take(&copy, token) == ISO_OK;
    iso_grammar_stop(&copy);
    if (can != is_allowed(allowed, token))
      fail_msg("token %d: can %d", token, can);
    if (can)
      out_tokens[n++] = token;
  }
  return n;
}

/* ---- Marks ----------------------------------------------------------------------------------- */

static bool takes_marked(const iso_marks *marks, const char *text, bool check_tokens) {
  static const char schema[] =
      "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2]}},\"required\":[\"a\"]}";
  const grammar_source source = {schema, sizeof schema - 1, marks};
  iso_grammar *grammar;
  iso_grammar_state state;
  CHECK(iso_grammar_shelf_get(&shelf, tokenizer, N_VOCABULARY, &source, &grammar));
  CHECK(iso_grammar_start(grammar, &state));
  bool ok = true;
  for (const char *at = text; ok && *at; at++) {
    const uint32_t *allowed;
    int32_t tokens[N_VOCABULARY];
    CHECK(iso_grammar_allowed(&state, NULL, 0, &allowed));
    if (check_tokens)
      assert_true(check_mask(&state, allowed, tokens) > 0);
    ok = iso_grammar_take(&state, FIRST_BYTE + (unsigned char)*at) == ISO_OK;
  }
  ok = ok && iso_matcher_may_end(&state.matcher);
  iso_grammar_stop(&state);
  iso_grammar_release(grammar);
  return ok;
}

static const struct {
  iso_marks marks;
  const char *good[9], *bad[6];
} marked_cases[] = {
    {{"<c>", "</c>", false},
     {"", "{", "a <c < b<c", "<c>{\"a\":1}</c>",
      "x\n<c>\n{\"a\":2}\n</c> \xc3\xa9 <c> {\"a\": 1}</c>", "<<c>{\"a\":1}</c>",
      "<c<c>{\"a\":1}</c>"},
     {"<c>x", "<c>{}</c>", "<c>{\"a\":1}", "<c>{\"a\":1}x</c>", "<c<c>x"}},
    {{"aab", NULL, false},
     {"aa", "aaab{\"a\":1}", "xaab {\"a\":2} "},
     {"aab", "aaab", "aab{\"a\":1}y", "aaaabx"}},
    {{"<c>", NULL, true},
     {"{\"a\":1}", " \n{\"a\": 2}", "x {y", "<c>{\"a\":1}", "", " <"},
     {"{", "{x", " {}", "<c>x"}},
};

static void test_marked_texts(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof marked_cases / sizeof *marked_cases; i++) {
    for (const char *const *text = marked_cases[i].good; *text; text++)
      if (!takes_marked(&marked_cases[i].marks, *text, true))
        fail_msg("%s does not take %s", marked_cases[i].marks.begin, *text);
    for (const char *const *text = marked_cases[i].bad; *text; text++)
      if (takes_marked(&marked_cases[i].marks, *text, false))
        fail_msg("%s takes %s", marked_cases[i].marks.begin, *text);
  }
}

/* ---- What is refused ------------------------------------------------------------------------- */

static const struct {
  const char *schema, *word; /* in the sentence */
} refusals[] = {
    {"{\"not\":{}}", "'not'"},
    {"{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems"},
    {"{\"type\":\"integer\",\"multipleOf\":2}", "multipleOf"},
    {"{\"properties\":{\"p\":{\"patternProperties\":{}}}}", "'p'"},
    {"{\"type\":\"strin\"}", "type"},
    {"{\"type\":[\"string\",5]}", "type"},
    {"{\"type\":5}", "type"},
    {"{\"properties\":5}", "properties"},
    {"{\"required\":[5]}", "required"},
    {"{\"required\":\"a\"}", "required"},
    {"{\"properties\":{},\"required\":[\"a\"],\"additionalProperties\":false}", "'a'"},
    {"{\"items\":5}", "schema"},
    {"{\"minItems\":-1}", "minItems"},
    {"{\"minItems\":1000000}", "minItems"},
    {"{\"minLength\":1.5}", "minLength"},
    {"{\"maxLength\":1e12}", "maxLength"},
    {"{\"minimum\":\"a\"}", "minimum"},
    {"{\"type\":\"number\",\"minimum\":0.5}", "whole"},
    {"{\"exclusiveMinimum\":true}", "exclusiveMinimum"},
    {"{\"pattern\":\"(?=a)\"}", "looks ahead"},
    {"{\"pattern\":\"a{2\"}", "count"},
    {"{\"pattern\":\"a{2000}\"}", "count"},
    {"{\"pattern\":\"[a\"}", "class"},
    {"{\"pattern\":\"[\xc3\xa9]\"}", "ASCII"},
    {"{\"pattern\":\"(a\"}", "group"},
    {"{\"pattern\":\"a)\"}", "parenthesis"},
    {"{\"pattern\":\"\\\\\"}", "escape"},
    {"{\"pattern\":\"\\\\1\"}", "escape"},
    {"{\"pattern\":\"a**\"}", "sign"},
    {"{\"pattern\":\"^a|b\"}", "group"},
    {"{\"pattern\":\"a$b\"}", "sign"},
    {"{\"pattern\":\"a\",\"minLength\":2}", "beside"},
    {"{\"format\":\"iri\"}", "iri"},
    {"{\"format\":\"uuid\",\"maxLength\":30}", "characters"},
    {"{\"format\":\"date\",\"pattern\":\"a\"}", "beside"},
    {"{\"anyOf\":[]}", "anyOf"},
    {"{\"allOf\":[{},{}]}", "allOf"},
    {"{\"anyOf\":[{}],\"oneOf\":[{}]}", "together"},
    {"{\"oneOf\":[{\"type\":\"number\"},{\"type\":\"integer\"}]}", "oneOf"},
    {"{\"type\":\"object\",\"anyOf\":[{}]}", "beside"},
    {"{\"enum\":5}", "enum"},
    {"{\"enum\":[]}", "no value"},
    {"{\"enum\":[1e300]}", "53"},
    {"{\"$ref\":\"#/a\"}", "$ref"},
    {"{\"$ref\":\"http://x\"}", "$ref"},
    {"{\"$ref\":\"#\"}", "no value"},
    {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "no value"},
    {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "no value"},
    {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no value"},
    {"{\"type\":\"integer\",\"minimum\":1e300}", "no value"},
    {"false", "no value"},
    {"5", "schema"},
    {"[]", "schema"},
    {"{", "byte"},
    {"{\"type\":\"array\",\"maxItems\":4000,\"items\":{\"type\":\"string\",\"pattern\":\"^(([a-z]{"
     "999}){999}){999}$\"}}",
     "too large"},
};

static void test_what_is_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    iso_grammar *grammar;
    const char *schema = refusals[i].schema;
    const grammar_source source = {schema, strlen(schema), NULL};
    if (iso_grammar_shelf_get(&shelf, tokenizer, N_VOCABULARY, &source, &grammar) == ISO_OK)
      fail_msg("%s is taken", schema);
    if (!strstr(iso_status_message(), refusals[i].word))
      fail_msg("%s: %s", schema, iso_status_message());
  }
}

/* ---- Any answer ----------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

/* Any of the allowed tokens, many times: JSON comes out, in the end. */
static void walk(const char *schema, uint32_t seed) {
  iso_grammar *grammar = compiled(schema);
  iso_grammar_state state;
  char text[8192];
  size_t length = 0;
  CHECK(iso_grammar_start(grammar, &state));
  for (int step = 0; !iso_grammar_is_over(&state); step++) {
    const uint32_t *allowed;
    int32_t tokens[N_VOCABULARY], token;
    CHECK(iso_grammar_allowed(&state, NULL, 0, &allowed));
    int n = check_mask(&state, allowed, tokens);
    if (is_allowed(allowed, 1) && (n == 0 || step > 150 || next_random(&seed) % 2))
      break;
    assert_true(n > 0);
    token = tokens[next_random(&seed) % (uint32_t)n];
    /* After a while, one of those that end things. */
    uint8_t ends[3] = {'"', '}', ']'}, end = ends[next_random(&seed) % 3];
    if (step > 60 && is_allowed(allowed, FIRST_BYTE + end))
      token = FIRST_BYTE + end;
    size_t n_bytes;
    const char *bytes = iso_tokenizer_token_bytes(tokenizer, token, &n_bytes);
    if (length + n_bytes >= sizeof text || step == 1000)
      fail_msg("%s does not end: %.*s", schema, (int)length, text);
    memcpy(text + length, bytes, n_bytes);
    length += n_bytes;
    CHECK(iso_grammar_take(&state, token));
  }
  iso_grammar_stop(&state);
  iso_grammar_release(grammar);
  text[length] = 0;
  cJSON *root;
  /* The same name twice is JSON, if not to this parser. */
  if (iso_json_parse(text, length, 256, &root) == ISO_OK)
    cJSON_Delete(root);
  else if (!strstr(iso_status_message(), "uplicate"))
    fail_msg("%s gave %s: %s", schema, text, iso_status_message());
  assert_true(takes(schema, text));
}

static void test_allowed_tokens_are_those_that_lead_on(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (uint32_t seed = 0; seed < 3; seed++)
      walk(cases[i].schema, seed * 77 + (uint32_t)i);
}

/* Nested as deep as can be: the way out stays open, masks stay right. */
static void test_depth(void **state) {
  (void)state;
  iso_grammar *grammar = compiled("{}");
  iso_grammar_state at;
  const uint32_t *allowed;
  int depth = 0;
  CHECK(iso_grammar_start(grammar, &at));
  for (; depth < 1000; depth++) {
    CHECK(iso_grammar_allowed(&at, NULL, 0, &allowed));
    if (!is_allowed(allowed, FIRST_BYTE + '['))
      break;
    CHECK(iso_grammar_take(&at, FIRST_BYTE + '['));
  }
  assert_in_range(depth, 32, MATCHER_MAX_DEPTH);
  int32_t tokens[N_VOCABULARY];
  CHECK(iso_grammar_allowed(&at, NULL, 0, &allowed));
  assert_true(check_mask(&at, allowed, tokens) > 0);
  for (; depth > 0; depth--)
    CHECK(iso_grammar_take(&at, FIRST_BYTE + ']'));
  assert_true(iso_grammar_is_over(&at));
  iso_grammar_stop(&at);
  iso_grammar_release(grammar);
}

static void test_shelf_keeps_and_forgets(void **state) {
  (void)state;
  iso_grammar *first = compiled("{\"const\":0}"), *again = compiled("{\"const\":0}");
  assert_ptr_equal(first, again);
  iso_grammar_release(again);
  char schema[64];
  for (int i = 1; i <= 2 * GRAMMAR_SHELF_SIZE; i++) {
    snprintf(schema, sizeof schema, "{\"const\":%d}", i);
    iso_grammar_release(compiled(schema));
  }
  again = compiled("{\"const\":0}");
  assert_ptr_not_equal(first, again); /* which is still there, for who holds it */
  iso_grammar_release(first);
  iso_grammar_release(again);
}

/* As many alternatives as there can be, all of them open at once. */
static void test_many_alternatives(void **state) {
  (void)state;
  char *schema = malloc(1 << 16), text[64];
  size_t n = 0;
  assert_non_null(schema);
  n += (size_t)sprintf(schema, "{\"type\":\"array\",\"items\":{\"anyOf\":[");
  for (int i = 0; i < 256; i++)
    n += (size_t)sprintf(
        schema + n,
        "%s{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"k%d\":{"
        "\"type\":\"null\"}}}",
        i ? "," : "", i);
  sprintf(schema + n, "]}}");
  for (int i = 0; i < 256; i += 51) {
    snprintf(text, sizeof text, "[{\"a\":\"x\",\"k%d\":null},{\"k%d\":null}]", i, 255 - i);
    assert_true(takes(schema, text));
  }
  walk(schema, 1);
  free(schema);
}

/* Ways to be slow: each is refused, or answered within the bounds. */
static void test_many_ways_at_once(void **state) {
  (void)state;
  static const char *const schemas[] = {
      "{\"type\":\"string\",\"pattern\":\"(.*a){60}\"}",
      "{\"type\":\"string\",\"pattern\":\"^((a|b|c)*(a|b|c)*(a|b|c)*)*$\"}",
      "{\"anyOf\":[{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}]},"
      "{\"type\":\"array\",\"items\":{\"$ref\":\"#/anyOf/0\"}}]}"};
  for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
    iso_grammar *grammar = compiled(schemas[i]);
    iso_grammar_state at;
    const uint32_t *allowed;
    CHECK(iso_grammar_start(grammar, &at));
    static const char *const text = "[[[[\"aaaabcaaaaaaaaaaaaaaaaaaaaaaaa";
    iso_status status = ISO_OK;
    for (const char *byte = i == 2 ? text : text + 4; *byte && status == ISO_OK; byte++) {
      status = iso_grammar_allowed(&at, NULL, 0, &allowed);
      if (status == ISO_OK && iso_grammar_take(&at, FIRST_BYTE + (unsigned char)*byte) != ISO_OK)
        break;
    }
    assert_true(status == ISO_OK || status == ISO_ERROR_UNSUPPORTED);
    iso_grammar_stop(&at);
    iso_grammar_release(grammar);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_schemas_take),
      cmocka_unit_test(test_marked_texts),
      cmocka_unit_test(test_what_is_refused),
      cmocka_unit_test(test_allowed_tokens_are_those_that_lead_on),
      cmocka_unit_test(test_depth),
      cmocka_unit_test(test_shelf_keeps_and_forgets),
      cmocka_unit_test(test_many_alternatives),
      cmocka_unit_test(test_many_ways_at_once),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
