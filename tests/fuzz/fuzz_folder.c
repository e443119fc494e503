/* The JSON files of a Hugging Face folder beside config.json: any bytes, parted by NUL, as its
 * index of weights, its generation_config.json, tokenizer_config.json and chat_template.jinja. */
#include "models/formats/hf_folder.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/fuzz/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[SCRATCH_PATH];
static const char *const parts[] = {"model.safetensors.index.json", "generation_config.json",
                                    "tokenizer_config.json", "chat_template.jinja"};
enum { N_PARTS = sizeof parts / sizeof *parts };
static const struct {
  const char *name, *target; /* of a link; NULL: an empty object */
} rest[] = {{"config.json", NULL},
            {"tokenizer.json", TEST_SOURCE_DIR "/tests/fuzz/seeds/tokenizer_json/smollm"},
            {"a.safetensors", TEST_SOURCE_DIR "/tests/golden/models/llama/model.safetensors"}};
enum { N_REST = sizeof rest / sizeof *rest };

static const char *place(const char *name) {
  static char path[160];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void remove_folder(void) {
  for (int i = 0; i < N_PARTS; i++)
    unlink(place(parts[i]));
  for (int i = 0; i < N_REST; i++)
    unlink(place(rest[i].name));
  rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  scratch_create(folder);
  for (int i = 0; i < N_REST; i++)
    if (!rest[i].target)
      scratch_write(place(rest[i].name), "{}", 2);
    else if (symlink(rest[i].target, place(rest[i].name)) != 0)
      abort();
  atexit(remove_folder);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  for (int i = 0; i < N_PARTS; i++) {
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t length = end ? (size_t)(end - data) : size;
    if (length > 0)
      scratch_write(place(parts[i]), data, length);
    else
      unlink(place(parts[i]));
    data += end ? length + 1 : length;
    size -= end ? length + 1 : length;
  }
  iso_hf_folder *opened;
  if (iso_hf_folder_open(folder, true, &opened) == ISO_OK) {
    for (uint64_t i = 0; i < iso_safetensors_tensor_count(opened->weights); i++)
      if (!iso_safetensors_tensor_at(opened->weights, i)->data)
        abort();
    (void)iso_hf_folder_chat_template(opened, NULL);
    iso_hf_folder_close(opened);
  }
  iso_tokenizer *tokenizer;
  if (iso_tokenizer_create_from_folder(folder, &tokenizer) == ISO_OK) {
    int32_t *ids;
    size_t count;
    if (iso_tokenizer_encode(tokenizer, "a<b>", 4, ISO_TOKENIZE_ADD_SPECIAL, &ids, &count) ==
        ISO_OK)
      free(ids);
    iso_tokenizer_destroy(tokenizer);
  }
  return 0;
}
