/* Any text: an error, or a case that iso_op_validate() accepts. */
#include "ops/conform/case.h"
#include <isomer/reference.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  iso_case test;
  if (!text)
    return 0;
  memcpy(text, data, size);
  text[size] = 0;
  if (iso_case_parse(text, &test) == ISO_OK) {
    iso_op_arguments arguments = test.arguments;
    arguments.attributes = &test.attributes;
    if (iso_op_validate(&arguments) != ISO_OK)
      abort();
    for (uint32_t i = 0; i < arguments.n_inputs; i++)
      (void)iso_case_span(&arguments.inputs[i]);
  }
  free(text);
  return 0;
}
