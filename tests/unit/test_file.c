#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "core/file.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/isomer-file-XXXXXX";

static int set_up(void **state) {
  (void)state;
  return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  return rmdir(folder); /* fails when a test left a file behind */
}

static char *put(const char *name, const void *data, uint64_t bytes) {
  char *path = iso_file_join(folder, name);
  iso_file_writer *writer;
  assert_int_equal(iso_file_writer_create(path, &writer), ISO_OK);
  assert_int_equal(iso_file_writer_append(writer, data, bytes), ISO_OK);
  assert_int_equal(iso_file_writer_offset(writer), bytes);
  assert_int_equal(iso_file_writer_commit(writer), ISO_OK);
  iso_file_writer_destroy(writer);
  return path;
}

static void take_away(char *path) {
  assert_int_equal(unlink(path), 0);
  free(path);
}

static void test_map_and_read(void **state) {
  (void)state;
  char *path = put("data", "hello", 5);
  assert_true(iso_file_exists(path));
  iso_file_map map;
  assert_int_equal(iso_file_map_open(path, &map), ISO_OK);
  assert_int_equal(map.size, 5);
  assert_memory_equal(map.data, "hello", 5);
  for (iso_file_advice advice = ISO_FILE_SEQUENTIAL; advice <= ISO_FILE_DONT_NEED; advice++) {
    iso_file_map_advise(&map, 0, UINT64_MAX, advice);
    iso_file_map_advise(&map, 4, 1, advice);
    iso_file_map_advise(&map, 5, 1, advice);
    iso_file_map_advise(&map, UINT64_MAX, UINT64_MAX, advice);
  }
  assert_memory_equal(map.data, "hello", 5);
  iso_file_map_close(&map);
  iso_file_map_close(&map);
  assert_null(map.data);
  char *data;
  size_t size;
  assert_int_equal(iso_file_read(path, 5, &data, &size), ISO_OK);
  assert_int_equal(size, 5);
  assert_string_equal(data, "hello");
  free(data);
  assert_int_equal(iso_file_read(path, 4, &data, &size), ISO_ERROR_LIMIT);
  assert_null(data);
  take_away(path);
}

static void refuse(const char *path, iso_status code, const char *part) {
  iso_file_map map;
  assert_int_equal(iso_file_map_open(path, &map), code);
  assert_null(map.data);
  assert_non_null(strstr(iso_status_message(), part));
  assert_non_null(strstr(iso_status_message(), path));
  char *data;
  size_t size;
  assert_int_equal(iso_file_read(path, 1 << 20, &data, &size), code);
  assert_null(data);
  assert_non_null(strstr(iso_status_message(), part));
}

static void test_refused_files(void **state) {
  (void)state;
  refuse("/nowhere/at/all", ISO_ERROR_NOT_FOUND, "No such file");
  refuse(folder, ISO_ERROR_INVALID_ARGUMENT, "is a directory");
  refuse("/dev/null", ISO_ERROR_INVALID_ARGUMENT, "not a regular file");
  assert_false(iso_file_exists(folder));
  char *pipe_path = iso_file_join(folder, "pipe");
  assert_int_equal(mkfifo(pipe_path, 0600), 0);
  refuse(pipe_path, ISO_ERROR_INVALID_ARGUMENT, "not a regular file");
  take_away(pipe_path);
  char *empty = put("empty", "", 0);
  refuse(empty, ISO_ERROR_CORRUPT_DATA, "is empty");
  take_away(empty);
  static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
  char *lfs = put("lfs", pointer, sizeof pointer - 1);
  refuse(lfs, ISO_ERROR_CORRUPT_DATA, "Git-LFS pointer");
  take_away(lfs);
}

static int count_entries(void) {
  DIR *directory = opendir(folder);
  int count = -2; /* "." and ".." */
  while (readdir(directory))
    count++;
  closedir(directory);
  return count;
}

static void test_writer_replaces_files_alone(void **state) {
  (void)state;
  iso_file_writer *writer;
  char *pipe_path = iso_file_join(folder, "pipe");
  assert_int_equal(mkfifo(pipe_path, 0600), 0);
  assert_int_equal(iso_file_writer_create(pipe_path, &writer), ISO_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(iso_status_message(), pipe_path));
  assert_int_equal(iso_file_writer_create(folder, &writer), ISO_ERROR_INVALID_ARGUMENT);
  struct stat facts;
  assert_int_equal(stat(pipe_path, &facts), 0);
  assert_true(S_ISFIFO(facts.st_mode));
  assert_int_equal(count_entries(), 1);
  take_away(pipe_path);
}

static void test_writer_is_atomic(void **state) {
  (void)state;
  char *path = put("target", "old", 3);
  iso_file_writer *writer;
  assert_int_equal(iso_file_writer_create(path, &writer), ISO_OK);
  assert_int_equal(iso_file_writer_append(writer, "new", 3), ISO_OK);
  assert_int_equal(iso_file_writer_pad(writer, 10000), ISO_OK);
  assert_int_equal(iso_file_writer_offset(writer), 10003);
  assert_int_equal(count_entries(), 2);
  iso_file_writer_destroy(writer); /* abandoned: the target is as it was */
  assert_int_equal(count_entries(), 1);
  char *data;
  size_t size;
  assert_int_equal(iso_file_read(path, 100, &data, &size), ISO_OK);
  assert_string_equal(data, "old");
  free(data);

  assert_int_equal(iso_file_writer_create(path, &writer), ISO_OK);
  assert_int_equal(iso_file_writer_append(writer, "new", 3), ISO_OK);
  assert_int_equal(iso_file_writer_pad(writer, 10000), ISO_OK);
  assert_int_equal(iso_file_writer_commit(writer), ISO_OK);
  assert_int_equal(iso_file_writer_commit(writer), ISO_ERROR_INVALID_ARGUMENT);
  iso_file_writer_destroy(writer);
  assert_int_equal(count_entries(), 1);
  assert_int_equal(iso_file_read(path, 20000, &data, &size), ISO_OK);
  assert_int_equal(size, 10003);
  assert_memory_equal(data, "new\0", 4);
  assert_int_equal(data[10002], 0);
  free(data);
  struct stat facts;
  assert_int_equal(stat(path, &facts), 0);
  mode_t mask = umask(0);
  umask(mask);
  assert_int_equal(facts.st_mode & 0777, 0666 & ~mask);
  take_away(path);

  assert_int_equal(iso_file_writer_create("/nowhere/at/all", &writer), ISO_ERROR_IO);
  assert_null(writer);
  iso_file_writer_destroy(NULL);
}

static void test_writer_keeps_modes(void **state) {
  (void)state;
  static const mode_t modes[] = {0600, 0640, 0664, 0666, 0444};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    char *path = put("target", "old", 3);
    assert_int_equal(chmod(path, modes[i]), 0);
    free(put("target", "new", 3));
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 07777, modes[i]);
    take_away(path);
  }
}

static void expect_content(const char *path, const char *content) {
  char *data;
  size_t size;
  assert_int_equal(iso_file_read(path, 100, &data, &size), ISO_OK);
  assert_int_equal(size, strlen(content));
  assert_memory_equal(data, content, size);
  free(data);
}

static void expect_link(const char *path, const char *content) {
  char found[100];
  ssize_t length = readlink(path, found, sizeof found);
  assert_int_equal(length, strlen(content));
  assert_memory_equal(found, content, strlen(content));
}

static void test_writer_follows_links(void **state) {
  (void)state;
  char *target = put("target", "old", 3), *near = iso_file_join(folder, "near");
  char *far = iso_file_join(folder, "far"), *deep = iso_file_join(folder, "deep");
  char *lost = iso_file_join(folder, "deep/lost");
  assert_int_equal(mkdir(deep, 0700), 0);
  assert_int_equal(symlink("target", near), 0); /* from its own folder */
  assert_int_equal(symlink(near, far), 0);
  free(put("far", "new", 3));
  expect_link(near, "target");
  expect_link(far, near);
  expect_content(target, "new");
  take_away(near);
  take_away(target);

  char *again = iso_file_join(folder, "near"); /* what a link leads to may be made by it */
  assert_int_equal(symlink("deep/lost", again), 0);
  free(put("far", "made", 4));
  expect_content(lost, "made");
  assert_int_equal(count_entries(), 3);
  take_away(lost);
  assert_int_equal(rmdir(deep), 0);
  iso_file_writer *writer; /* or be in no folder */
  assert_int_equal(iso_file_writer_create(far, &writer), ISO_ERROR_IO);
  assert_non_null(strstr(iso_status_message(), "deep/lost: No such file"));
  free(deep);
  take_away(again);

  char *circle = iso_file_join(folder, "circle");
  assert_int_equal(symlink("circle", circle), 0);
  assert_int_equal(iso_file_writer_create(circle, &writer), ISO_ERROR_IO);
  assert_non_null(strstr(iso_status_message(), "symbolic links"));
  take_away(circle);
  take_away(far);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_map_and_read),
      cmocka_unit_test(test_refused_files),
      cmocka_unit_test(test_writer_replaces_files_alone),
      cmocka_unit_test(test_writer_is_atomic),
      cmocka_unit_test(test_writer_keeps_modes),
      cmocka_unit_test(test_writer_follows_links),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
