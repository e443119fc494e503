/* Packs weights into groups of 16 rows, and reads single rows back. */
#include "backends/cpu/matmul/packed.h"

#include "quant/blocks.h"

#include <string.h>

#define ROWS ISO_CPU_GROUP_ROWS
#define MAX_FIELDS 4
#define MAX_BLOCK_BYTES 256

/* A run of `count` items of `width` bytes at `offset` of a block in normal form. */
typedef struct packed_field {
  uint16_t offset;
  uint8_t width;
  uint8_t count;
  bool code;
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

/* Q4_K and Q5_K: 6-bit scales and minimums become bytes.
 * Normal form: scale, minimum, scales[8], minimums[8], then the rest of the block. */
static void six_bit_normalize(const uint8_t *block, uint8_t *out_normal, size_t bytes) {
  memcpy(out_normal, block, 4);
  iso_q4_k_unpack_scales(block + 4, out_normal + 4, out_normal + 12);
  memcpy(out_normal + 20, block + 16, bytes - 16);
}

static void six_bit_restore(const uint8_t *normal, uint8_t *out_block, size_t bytes) {
  const uint8_t *scales = normal + 4, *minimums = normal + 12;
  memcpy(out_block, normal, 4);
  for (int i = 0; i < 4; i++) {
    out_block[4 + i] = (uint8_t)(scales[i] | scales[i + 4] >> 4 << 6);
    out_block[8 + i] = (uint8_t)(minimums[i] | minimums[i + 4] >> 4 << 6);
    out_block[12 + i] = (uint8_t)((scales[i + 4] & 15) | (minimums[i + 4] & 15) << 4);
  }
  memcpy(out_block + 16, normal + 20, bytes - 16);
}

static void q4_k_normalize(const uint8_t *block, uint8_t *out_normal) {
  six_bit_normalize(block, out_normal, sizeof(iso_block_q4_k));
}

static void q4_k_restore(const uint8_t *normal, uint8_t *out_block) {
  six_bit_restore(normal, out_block, sizeof(iso_block_q4_k));
}

static void q5_k_normalize(const uint8_t *block, uint8_t *out_normal) {
  six_bit_normalize(block, out_normal, sizeof(iso_block_q5_k));
}

static void q5_k_restore(const uint8_t *normal, uint8_t *out_block) {
  six_bit_restore(normal, out_block, sizeof(iso_block_q5_k));
}

/* Q3_K: 6-bit scales become signed bytes. Normal form: high, codes, scales[16], scale. */
static void q3_k_normalize(const uint8_t *block, uint8_t *out_normal) {
  int8_t scales[16];
  iso_q3_k_unpack_scales(block + offsetof(iso_block_q3_k, scales), scales);
  memcpy(out_normal, block, 96);
  memcpy(out_normal + 96, scales, 16);
  memcpy(out_normal + 112, block + offsetof(iso_block_q3_k, scale), 2);
}

static void q3_k_restore(const uint8_t *normal, uint8_t *out_block) {
  uint8_t *packed = out_block + offsetof(iso_block_q3_k, scales);
  memcpy(out_block, normal, 96);
  memset(packed, 0, 12);
  for (int i = 0; i < 16; i++) {
    int stored = (int8_t)normal[96 + i] + 32;
    packed[i % 8] = (uint8_t)(packed[i % 8] | (stored & 15) << i / 8 * 4);
    packed[8 + i % 4] = (uint8_t)(packed[8 + i % 4] | stored >> 4 << i / 4 * 2);
  }
  memcpy(out_block + offsetof(iso_block_q3_k, scale), normal + 112, 2);
}

/* ---- The fields of each scheme, in the order in which they are packed ---------------------- */

#define PARAMETER(offset, width, count)                                                            \
  { offset, width, count, false }
#define CODE(offset, count)                                                                        \
  { offset, 4, count, true }

static const packed_scheme schemes[ISO_SCHEME_COUNT] = {
    [ISO_SCHEME_F32] = {.fields = {CODE(0, 1)}},
    [ISO_SCHEME_F16] = {.fields = {{0, 2, 1, true}}},
    [ISO_SCHEME_BF16] = {.fields = {CODE(0, 1)}},
    [ISO_SCHEME_Q8_0] = {.fields = {PARAMETER(0, 2, 1), CODE(2, 8)},
                         .normalize = q8_0_flip,
                         .restore = q8_0_flip},
    [ISO_SCHEME_Q4_0] = {.fields = {PARAMETER(0, 2, 1), CODE(2, 4)}},
    [ISO_SCHEME_Q4_1] = {.fields = {PARAMETER(0, 2, 2), CODE(4, 4)}},
    [ISO_SCHEME_Q5_0] = {.fields = {PARAMETER(0, 2, 1), CODE(2, 1), CODE(6, 4)},
                         .normalize = q5_0_normalize,
                         .restore = q5_0_restore},
    [ISO_SCHEME_Q5_1] = {.fields = {PARAMETER(0, 2, 2), CODE(4, 1), CODE(8, 4)},
                         .normalize = q5_1_normalize,
                         .restore = q5_1_restore},
    [ISO_SCHEME_IQ4_NL] = {.fields = {PARAMETER(0, 2, 1), CODE(2, 4)}},
    [ISO_SCHEME_Q2_K] = {.fields = {PARAMETER(80, 2, 2), PARAMETER(0, 1, 16), CODE(16, 16)}},
    [ISO_SCHEME_Q3_K] = {.fields = {PARAMETER(112, 2, 1), PARAMETER(96, 1, 16), CODE(0, 8),
                                    CODE(32, 16)},
                         .normalize = q3_k_normalize,
                         .restore = q3_k_restore},
    [ISO_SCHEME_Q4_K] = {.fields = {PARAMETER(0, 2, 2), PARAMETER(4, 1, 16), CODE(20, 32)},
                         .normalize = q4_k_normalize,
                         .restore = q4_k_restore},
    [ISO_SCHEME_Q5_K] = {.fields = {PARAMETER(0, 2, 2), PARAMETER(4, 1, 16), CODE(20, 8),
                                    CODE(52, 32)},
                         .normalize = q5_k_normalize,
                         .restore = q5_k_restore},
    [ISO_SCHEME_Q6_K] = {.fields = {PARAMETER(208, 2, 1), PARAMETER(192, 1, 16), CODE(128, 16),
                                    CODE(0, 32)}},
};

bool iso_packed_shape_of(iso_scheme scheme, int64_t rows, int64_t elements,
                         iso_packed_shape *out_shape) {
  const iso_scheme_info *info = iso_scheme_get_info(scheme);
  if (!info || !schemes[scheme].fields[0].count || rows < 0 || elements < 0 ||
      elements % info->block_elements != 0)
    return false;
  iso_packed_shape shape = {.scheme = scheme, .rows = rows, .elements = elements};
  shape.block_elements = scheme == ISO_SCHEME_BF16 ? 2 : info->block_elements;
  shape.groups = (rows + ROWS - 1) / ROWS;
  shape.blocks = (elements + shape.block_elements - 1) / shape.block_elements;
  for (const packed_field *field = schemes[scheme].fields;
       field < schemes[scheme].fields + MAX_FIELDS; field++) {
    uint32_t *bytes = field->code ? &shape.code_bytes : &shape.parameter_bytes;
    *bytes += (uint32_t)field->width * field->count * ROWS;
  }
  shape.step_blocks = ISO_PACKED_STEP_BLOCKS(shape.parameter_bytes);
  uint64_t whole_steps = (uint64_t)((shape.blocks + shape.step_blocks - 1) / shape.step_blocks);
  shape.group_bytes = whole_steps * shape.step_blocks * shape.parameter_bytes +
                      ((uint64_t)shape.blocks * shape.code_bytes + 63) / 64 * 64;
  *out_shape = shape;
  return true;
}

/* ---- Packing ------------------------------------------------------------------------------ */

#define DEFINE_INTERLEAVE(name, type)                                                              \
  static void name(uint8_t *target, const uint8_t *const from[ROWS], int64_t count) {              \
    for (int64_t i = 0; i < count; i++)                                                            \
      for (int row = 0; row < ROWS; row++, target += sizeof(type))                                 \
        memcpy(target, from[row] + i * (int64_t)sizeof(type), sizeof(type));                       \
  }
DEFINE_INTERLEAVE(interleave_1, uint8_t)
DEFINE_INTERLEAVE(interleave_2, uint16_t)
DEFINE_INTERLEAVE(interleave_4, uint32_t)

/* Parameters and codes of a block in a group. */
static void block_offsets(const iso_packed_shape *shape, int64_t block, uint64_t *out_parameters,
                          uint64_t *out_codes) {
  uint64_t in_step = (uint64_t)(block % shape->step_blocks);
  uint64_t step = iso_packed_step_offset(shape, block - (int64_t)in_step);
  *out_parameters = step + in_step * shape->parameter_bytes;
  *out_codes = step + shape->step_blocks * shape->parameter_bytes + in_step * shape->code_bytes;
}

/* Puts `count` items of `width` bytes of each row side by side. */
static void interleave(uint8_t *target, const uint8_t *const from[ROWS], size_t offset,
                       unsigned width, int64_t count) {
  const uint8_t *at[ROWS];
  for (int row = 0; row < ROWS; row++)
    at[row] = from[row] + offset;
  if (width == 4)
    interleave_4(target, at, count);
  else if (width == 2)
    interleave_2(target, at, count);
  else
    interleave_1(target, at, count);
}

static const uint8_t zero_block[MAX_BLOCK_BYTES];

/* A group of quantized rows, block by block; `rows` holds NULL past the last row. */
static void pack_blocks(const iso_packed_shape *shape, const uint8_t *const rows[ROWS],
                        uint8_t *target) {
  const packed_scheme *scheme = &schemes[shape->scheme];
  uint32_t block_bytes = iso_scheme_get_info(shape->scheme)->block_bytes;
  uint8_t normal[ROWS][MAX_BLOCK_BYTES];
  for (int64_t block = 0; block < shape->blocks; block++) {
    uint64_t parameters, codes;
    block_offsets(shape, block, &parameters, &codes);
    const uint8_t *from[ROWS];
    for (int row = 0; row < ROWS; row++) {
      const uint8_t *source = rows[row] ? rows[row] + block * block_bytes : zero_block;
      from[row] = source;
      if (scheme->normalize && rows[row]) {
        scheme->normalize(source, normal[row]);
        from[row] = normal[row];
      }
    }
    for (const packed_field *field = scheme->fields; field < scheme->fields + MAX_FIELDS; field++) {
      uint64_t *at = field->code ? &codes : &parameters;
      interleave(target + *at, from, field->offset, field->width, field->count);
      *at += field->width * field->count * ROWS;
    }
  }
}

/* A group of float rows, `source_bytes` long, as one run. */
static void pack_floats(const iso_packed_shape *shape, const uint8_t *const rows[ROWS],
                        uint64_t source_bytes, uint8_t *target) {
  unsigned width = schemes[shape->scheme].fields[0].width;
  int64_t whole = (int64_t)(source_bytes / width);
  for (int64_t i = 0; i < whole; i += MAX_BLOCK_BYTES / width) {
    const uint8_t *from[ROWS];
    int64_t count = whole - i < MAX_BLOCK_BYTES / width ? whole - i : MAX_BLOCK_BYTES / width;
    for (int row = 0; row < ROWS; row++)
      from[row] = rows[row] ? rows[row] + i * width : zero_block;
    interleave(target + i * width * ROWS, from, 0, width, count);
  }
  uint64_t rest = source_bytes - (uint64_t)whole * width;
  uint8_t *tail = target + whole * width * ROWS;
  for (int row = 0; rest && row < ROWS; row++, tail += width) {
    memset(tail, 0, width);
    if (rows[row])
      memcpy(tail, rows[row] + whole * width, rest);
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
    int64_t matrix = group / shape->groups, first = group % shape->groups * ROWS;
    const uint8_t *rows[ROWS];
    for (int row = 0; row < ROWS; row++)
      rows[row] =
          first + row < shape->rows
              ? job->source + (uint64_t)(matrix * shape->rows + first + row) * job->row_bytes
              : NULL;
    uint8_t *target = job->target + (uint64_t)group * shape->group_bytes;
    if (shape->parameter_bytes)
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
  static void name(uint8_t *target, const uint8_t *from, unsigned count) {                         \
    for (unsigned i = 0; i < count; i++)                                                           \
      memcpy(target + i * sizeof(type), from + i * sizeof(type) * ROWS, sizeof(type));             \
  }
DEFINE_COLLECT(collect_1, uint8_t)
DEFINE_COLLECT(collect_2, uint16_t)
DEFINE_COLLECT(collect_4, uint32_t)

/* Takes every ROWS'th item of `width` bytes: the inverse of interleave() for one row. */
static void collect(uint8_t *target, const uint8_t *from, unsigned width, unsigned count) {
  if (width == 4)
    collect_4(target, from, count);
  else if (width == 2)
    collect_2(target, from, count);
  else
    collect_1(target, from, count);
}

void iso_packed_decode_row(const iso_packed_shape *shape, const void *packed, int64_t row,
                           float *out_values) {
  const packed_scheme *scheme = &schemes[shape->scheme];
  const uint8_t *group = (const uint8_t *)packed + (uint64_t)(row / ROWS) * shape->group_bytes;
  int64_t lane = row % ROWS;
  /* Floats are read in runs, as they were packed. */
  unsigned run = shape->parameter_bytes ? 1 : MAX_BLOCK_BYTES / scheme->fields[0].width;
  for (int64_t block = 0; block < shape->blocks; block += run) {
    uint8_t normal[MAX_BLOCK_BYTES], bytes[MAX_BLOCK_BYTES];
    uint64_t parameters, codes;
    block_offsets(shape, block, &parameters, &codes);
    unsigned count = shape->blocks - block < run ? (unsigned)(shape->blocks - block) : run;
    for (const packed_field *field = scheme->fields; field < scheme->fields + MAX_FIELDS; field++) {
      uint64_t *at = field->code ? &codes : &parameters;
      collect(normal + field->offset, group + *at + lane * field->width, field->width,
              field->count * count);
      *at += field->width * field->count * count * ROWS;
    }
    if (scheme->restore)
      scheme->restore(normal, bytes);
    int64_t done = block * shape->block_elements, rest = shape->elements - done;
    int64_t elements = (int64_t)count * shape->block_elements;
    iso_scheme_decode_row(shape->scheme, scheme->restore ? bytes : normal, out_values + done,
                          rest < elements ? rest : elements);
  }
}
