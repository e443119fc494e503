/* Memory of the CPU backend: buffers of all sizes lie apart, aligned, and outlive one another;
 * what cannot fit is refused with its size. */
#include "cpu_device.h"

#include "backends/cpu/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static cpu_test_device device;

typedef struct held {
  iso_buffer *buffer;
  uint64_t bytes;
  uint8_t mark;
} held;

static const iso_memory_table *table(void) { return device.backend->memory; }

static uint8_t *address_of(iso_buffer *buffer) {
  void *address;
  return table()->map(device.device, buffer, &address) == ISO_OK ? address : NULL;
}

/* Marks both ends; false when the allocation fails or is not aligned. */
static bool hold(held *out, uint64_t bytes, uint8_t mark) {
  *out = (held){.bytes = bytes, .mark = mark};
  if (table()->alloc(device.device, ISO_MEMORY_DEVICE, bytes, &out->buffer) != ISO_OK)
    return false;
  uint8_t *data = address_of(out->buffer);
  memset(data, mark, bytes < 300 ? bytes : 300);
  data[bytes - 1] = mark;
  return (uintptr_t)data % ISO_CPU_ALIGNMENT == 0;
}

/* False when another buffer has written into this one. */
static bool release(held *item) {
  const uint8_t *data = address_of(item->buffer);
  bool same = data[0] == item->mark && data[item->bytes - 1] == item->mark;
  for (uint64_t i = 0; i < item->bytes && i < 300; i++)
    same = same && data[i] == item->mark;
  table()->free(device.device, item->buffer);
  item->buffer = NULL;
  return same;
}

/* Allocates and frees in an order of its own; the number of buffers that went wrong. */
static void *churn(void *argument) {
  enum { PLACES = 60, ROUNDS = 3000 };
  uint64_t random = (uintptr_t)argument, wrong = 0;
  held items[PLACES] = {0};
  for (int round = 0; round < ROUNDS; round++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    held *item = &items[(random >> 40) % PLACES];
    uint64_t bytes = 1 + (random >> 20) % (UINT64_C(1) << (4 + (random >> 58) % 22));
    if (item->buffer)
      wrong += !release(item);
    else
      wrong += !hold(item, bytes, (uint8_t)random);
  }
  for (int i = 0; i < PLACES; i++)
    if (items[i].buffer)
      wrong += !release(&items[i]);
  return (void *)(uintptr_t)wrong;
}

static void buffers_lie_apart(void **state) {
  (void)state;
  assert_ptr_equal(churn((void *)(uintptr_t)1), NULL);
}

static void threads_allocate_at_once(void **state) {
  (void)state;
  pthread_t threads[3];
  for (uintptr_t i = 0; i < 3; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 2)), 0);
  for (int i = 0; i < 3; i++) {
    void *wrong;
    pthread_join(threads[i], &wrong);
    assert_ptr_equal(wrong, NULL);
  }
}

static void too_much_is_refused_with_sizes(void **state) {
  (void)state;
  iso_buffer *buffer = NULL;
  const uint64_t sizes[] = {iso_cpu_memory_total() + 1, UINT64_C(1) << 62, UINT64_MAX};
  for (size_t i = 0; i < 3; i++) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)sizes[i]);
    assert_int_equal(table()->alloc(device.device, ISO_MEMORY_DEVICE, sizes[i], &buffer),
                     ISO_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(iso_status_message(), text));
    assert_non_null(strstr(iso_status_message(), "free"));
    assert_null(buffer);
  }
}

/* Leaves the process `bytes` of address space beyond what it has; returns the limit before. */
static struct rlimit limit_address_space(uint64_t bytes) {
  struct rlimit before, limit;
  unsigned long long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%llu", &pages), 1);
  fclose(file);
  assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
  limit = before;
  limit.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + bytes;
  assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
  return before;
}

/* A limit of the process counts as less memory, and is no failure to allocate what is free. */
static void a_limit_of_the_process_is_memory_that_is_not_free(void **state) {
  (void)state;
  struct rlimit before = limit_address_space(64 << 20);
  uint64_t bytes = iso_cpu_memory_free();
  assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
  assert_in_range(bytes, 60 << 20, 64 << 20);
  assert_true(iso_cpu_memory_free() > bytes);
}

/* Several small buffers share one large piece of memory, but where there is no room for that, one
 * that has room is had. */
static void what_is_free_can_be_had(void **state) {
  (void)state;
#if defined(__SANITIZE_THREAD__)
  skip(); /* its allocator ends the process rather than return NULL */
#endif
  enum { N = 10, BYTES = 7 << 20 }; /* four fill a piece */
  held items[N] = {0};
  bool fits = true;
  int n = 0;
  for (; n < N - 2; n++)
    assert_true(hold(&items[n], BYTES, (uint8_t)n));
  struct rlimit before = limit_address_space(28 << 20);
  for (; n < N && fits; n++)
    fits = hold(&items[n], BYTES, (uint8_t)n);
  assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
  if (!fits)
    fail_msg("buffer %d: %s", n - 1, iso_status_message());
  for (int i = 0; i < n; i++)
    assert_true(release(&items[i]));
}

static void imported_memory_is_used_in_place(void **state) {
  (void)state;
  static const uint8_t bytes[100] = {7};
  iso_buffer *buffer;
  assert_int_equal(table()->import(device.device, bytes, sizeof bytes, &buffer), ISO_OK);
  assert_ptr_equal(address_of(buffer), bytes);
  table()->free(device.device, buffer);
  assert_int_equal(bytes[0], 7);
}

static int open_device(void **state) {
  (void)state;
  return cpu_test_open(&device, NULL, 1) ? 0 : 1;
}
static int close_device(void **state) {
  (void)state;
  cpu_test_close(&device);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_free_can_be_had), /* first: others leave free memory behind */
      cmocka_unit_test(buffers_lie_apart),
      cmocka_unit_test(threads_allocate_at_once),
      cmocka_unit_test(too_much_is_refused_with_sizes),
      cmocka_unit_test(a_limit_of_the_process_is_memory_that_is_not_free),
      cmocka_unit_test(imported_memory_is_used_in_place),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
