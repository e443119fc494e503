/* Inside of a runtime: what sessions need beyond isomer/engine.h. */
#ifndef ISOMER_ENGINE_RUNTIME_H
#define ISOMER_ENGINE_RUNTIME_H

#include <isomer/engine.h>

#include "engine/page_pool.h"

iso_page_pool *iso_runtime_page_pool(iso_runtime *runtime);

#endif
