#include "models/formats/hf_folder.h"
#include "core/log.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
  MAX_CONFIG_BYTES = 64 << 20, /* tokenizer_config.json can list every added token */
  MAX_CONFIG_DEPTH = 64,
  MAX_TEMPLATE_BYTES = 4 << 20
};

/* *out_path is NULL when there is no such file. */
static iso_status find_file(const iso_hf_folder *folder, const char *name, char **out_path) {
  char *path = iso_file_join(folder->path, name);
  if (!path)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a path");
  if (!iso_file_exists(path)) {
    free(path);
    path = NULL;
  }
  *out_path = path;
  return ISO_OK;
}

/* Reads a JSON object; *out_object stays NULL when an optional file is absent. */
static iso_status read_object(const iso_hf_folder *folder, const char *name, bool required,
                              cJSON **out_object) {
  char *path = NULL;
  ISO_TRY(find_file(folder, name, &path));
  if (!path)
    return required ? iso_fail(ISO_ERROR_NOT_FOUND,
                               "%s has no %s: a Hugging Face model folder needs it; a GGUF file is "
                               "given by its own path",
                               folder->path, name)
                    : ISO_OK;
  iso_status status = iso_json_read_file(path, MAX_CONFIG_BYTES, MAX_CONFIG_DEPTH, out_object);
  if (status == ISO_OK && !cJSON_IsObject(*out_object))
    status = iso_fail(ISO_ERROR_CORRUPT_DATA, "%s must hold a JSON object", path);
  free(path);
  return status;
}

/* modules.json, which lists what sentence-transformers puts behind each other. */
static iso_status read_modules(iso_hf_folder *folder) {
  char *path = NULL;
  ISO_TRY(find_file(folder, "modules.json", &path));
  if (!path)
    return ISO_OK;
  iso_status status =
      iso_json_read_file(path, MAX_CONFIG_BYTES, MAX_CONFIG_DEPTH, &folder->modules);
  if (status == ISO_OK && !cJSON_IsArray(folder->modules))
    status = iso_fail(ISO_ERROR_CORRUPT_DATA, "%s must hold a JSON array", path);
  free(path);
  return status;
}

/* Finds a tokenizer file and checks that it can be mapped and is no Git-LFS pointer. */
static iso_status find_tokenizer(const iso_hf_folder *folder, const char *name, char **out_path) {
  ISO_TRY(find_file(folder, name, out_path));
  if (!*out_path)
    return ISO_OK;
  iso_file_map map;
  ISO_TRY(iso_file_map_open(*out_path, &map));
  iso_file_map_close(&map);
  return ISO_OK;
}

/* The index goes before the single file, unless a file that it names is gone: transformers, saving
 * one file over several, takes these away and leaves the index. Either path may be NULL. */
static iso_status open_safetensors(iso_hf_folder *folder, const char *index, const char *single) {
  iso_status status = ISO_OK;
  if (index) {
    status = iso_safetensors_open_index(index, &folder->weights);
    if (status != ISO_ERROR_NOT_FOUND || !single)
      return status;
    iso_log(ISO_LOG_WARNING, "%s; taking the weights of %s", iso_status_message(), single);
  }
  return single ? iso_safetensors_open(single, &folder->weights) : status;
}

static iso_status open_weights(iso_hf_folder *folder) {
  static const char *const pickled[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                        "consolidated.00.pth"};
  char *path = NULL, *single = NULL;
  ISO_TRY(find_file(folder, "model.safetensors.index.json", &path));
  iso_status status = find_file(folder, "model.safetensors", &single);
  bool there = path || single;
  if (status == ISO_OK)
    status = open_safetensors(folder, path, single);
  free(path);
  free(single);
  if (there || status != ISO_OK)
    return status;
  for (size_t i = 0; i < sizeof pickled / sizeof *pickled; i++) {
    ISO_TRY(find_file(folder, pickled[i], &path));
    bool found = path != NULL;
    free(path);
    if (found)
      return iso_fail(ISO_ERROR_UNSUPPORTED,
                      "%s has its weights in %s only: pickled files can run code and are not read; "
                      "convert them to safetensors",
                      folder->path, pickled[i]);
  }
  return iso_fail(ISO_ERROR_NOT_FOUND,
                  "%s has neither model.safetensors nor model.safetensors.index.json",
                  folder->path);
}

/* "chat_template" is a string, or an array of {"name", "template"}. */
static iso_status list_templates(const cJSON *value, iso_hf_folder *folder) {
  if (cJSON_IsString(value)) {
    folder->chat_templates[folder->chat_template_count++] =
        (iso_hf_chat_template){"default", value->valuestring};
    return ISO_OK;
  }
  for (const cJSON *item = value->child; item; item = item->next) {
    iso_hf_chat_template *next = &folder->chat_templates[folder->chat_template_count];
    ISO_TRY(iso_json_get_string(item, "name", &next->name));
    ISO_TRY(iso_json_get_string(item, "template", &next->text));
    folder->chat_template_count++;
  }
  return ISO_OK;
}

static void list_template_files(iso_hf_folder *folder) {
  const iso_hf_chat_template files[] = {{"default", folder->chat_template_file},
                                        {"tool_use", folder->tool_template_file}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (files[i].text)
      folder->chat_templates[folder->chat_template_count++] = files[i];
}

static iso_status read_template(const iso_hf_folder *folder, const char *name, char **out_text) {
  char *path = NULL;
  ISO_TRY(find_file(folder, name, &path));
  size_t size;
  iso_status status = path ? iso_file_read(path, MAX_TEMPLATE_BYTES, out_text, &size) : ISO_OK;
  free(path);
  return status;
}

static iso_status read_templates(iso_hf_folder *folder) {
  enum { MOST_FILES = 2 };
  ISO_TRY(read_template(folder, "chat_template.jinja", &folder->chat_template_file));
  ISO_TRY(read_template(folder, "additional_chat_templates/tool_use.jinja",
                        &folder->tool_template_file));
  const cJSON *value = cJSON_GetObjectItemCaseSensitive(folder->tokenizer_config, "chat_template");
  bool is_array = cJSON_IsArray(value);
  if (value && !cJSON_IsString(value) && !is_array && !cJSON_IsNull(value))
    return iso_fail(ISO_ERROR_CORRUPT_DATA,
                    "%s/tokenizer_config.json: \"chat_template\" must be a string or an array",
                    folder->path);
  size_t most = is_array ? (size_t)cJSON_GetArraySize(value) + MOST_FILES : MOST_FILES;
  folder->chat_templates = calloc(most, sizeof *folder->chat_templates);
  if (!folder->chat_templates)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %zu chat templates", most);
  list_template_files(folder);
  if (folder->chat_template_count > 0 || !value || cJSON_IsNull(value))
    return ISO_OK;
  iso_status status = list_templates(value, folder);
  if (status == ISO_ERROR_NOT_FOUND) /* a field, not a file */
    status = ISO_ERROR_CORRUPT_DATA;
  return iso_fail_context(status, "%s/tokenizer_config.json", folder->path);
}

/* A PEFT folder has no model in it. */
static iso_status check_no_adapter(const iso_hf_folder *folder) {
  char *config = NULL, *adapter = NULL;
  ISO_TRY(find_file(folder, "config.json", &config));
  iso_status status = config ? ISO_OK : find_file(folder, "adapter_config.json", &adapter);
  if (status == ISO_OK && adapter)
    status = iso_fail(ISO_ERROR_UNSUPPORTED,
                      "%s is a LoRA adapter; give the model that it is for, and this with --lora",
                      folder->path);
  free(config);
  free(adapter);
  return status;
}

static iso_status fill(iso_hf_folder *folder, bool need_tokenizer) {
  struct stat facts;
  if (stat(folder->path, &facts) != 0 || !S_ISDIR(facts.st_mode))
    return iso_fail(ISO_ERROR_NOT_FOUND, "%s is not a directory", folder->path);
  ISO_TRY(check_no_adapter(folder));
  ISO_TRY(read_object(folder, "config.json", true, &folder->config));
  ISO_TRY(read_object(folder, "generation_config.json", false, &folder->generation_config));
  ISO_TRY(read_object(folder, "tokenizer_config.json", false, &folder->tokenizer_config));
  ISO_TRY(read_object(folder, "1_Pooling/config.json", false, &folder->pooling_config));
  ISO_TRY(read_modules(folder));
  ISO_TRY(find_tokenizer(folder, "tokenizer.json", &folder->tokenizer_json_path));
  ISO_TRY(find_tokenizer(folder, "tokenizer.model", &folder->tokenizer_model_path));
  if (need_tokenizer && !folder->tokenizer_json_path && !folder->tokenizer_model_path)
    return iso_fail(ISO_ERROR_NOT_FOUND, "%s has neither tokenizer.json nor tokenizer.model",
                    folder->path);
  ISO_TRY(read_templates(folder));
  return open_weights(folder);
}

iso_status iso_hf_folder_open(const char *path, bool need_tokenizer, iso_hf_folder **out_folder) {
  *out_folder = NULL;
  iso_hf_folder *folder = calloc(1, sizeof *folder);
  if (!folder || !(folder->path = strdup(path))) {
    free(folder);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to open %s", path);
  }
  iso_status status = fill(folder, need_tokenizer);
  if (status == ISO_OK)
    *out_folder = folder;
  else
    iso_hf_folder_close(folder);
  return status;
}

void iso_hf_folder_close(iso_hf_folder *folder) {
  if (!folder)
    return;
  free(folder->path);
  cJSON_Delete(folder->config);
  cJSON_Delete(folder->generation_config);
  cJSON_Delete(folder->tokenizer_config);
  cJSON_Delete(folder->pooling_config);
  cJSON_Delete(folder->modules);
  free(folder->tokenizer_json_path);
  free(folder->tokenizer_model_path);
  iso_safetensors_close(folder->weights);
  free(folder->chat_templates);
  free(folder->chat_template_file);
  free(folder->tool_template_file);
  free(folder);
}

const char *iso_hf_folder_chat_template(const iso_hf_folder *folder, const char *name) {
  if (!name)
    name = "default";
  for (uint32_t i = 0; i < folder->chat_template_count; i++)
    if (strcmp(folder->chat_templates[i].name, name) == 0)
      return folder->chat_templates[i].text;
  return NULL;
}
