/* Element types of safetensors, shared by its reader and writer. */
#ifndef ISOMER_MODELS_FORMATS_SAFETENSORS_DTYPE_H
#define ISOMER_MODELS_FORMATS_SAFETENSORS_DTYPE_H

#include <isomer/quant.h>

typedef struct safetensors_dtype {
  const char *name;
  uint32_t bytes;
  iso_scheme scheme; /* ISO_SCHEME_COUNT: readable as bytes only */
} safetensors_dtype;

/* NULL when unknown. */
const safetensors_dtype *iso_safetensors_dtype_from_name(const char *name);
/* NULL when the format cannot hold the scheme. */
const safetensors_dtype *iso_safetensors_dtype_from_scheme(iso_scheme scheme);

#endif
