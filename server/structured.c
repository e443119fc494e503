/* What an answer must be: "response_format", TGI's "grammar", and calls of tools that are forced.
 * All become a JSON schema that the engine holds the answer to. */
#include "server/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A model whose way of writing calls is not known is made to write them as plain JSON. */
static const iso_tool_format plain_format = {.name = "plain", .key = "arguments"};

static bool out_of_memory(iso_api_error *refusal) {
  return iso_refuse(refusal, 503, NULL, "out_of_memory", "out of memory");
}

static bool set_marked(iso_job *job, const iso_marks *marks, const cJSON *schema, const char *param,
                       iso_api_error *refusal) {
  char *text = schema ? cJSON_PrintUnformatted(schema) : strdup("{\"type\":\"object\"}");
  if (!text)
    return out_of_memory(refusal);
  iso_status status = iso_grammar_create_marked(job->server->engine, marks, text, strlen(text),
                                                &job->request.grammar);
  free(text);
  if (status == ISO_OK)
    return true;
  if (status == ISO_ERROR_OUT_OF_MEMORY)
    return iso_refuse_status(refusal, job->server, status, NULL);
  return iso_refuse(refusal, 400, param, "invalid_value", "'%s' cannot be held to: %s", param,
                    iso_status_message());
}

static bool set_grammar(iso_job *job, const cJSON *schema, const char *param,
                        iso_api_error *refusal) {
  return set_marked(job, NULL, schema, param, refusal);
}

/* ---- Formats ------------------------------------------------------------------------------- */

/* An object whose members are all of `names`, which NULL ends. */
static bool check_members(const cJSON *object, const char *const *names, const char *what,
                          iso_api_error *refusal) {
  for (const cJSON *item = cJSON_IsObject(object) ? object->child : NULL; item; item = item->next) {
    const char *const *name = names;
    while (*name && strcmp(*name, item->string) != 0)
      name++;
    if (!*name)
      return iso_refuse(refusal, 400, "response_format", "unknown_parameter",
                        "'%s' holds '%.64s', which is not known", what, item->string);
  }
  return cJSON_IsObject(object) || iso_refuse(refusal, 400, "response_format", "invalid_type",
                                              "'%s' must be an object", what);
}

bool iso_job_set_response_format(iso_job *job, iso_api_error *refusal) {
  static const char *const keys[] = {"type", "json_schema", NULL};
  static const char *const schema_keys[] = {"name", "description", "schema", "strict", NULL};
  const cJSON *format = job->fields.response_format;
  if (!format)
    return true;
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(format, "type"),
              *holder = cJSON_GetObjectItemCaseSensitive(format, "json_schema");
  const char *kind = cJSON_IsString(type) ? type->valuestring : "";
  if (!check_members(format, keys, "response_format", refusal))
    return false;
  if (strcmp(kind, "text") == 0)
    return true;
  if (job->tool_format)
    return iso_refuse(refusal, 400, "response_format", "unsupported_parameter",
                      "an answer that must be JSON cannot call tools; give \"tool_choice\": "
                      "\"none\"");
  if (strcmp(kind, "json_object") == 0)
    return set_grammar(job, NULL, "response_format", refusal);
  if (strcmp(kind, "json_schema") != 0)
    return iso_refuse(refusal, 400, "response_format", "invalid_value",
                      "'response_format' is of type \"text\", \"json_object\" or \"json_schema\"");
  if (!check_members(holder, schema_keys, "json_schema", refusal))
    return false;
  const cJSON *schema = cJSON_GetObjectItemCaseSensitive(holder, "schema");
  return set_grammar(job, cJSON_IsNull(schema) ? NULL : schema, "response_format", refusal);
}

bool iso_job_set_tgi_grammar(iso_job *job, iso_api_error *refusal) {
  const cJSON *grammar = job->fields.response_format;
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(grammar, "type"),
              *value = cJSON_GetObjectItemCaseSensitive(grammar, "value");
  if (!grammar)
    return true;
  if (!cJSON_IsString(type) || strcmp(type->valuestring, "json") != 0 || !cJSON_IsObject(value))
    return iso_refuse(refusal, 400, "grammar", "unsupported_parameter",
                      "'grammar' must be {\"type\": \"json\", \"value\": a JSON schema}");
  return set_grammar(job, value, "grammar", refusal);
}

/* ---- Calls ---------------------------------------------------------------------------------- */

/* Makes references within `schema` start at where it will stand in a larger one. */
static bool move_references(cJSON *schema, const char *where) {
  for (cJSON *item = schema->child; item; item = item->next) {
    if (item->string && strcmp(item->string, "$ref") == 0 && cJSON_IsString(item) &&
        item->valuestring[0] == '#') {
      size_t size = strlen(where) + strlen(item->valuestring) + 1;
      char *moved = malloc(size);
      if (!moved)
        return false;
      snprintf(moved, size, "#%s%s", where, item->valuestring + 1);
      bool is_set = cJSON_SetValuestring(item, moved) != NULL;
      free(moved);
      if (!is_set)
        return false;
    }
    if (item->child && !move_references(item, where))
      return false;
  }
  return true;
}

/* {"name": ..., "arguments": {...}} of one function, which stands at `where` in the whole.
 * `is_strict`: the arguments are held to the function's parameters, and not to any object. */
static cJSON *call_schema(const iso_tool_format *format, const cJSON *function, bool is_strict,
                          const char *where) {
  static const char any_object[] = "{\"type\":\"object\"}",
                    no_arguments[] = "{\"type\":\"object\",\"properties\":{}}";
  const cJSON *name = cJSON_GetObjectItemCaseSensitive(function, "name"),
              *parameters = cJSON_GetObjectItemCaseSensitive(function, "parameters");
  char place[96];
  cJSON *schema = cJSON_CreateObject();
  cJSON *properties = cJSON_AddObjectToObject(schema, "properties");
  cJSON *constant = cJSON_AddObjectToObject(properties, "name");
  cJSON *arguments = is_strict && cJSON_IsObject(parameters)
                         ? cJSON_Duplicate(parameters, true)
                         : cJSON_Parse(is_strict ? no_arguments : any_object);
  cJSON *required = cJSON_AddArrayToObject(schema, "required");
  snprintf(place, sizeof place, "%s/properties/%s", where, format->key);
  bool is_made = constant && arguments && required &&
                 cJSON_AddStringToObject(constant, "const", name->valuestring) &&
                 cJSON_AddStringToObject(schema, "type", "object") &&
                 cJSON_AddItemToArray(required, cJSON_CreateString("name")) &&
                 cJSON_AddItemToArray(required, cJSON_CreateString(format->key)) &&
                 cJSON_AddFalseToObject(schema, "additionalProperties") &&
                 move_references(arguments, place);
  if (!cJSON_AddItemToObject(properties, format->key, arguments)) {
    cJSON_Delete(arguments);
    is_made = false;
  }
  if (!is_made) {
    cJSON_Delete(schema);
    return NULL;
  }
  return schema;
}

static const cJSON *function_of(const cJSON *tool) {
  const cJSON *function = cJSON_GetObjectItemCaseSensitive(tool, "function");
  return function ? function : tool;
}

static bool is_wanted(const cJSON *function, const char *name) {
  const cJSON *own = cJSON_GetObjectItemCaseSensitive(function, "name");
  return cJSON_IsString(own) && (!name || strcmp(own->valuestring, name) == 0);
}

static bool is_strict(const cJSON *function) {
  return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(function, "strict"));
}

/* A call of one of the functions called `name`, of all where it is NULL; one that is forced is held
 * to parameters, and there is one. NULL: out of memory. */
static cJSON *calls_schema(const iso_tool_format *format, const cJSON *tools, const char *name,
                           bool is_forced) {
  cJSON *list = cJSON_CreateArray(), *whole = cJSON_CreateObject();
  const char *above = format->is_list ? "/items" : "";
  char where[48];
  int n = 0;
  bool is_made = list && whole;
  for (const cJSON *tool = tools->child; is_made && tool; tool = tool->next) {
    if (!is_wanted(function_of(tool), name))
      continue;
    snprintf(where, sizeof where, "%s/anyOf/%d", above, n++);
    cJSON *each =
        call_schema(format, function_of(tool), is_forced || is_strict(function_of(tool)), where);
    is_made = each && cJSON_AddItemToArray(list, each);
  }
  if (!is_made || !cJSON_AddItemToObject(whole, "anyOf", list)) {
    cJSON_Delete(list);
    cJSON_Delete(whole);
    return NULL;
  }
  if (!format->is_list)
    return whole;
  cJSON *array = cJSON_Parse(is_forced ? "{\"type\":\"array\",\"minItems\":1,\"maxItems\":1}"
                                       : "{\"type\":\"array\",\"minItems\":1}");
  if (!array || !cJSON_AddItemToObject(array, "items", whole)) {
    cJSON_Delete(whole);
    cJSON_Delete(array);
    return NULL;
  }
  return array;
}

/* Arguments are an object in every API. */
static bool check_parameters(const cJSON *tools, const char *name, iso_api_error *refusal) {
  for (const cJSON *tool = tools->child; tool; tool = tool->next) {
    const cJSON *function = function_of(tool);
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(function, "parameters");
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(parameters, "type");
    if (!is_wanted(function, name) || !parameters || cJSON_IsNull(parameters))
      continue;
    if (!cJSON_IsObject(parameters) ||
        (type && !(cJSON_IsString(type) && strcmp(type->valuestring, "object") == 0)))
      return iso_refuse(refusal, 400, "tools", "invalid_value",
                        "the 'parameters' of a function must be a schema of an object");
  }
  return true;
}

bool iso_job_force_call(iso_job *job, const char *name, iso_api_error *refusal) {
  const cJSON *tools = job->fields.tools;
  int n = 0;
  for (const cJSON *tool = cJSON_IsArray(tools) ? tools->child : NULL; tool; tool = tool->next)
    n += is_wanted(function_of(tool), name);
  if (n == 0 && name)
    return iso_refuse(refusal, 400, "tool_choice", "invalid_value",
                      "'tool_choice' names the function '%.64s', which 'tools' does not have",
                      name);
  if (n == 0)
    return iso_refuse(refusal, 400, "tool_choice", "invalid_value",
                      "\"tool_choice\": \"required\" needs functions in 'tools'");
  if (!check_parameters(tools, name, refusal))
    return false;
  job->forced = name ? FORCED_FUNCTION : FORCED_ANY;
  job->tool_format = job->server->tool_format ? job->server->tool_format : &plain_format;
  if (job->tool_names.count == 0 && !iso_tool_names_copy(tools, &job->tool_names))
    return out_of_memory(refusal);
  cJSON *schema = calls_schema(job->tool_format, tools, name, true);
  if (!schema)
    return out_of_memory(refusal);
  bool is_set = set_grammar(job, schema, "tools", refusal);
  cJSON_Delete(schema);
  return is_set;
}

bool iso_job_hold_calls(iso_job *job, iso_api_error *refusal) {
  const cJSON *tools = job->fields.tools;
  const iso_tool_format *format = job->tool_format;
  bool any = false;
  for (const cJSON *tool = tools->child; tool; tool = tool->next)
    any |= is_wanted(function_of(tool), NULL) && is_strict(function_of(tool));
  if (!any)
    return true;
  if (!check_parameters(tools, NULL, refusal))
    return false;
  cJSON *schema = calls_schema(format, tools, NULL, false);
  if (!schema)
    return out_of_memory(refusal);
  const iso_marks marks = {.begin = format->begin, .end = format->end, .is_bare = format->bare};
  bool is_set = set_marked(job, &marks, schema, "tools", refusal);
  cJSON_Delete(schema);
  return is_set;
}
