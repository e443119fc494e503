/* Decode attention on emulated tiles against the reference, on CPUs with AVX-512 and BF16. */
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")
#define ISO_TILES_HEADER "tests/unit/tile_emulation.h"
#define TIER emulated
#define iso_cpu_check_emulated iso_cpu_check_avx512
#include "backends/cpu/attention_amx.c"
#pragma GCC pop_options

/* Products have 16 bits of a query and of a weight: of each number, or with blocks of the largest;
 * of many rows over bf16 they have 8. */
#define ATTENTION_TOLERANCE (cache == ISO_SCHEME_Q8_0 ? 1e-3 : b == &MIXED ? 1e-1 : 1e-4)
#include "attention_case.h"

static bool can_run;

/* A device whose only kernel is the emulated one. */
static int open_device(void **state) {
  (void)state;
  static iso_backend only_tiles;
  iso_cpu_machine machine;
  iso_cpu_machine_detect(&machine);
  can_run = (machine.features & ISO_CPU_HAS_AVX512_BF16) && cpu_test_open(&device, "avx512", 3);
  if (!can_run) {
    print_message("no AVX-512 with BF16 here: the tile kernel is not run\n");
    return 0;
  }
  only_tiles = *device.backend;
  only_tiles.kernels = iso_cpu_attention_emulated.records;
  only_tiles.kernel_count = iso_cpu_attention_emulated.count;
  device.backend = &only_tiles;
  return 0;
}

static int close_device(void **state) {
  (void)state;
  if (can_run)
    cpu_test_close(&device);
  return 0;
}

static const iso_scheme TILED[] = {ISO_SCHEME_BF16, ISO_SCHEME_Q8_0};

/* Groups of 1 to 12 heads, heads of one tile and of many, pages of one tile and of many. */
static void shapes_agree(void **state) {
  (void)state;
  iso_paged_attention_attributes plain = {sizeof plain, 0, 1, 0, 0};
  const shape shapes[] = {{4, 4, 32, 32, 16},   {8, 2, 64, 64, 64},  {9, 3, 64, 64, 16},
                          {5, 1, 128, 128, 32}, {8, 1, 96, 64, 48},  {14, 2, 64, 160, 64},
                          {12, 1, 64, 64, 16},  {40, 1, 64, 64, 16}, {6, 2, 256, 256, 64}};
  const batch *batches[] = {&MIXED, &DECODE, &ONE_LONG};
  for (size_t i = 0; can_run && i < 6 * sizeof shapes / sizeof shapes[0]; i++)
    attention_case(batches[i % 3], &shapes[i / 6], &plain, FLOATS[i % 2 * 2], TILED[i / 3 % 2],
                   ISO_SCHEME_F32, i % 4 == 0);
}

/* Caches and pages that tiles do not take go through vectors. */
static void what_tiles_do_not_take_agrees(void **state) {
  (void)state;
  iso_paged_attention_attributes plain = {sizeof plain, 0, 1, 0, 0};
  const shape shapes[] = {{6, 2, 64, 64, 8}, {6, 2, 80, 64, 16}, {6, 2, 64, 40, 16}};
  for (size_t i = 0; can_run && i < 3; i++)
    attention_case(&MIXED, &shapes[i], &plain, ISO_SCHEME_F32, ISO_SCHEME_BF16, ISO_SCHEME_F32,
                   false);
  for (size_t i = 0; can_run && i < 4; i++)
    attention_case(&DECODE, &(shape){8, 2, 64, 64, 16}, &plain, ISO_SCHEME_F32, CACHES[i],
                   ISO_SCHEME_F32, false);
}

/* Windows begin within a tile, and sequences end there. */
static void anything_agrees(void **state) {
  (void)state;
  for (int i = 0; can_run && i < 60; i++) {
    batch b = {.n_sequences = between(1, 4), .unused_rows = between(0, 2)};
    for (int64_t q = 0; q < b.n_sequences; q++) {
      b.rows[q] = (int32_t)between(0, 2); /* with up to 6 heads a row, all few */
      b.contexts[q] = b.rows[q] + (int32_t)between(0, between(0, 1) ? 900 : 60);
    }
    int64_t n_kv_heads = between(1, 3);
    shape s = {n_kv_heads * between(1, 6), n_kv_heads, 32 * between(1, 3), 32 * between(1, 3),
               16 * between(1, 4)};
    iso_paged_attention_attributes attributes = {sizeof attributes, 0, cpu_random() % 4 != 0,
                                                 cpu_random() % 2 ? (uint32_t)between(1, 700) : 0,
                                                 cpu_random() % 3 ? 0.0f : 5.0f};
    attention_case(&b, &s, &attributes, FLOATS[cpu_random() % 3], TILED[i % 2], ISO_SCHEME_F32,
                   cpu_random() % 3 == 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shapes_agree),
      cmocka_unit_test(what_tiles_do_not_take_agrees),
      cmocka_unit_test(anything_agrees),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
