/* Packs weights into groups of 16 rows, and reads single rows back. */
#include "backends/cpu/matmul/packed.h"

#include "quant/blocks.h"

#include <string.h>

#define QUANTIZED_ROWS ISO_CPU_QUANTIZED_ROWS
#define MAX_ROWS ISO_CPU_FLOAT_ROWS
#define MAX_FIELDS 18
#define MAX_BLOCK_BYTES 256

/* `count` items of `width` bytes from byte `from` of a block in normal form. In the packed block
 * an item is its `width` bytes of every row; item 0 lies `at` bytes a row into the halves or the
 * body, the next ones `step` bytes a row on. */
typedef struct packed_field {
  bool body;
  uint8_t width;
  uint16_t from;
  uint8_t count, at, step;
} packed_field;

/* A block is brought to a normal form, in which every field is whole bytes in a useful order, by
 * `normalize`, and back by `restore`. Without them the file's own block is the normal form. */
typedef struct packed_scheme {
  packed_field fields[MAX_FIELDS];
  void (*normalize)(const uint8_t *block, uint8_t *out_normal);
  void (*restore)(const uint8_t *normal, uint8_t *out_block);
} packed_scheme;

/* ---- Normal forms ----------------------------------------------------------------------- */

/* Q8_0 codes become unsigned, plus 128, as the byte dot products of the CPU want one side. */
static void q8_0_flip(const uint8_t *from, uint8_t *to) {
  memcpy(to, from, 2);
  for (int i = 2; i < 34; i++)
    to[i] = from[i] ^ 0x80;
}

static void i8_g128_flip(const uint8_t *from, uint8_t *to) {
  memcpy(to, from, sizeof(float));
  for (size_t i = sizeof(float); i < sizeof(iso_block_i8_g128); i++)
    to[i] = from[i] ^ 0x80;
}

/* The fifth bit of element 4 j + i moves from bit 4 j + i of the word to bit j of byte i, where
 * the nibbles of that element are. */
static uint32_t spread_fifth_bits(uint32_t bits) {
  uint32_t result = 0;
  for (int i = 0; i < 4; i++) {
    uint32_t byte = bits >> i & 0x11111111;
    byte = (byte | byte >> 3) & 0x03030303;
    byte = (byte | byte >> 6) & 0x000f000f;
    byte = (byte | byte >> 12) & 0xff;
    result |= byte << 8 * i;
  }
  return result;
}

static uint32_t collect_fifth_bits(uint32_t bits) {
  uint32_t result = 0;
  for (int i = 0; i < 4; i++) {
    uint32_t byte = bits >> 8 * i & 0xff;
    byte = (byte | byte << 12) & 0x000f000f;
    byte = (byte | byte << 6) & 0x03030303;
    byte = (byte | byte << 3) & 0x11111111;
    result |= byte << i;
  }
  return result;
}

static void five_bit_map(const uint8_t *from, uint8_t *to, size_t bytes, size_t high,
                         uint32_t (*map)(uint32_t)) {
  uint32_t bits;
  memcpy(to, from, bytes);
  memcpy(&bits, from + high, 4);
  bits = map(bits);
  memcpy(to + high, &bits, 4);
}

static void q5_0_normalize(const uint8_t *block, uint8_t *out_normal) {
  five_bit_map(block, out_normal, sizeof(iso_block_q5_0), offsetof(iso_block_q5_0, high),
               spread_fifth_bits);
}

static void q5_0_restore(const uint8_t *normal, uint8_t *out_block) {
  five_bit_map(normal, out_block, sizeof(iso_block_q5_0), offsetof(iso_block_q5_0, high),
               collect_fifth_bits);
}

static void q5_1_normalize(const uint8_t *block, uint8_t *out_normal) {
  five_bit_map(block, out_normal, sizeof(iso_block_q5_1), offsetof(iso_block_q5_1, high),
               spread_fifth_bits);
}

static void q5_1_restore(const uint8_t *normal, uint8_t *out_block) {
  five_bit_map(normal, out_block, sizeof(iso_block_q5_1), offsetof(iso_block_q5_1, high),
               collect_fifth_bits);
}

/* Transposes 8 x 8 bits: bit j of byte i goes to bit i of byte j (Hacker's Delight, 7-3). */
static uint64_t transpose_bits(uint64_t x) {
  uint64_t t = (x ^ x >> 7) & 0x00aa00aa00aa00aa;
  x ^= t ^ t << 7;
  t = (x ^ x >> 14) & 0x0000cccc0000cccc;
  x ^= t ^ t << 14;
  t = (x ^ x >> 28) & 0x00000000f0f0f0f0;
  return x ^ t ^ t << 28;
}

/* Q3_K and Q5_K keep bit s of byte 4 j + i for element 4 j + i of part s; here it moves to bit j
 * of byte 4 s + i, so that every part has a word of its own, as Q5_0 has. Its own inverse. */
static void regroup_high_bits(const uint8_t *from, uint8_t *to) {
  for (int i = 0; i < 4; i++) {
    uint64_t bits = 0;
    for (int j = 0; j < 8; j++)
      bits |= (uint64_t)from[4 * j + i] << 8 * j;
    bits = transpose_bits(bits);
    for (int j = 0; j < 8; j++)
      to[4 * j + i] = (uint8_t)(bits >> 8 * j);
  }
}

/* Q4_K and Q5_K: 6-bit scales and minimums become bytes.
 * Normal form: scale, minimum, scales[8], minimums[8], high bits of Q5_K, codes. */
static void q4_k_normalize(const uint8_t *block, uint8_t *out_normal) {
  memcpy(out_normal, block, 4);
  iso_q4_k_unpack_scales(block + 4, out_normal + 4, out_normal + 12);
  memcpy(out_normal + 20, block + 16, 128);
}

static void q5_k_normalize(const uint8_t *block, uint8_t *out_normal) {
  memcpy(out_normal, block, 4);
  iso_q4_k_unpack_scales(block + 4, out_normal + 4, out_normal + 12);
  regroup_high_bits(block + 16, out_normal + 20);
  memcpy(out_normal + 52, block + 48, 128);
}

static void restore_six_bit_scales(const uint8_t *normal, uint8_t *out_block) {
  const uint8_t *scales = normal + 4, *minimums = normal + 12;
  memcpy(out_block, normal, 4);
  for (int i = 0; i < 4; i++) {
    out_block[4 + i] = (uint8_t)(scales[i] | scales[i + 4] >> 4 << 6);
    out_block[8 + i] = (uint8_t)(minimums[i] | minimums[i + 4] >> 4 << 6);
    out_block[12 + i] = (uint8_t)((scales[i + 4] & 15) | (minimums[i + 4] & 15) << 4);
  }
}

static void q4_k_restore(const uint8_t *normal, uint8_t *out_block) {
  restore_six_bit_scales(normal, out_block);
  memcpy(out_block + 16, normal + 20, 128);
}

static void q5_k_restore(const uint8_t *normal, uint8_t *out_block) {
  restore_six_bit_scales(normal, out_block);
  regroup_high_bits(normal + 20, out_block + 16);
  memcpy(out_block + 48, normal + 52, 128);
}

/* Q3_K: 6-bit scales become signed bytes. Normal form: high bits, codes, scales[16], scale. */
static void q3_k_normalize(const uint8_t *block, uint8_t *out_normal) {
  int8_t scales[16];
  iso_q3_k_unpack_scales(block + offsetof(iso_block_q3_k, scales), scales);
  regroup_high_bits(block, out_normal);
  memcpy(out_normal + 32, block + 32, 64);
  memcpy(out_normal + 96, scales, 16);
  memcpy(out_normal + 112, block + offsetof(iso_block_q3_k, scale), 2);
}

static void q3_k_restore(const uint8_t *normal, uint8_t *out_block) {
  uint8_t *packed = out_block + offsetof(iso_block_q3_k, scales);
  regroup_high_bits(normal, out_block);
  memcpy(out_block + 32, normal + 32, 64);
  memset(packed, 0, 12);
  for (int i = 0; i < 16; i++) {
    int stored = (int8_t)normal[96 + i] + 32;
    packed[i % 8] = (uint8_t)(packed[i % 8] | (stored & 15) << i / 8 * 4);
    packed[8 + i % 4] = (uint8_t)(packed[8 + i % 4] | stored >> 4 << i / 4 * 2);
  }
  memcpy(out_block + offsetof(iso_block_q3_k, scale), normal + 112, 2);
}

/* ---- The fields of each scheme ---------------------------------------------------------- */

#define HALVES(from, count)                                                                        \
  { false, 2, from, count, 0, 2 }
/* A float, or a word that holds one, of a group of 128. */
#define GROUP_SCALE                                                                                \
  { false, 4, 0, 1, 0, 4 }
#define BYTES(from, count, at)                                                                     \
  { true, 1, from, count, at, 1 }
#define WORDS(from, count, at)                                                                     \
  { true, 4, from, count, at, 4 }
#define EVERY_OTHER_WORD(from, count, at)                                                          \
  { true, 4, from, count, at, 8 }

/* Portions: p counts them, and each line says what it is made of. */
#define Q2_K_PORTION(p) BYTES(8 * (p), 8, 40 * (p)), WORDS(16 + 32 * (p), 8, 40 * (p) + 8)
#define Q3_K_PORTION(p)                                                                            \
  BYTES(96 + 8 * (p), 8, 56 * (p)), WORDS(16 * (p), 4, 56 * (p) + 8),                              \
      WORDS(32 + 32 * (p), 8, 56 * (p) + 24)
#define Q4_K_PORTION(p)                                                                            \
  BYTES(4 + 2 * (p), 2, 36 * (p)), BYTES(12 + 2 * (p), 2, 36 * (p) + 2),                           \
      WORDS(20 + 32 * (p), 8, 36 * (p) + 4)
#define Q5_K_PORTION(p)                                                                            \
  BYTES(4 + 2 * (p), 2, 44 * (p)), BYTES(12 + 2 * (p), 2, 44 * (p) + 2),                           \
      WORDS(20 + 8 * (p), 2, 44 * (p) + 4), WORDS(52 + 32 * (p), 8, 44 * (p) + 12)
#define Q6_K_PORTION(p)                                                                            \
  BYTES(192 + 8 * (p), 8, 104 * (p)), EVERY_OTHER_WORD(128 + 32 * (p), 8, 104 * (p) + 8),          \
      EVERY_OTHER_WORD(64 * (p), 8, 104 * (p) + 12), WORDS(32 + 64 * (p), 8, 104 * (p) + 72)

static const packed_scheme schemes[ISO_SCHEME_COUNT] = {
    [ISO_SCHEME_F32] = {.fields = {WORDS(0, 1, 0)}},
    [ISO_SCHEME_F16] = {.fields = {{true, 2, 0, 1, 0, 2}}},
    [ISO_SCHEME_BF16] = {.fields = {WORDS(0, 1, 0)}},
    [ISO_SCHEME_Q8_0] = {.fields = {HALVES(0, 1), WORDS(2, 8, 0)},
                         .normalize = q8_0_flip,
                         .restore = q8_0_flip},
    [ISO_SCHEME_Q4_0] = {.fields = {HALVES(0, 1), WORDS(2, 4, 0)}},
    [ISO_SCHEME_Q4_1] = {.fields = {HALVES(0, 2), WORDS(4, 4, 0)}},
    [ISO_SCHEME_Q5_0] = {.fields = {HALVES(0, 1), WORDS(2, 5, 0)},
                         .normalize = q5_0_normalize,
                         .restore = q5_0_restore},
    [ISO_SCHEME_Q5_1] = {.fields = {HALVES(0, 2), WORDS(4, 5, 0)},
                         .normalize = q5_1_normalize,
                         .restore = q5_1_restore},
    [ISO_SCHEME_IQ4_NL] = {.fields = {HALVES(0, 1), WORDS(2, 4, 0)}},
    [ISO_SCHEME_Q2_K] = {.fields = {HALVES(80, 2), Q2_K_PORTION(0), Q2_K_PORTION(1)}},
    [ISO_SCHEME_Q3_K] = {.fields = {HALVES(112, 1), Q3_K_PORTION(0), Q3_K_PORTION(1)},
                         .normalize = q3_k_normalize,
                         .restore = q3_k_restore},
    [ISO_SCHEME_Q4_K] = {.fields = {HALVES(0, 2), Q4_K_PORTION(0), Q4_K_PORTION(1), Q4_K_PORTION(2),
                                    Q4_K_PORTION(3)},
                         .normalize = q4_k_normalize,
                         .restore = q4_k_restore},
    [ISO_SCHEME_Q5_K] = {.fields = {HALVES(0, 2), Q5_K_PORTION(0), Q5_K_PORTION(1), Q5_K_PORTION(2),
                                    Q5_K_PORTION(3)},
                         .normalize = q5_k_normalize,
                         .restore = q5_k_restore},
    [ISO_SCHEME_I8_G128] = {.fields = {GROUP_SCALE, WORDS(4, 32, 0)},
                            .normalize = i8_g128_flip,
                            .restore = i8_g128_flip},
    [ISO_SCHEME_I4_G128] = {.fields = {GROUP_SCALE, WORDS(4, 16, 0)}},
    [ISO_SCHEME_Q6_K] = {.fields = {HALVES(208, 1), Q6_K_PORTION(0), Q6_K_PORTION(1)}},
};

bool iso_packed_shape_of(iso_scheme scheme, int64_t rows, int64_t elements,
                         iso_packed_shape *out_shape) {
  const iso_scheme_info *info = iso_scheme_get_info(scheme);
  if (!info || !schemes[scheme].fields[0].count || rows < 0 || elements < 0 ||
      elements % info->block_elements != 0)
    return false;
  iso_packed_shape shape = {.scheme = scheme, .rows = rows, .elements = elements};
  shape.block_elements = scheme == ISO_SCHEME_BF16 ? 2 : info->block_elements;
  bool quantized = info->kind == ISO_SCHEME_KIND_BLOCK;
  shape.is_narrow = scheme == ISO_SCHEME_F32 && rows <= ISO_CPU_MOST_NARROW_ROWS;
  shape.group_rows = quantized         ? ISO_CPU_QUANTIZED_ROWS
                     : shape.is_narrow ? ISO_CPU_NARROW_ROWS
                                       : ISO_CPU_FLOAT_ROWS;
  shape.groups = (rows + shape.group_rows - 1) / shape.group_rows;
  shape.blocks = (elements + shape.block_elements - 1) / shape.block_elements;
  for (const packed_field *field = schemes[scheme].fields; field->count; field++) {
    uint32_t *bytes = field->body ? &shape.body_bytes : &shape.half_bytes;
    *bytes += (uint32_t)field->width * field->count * shape.group_rows;
  }
  shape.step_blocks = ISO_PACKED_STEP_BLOCKS(shape.half_bytes);
  uint64_t steps = (uint64_t)((shape.blocks + shape.step_blocks - 1) / shape.step_blocks);
  uint64_t bodies = (uint64_t)shape.blocks * shape.body_bytes;
  shape.group_bytes = steps * shape.step_blocks * shape.half_bytes + (bodies + 63) / 64 * 64;
  *out_shape = shape;
  return true;
}

/* ---- Packing ------------------------------------------------------------------------------ */

#define DEFINE_INTERLEAVE(name, type)                                                              \
  static void name(uint8_t *target, const uint8_t *const *from, unsigned rows, unsigned count,     \
                   size_t step) {                                                                  \
    for (unsigned i = 0; i < count; i++, target += step)                                           \
      for (unsigned row = 0; row < rows; row++)                                                    \
        memcpy(target + row * sizeof(type), from[row] + i * sizeof(type), sizeof(type));           \
  }
DEFINE_INTERLEAVE(interleave_1, uint8_t)
DEFINE_INTERLEAVE(interleave_2, uint16_t)
DEFINE_INTERLEAVE(interleave_4, uint32_t)

/* Puts `count` items of `width` bytes of each row side by side, items `step` bytes apart. */
static void interleave(uint8_t *target, const uint8_t *const *from, unsigned rows, unsigned width,
                       unsigned count, size_t step) {
  if (width == 4)
    interleave_4(target, from, rows, count, step);
  else if (width == 2)
    interleave_2(target, from, rows, count, step);
  else
    interleave_1(target, from, rows, count, step);
}

/* Where a field of a block lies. */
static const uint8_t *field_at(const packed_field *field, iso_packed_block block, unsigned rows) {
  return (field->body ? block.body : block.halves) + field->at * rows;
}

static const uint8_t zero_block[MAX_BLOCK_BYTES];

/* A group of quantized rows, block by block; `rows` holds NULL past the last row. */
static void pack_blocks(const iso_packed_shape *shape, const uint8_t *const *rows,
                        uint8_t *target) {
  const packed_scheme *scheme = &schemes[shape->scheme];
  uint32_t block_bytes = iso_scheme_get_info(shape->scheme)->block_bytes;
  uint8_t normal[QUANTIZED_ROWS][MAX_BLOCK_BYTES];
  for (int64_t block = 0; block < shape->blocks; block++) {
    const uint8_t *from[QUANTIZED_ROWS];
    iso_packed_block place =
        iso_packed_block_at(target, block, shape->half_bytes, shape->body_bytes);
    for (int row = 0; row < QUANTIZED_ROWS; row++) {
      from[row] = rows[row] ? rows[row] + block * block_bytes : zero_block;
      if (scheme->normalize && rows[row]) {
        scheme->normalize(from[row], normal[row]);
        from[row] = normal[row];
      }
    }
    for (const packed_field *field = scheme->fields; field->count; field++) {
      const uint8_t *items[QUANTIZED_ROWS];
      for (int row = 0; row < QUANTIZED_ROWS; row++)
        items[row] = from[row] + field->from;
      interleave((uint8_t *)(uintptr_t)field_at(field, place, QUANTIZED_ROWS), items,
                 QUANTIZED_ROWS, field->width, field->count, (size_t)field->step * QUANTIZED_ROWS);
    }
  }
}

/* A group of float rows, `source_bytes` long. Runs of each row are copied out first, for rows that
 * are a power of two apart would throw each other out of the cache. */
static void pack_floats(const iso_packed_shape *shape, const uint8_t *const *rows,
                        uint64_t source_bytes, uint8_t *target) {
  unsigned width = schemes[shape->scheme].fields[0].width, n_rows = shape->group_rows;
  uint64_t run = MAX_BLOCK_BYTES, whole = source_bytes / width * width;
  uint8_t copies[MAX_ROWS][MAX_BLOCK_BYTES];
  const uint8_t *from[MAX_ROWS];
  for (unsigned row = 0; row < n_rows; row++)
    from[row] = rows[row] ? copies[row] : zero_block;
  for (uint64_t at = 0; at < whole; at += run) {
    uint64_t bytes = whole - at < run ? whole - at : run;
    for (unsigned row = 0; row < n_rows; row++)
      if (rows[row])
        memcpy(copies[row], rows[row] + at, bytes);
    interleave(target + at * n_rows, from, n_rows, width, (unsigned)(bytes / width),
               (size_t)width * n_rows);
  }
  uint8_t *tail = target + whole * n_rows;
  for (unsigned row = 0; whole < source_bytes && row < n_rows; row++, tail += width) {
    memset(tail, 0, width);
    if (rows[row])
      memcpy(tail, rows[row] + whole, source_bytes - whole);
  }
}

typedef struct pack_job {
  iso_packed_shape shape;
  int64_t matrices;
  uint64_t row_bytes;
  const uint8_t *source;
  uint8_t *target;
} pack_job;

static void pack_task(void *context, uint32_t thread, uint32_t n_threads) {
  const pack_job *job = context;
  const iso_packed_shape *shape = &job->shape;
  int64_t begin, end;
  iso_cpu_share(shape->groups * job->matrices, 1, thread, n_threads, &begin, &end);
  for (int64_t group = begin; group < end; group++) {
    int64_t matrix = group / shape->groups, first = group % shape->groups * shape->group_rows;
    const uint8_t *rows[MAX_ROWS];
    for (unsigned row = 0; row < shape->group_rows; row++)
      rows[row] =
          first + row < shape->rows
              ? job->source + (uint64_t)(matrix * shape->rows + first + row) * job->row_bytes
              : NULL;
    uint8_t *target = job->target + (uint64_t)group * shape->group_bytes;
    if (shape->half_bytes)
      pack_blocks(shape, rows, target);
    else
      pack_floats(shape, rows, job->row_bytes, target);
  }
}

/* The packed shape of the last two dimensions, how many such matrices there are, and their
 * bytes. */
static iso_status weight_shape(const iso_host_weight *weight, iso_packed_shape *out_shape,
                               int64_t *out_matrices, uint64_t *out_bytes) {
  uint32_t n_dims = weight->n_dims;
  if (n_dims < 2 || n_dims > 3 ||
      !iso_packed_shape_of(weight->scheme, weight->dims[n_dims - 2], weight->dims[n_dims - 1],
                           out_shape))
    return iso_cpu_fail(ISO_ERROR_UNSUPPORTED,
                        "a weight of %u dimensions in scheme %d has no packed layout on the CPU",
                        n_dims, (int)weight->scheme);
  *out_matrices = n_dims == 3 ? weight->dims[0] : 1;
  uint64_t groups;
  if (__builtin_mul_overflow((uint64_t)*out_matrices, (uint64_t)out_shape->groups, &groups) ||
      __builtin_mul_overflow(groups, out_shape->group_bytes, out_bytes))
    return iso_cpu_fail(ISO_ERROR_LIMIT, "the packed size of a weight overflows");
  return ISO_OK;
}

iso_status iso_packed_bytes(const iso_device *device, const iso_host_weight *weight,
                            uint64_t *out_bytes) {
  (void)device;
  iso_packed_shape shape;
  int64_t matrices;
  return weight_shape(weight, &shape, &matrices, out_bytes);
}

iso_status iso_packed_pack(iso_queue *queue, const iso_host_weight *weight, iso_buffer *buffer,
                           uint64_t offset) {
  pack_job job = {.source = weight->data, .target = buffer->data + offset};
  uint64_t bytes = 0;
  ISO_TRY(weight_shape(weight, &job.shape, &job.matrices, &bytes));
  ISO_TRY(iso_scheme_row_bytes(weight->scheme, job.shape.elements, &job.row_bytes));
  if (offset > buffer->bytes || bytes > buffer->bytes - offset)
    return iso_cpu_fail(ISO_ERROR_INVALID_ARGUMENT,
                        "packing a weight needs %llu bytes at offset %llu, the buffer has %llu",
                        (unsigned long long)bytes, (unsigned long long)offset,
                        (unsigned long long)buffer->bytes);
  if (weight->bytes != (uint64_t)(job.matrices * job.shape.rows) * job.row_bytes)
    return iso_cpu_fail(ISO_ERROR_INVALID_ARGUMENT,
                        "a weight of %llu bytes was given where its dimensions need %llu",
                        (unsigned long long)weight->bytes,
                        (unsigned long long)(job.matrices * job.shape.rows) *
                            (unsigned long long)job.row_bytes);
  iso_cpu_pool *pool = queue->device->pool;
  uint32_t n_threads = iso_cpu_threads_for(pool, (int64_t)(bytes >> 10), 64);
  iso_cpu_parallel(pool, n_threads, pack_task, &job);
  return ISO_OK;
}

/* ---- Reading a row back --------------------------------------------------------------------- */

#define DEFINE_COLLECT(name, type)                                                                 \
  static void name(uint8_t *target, const uint8_t *from, unsigned count, size_t step) {            \
    for (unsigned i = 0; i < count; i++, from += step)                                             \
      memcpy(target + i * sizeof(type), from, sizeof(type));                                       \
  }
DEFINE_COLLECT(collect_1, uint8_t)
DEFINE_COLLECT(collect_2, uint16_t)
DEFINE_COLLECT(collect_4, uint32_t)

/* Takes `count` items of one row: the inverse of interleave() for that row. */
static void collect(uint8_t *target, const uint8_t *from, unsigned width, unsigned count,
                    size_t step) {
  if (width == 4)
    collect_4(target, from, count, step);
  else if (width == 2)
    collect_2(target, from, count, step);
  else
    collect_1(target, from, count, step);
}

void iso_packed_decode_row(const iso_packed_shape *shape, const void *packed, int64_t row,
                           float *out_values) {
  const packed_scheme *scheme = &schemes[shape->scheme];
  unsigned n_rows = shape->group_rows, lane = (unsigned)(row % n_rows);
  const uint8_t *group = (const uint8_t *)packed + (uint64_t)(row / n_rows) * shape->group_bytes;
  /* Floats are read in runs of blocks of one item. */
  unsigned run = shape->half_bytes ? 1 : MAX_BLOCK_BYTES / scheme->fields[0].width;
  for (int64_t block = 0; block < shape->blocks; block += run) {
    uint8_t normal[MAX_BLOCK_BYTES], bytes[MAX_BLOCK_BYTES];
    iso_packed_block place =
        iso_packed_block_at(group, block, shape->half_bytes, shape->body_bytes);
    unsigned count = shape->blocks - block < run ? (unsigned)(shape->blocks - block) : run;
    for (const packed_field *field = scheme->fields; field->count; field++)
      collect(normal + field->from, field_at(field, place, n_rows) + lane * field->width,
              field->width, field->count * count, (size_t)field->step * n_rows);
    if (scheme->restore)
      scheme->restore(normal, bytes);
    int64_t done = block * shape->block_elements, rest = shape->elements - done;
    int64_t elements = (int64_t)count * shape->block_elements;
    iso_scheme_decode_row(shape->scheme, scheme->restore ? bytes : normal, out_values + done,
                          rest < elements ? rest : elements);
  }
}
