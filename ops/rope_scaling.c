#include "ops/rope_scaling.h"
#include <math.h>

/* The state of one computation; pair i has angle frequency(i) * position. */
typedef struct rope_table {
  const iso_rope_config *config;
  int32_t n_pairs, context_length;
  float *frequencies;
  double magnitude;
} rope_table;

static double base_frequency(double theta, int32_t pair, int32_t n_pairs) {
  return pow(theta, -(double)pair / n_pairs);
}

static bool positive(double value) { return value > 0 && isfinite(value); }

static iso_status need(bool fine, const char *method, const char *sentence) {
  return fine ? ISO_OK
              : iso_fail(ISO_ERROR_INVALID_ARGUMENT, "rope scaling %s: %s", method, sentence);
}

static void fill(rope_table *table, double theta, double factor) {
  for (int32_t i = 0; i < table->n_pairs; i++)
    table->frequencies[i] = (float)(base_frequency(theta, i, table->n_pairs) / factor);
}

static iso_status unscaled(rope_table *table) {
  fill(table, table->config->theta, 1);
  return ISO_OK;
}

static iso_status linear(rope_table *table) {
  ISO_TRY(need(positive(table->config->factor), "linear", "factor must be positive"));
  fill(table, table->config->theta, table->config->factor);
  return ISO_OK;
}

static iso_status dynamic_ntk(rope_table *table) {
  const iso_rope_config *config = table->config;
  double dim = config->rotary_dim, trained = config->original_context;
  ISO_TRY(need(positive(config->factor), "dynamic", "factor must be positive"));
  ISO_TRY(need(trained > 0, "dynamic", "the trained context length must be known"));
  ISO_TRY(need(dim > 2, "dynamic", "more than two elements must rotate"));
  double length = fmax(table->context_length, trained);
  double growth = config->factor * length / trained - (config->factor - 1);
  fill(table, config->theta * pow(growth, dim / (dim - 2)), 1);
  return ISO_OK;
}

/* Wavelengths longer than original / low are divided by the factor, those shorter than original /
 * high are kept, and between them the frequency goes over linearly in original / wavelength. */
static iso_status llama3(rope_table *table) {
  const iso_rope_config *config = table->config;
  double low = config->low_frequency_factor, high = config->high_frequency_factor;
  ISO_TRY(need(positive(config->factor), "llama3", "factor must be positive"));
  ISO_TRY(need(positive(low) && positive(high) && low < high, "llama3",
               "the frequency factors must be positive and low below high"));
  ISO_TRY(need(config->original_context > 0, "llama3", "the original context must be known"));
  for (int32_t i = 0; i < table->n_pairs; i++) {
    double frequency = base_frequency(config->theta, i, table->n_pairs);
    double turns = config->original_context * frequency / (2 * M_PI); /* over the context */
    double kept = fmin(fmax((turns - low) / (high - low), 0), 1);
    table->frequencies[i] = (float)(frequency * ((1 - kept) / config->factor + kept));
  }
  return ISO_OK;
}

static double yarn_magnitude(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * log(factor) + 1;
}

/* The pair, as a real number, that makes `turns` turns over the original context. */
static double yarn_pair(const iso_rope_config *config, double turns) {
  return config->rotary_dim * log(config->original_context / (turns * 2 * M_PI)) /
         (2 * log(config->theta));
}

/* arXiv:2309.00071: pairs that turn more than beta_fast times are kept, those that turn less than
 * beta_slow times are divided by the factor, with a linear ramp over the pairs between. */
static iso_status yarn(rope_table *table) {
  const iso_rope_config *config = table->config;
  double fast = config->beta_fast != 0 ? config->beta_fast : 32;
  double slow = config->beta_slow != 0 ? config->beta_slow : 1;
  ISO_TRY(need(positive(config->factor), "yarn", "factor must be positive"));
  ISO_TRY(need(positive(fast) && positive(slow), "yarn", "the betas must be positive"));
  ISO_TRY(need(config->original_context > 0, "yarn", "the original context must be known"));
  ISO_TRY(need(config->theta != 1, "yarn", "theta must not be 1"));
  double first = fmax(floor(yarn_pair(config, fast)), 0);
  double last = fmin(ceil(yarn_pair(config, slow)), config->rotary_dim - 1);
  if (first == last)
    last += 0.001; /* a step instead of a division by zero, as transformers has it */
  for (int32_t i = 0; i < table->n_pairs; i++) {
    double frequency = base_frequency(config->theta, i, table->n_pairs);
    double divided = fmin(fmax((i - first) / (last - first), 0), 1);
    table->frequencies[i] = (float)(frequency * (divided / config->factor + (1 - divided)));
  }
  if (config->mscale != 0 && config->mscale_all_dim != 0)
    table->magnitude = yarn_magnitude(config->factor, config->mscale) /
                       yarn_magnitude(config->factor, config->mscale_all_dim);
  else
    table->magnitude = yarn_magnitude(config->factor, 1);
  return ISO_OK;
}

static iso_status longrope(rope_table *table) {
  const iso_rope_config *config = table->config;
  ISO_TRY(need(config->original_context > 1, "longrope", "the original context must be known"));
  ISO_TRY(need(positive(config->factor), "longrope", "factor must be positive"));
  bool is_long = table->context_length > config->original_context;
  const float *factors = is_long ? config->long_factors : config->short_factors;
  ISO_TRY(need(factors != NULL, "longrope", "the factors of the pairs are missing"));
  for (int32_t i = 0; i < table->n_pairs; i++) {
    ISO_TRY(need(positive(factors[i]), "longrope", "the factors of the pairs must be positive"));
    table->frequencies[i] = (float)(base_frequency(config->theta, i, table->n_pairs) / factors[i]);
  }
  if (config->factor > 1)
    table->magnitude = sqrt(1 + log(config->factor) / log(config->original_context));
  return ISO_OK;
}

iso_status iso_rope_frequencies(const iso_rope_config *config, int32_t context_length,
                                float *out_frequencies, float *out_magnitude) {
  static iso_status (*const methods[])(rope_table * table) = {
      [ISO_ROPE_SCALING_NONE] = unscaled,
      [ISO_ROPE_SCALING_LINEAR] = linear,
      [ISO_ROPE_SCALING_DYNAMIC_NTK] = dynamic_ntk,
      [ISO_ROPE_SCALING_LLAMA3] = llama3,
      [ISO_ROPE_SCALING_YARN] = yarn,
      [ISO_ROPE_SCALING_LONGROPE] = longrope,
  };
  if ((size_t)config->scaling >= sizeof methods / sizeof methods[0])
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "unknown rope scaling %d", (int)config->scaling);
  if (config->rotary_dim < 2 || config->rotary_dim % 2 != 0)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "rope: %d elements cannot rotate in pairs",
                    config->rotary_dim);
  if (!positive(config->theta))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "rope: theta is %g, must be positive",
                    (double)config->theta);
  if (!(config->attention_factor >= 0) || isinf(config->attention_factor))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "rope: the attention factor is %g",
                    (double)config->attention_factor);
  rope_table table = {.config = config,
                      .n_pairs = config->rotary_dim / 2,
                      .context_length = context_length,
                      .frequencies = out_frequencies,
                      .magnitude = 1};
  ISO_TRY(methods[config->scaling](&table));
  bool given = config->attention_factor > 0 && (config->scaling == ISO_ROPE_SCALING_YARN ||
                                                config->scaling == ISO_ROPE_SCALING_LONGROPE);
  *out_magnitude = given ? config->attention_factor : (float)table.magnitude;
  return ISO_OK;
}
