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

const iso_architecture *iso_architecture_find(const char *name, bool is_gguf) {
  for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++) {
    const iso_architecture *architecture = architectures[i];
    if (is_gguf && strcmp(name, architecture->name) == 0)
      return architecture;
    for (int k = 0; !is_gguf && k < 4 && architecture->hf_model_types[k]; k++)
      if (strcmp(name, architecture->hf_model_types[k]) == 0)
        return architecture;
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
