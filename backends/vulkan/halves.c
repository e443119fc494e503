#include "backends/vulkan/halves.h"
#include "backends/vulkan/fusion.h"
#include <string.h>

enum { WORKGROUP = 256 };

uint64_t vulkan_halves_bytes(uint64_t n_rows, uint64_t n_columns) {
  return ((n_rows * n_columns * 2 + 255) & ~UINT64_C(255)) + n_rows * sizeof(float);
}

static bool is_same(const iso_tensor *a, const iso_tensor *b) {
  return a->n_dims == b->n_dims && a->buffer == b->buffer && a->offset == b->offset &&
         a->scheme == b->scheme && memcmp(a->dims, b->dims, a->n_dims * sizeof *a->dims) == 0 &&
         memcmp(a->strides, b->strides, a->n_dims * sizeof *a->strides) == 0;
}

static iso_status convert(iso_queue *queue, const iso_tensor *x, vulkan_access source,
                          const vulkan_halves *halves) {
  vulkan_sizes sizes = vulkan_sizes_of(x);
  struct {
    vulkan_rows x;
    uint64_t halves, scales;
    uint32_t n_rows, inner_rows, n_columns;
  } push = {.x = vulkan_rows_of(x),
            .halves = halves->halves,
            .scales = halves->scales,
            .n_rows = sizes.n_rows,
            .inner_rows = sizes.inner_rows,
            .n_columns = sizes.n_columns};
  vulkan_access accesses[] = {source, {halves->halves, halves->bytes, true}};
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_halves,
                              .constants = {WORKGROUP, vulkan_type_of(x)},
                              .n_constants = 2,
                              .push = &push,
                              .push_bytes = sizeof push,
                              .accesses = accesses,
                              .n_accesses = 2};
  vulkan_split_groups(sizes.n_rows, dispatch.groups);
  return vulkan_enqueue(queue, &dispatch);
}

iso_status vulkan_halves_of(iso_queue *queue, const iso_op_arguments *matmul,
                            vulkan_halves *out_halves) {
  const iso_tensor *x = &matmul->inputs[0];
  vulkan_sizes sizes = vulkan_sizes_of(x);
  vulkan_converted *converted = vulkan_queue_converted(queue);
  ISO_TRY(vulkan_flush_deferred(queue)); /* what is held back may write x */
  if (converted->x.n_dims > 0 && is_same(&converted->x, x)) {
    *out_halves = converted->halves;
    return ISO_OK;
  }
  uint64_t bytes = vulkan_halves_bytes(sizes.n_rows, sizes.n_columns);
  uint64_t scratch = vulkan_queue_scratch(queue, bytes);
  uint64_t at = scratch ? scratch : matmul->workspace->address + matmul->workspace_offset;
  *out_halves = (vulkan_halves){at, at + bytes - sizes.n_rows * sizeof(float), bytes};
  vulkan_access accesses[VULKAN_MAX_ACCESSES];
  (void)vulkan_accesses_of(matmul, accesses); /* the first is x */
  ISO_TRY(convert(queue, x, accesses[0], out_halves));
  if (scratch)
    *converted = (vulkan_converted){.x = *x,
                                    .begin = accesses[0].address,
                                    .end = accesses[0].address + accesses[0].bytes,
                                    .halves = *out_halves};
  return ISO_OK;
}

iso_status vulkan_enqueue_halves(iso_queue *queue, const iso_op_arguments *arguments,
                                 const vulkan_halves *halves, vulkan_dispatch *dispatch) {
  vulkan_access accesses[VULKAN_MAX_ACCESSES + 1];
  uint32_t n = vulkan_accesses_of(arguments, accesses);
  accesses[n++] = (vulkan_access){halves->halves, halves->bytes, false};
  dispatch->accesses = accesses;
  dispatch->n_accesses = n;
  return vulkan_enqueue(queue, dispatch);
}
