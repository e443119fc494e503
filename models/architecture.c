#include "models/model.h"

#include <string.h>

#define ISO_ARCHITECTURE(name) extern const iso_architecture iso_architecture_##name;
#include "models/architectures.def"
#undef ISO_ARCHITECTURE

static const iso_architecture *const architectures[] = {
#define ISO_ARCHITECTURE(name) &iso_architecture_##name,
#include "models/architectures.def"
#undef ISO_ARCHITECTURE
};

const iso_architecture *iso_architecture_find(const char *name) {
  for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++)
    if (strcmp(name, architectures[i]->name) == 0)
      return architectures[i];
  return NULL;
}

const iso_architecture *iso_architecture_find_hf(const char *name, const iso_hf_type **out_type) {
  for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++) {
    const iso_hf_type *types = architectures[i]->hf_types;
    for (int k = 0; k < 4 && types[k].name; k++)
      if (strcmp(name, types[k].name) == 0) {
        *out_type = &types[k];
        return architectures[i];
      }
  }
  return NULL;
}

const char *iso_architecture_names(void) {
  return ""
#define ISO_ARCHITECTURE(name) #name " "
#include "models/architectures.def"
#undef ISO_ARCHITECTURE
      ;
}
