#include "backends/vulkan/halves.h"
#include "backends/vulkan/fusion.h"
#include "backends/vulkan/ops.h"
#include <string.h>

enum { WORKGROUP = 256, WIDE_WORKGROUP = 1024 };

uint64_t vulkan_halves_bytes(uint64_t n_rows, uint64_t n_columns) {
  uint64_t n_whole = n_rows;
  if (n_rows > VULKAN_MANY_ROWS)
    n_whole = (n_rows + VULKAN_TILE_ROWS - 1) / VULKAN_TILE_ROWS * VULKAN_TILE_ROWS;
  return ((n_whole * n_columns * 2 + 255) & ~UINT64_C(255)) + n_rows * sizeof(float);
}

uint64_t vulkan_halves_groups(const iso_device *device, uint32_t n_rows, uint32_t n_columns) {
  return vulkan_halves_in_fragments(device, n_rows, n_columns)
             ? (uint64_t)vulkan_ceil_div(n_rows, 16) * 8
             : n_rows;
}

bool vulkan_halves_in_fragments(const iso_device *device, uint64_t n_rows, uint64_t n_columns) {
  enum { STEP = 64 }; /* of matmul_large.comp */
  const vulkan_facts *facts = &device->facts;
  return facts->has_matrix && !facts->has_matrix2 && facts->has_fragments &&
         n_rows > VULKAN_MANY_ROWS && n_columns % STEP == 0;
}

static bool is_same(const iso_tensor *a, const iso_tensor *b) {
  return a->n_dims == b->n_dims && a->buffer == b->buffer && a->offset == b->offset &&
         a->scheme == b->scheme && memcmp(a->dims, b->dims, a->n_dims * sizeof *a->dims) == 0 &&
         memcmp(a->strides, b->strides, a->n_dims * sizeof *a->strides) == 0;
}

typedef struct halves_push {
  vulkan_rows x, up, y;
  uint64_t halves, scales;
  uint32_t n_rows, inner_rows, n_columns;
} halves_push;

static halves_push describe(const iso_tensor *x, const vulkan_halves *halves) {
  vulkan_sizes sizes = vulkan_sizes_of(x);
  return (halves_push){.x = vulkan_rows_of(x),
                       .halves = halves->halves,
                       .scales = halves->scales,
                       .n_rows = sizes.n_rows,
                       .inner_rows = sizes.inner_rows,
                       .n_columns = sizes.n_columns};
}

static bool are_fragments(const iso_queue *queue, const halves_push *push) {
  return vulkan_halves_in_fragments(vulkan_queue_device(queue), push->n_rows, push->n_columns);
}

static uint64_t groups_for(const iso_queue *queue, const halves_push *push) {
  return vulkan_halves_groups(vulkan_queue_device(queue), push->n_rows, push->n_columns);
}

static iso_status convert(iso_queue *queue, const iso_tensor *x, vulkan_access source,
                          const vulkan_halves *halves) {
  halves_push push = describe(x, halves);
  vulkan_access accesses[] = {source, {halves->halves, halves->bytes, true}};
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_halves,
                              .constants = {WORKGROUP, vulkan_type_of(x), vulkan_is_vector_rows(x),
                                            false, 0, are_fragments(queue, &push)},
                              .n_constants = 6,
                              .push = &push,
                              .push_bytes = sizeof push,
                              .accesses = accesses,
                              .n_accesses = 2};
  vulkan_split_groups(groups_for(queue, &push), dispatch.groups);
  return vulkan_enqueue(queue, &dispatch);
}

iso_status vulkan_launch_glu_halves(iso_queue *queue, const iso_op_arguments *glu,
                                    const vulkan_halves *halves) {
  const iso_glu_attributes *attributes = glu->attributes;
  const iso_tensor *gate = &glu->inputs[0];
  halves_push push = describe(gate, halves);
  push.up = vulkan_rows_of(&glu->inputs[1]);
  push.y = vulkan_rows_of(&glu->outputs[0]);
  uint32_t most = vulkan_queue_device(queue)->facts.most_invocations;
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_halves,
                              .constants = {most < WIDE_WORKGROUP ? WORKGROUP : WIDE_WORKGROUP,
                                            vulkan_type_of(gate), true, true,
                                            attributes->activation, are_fragments(queue, &push)},
                              .n_constants = 6,
                              .push = &push,
                              .push_bytes = sizeof push};
  vulkan_split_groups(groups_for(queue, &push), dispatch.groups);
  ISO_TRY(vulkan_enqueue_halves(queue, glu, halves, true, &dispatch));
  vulkan_halves_left(queue, glu, halves);
  return ISO_OK;
}

static vulkan_halves place(uint64_t address, vulkan_sizes sizes) {
  uint64_t bytes = vulkan_halves_bytes(sizes.n_rows, sizes.n_columns);
  return (vulkan_halves){address, address + bytes - sizes.n_rows * sizeof(float), bytes};
}

static void keep(iso_queue *queue, const iso_tensor *x, vulkan_access bytes,
                 const vulkan_halves *halves) {
  *vulkan_queue_converted(queue) = (vulkan_converted){
      .x = *x, .begin = bytes.address, .end = bytes.address + bytes.bytes, .halves = *halves};
}

bool vulkan_halves_wanted(iso_queue *queue, const iso_tensor *y, vulkan_halves *out_halves) {
  vulkan_sizes sizes = vulkan_sizes_of(y);
  const vulkan_facts *facts = &vulkan_queue_device(queue)->facts;
  if (!(facts->has_matrix || facts->has_fp16) || sizes.n_rows <= VULKAN_FEW_ROWS ||
      y->n_dims != 2 || sizes.n_columns % 32 != 0)
    return false;
  uint64_t bytes = vulkan_halves_bytes(sizes.n_rows, sizes.n_columns);
  uint64_t scratch = vulkan_queue_scratch(queue, bytes);
  *out_halves = place(scratch, sizes);
  return scratch != 0;
}

void vulkan_halves_left(iso_queue *queue, const iso_op_arguments *arguments,
                        const vulkan_halves *halves) {
  vulkan_access accesses[VULKAN_MAX_ACCESSES];
  uint32_t n = vulkan_accesses_of(arguments, accesses), first = 0;
  while (first + 1 < n && !accesses[first].writes)
    first++;
  keep(queue, &arguments->outputs[0], accesses[first], halves);
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
  *out_halves = place(at, sizes);
  vulkan_access accesses[VULKAN_MAX_ACCESSES];
  (void)vulkan_accesses_of(matmul, accesses); /* the first is x */
  ISO_TRY(convert(queue, x, accesses[0], out_halves));
  if (scratch)
    keep(queue, x, accesses[0], out_halves);
  return ISO_OK;
}

iso_status vulkan_enqueue_halves(iso_queue *queue, const iso_op_arguments *arguments,
                                 const vulkan_halves *halves, bool writes,
                                 vulkan_dispatch *dispatch) {
  vulkan_access accesses[VULKAN_MAX_ACCESSES + 1];
  uint32_t n = vulkan_accesses_of(arguments, accesses);
  accesses[n++] = (vulkan_access){halves->halves, halves->bytes, writes};
  dispatch->accesses = accesses;
  dispatch->n_accesses = n;
  return vulkan_enqueue(queue, dispatch);
}
