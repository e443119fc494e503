/* cuBLASLt, opened at run time: products of many rows by plain float weights. */
#ifndef ISOMER_BACKENDS_CUDA_BLAS_H
#define ISOMER_BACKENDS_CUDA_BLAS_H

#include "backends/cuda/cuda.h"

/* Scratch that a product may ask for, besides its own. */
#define CUDA_BLAS_WORKSPACE (UINT64_C(32) << 20)

/* How the operands of a product are scaled: not at all, or, of E4M3, each row by a number or each
 * 128 columns of a row by one. */
enum cuda_scaling { CUDA_UNSCALED, CUDA_SCALED_ROWS, CUDA_SCALED_GROUPS };

/* y[m, n] = sum over k of x[m, k] w[n, k], added to y where `accumulate`. All row-major, x and w of
 * one scheme, y of that scheme or f32; strides in elements; every row at a multiple of 16 bytes.
 * Scaled operands are E4M3 whatever the scheme; scales lie by group, then by row. */
struct cuda_product {
  int64_t m, n, k;
  iso_scheme scheme, y_scheme;
  const void *x, *w;
  void *y;
  int64_t x_stride, w_stride, y_stride;
  bool accumulate;
  cuda_scaling scaling;
  const float *x_scales, *w_scales; /* on the device */
  void *workspace;                  /* CUDA_BLAS_WORKSPACE bytes */
};

/* Opens the library; NULL, with a notice in the log, where it is not installed. */
cuda_blas *cuda_blas_create(void);
void cuda_blas_destroy(cuda_blas *blas);
/* Whether the library has an algorithm for such a product, whose addresses are not looked at.
 * Thread safe. */
bool cuda_blas_has(const iso_device *device, const cuda_product *product);
/* Enqueues a product. The algorithm of a shape is asked for once and kept. Thread safe. */
iso_status cuda_blas_multiply(iso_queue *queue, const cuda_product *product);

#endif
