/* A Hugging Face model folder: config.json, tokenizer and safetensors weights. */
#ifndef ISOMER_MODELS_FORMATS_HF_FOLDER_H
#define ISOMER_MODELS_FORMATS_HF_FOLDER_H

#include "core/json.h"
#include "models/formats/safetensors.h"

typedef struct iso_hf_chat_template {
  const char *name; /* "default" when the folder gives it none */
  const char *text; /* Jinja */
} iso_hf_chat_template;

/* What a folder holds; everything is the folder's until closed. */
typedef struct iso_hf_folder {
  char *path;
  cJSON *config;              /* config.json, an object */
  cJSON *generation_config;   /* generation_config.json, or NULL */
  cJSON *tokenizer_config;    /* tokenizer_config.json, or NULL */
  cJSON *pooling_config;      /* 1_Pooling/config.json, or NULL */
  cJSON *modules;             /* modules.json, an array, or NULL: of an embedding model */
  char *tokenizer_json_path;  /* NULL when absent; one of the two is there if it was needed */
  char *tokenizer_model_path; /* the SentencePiece model; NULL when absent */
  iso_safetensors *weights;
  iso_hf_chat_template *chat_templates;
  uint32_t chat_template_count;
  char *chat_template_file; /* text of chat_template.jinja, or NULL */
  char *tool_template_file; /* text of additional_chat_templates/tool_use.jinja, or NULL */
} iso_hf_folder;

/* Opens a folder. NOT_FOUND names the file that is missing, a tokenizer among them if one is
 * needed; Git-LFS pointers, pickled weights (pytorch_model.bin) and broken files are refused by
 * name. */
ISO_MUST_CHECK iso_status iso_hf_folder_open(const char *path, bool need_tokenizer,
                                             iso_hf_folder **out_folder);
/* NULL is fine. */
void iso_hf_folder_close(iso_hf_folder *folder);

/* Text of the template of that name, NULL meaning "default"; NULL when there is none.
 * Where there are files of templates, those of tokenizer_config.json do not count, as in
 * transformers. */
const char *iso_hf_folder_chat_template(const iso_hf_folder *folder, const char *name);

#endif
