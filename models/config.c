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
