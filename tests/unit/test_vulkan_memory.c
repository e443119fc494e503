/* Memory, copies, fills and the timeline of the Vulkan plug-in, on Mesa's software rasteriser. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "ops/conform/conform.h"
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const plugin = TEST_BINARY_DIR "/libisomer-vulkan.so";

/* Whether the plug-in was built and a software rasteriser is installed, which is then the only
 * driver. */
static bool can_run(void) {
  glob_t drivers;
  if (access(plugin, R_OK) != 0 ||
      glob("/usr/share/vulkan/icd.d/lvp_icd*.json", 0, NULL, &drivers) != 0)
    return false;
  setenv("VK_ICD_FILENAMES", drivers.gl_pathv[0], 1);
  globfree(&drivers);
  return true;
}

static void test_memory(void **state) {
  (void)state;
  if (!can_run()) {
    print_message("the Vulkan plug-in was not built, or Mesa's rasteriser is not installed\n");
    skip();
  }
  iso_registry *registry;
  iso_open_device *device;
  assert_int_equal(iso_registry_create(&registry), ISO_OK);
  if (iso_registry_load(registry, plugin) != ISO_OK ||
      iso_device_open(registry, "vulkan:0", NULL, &device) != ISO_OK)
    fail_msg("%s", iso_status_message());
  if (iso_conform_memory(device) != ISO_OK)
    fail_msg("%s", iso_status_message());
  iso_status status = iso_conform_large_memory(device);
  if (status == ISO_ERROR_OUT_OF_MEMORY)
    print_message("refused: %s\n", iso_status_message());
  else if (status != ISO_OK)
    fail_msg("%s", iso_status_message());
  iso_device_close(device);
  iso_registry_destroy(registry);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
