/* Where prepared activations lie, and how a panel of them is filled. */
#include "backends/cpu/matmul/product.h"

static uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

static uint64_t scale_bytes(const iso_product_kernel *kernel, int64_t rows, int64_t elements) {
  return kernel->quantize
             ? aligned((uint64_t)rows * (uint64_t)elements / ISO_ACTIVATION_BLOCK * sizeof(float))
             : 0;
}

static uint64_t correction_bytes(const iso_product_kernel *kernel, int64_t rows, int64_t elements) {
  return kernel->offset || kernel->minimum
             ? aligned((uint64_t)rows * (uint64_t)elements / kernel->sub_elements * sizeof(float))
             : 0;
}

static uint64_t value_bytes(const iso_product_kernel *kernel, int64_t rows, int64_t elements) {
  return aligned((uint64_t)rows * (uint64_t)elements * kernel->value_bytes);
}

uint64_t iso_activations_bytes(const iso_product_kernel *kernel, int64_t rows, int64_t elements) {
  return value_bytes(kernel, rows, elements) + scale_bytes(kernel, rows, elements) +
         correction_bytes(kernel, rows, elements);
}

iso_activations iso_activations_at(const iso_product_kernel *kernel, void *memory, int64_t rows,
                                   int64_t elements, int64_t stretch) {
  iso_activations result = {
      .values = memory, .rows = rows, .elements = elements, .stretch = stretch};
  uint8_t *scales = result.values + value_bytes(kernel, rows, elements);
  result.scales = (float *)(void *)scales;
  result.corrections = (int32_t *)(void *)(scales + scale_bytes(kernel, rows, elements));
  return result;
}

/* Rows of the panel that starts at `row`. */
static int64_t panel_rows(const iso_activations *activations, int64_t row) {
  int64_t rest = activations->rows - row;
  return rest < ISO_PANEL_ROWS ? rest : ISO_PANEL_ROWS;
}

/* Entries before the part of the panel at `row` that belongs to the stretch from `element` on. */
static int64_t part_offset(const iso_activations *activations, int64_t row, int64_t element) {
  int64_t rest = activations->elements - element;
  int64_t stretch = rest < activations->stretch ? rest : activations->stretch;
  return element * activations->rows + row * stretch;
}

iso_panel iso_activations_panel(const iso_product_kernel *kernel,
                                const iso_activations *activations, int64_t row, int64_t element) {
  int64_t first = part_offset(activations, row, element);
  iso_panel panel = {.values = activations->values + first * kernel->value_bytes};
  if (kernel->quantize) {
    panel.scales = activations->scales + first / ISO_ACTIVATION_BLOCK;
    panel.corrections = activations->corrections + first / kernel->sub_elements;
  }
  return panel;
}

void iso_activations_prepare(const iso_product_kernel *kernel, const iso_activations *activations,
                             int64_t row, const float *const *rows) {
  int64_t n_rows = panel_rows(activations, row), elements = activations->elements;
  for (int64_t k = 0; k < elements; k += activations->stretch) {
    int64_t first = part_offset(activations, row, k), rest = elements - k;
    int64_t count = rest < activations->stretch ? rest : activations->stretch;
    if (kernel->quantize) {
      for (int64_t r = 0; r < n_rows; r++)
        kernel->quantize(kernel, rows[r] + k, count, n_rows,
                         activations->values + first * kernel->value_bytes + 8 * r,
                         activations->scales + first / ISO_ACTIVATION_BLOCK + r,
                         activations->corrections + first / kernel->sub_elements + r);
      continue;
    }
    float *values = (float *)(void *)activations->values + first;
    for (int64_t r = 0; r < n_rows; r++)
      for (int64_t i = 0; i < count; i++)
        values[i * n_rows + r] = rows[r][k + i];
  }
}
