#include "models/formats/safetensors_dtype.h"

#include <string.h>

static const safetensors_dtype dtypes[] = {
    {"F32", 4, ISO_SCHEME_F32},       {"F16", 2, ISO_SCHEME_F16},
    {"BF16", 2, ISO_SCHEME_BF16},     {"I32", 4, ISO_SCHEME_I32},
    {"I8", 1, ISO_SCHEME_I8},         {"BOOL", 1, ISO_SCHEME_COUNT},
    {"U8", 1, ISO_SCHEME_COUNT},      {"F8_E4M3", 1, ISO_SCHEME_COUNT},
    {"F8_E5M2", 1, ISO_SCHEME_COUNT}, {"F8_E8M0", 1, ISO_SCHEME_COUNT},
    {"I16", 2, ISO_SCHEME_COUNT},     {"U16", 2, ISO_SCHEME_COUNT},
    {"U32", 4, ISO_SCHEME_COUNT},     {"I64", 8, ISO_SCHEME_COUNT},
    {"U64", 8, ISO_SCHEME_COUNT},     {"F64", 8, ISO_SCHEME_COUNT},
};

const safetensors_dtype *iso_safetensors_dtype_from_name(const char *name) {
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (strcmp(dtypes[i].name, name) == 0)
      return &dtypes[i];
  return NULL;
}

const safetensors_dtype *iso_safetensors_dtype_from_scheme(iso_scheme scheme) {
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (dtypes[i].scheme == scheme && scheme != ISO_SCHEME_COUNT)
      return &dtypes[i];
  return NULL;
}
