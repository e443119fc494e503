/* Products of many rows of quantized weights in bf16 on AMX tiles, tier amx: where a graph allows
 * both sides to be rounded, and to 8 bits under one scale for 256 elements would lose too much.
 *
 * Weights are decoded to one bf16, activations are one, sums are f32. 16 cycles for 16 x 16 x 32:
 * the floor is 1,024 operations a cycle, half of what tiles8_amx.c has and one and a half times
 * that of the two planes on either side in tiles_amx.c. A bf16 has 8 bits like an int8, but of each
 * number's own size, where a scale for 256 leaves most numbers 6: what is rounded away is a
 * quarter.
 *
 * Weights of 64 columns are decoded for all of K, up to SPAN, before they are multiplied, and five
 * or six tiles are used: tiles8_amx.c says why. */
#include "backends/cpu/matmul/vector_avx512.h"

#include "backends/cpu/matmul/product.h"

#include <string.h>

#include "backends/cpu/matmul/tile_product.inc"

#include "backends/cpu/matmul/tile_codes.inc"

/* Elements whose sums stay in tiles, and those of weights that are decoded at a time: beside the
 * activations of all rows they fit the second level. */
#define STRETCH 256
#define SPAN 1024
#define STRETCH_BYTES (STRETCH / BF16_STEP * TILE_BYTES) /* of a group */
#define GROUPS BLOCK_TILES

/* ---- Quantized weights ---------------------------------------------------------------------- */

/* Columns' elements 4 j .. 4 j + 3 as two rows of a tile: a pair a column in each. */
INLINE void widen_quad(vec codes, vecf scale, vecf added, uint8_t *out) {
  const vec byte = vec_all_int(255),
            pairs = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                     23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  vec numbers[4] = {vec_and(codes, byte), vec_and(vec_right(codes, 8), byte),
                    vec_and(vec_right(codes, 16), byte), vec_right(codes, 24)};
  vecf values[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
    values[i] = vecf_fma(vecf_from_int(numbers[i]), scale, added);
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    vec both = (vec)_mm512_cvtne2ps_pbh(values[2 * i + 1], values[2 * i]);
    vec_store(out + i * 64, _mm512_permutexvar_epi16(pairs, both));
  }
}

INLINE void widen_part(scheme_traits traits, const packed_part *from, int part, uint8_t *out) {
  const int subs = 32 / traits.sub;
  vec codes[8];
  traits.codes(from->portion + traits.byte_bytes, part, codes);
#pragma GCC unroll 2
  for (int s = 0; s < subs; s++) {
    vecf scale, added;
    traits.scales(from->halves, from->portion, 0, part * subs + s, &scale, &added);
    if (!traits.minimum)
      added = vecf_mul(scale, _mm512_set1_ps(-(float)traits.offset));
#pragma GCC unroll 8
    for (int j = s * traits.sub / 4; j < (s + 1) * traits.sub / 4; j++)
      widen_quad(codes[j], scale, added, out + j * 128);
  }
}

/* Elements [begin, begin + count) of a group. */
INLINE void expand(scheme_traits traits, const uint8_t *group, int64_t begin, int64_t count,
                   uint8_t *out) {
  for (int64_t k = begin; k < begin + count; k += BF16_STEP, out += TILE_BYTES) {
    packed_part from = part_at(traits, group, k);
#define WIDEN(part) widen_part(traits, &from, part, out)
    WITH_CONSTANT_PART(traits, from.part, WIDEN);
#undef WIDEN
  }
}

/* ---- Activations ---------------------------------------------------------------------------- */

static void prepare(const iso_product_kernel *kernel, const float *x, int64_t count, int64_t row,
                    const iso_panel *panel) {
  (void)kernel;
  uint8_t *out = panel->values + row * 64;
  for (int64_t k = 0; k < count; k += BF16_STEP, out += TILE_BYTES)
    vec_store(out, (vec)_mm512_cvtne2ps_pbh(vecf_load(x + k + 16), vecf_load(x + k)));
}

static void prepare_bf16(const iso_product_kernel *kernel, const uint16_t *x, int64_t count,
                         int64_t row, const iso_panel *panel) {
  (void)kernel;
  uint8_t *out = panel->values + row * 64;
  for (int64_t k = 0; k < count; k += BF16_STEP, out += TILE_BYTES)
    vec_store(out, vec_load(x + k));
}

/* ---- Products ------------------------------------------------------------------------------- */

static void bf16_many(const iso_product_call *call) { bf16_rows(TILE_BF16, call); }

/* A unit brings a line of the codes near that are decoded next; `count` are those of a group. */
static void near_advance(iso_ahead *ahead, int64_t units) {
  for (; units > 0 && ahead->unit < ahead->units; units--, ahead->unit++) {
    const uint8_t *group =
        ahead->groups + (uint64_t)(ahead->unit / ahead->count) * ahead->group_bytes;
    _mm_prefetch((const char *)group + ahead->unit % ahead->count * 64, _MM_HINT_T1);
  }
}

/* Missing groups give what their memory holds. */
static void widened_many(const iso_product_call *call) {
  const tile_weights form = {
      .group = STRETCH_BYTES, .stride = 64, .step = TILE_BYTES, .elements = BF16_STEP};
  iso_ahead ahead = {0};
  if (call->near) {
    ahead.groups = call->near->codes;
    ahead.group_bytes = call->near->group_bytes;
    ahead.count = ((int64_t)call->near->bytes + 63) / 64;
    ahead.units = call->near->n_groups * ahead.count;
  }
  iso_product_call part = *call;
  part.ahead = &ahead;
  for (int64_t k = 0; k < call->count; k += STRETCH, part.panel++) {
    const int64_t rest = call->count - k;
    part.count = rest < STRETCH ? rest : STRETCH;
    part.out = rest <= STRETCH ? call->out : NULL;
    multiply_rows(TILE_BF16, &part, form, near_advance);
    part.stretches += BLOCK_TILES * STRETCH_BYTES;
    part.first = false;
  }
}

INTEGER_SCHEMES(DEFINE_EXPAND)

#define QUANTIZED(name)                                                                            \
  SPAN_KERNEL(name), .value_bytes = 2, .prepare = prepare, .prepare_bf16 = prepare_bf16,           \
                     .many = widened_many

const iso_product_kernel *iso_amx_tile16_kernel(iso_scheme scheme) {
  static const iso_product_kernel kernels[ISO_SCHEME_COUNT] = {
      INTEGER_SCHEMES(QUANTIZED_KERNEL)[ISO_SCHEME_BF16] = {
          BF16_KERNEL, .value_bytes = 2, .stretch_elements = STRETCH, .prepare = prepare,
          .prepare_bf16 = prepare_bf16, .load = iso_amx_load_row, .store = iso_amx_store_row}};
  return iso_product_kernel_of(kernels, scheme);
}
