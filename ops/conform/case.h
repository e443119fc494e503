/* Inside of conformance: cases, their inputs, what is expected of the outputs. */
#ifndef ISOMER_OPS_CONFORM_CASE_H
#define ISOMER_OPS_CONFORM_CASE_H

#include "ops/conform/conform.h"
#include "ops/rules.h"

/* What the values of a case are like. */
typedef enum iso_fill {
  ISO_FILL_NORMAL,  /* normal, deviation 1 */
  ISO_FILL_LARGE,   /* normal, deviation 1000: products overflow f16, scores overflow exp */
  ISO_FILL_TINY,    /* normal, deviation 1e-3 */
  ISO_FILL_EXTREME, /* only +1 and -1: every 8-bit code is at its limit */
  ISO_FILL_OUTLIER, /* normal, with one element of 100 in each row */
  ISO_FILL_TIES,    /* halves, so that many are equal */
  ISO_FILL_SHARP,   /* normal, deviation 10: scores of attention reach hundreds, as models' do */
  ISO_FILL_COUNT
} iso_fill;

typedef enum iso_batch {
  ISO_BATCH_MIXED,   /* rows dealt out at random, some sequences idle, some rows of none */
  ISO_BATCH_PREFILL, /* every sequence starts at position 0 */
  ISO_BATCH_DECODE,  /* one row a sequence */
  ISO_BATCH_SERVE,   /* one row a sequence, but the last has all the others */
  ISO_BATCH_FULL,    /* one row a sequence, each at the end of all that its pages hold */
  ISO_BATCH_COUNT
} iso_batch;

typedef struct iso_case {
  char text[ISO_CASE_TEXT];
  /* Complete but for buffers, offsets and the pointer to attributes. */
  iso_op_arguments arguments;
  iso_any_attributes attributes;
  iso_fill fill;
  iso_batch batch;
} iso_case;

/* Parses one case and checks it with iso_op_validate(). */
ISO_MUST_CHECK iso_status iso_case_parse(const char *text, iso_case *out_case);

/* Called with each case of the grid; a status other than ISO_OK stops and is passed on. */
typedef iso_status (*iso_case_visitor)(void *context, const char *text);
ISO_MUST_CHECK iso_status iso_case_each(bool perf, iso_case_visitor visitor, void *context);

/* The operands of a case in host memory, laid out as on the device (gaps included). */
typedef struct iso_case_data {
  uint8_t *inputs[ISO_MAX_INPUTS]; /* NULL where absent */
  uint8_t *outputs[ISO_MAX_OUTPUTS];
  uint64_t input_bytes[ISO_MAX_INPUTS];
  uint64_t output_bytes[ISO_MAX_OUTPUTS];
} iso_case_data;

/* Bytes from the first to the last byte of an operand, gaps included; 0 when absent or empty. */
uint64_t iso_case_span(const iso_tensor *tensor);
int64_t iso_case_rows(const iso_tensor *tensor);
int64_t iso_case_columns(const iso_tensor *tensor);
/* Byte offset of a row, all dimensions but the last taken as one. */
uint64_t iso_case_row_offset(const iso_tensor *tensor, int64_t row);

/* Allocates the operands and fills inputs from the seed; outputs hold 0xFF (NaN), gaps and what no
 * op may read hold NaN. Aliased outputs have memory of their own that starts as the input. */
ISO_MUST_CHECK iso_status iso_case_fill(const iso_case *test, uint64_t seed, iso_case_data *out);
void iso_case_data_free(iso_case_data *data);

/* The reference's outputs and how far a device may be from them. */
typedef struct iso_expectation {
  iso_case_data data; /* inputs, and the reference's outputs */
  /* For the first output of sums of products; NULL elsewhere. Dense, one value an element. */
  float *magnitude; /* sum of the absolute terms */
  float *deviation; /* standard deviation that rounding activations to storage types makes */
} iso_expectation;

/* Fills inputs and runs the reference. */
ISO_MUST_CHECK iso_status iso_expectation_create(const iso_case *test, uint64_t seed,
                                                 iso_expectation *out);
/* The same where the caller has put the inputs, and outputs that hold aliased inputs, into
 * `data`; what is not to be freed must be taken out of it again. */
ISO_MUST_CHECK iso_status iso_expectation_complete(const iso_case *test,
                                                   iso_expectation *expectation);
void iso_expectation_free(iso_expectation *expectation);

/* A unit in the last place of values stored so, relative to them at most; of block schemes that of
 * the f32 that they are computed in. */
double iso_case_last_place(iso_scheme scheme);

/* Compares one output of a device, laid out as the operand is. True when it conforms; else says
 * in `out_detail` (ISO_CASE_DETAIL bytes) where it differs most. */
bool iso_case_compare(const iso_case *test, const iso_expectation *expectation, uint32_t output,
                      const uint8_t *bytes, char *out_detail);

/* Bytes that the op must move and operations that it must do, for timed runs. */
void iso_case_work(const iso_case *test, const iso_case_data *data, double *out_bytes,
                   double *out_operations);

#endif
