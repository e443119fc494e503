/* Ops on one element at a time: glu, activate, add, soft_cap, convert, quantize_rows. */
#include "ops/ref/reference.h"
#include <math.h>

double iso_activation_of(uint32_t activation, double x) {
  switch ((iso_activation)activation) {
  case ISO_ACTIVATION_SILU:
    return x / (1 + exp(-x));
  case ISO_ACTIVATION_GELU_TANH:
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  case ISO_ACTIVATION_GELU_ERF:
    return 0.5 * x * (1 + erf(x / M_SQRT2));
  case ISO_ACTIVATION_RELU:
    return x > 0 || isnan(x) ? x : 0;
  case ISO_ACTIVATION_SIGMOID:
    return 1 / (1 + exp(-x));
  default:
    return NAN;
  }
}

/* One result of the elements of both inputs; b is 0 for ops of one input. */
typedef double (*element_function)(const iso_any_attributes *attributes, double a, double b);

/* Applies a function to all elements. The second input may be one row for all. */
static iso_status each(iso_reference_call *call, element_function function) {
  const iso_host_tensor *a = &call->inputs[0], *b = &call->inputs[1], *y = &call->outputs[0];
  int64_t n_columns = iso_n_columns(a);
  bool paired = iso_is_present(b), one_row = paired && b->meta->n_dims == 1;
  float *row, *other;
  ISO_TRY(iso_reference_scratch(call, n_columns, sizeof *row, &row));
  ISO_TRY(iso_reference_scratch(call, n_columns, sizeof *other, &other));
  for (int64_t r = 0; r < iso_n_rows(a); r++) {
    iso_load_row(a, r, row);
    if (paired)
      iso_load_row(b, one_row ? 0 : r, other);
    for (int64_t i = 0; i < n_columns; i++)
      row[i] = (float)function(&call->attributes, row[i], other[i]);
    iso_store_row(y, r, row);
  }
  return ISO_OK;
}

static double glu_element(const iso_any_attributes *attributes, double gate, double up) {
  return iso_activation_of(attributes->glu.activation, gate) * up;
}

static double activate_element(const iso_any_attributes *attributes, double x, double unused) {
  (void)unused;
  return iso_activation_of(attributes->activate.activation, x);
}

static double add_element(const iso_any_attributes *attributes, double a, double b) {
  (void)attributes;
  return a + b;
}

static double soft_cap_element(const iso_any_attributes *attributes, double x, double unused) {
  (void)unused;
  double scaled = attributes->soft_cap.scale * x, cap = attributes->soft_cap.cap;
  return cap > 0 ? cap * tanh(scaled / cap) : scaled;
}

static double same_element(const iso_any_attributes *attributes, double x, double unused) {
  (void)attributes;
  (void)unused;
  return x;
}

iso_status iso_reference_glu(iso_reference_call *call) { return each(call, glu_element); }
iso_status iso_reference_activate(iso_reference_call *call) { return each(call, activate_element); }
iso_status iso_reference_add(iso_reference_call *call) { return each(call, add_element); }
iso_status iso_reference_soft_cap(iso_reference_call *call) { return each(call, soft_cap_element); }
/* Storing does the work of both. */
iso_status iso_reference_convert(iso_reference_call *call) { return each(call, same_element); }
iso_status iso_reference_quantize_rows(iso_reference_call *call) {
  return each(call, same_element);
}
