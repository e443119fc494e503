/* The pipeline cache on disk: what was saved comes back, and nothing that is not whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if __has_include(<vulkan/vulkan_core.h>)
/* The plug-in exports its entry alone, so the file is compiled in. */
#include "backends/vulkan/cache.c"

const iso_host *vulkan_host;

iso_status vulkan_error(VkResult result, const char *what) {
  (void)result, (void)what;
  return ISO_ERROR_DEVICE;
}

/* A driver whose cache is `content`; it notes what it is given at first. */
static uint8_t content[4096], given[8192];
static size_t given_bytes;
static bool takes_data = true;

static VkResult create_cache(VkDevice device, const VkPipelineCacheCreateInfo *info,
                             const VkAllocationCallbacks *allocator, VkPipelineCache *out_cache) {
  (void)device, (void)allocator, (void)out_cache;
  given_bytes = info->initialDataSize;
  memcpy(given, info->initialDataSize ? info->pInitialData : "",
         info->initialDataSize < sizeof given ? info->initialDataSize : 0);
  return takes_data || info->initialDataSize == 0 ? VK_SUCCESS : VK_ERROR_INITIALIZATION_FAILED;
}

static VkResult get_data(VkDevice device, VkPipelineCache cache, size_t *size, void *data) {
  (void)device, (void)cache;
  if (data)
    memcpy(data, content, sizeof content);
  *size = sizeof content;
  return VK_SUCCESS;
}

static char folder[] = "/tmp/isomer-cache-XXXXXX", path[PATH_BYTES];
static iso_device device = {
    .api = {.vkCreatePipelineCache = create_cache, .vkGetPipelineCacheData = get_data}};

static int save(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof content; i++)
    content[i] = (uint8_t)(i * 7 + i / 256);
  if (!path[0] && !mkdtemp(folder))
    return 1;
  setenv("XDG_CACHE_HOME", folder, 1);
  device.cache_bytes = 0;
  vulkan_cache_save(&device);
  return find_path(&device, false, path) ? 0 : 1;
}

static void expect_loaded(size_t bytes) {
  given_bytes = SIZE_MAX;
  assert_int_equal(vulkan_cache_load(&device), ISO_OK);
  assert_int_equal(given_bytes, bytes);
}

static void test_comes_back(void **state) {
  (void)state;
  expect_loaded(sizeof content);
  assert_memory_equal(given, content, sizeof content);
  struct stat before, after;
  assert_int_equal(stat(path, &before), 0);
  vulkan_cache_save(&device); /* it has not grown */
  assert_int_equal(stat(path, &after), 0);
  assert_true(before.st_ino == after.st_ino);
}

static void test_of_another_driver(void **state) {
  (void)state;
  device.facts.cache_uuid[3] = 9;
  expect_loaded(0);
  device.facts.cache_uuid[3] = 0;
}

/* Two kinds of cards may share the UUID of their driver. */
static void test_of_another_card(void **state) {
  (void)state;
  device.facts.device_id = 7;
  expect_loaded(0);
  device.facts.device_id = 0;
}

/* A driver that does not take what it wrote gets nothing, which is no reason to fail. */
static void test_not_taken(void **state) {
  (void)state;
  takes_data = false;
  expect_loaded(0);
  takes_data = true;
}

static void *save_often(void *unused) {
  (void)unused;
  iso_device own = device;
  for (int i = 0; i < 2000; i++) {
    own.cache_bytes = 0;
    vulkan_cache_save(&own);
  }
  return NULL;
}

/* Devices of one process that are closed at once, and processes side by side: whoever reads
 * meanwhile finds a whole file. */
static void test_saved_at_once(void **state) {
  (void)state;
  enum { N = 4 };
  pthread_t threads[N];
  pid_t child = fork();
  if (child == 0) {
    save_often(NULL);
    _exit(0);
  }
  assert_true(child > 0);
  for (int i = 0; i < N; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, save_often, NULL), 0);
  for (int i = 0; i < 2000; i++)
    expect_loaded(sizeof content);
  for (int i = 0; i < N; i++)
    pthread_join(threads[i], NULL);
  int code;
  assert_true(waitpid(child, &code, 0) == child && code == 0);
  expect_loaded(sizeof content);
}

static void test_broken(void **state) {
  (void)state;
  static const size_t places[] = {0, 9, 17, sizeof(file_header), 3000};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    assert_int_equal(save(NULL), 0);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, (long)places[i], SEEK_SET);
    int byte = fgetc(file);
    fseek(file, (long)places[i], SEEK_SET);
    fputc(byte ^ 4, file);
    fclose(file);
    expect_loaded(0);
  }
  static const off_t lengths[] = {0, 8, sizeof(file_header), 4000};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    assert_int_equal(save(NULL), 0);
    assert_int_equal(truncate(path, lengths[i]), 0);
    expect_loaded(0);
  }
  assert_int_equal(save(NULL), 0);
  assert_int_equal(truncate(path, (off_t)(sizeof(file_header) + sizeof content + 1)), 0);
  expect_loaded(0);
}

static void test_nowhere(void **state) {
  (void)state;
  setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
  device.cache_bytes = 0;
  vulkan_cache_save(&device);
  expect_loaded(0);
}

static int remove_all(void **state) {
  (void)state;
  remove(path);
  char *slash = strrchr(path, '/');
  *slash = 0;
  rmdir(path);
  return rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_comes_back, save),
      cmocka_unit_test_setup(test_of_another_driver, save),
      cmocka_unit_test_setup(test_of_another_card, save),
      cmocka_unit_test_setup(test_not_taken, save),
      cmocka_unit_test_setup(test_saved_at_once, save),
      cmocka_unit_test_setup(test_broken, save),
      cmocka_unit_test_setup(test_nowhere, save),
  };
  return cmocka_run_group_tests(tests, NULL, remove_all);
}
#else
#include "without_vulkan.h"
#endif
