/* What the core puts into the optional slots that a backend leaves empty. */
#ifndef ISOMER_CORE_DEFAULTS_H
#define ISOMER_CORE_DEFAULTS_H

#include "core/backend_load.h"

/* Fills the empty optional slots. INVALID_ARGUMENT where one of two inseparable slots is there
 * without the other. */
ISO_MUST_CHECK iso_status iso_defaults_install(iso_loaded_backend *backend);

/* Whether memory.import is the default, which refuses: then no weight is used in place. */
bool iso_defaults_lack_import(const iso_memory_table *memory);

#endif
