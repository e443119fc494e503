#include "check.h"

#include "models/formats/hf_folder.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/isomer-hf-XXXXXX";

static int set_up(void **state) {
  (void)state;
  return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  return rmdir(folder);
}

static void put(const char *name, const char *text) {
  char *path = iso_file_join(folder, name);
  iso_file_writer *writer;
  CHECK(iso_file_writer_create(path, &writer));
  CHECK(iso_file_writer_append(writer, text, strlen(text)));
  CHECK(iso_file_writer_commit(writer));
  iso_file_writer_destroy(writer);
  free(path);
}

static void take_away(const char *name) {
  char *path = iso_file_join(folder, name);
  assert_int_equal(unlink(path), 0);
  free(path);
}

static void put_weights(const char *name, const char *tensor) {
  char *path = iso_file_join(folder, name);
  iso_safetensors_writer *writer;
  CHECK(iso_safetensors_writer_create(path, &writer));
  CHECK(iso_safetensors_writer_add_tensor(writer, tensor, ISO_SCHEME_I8, 1, (int64_t[]){2}));
  CHECK(iso_safetensors_writer_append(writer, "xy", 2));
  CHECK(iso_safetensors_writer_finish(writer));
  iso_safetensors_writer_destroy(writer);
  free(path);
}

static int fill(void **state) {
  (void)state;
  put("config.json", "{\"model_type\": \"llama\"}");
  put("tokenizer.json", "{}");
  put_weights("model.safetensors", "w");
  return 0;
}

static int clear(void **state) {
  (void)state;
  DIR *directory = opendir(folder);
  for (struct dirent *entry; (entry = readdir(directory));)
    if (entry->d_name[0] != '.')
      take_away(entry->d_name);
  closedir(directory);
  return 0;
}

static void refuse(iso_status code, const char *part) {
  iso_hf_folder *opened = (iso_hf_folder *)1;
  iso_status status = iso_hf_folder_open(folder, true, &opened);
  if (status != code || !strstr(iso_status_message(), part))
    fail_msg("status %s (%s), wanted %s with \"%s\"", iso_status_name(status), iso_status_message(),
             iso_status_name(code), part);
  assert_null(opened);
}

static void test_open(void **state) {
  (void)state;
  iso_hf_folder *opened;
  CHECK(iso_hf_folder_open(folder, true, &opened));
  const char *type;
  CHECK(iso_json_get_string(opened->config, "model_type", &type));
  assert_string_equal(type, "llama");
  assert_null(opened->generation_config);
  assert_null(opened->tokenizer_config);
  assert_non_null(strstr(opened->tokenizer_json_path, "/tokenizer.json"));
  assert_null(opened->tokenizer_model_path);
  assert_non_null(iso_safetensors_find_tensor(opened->weights, "w"));
  assert_null(iso_hf_folder_chat_template(opened, NULL));
  iso_hf_folder_close(opened);
  iso_hf_folder_close(NULL);

  put("generation_config.json", "{\"eos_token_id\": [1, 2]}");
  put("tokenizer.model", "x");
  put_weights("a.safetensors", "one");
  put("model.safetensors.index.json", "{\"weight_map\": {\"one\": \"a.safetensors\"}}");
  CHECK(iso_hf_folder_open(folder, true, &opened)); /* the index goes before the single file */
  assert_non_null(opened->generation_config);
  assert_non_null(opened->tokenizer_model_path);
  assert_non_null(iso_safetensors_find_tensor(opened->weights, "one"));
  assert_null(iso_safetensors_find_tensor(opened->weights, "w"));
  iso_hf_folder_close(opened);

  take_away("a.safetensors"); /* what saving one file over several leaves */
  CHECK(iso_hf_folder_open(folder, true, &opened));
  assert_non_null(iso_safetensors_find_tensor(opened->weights, "w"));
  iso_hf_folder_close(opened);
  take_away("model.safetensors");
  refuse(ISO_ERROR_NOT_FOUND, "a.safetensors");
}

static void test_missing_files(void **state) {
  (void)state;
  iso_hf_folder *opened;
  assert_int_equal(iso_hf_folder_open("/nowhere/at/all", true, &opened), ISO_ERROR_NOT_FOUND);
  assert_non_null(strstr(iso_status_message(), "/nowhere/at/all is not a directory"));
  char *file = iso_file_join(folder, "config.json");
  assert_int_equal(iso_hf_folder_open(file, true, &opened), ISO_ERROR_NOT_FOUND);
  free(file);
  take_away("model.safetensors");
  refuse(ISO_ERROR_NOT_FOUND, "has neither model.safetensors nor model.safetensors.index.json");
  put("pytorch_model.bin", "x");
  refuse(ISO_ERROR_UNSUPPORTED, "pytorch_model.bin only");
  take_away("tokenizer.json");
  refuse(ISO_ERROR_NOT_FOUND, "has neither tokenizer.json nor tokenizer.model");
  take_away("config.json");
  refuse(ISO_ERROR_NOT_FOUND, "has no config.json");
}

static void test_broken_files(void **state) {
  (void)state;
  static const char *const names[] = {"config.json", "tokenizer.json", "model.safetensors",
                                      "tokenizer_config.json", "chat_template.jinja"};
  static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\n";
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    put(names[i], pointer);
    refuse(ISO_ERROR_CORRUPT_DATA, "Git-LFS pointer");
    refuse(ISO_ERROR_CORRUPT_DATA, names[i]);
    put(names[i], "");
    refuse(ISO_ERROR_CORRUPT_DATA, "is empty");
    clear(NULL);
    fill(NULL);
  }
  put("config.json", "[1]");
  refuse(ISO_ERROR_CORRUPT_DATA, "config.json must hold a JSON object");
  put("config.json", "{\"a\":1,\"a\":2}");
  refuse(ISO_ERROR_CORRUPT_DATA, "config.json: JSON: duplicate key at byte 7");
}

static void test_chat_templates(void **state) {
  (void)state;
  iso_hf_folder *opened;
  put("tokenizer_config.json", "{\"chat_template\": \"one\"}");
  CHECK(iso_hf_folder_open(folder, true, &opened));
  assert_string_equal(iso_hf_folder_chat_template(opened, NULL), "one");
  assert_string_equal(iso_hf_folder_chat_template(opened, "default"), "one");
  assert_null(iso_hf_folder_chat_template(opened, "tool_use"));
  iso_hf_folder_close(opened);
  put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\", \"template\": \"d\"},"
                               "{\"name\": \"tool_use\", \"template\": \"t\"}]}");
  CHECK(iso_hf_folder_open(folder, true, &opened));
  assert_string_equal(iso_hf_folder_chat_template(opened, NULL), "d");
  assert_string_equal(iso_hf_folder_chat_template(opened, "tool_use"), "t");
  iso_hf_folder_close(opened);
  put("chat_template.jinja", "file");
  CHECK(iso_hf_folder_open(folder, true, &opened));
  assert_string_equal(iso_hf_folder_chat_template(opened, NULL), "file");
  assert_null(iso_hf_folder_chat_template(opened, "tool_use")); /* one of another day */
  iso_hf_folder_close(opened);
  take_away("tokenizer_config.json");
  char *more = iso_file_join(folder, "additional_chat_templates");
  assert_int_equal(mkdir(more, 0700), 0);
  put("additional_chat_templates/tool_use.jinja", "file of tools");
  CHECK(iso_hf_folder_open(folder, true, &opened));
  assert_string_equal(iso_hf_folder_chat_template(opened, NULL), "file");
  assert_string_equal(iso_hf_folder_chat_template(opened, "tool_use"), "file of tools");
  iso_hf_folder_close(opened);
  take_away("additional_chat_templates/tool_use.jinja");
  assert_int_equal(rmdir(more), 0);
  free(more);
  take_away("chat_template.jinja");
  put("tokenizer_config.json", "{\"chat_template\": null}");
  CHECK(iso_hf_folder_open(folder, true, &opened));
  iso_hf_folder_close(opened);
  static const char *const broken[] = {"{\"chat_template\": 1}", "{\"chat_template\": [1]}",
                                       "{\"chat_template\": [{\"name\": \"x\"}]}",
                                       "{\"chat_template\": [{\"name\": 1, \"template\": \"\"}]}"};
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    put("tokenizer_config.json", broken[i]);
    refuse(ISO_ERROR_CORRUPT_DATA, "/tokenizer_config.json: ");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_open, fill, clear),
      cmocka_unit_test_setup_teardown(test_missing_files, fill, clear),
      cmocka_unit_test_setup_teardown(test_broken_files, fill, clear),
      cmocka_unit_test_setup_teardown(test_chat_templates, fill, clear),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
