/* Where prepared activations lie. */
#include "backends/cpu/matmul/product.h"

static uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

static int64_t padded_rows(const iso_product_kernel *kernel, int64_t rows) {
  return kernel->whole_panels
             ? (rows + kernel->panel_rows - 1) / kernel->panel_rows * kernel->panel_rows
             : rows;
}

static uint64_t value_bytes(const iso_product_kernel *kernel, uint64_t entries) {
  return aligned(entries * kernel->value_bytes);
}

static uint64_t scale_bytes(const iso_product_kernel *kernel, uint64_t entries) {
  return kernel->sub_shift ? aligned(entries / ISO_ACTIVATION_BLOCK * sizeof(float)) : 0;
}

static uint64_t correction_bytes(const iso_product_kernel *kernel, uint64_t entries) {
  return kernel->offset || kernel->minimum
             ? aligned((entries >> kernel->sub_shift) * sizeof(int32_t))
             : 0;
}

uint64_t iso_activations_bytes(const iso_product_kernel *kernel, int64_t rows, int64_t elements) {
  uint64_t entries = (uint64_t)padded_rows(kernel, rows) * (uint64_t)elements;
  return value_bytes(kernel, entries) + scale_bytes(kernel, entries) +
         correction_bytes(kernel, entries);
}

iso_activations iso_activations_at(const iso_product_kernel *kernel, void *memory, int64_t rows,
                                   int64_t elements, bool few) {
  iso_activations result = {.values = memory, .elements = elements, .few = few};
  result.rows = padded_rows(kernel, rows);
  result.panel_rows = kernel->panel_rows;
  result.stretch = kernel->stretch_elements;
  if (few)
    result.stretch = elements;
  if (few && rows > 0) {
    int64_t panels = (rows + kernel->few_panel_rows - 1) / kernel->few_panel_rows;
    result.panel_rows = (rows + panels - 1) / panels;
    while (kernel->prepare_one && result.panel_rows > 2 && rows % result.panel_rows == 1)
      result.panel_rows--;
  }
  uint64_t entries = (uint64_t)result.rows * (uint64_t)elements;
  uint8_t *scales = result.values + value_bytes(kernel, entries);
  result.scales = (float *)(void *)scales;
  result.corrections = (int32_t *)(void *)(scales + scale_bytes(kernel, entries));
  return result;
}

iso_panel iso_activations_panel(const iso_product_kernel *kernel,
                                const iso_activations *activations, int64_t row, int64_t element) {
  int64_t rest = activations->elements - element, rows = activations->rows - row;
  int64_t stretch = rest < activations->stretch ? rest : activations->stretch;
  int64_t first = element * activations->rows + row * stretch;
  iso_panel panel = {.values = activations->values + first * kernel->value_bytes};
  panel.rows = rows < activations->panel_rows ? rows : activations->panel_rows;
  if (kernel->sub_shift) {
    panel.scales = activations->scales + first / ISO_ACTIVATION_BLOCK;
    panel.corrections = activations->corrections + (first >> kernel->sub_shift);
  }
  return panel;
}

/* Calls PREPARE for each stretch of a row. */
#define PREPARE_STRETCHES(PREPARE, kernel, activations, row, x)                                    \
  do {                                                                                             \
    int64_t in_panel_ = (row) % (activations)->panel_rows, all_ = (activations)->elements;         \
    for (int64_t k_ = 0; k_ < all_; k_ += (activations)->stretch) {                                \
      int64_t rest_ = all_ - k_;                                                                   \
      iso_panel panel_ = iso_activations_panel(kernel, activations, (row)-in_panel_, k_);          \
      PREPARE(kernel, (x) + k_, rest_ < (activations)->stretch ? rest_ : (activations)->stretch,   \
              in_panel_, &panel_);                                                                 \
    }                                                                                              \
  } while (0)

void iso_activations_prepare(const iso_product_kernel *kernel, const iso_activations *activations,
                             int64_t row, const float *x) {
  iso_product_prepare prepare = activations->few && activations->rows == 1 && kernel->prepare_one
                                    ? kernel->prepare_one
                                    : kernel->prepare;
  PREPARE_STRETCHES(prepare, kernel, activations, row, x);
}

void iso_activations_prepare_bf16(const iso_product_kernel *kernel,
                                  const iso_activations *activations, int64_t row,
                                  const uint16_t *x) {
  PREPARE_STRETCHES(kernel->prepare_bf16, kernel, activations, row, x);
}
