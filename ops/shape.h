/* Strides of dense tensors. */
#ifndef ISOMER_OPS_SHAPE_H
#define ISOMER_OPS_SHAPE_H

#include <isomer/tensor.h>

/* Bytes between neighbours along each dimension of a dense tensor, as iso_tensor.strides: the
 * last one is the element or block size. Fails as iso_shape_bytes() does. */
ISO_MUST_CHECK iso_status iso_dense_strides(iso_scheme scheme, uint32_t n_dims, const int64_t *dims,
                                            int64_t *out_strides);

#endif
