/* Adapters of --lora [NAME=]PATH: opened, and found by name. */
#ifndef ISOMER_TOOLS_ADAPTERS_H
#define ISOMER_TOOLS_ADAPTERS_H

#include <isomer/model.h>

#include "models/formats/text_view.h"
#include "tools/options.h"

/* In the order of the options: adapter i of a request is item i - 1. */
typedef struct iso_adapter_list {
  iso_adapter *items[ISO_MAX_LIST];
  int32_t n;
} iso_adapter_list;

/* Opens them all for a model. Two of one name are refused. */
ISO_MUST_CHECK iso_status iso_tool_open_adapters(const iso_model *model, const iso_options *options,
                                                 iso_adapter_list *out_list);
void iso_tool_close_adapters(iso_adapter_list *list);

/* For commands that run all with one adapter, if any: fails where there are more. */
ISO_MUST_CHECK iso_status iso_tool_need_one_adapter(const iso_options *options);
/* Adapter `index` of the options by name: NAME where it was given, else what iso_tool_name() makes
 * of the path. Points into the options. */
iso_text_view iso_tool_adapter_name(const iso_options *options, int index);
/* The file's or folder's name, without its end: "models/Qwen3-0.6B-Q8_0.gguf" is Qwen3-0.6B-Q8_0.
 * Points into the path. */
iso_text_view iso_tool_name(const char *path);

#endif
