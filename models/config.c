#include "models/model.h"

iso_status iso_config_check(const iso_model_config *config) {
  if (config->n_heads % config->n_kv_heads != 0)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "%d attention heads are not a multiple of %d kv heads",
                    config->n_heads, config->n_kv_heads);
  const iso_rope_config *ropes[2] = {&config->rope, &config->local_rope};
  for (int i = 0; i < 2; i++) {
    if (ropes[i]->theta == 0.0f)
      continue;
    if (ropes[i]->rotary_dim <= 0 || ropes[i]->rotary_dim % 2 != 0 ||
        ropes[i]->rotary_dim > config->head_dim)
      return iso_fail(ISO_ERROR_CORRUPT_DATA,
                      "rotary dimension %d does not fit heads of %d elements", ropes[i]->rotary_dim,
                      config->head_dim);
  }
  return ISO_OK;
}

iso_status iso_config_take_windows(iso_model_config *config, const char *name, const bool *windowed,
                                   int n_layers) {
  if (n_layers != config->n_layers)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "%s has %d entries for %d layers", name, n_layers,
                    config->n_layers);
  int first_global = 0;
  while (first_global < n_layers && windowed[first_global])
    first_global++;
  /* No global layer in a short model: a pattern longer than it. */
  config->window_pattern = first_global + 1;
  for (int layer = 0; layer < n_layers; layer++)
    if (windowed[layer] == ((layer + 1) % config->window_pattern == 0))
      return iso_fail(ISO_ERROR_UNSUPPORTED, "%s is not a global layer after each %d windowed ones",
                      name, first_global);
  return ISO_OK;
}
