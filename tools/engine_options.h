/* The engine that the options ask for. */
#ifndef ISOMER_TOOLS_ENGINE_OPTIONS_H
#define ISOMER_TOOLS_ENGINE_OPTIONS_H

#include <isomer/engine.h>

#include "core/progress.h"
#include "tools/options.h"

/* Opens options->draft_model where --speculation asks for it (*out_draft is NULL otherwise) and
 * creates the engine, drawing `bar`. The draft model outlives the engine. */
ISO_MUST_CHECK iso_status iso_tool_create_engine(const iso_model *model, const iso_options *options,
                                                 iso_progress_bar *bar, iso_model **out_draft,
                                                 iso_engine **out_engine);

#endif
