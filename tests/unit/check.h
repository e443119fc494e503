/* A call that must succeed: else the test fails with the call and its sentence. */
#ifndef ISOMER_TESTS_CHECK_H
#define ISOMER_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <isomer/status.h>

#define CHECK(expression)                                                                          \
  do {                                                                                             \
    if ((expression) != ISO_OK)                                                                    \
      fail_msg("%s: %s", #expression, iso_status_message());                                       \
  } while (0)

#endif
