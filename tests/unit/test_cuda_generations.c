/* Which cards the CUDA plug-in's code runs on: one of an unknown generation is refused by name, and
 * never run with code that was made for another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "backends/cuda/generations.h"

static void test_a_card_has_code_or_not(void **state) {
  (void)state;
  static const struct {
    const char *architectures;
    int generation;
    bool runs;
  } cards[] = {
      /* the default: Hopper's own code, and a form for every card from sm_80 on */
      {"90a-real, 80-virtual", 90, true},
      {"90a-real, 80-virtual", 80, true},
      {"90a-real, 80-virtual", 103, true},
      {"90a-real, 80-virtual", 130, true},
      {"90a-real, 80-virtual", 75, false},
      /* of one generation alone */
      {"90a-real", 90, true},
      {"90a-real", 100, false},
      {"90a-real", 89, false},
      {"90a", 100, false},
      {"90a-virtual", 91, false},
      /* machine code is its major number's */
      {"86-real", 86, true},
      {"86-real", 89, true},
      {"86-real", 80, false},
      {"86-real", 90, false},
      {"100f", 103, true},
      {"100f", 120, false},
      {"103f-real", 100, false},
      /* without a suffix there is an intermediate form, too */
      {"75;80;90a", 89, true},
      {"75", 120, true},
      {"120", 103, false},
      {"", 90, false},
      /* what only CMake or the runtime knows */
      {"native", 90, true},
      {"90a-real, all-major", 75, true},
  };
  for (size_t i = 0; i < sizeof cards / sizeof cards[0]; i++)
    if (cuda_generation_is_compiled(cards[i].architectures, cards[i].generation) != cards[i].runs)
      fail_msg("sm_%d, code for \"%s\"", cards[i].generation, cards[i].architectures);
}

static void test_a_refused_card_is_named(void **state) {
  (void)state;
  char reason[512];
  cuda_say_generation("90a-real, 80-virtual", "NVIDIA T4", 75, sizeof reason, reason);
  assert_string_equal(reason, "NVIDIA T4 is sm_75, for which this build has no code (it has "
                              "90a-real, 80-virtual): rebuild with -DISO_CUDA_ARCHITECTURES=75");
  /* a name of any length leaves an end */
  char name[1024];
  memset(name, 'x', sizeof name - 1);
  name[sizeof name - 1] = 0;
  cuda_say_generation("90a-real", name, 75, sizeof reason, reason);
  assert_int_equal(strlen(reason), sizeof reason - 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_card_has_code_or_not),
      cmocka_unit_test(test_a_refused_card_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
