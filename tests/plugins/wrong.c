/* The host backend with one op that is off by a hundredth, or NaN, for tests of `isomer conform`
 * and `isomer verify`. The environment variable ISOMER_WRONG says which: "rms_norm" is wrong
 * whenever it runs, "rms_norm:3:7" in launch 3 of every 7, counted from 0, so that with 7 norms a
 * step of the model it is the fourth of them, "rms_norm=40" of 40 rows alone, "rms_norm~" NaN, and
 * "paged_attention+" only where sequences are beside each other. Every other op is the reference.
 */
#include <isomer/reference.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_wrong_now(const iso_op_arguments *arguments) {
  static unsigned launches;
  char name[32];
  unsigned index = 0, period = 1;
  const char *wrong = getenv("ISOMER_WRONG");
  if (!wrong || sscanf(wrong, "%31[a-z_]:%u:%u", name, &index, &period) < 1 ||
      strcmp(iso_op_get_info(arguments->op)->name, name) != 0)
    return false;
  if (wrong[strlen(name)] == '=')
    return arguments->inputs[0].dims[0] == atoi(wrong + strlen(name) + 1);
  if (wrong[strlen(name)] == '+')
    return arguments->inputs[3].dims[0] > 1; /* rows of the block table */
  return launches++ % period == index;
}

/* Rows of f32 only; what is written into a cache is all of its rows. */
static void damage(const iso_tensor *tensor, float *values) {
  bool is_nan = strchr(getenv("ISOMER_WRONG"), '~') != NULL;
  int64_t n = tensor->n_dims > 0 ? 1 : 0;
  for (uint32_t d = 0; d < tensor->n_dims; d++)
    n *= tensor->dims[d];
  for (int64_t i = 0; i < n && tensor->scheme == ISO_SCHEME_F32; i++)
    values[i] *= is_nan ? NAN : 1.01f;
}

static iso_status run_wrongly(const iso_op_arguments *arguments, const void *const *inputs,
                              void *const *outputs) {
  ISO_TRY(iso_reference_run(arguments, inputs, outputs));
  if (is_wrong_now(arguments))
    damage(&arguments->outputs[0], outputs[0]);
  return ISO_OK;
}

#define HOST_BACKEND_LIBRARY
#define HOST_BACKEND_NAME "wrong"
#define iso_reference_run run_wrongly
#include "backends/host/host.c"
