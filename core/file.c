#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first bytes of a Git-LFS pointer file, by its specification. */
static const char lfs_mark[] = "version https://git-lfs";

static iso_status refuse_lfs_pointer(const char *path, const void *data, uint64_t size) {
  if (size >= sizeof lfs_mark - 1 && memcmp(data, lfs_mark, sizeof lfs_mark - 1) == 0)
    return iso_fail(ISO_ERROR_CORRUPT_DATA,
                    "%s is a Git-LFS pointer, not the file itself; run `git lfs pull` in its "
                    "repository, or download the file again",
                    path);
  return ISO_OK;
}

static iso_status open_regular(const char *path, int *out_descriptor, uint64_t *out_size) {
  /* O_NONBLOCK: a pipe is then refused below rather than waited for. */
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    return iso_fail(errno == ENOENT || errno == ENOTDIR ? ISO_ERROR_NOT_FOUND : ISO_ERROR_IO,
                    "cannot open %s: %s", path, strerror(errno));
  struct stat facts;
  iso_status status = ISO_OK;
  if (fstat(descriptor, &facts) != 0)
    status = iso_fail(ISO_ERROR_IO, "cannot examine %s: %s", path, strerror(errno));
  else if (S_ISDIR(facts.st_mode))
    status = iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s is a directory, a file is needed", path);
  else if (!S_ISREG(facts.st_mode))
    status = iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s is not a regular file", path);
  else if (facts.st_size == 0)
    status = iso_fail(ISO_ERROR_CORRUPT_DATA, "%s is empty", path);
  if (status != ISO_OK) {
    close(descriptor);
    return status;
  }
  *out_descriptor = descriptor;
  *out_size = (uint64_t)facts.st_size;
  return ISO_OK;
}

iso_status iso_file_map_open(const char *path, iso_file_map *out_map) {
  *out_map = (iso_file_map){0};
  int descriptor;
  uint64_t size;
  ISO_TRY(open_regular(path, &descriptor, &size));
  void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  int error = errno;
  close(descriptor);
  if (data == MAP_FAILED)
    return iso_fail(ISO_ERROR_IO, "cannot map the %llu bytes of %s: %s", (unsigned long long)size,
                    path, strerror(error));
  iso_file_map map = {data, size};
  iso_status status = refuse_lfs_pointer(path, data, size);
  if (status != ISO_OK)
    iso_file_map_close(&map);
  *out_map = map;
  return status;
}

void iso_file_map_close(iso_file_map *map) {
  if (map->data)
    munmap((void *)map->data, map->size);
  *map = (iso_file_map){0};
}

void iso_file_map_advise(const iso_file_map *map, uint64_t offset, uint64_t bytes,
                         iso_file_advice advice) {
  static const int system_advice[] = {[ISO_FILE_SEQUENTIAL] = MADV_SEQUENTIAL,
                                      [ISO_FILE_WILL_NEED] = MADV_WILLNEED,
                                      [ISO_FILE_DONT_NEED] = MADV_DONTNEED};
  if (!map->data || offset >= map->size)
    return;
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  uint64_t end = bytes < map->size - offset ? offset + bytes : map->size;
  uint64_t start = offset / page * page;
  if (advice == ISO_FILE_DONT_NEED) {
    start = (offset + page - 1) / page * page;
    if (end < map->size)
      end = end / page * page;
  }
  if (start < end)
    (void)madvise((void *)(map->data + start), end - start, system_advice[advice]);
}

iso_status iso_file_read(const char *path, uint64_t limit, char **out_data, size_t *out_size) {
  *out_data = NULL;
  *out_size = 0;
  int descriptor;
  uint64_t size;
  ISO_TRY(open_regular(path, &descriptor, &size));
  if (size > limit || size >= SIZE_MAX) {
    close(descriptor);
    return iso_fail(ISO_ERROR_LIMIT, "%s has %llu bytes, at most %llu are read", path,
                    (unsigned long long)size, (unsigned long long)limit);
  }
  char *data = malloc(size + 1);
  uint64_t done = 0;
  ssize_t got = 1;
  while (data && done < size && (got = read(descriptor, data + done, size - done)) != 0) {
    if (got > 0)
      done += (uint64_t)got;
    else if (errno != EINTR)
      break;
  }
  int error = errno;
  close(descriptor);
  iso_status status = ISO_OK;
  if (!data)
    status = iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for the %llu bytes of %s",
                      (unsigned long long)size, path);
  else if (got < 0)
    status = iso_fail(ISO_ERROR_IO, "cannot read %s: %s", path, strerror(error));
  else
    status = refuse_lfs_pointer(path, data, done);
  if (status != ISO_OK) {
    free(data);
    return status;
  }
  data[done] = 0;
  *out_data = data;
  *out_size = done;
  return ISO_OK;
}

bool iso_file_exists(const char *path) {
  struct stat facts;
  return stat(path, &facts) == 0 && S_ISREG(facts.st_mode);
}

char *iso_file_join(const char *folder, const char *name) {
  char *path = NULL;
  return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

struct iso_file_writer {
  char *path;
  char *temporary_path; /* NULL once renamed */
  FILE *stream;
  uint64_t offset;
};

static iso_status fail_write(const iso_file_writer *writer) {
  return iso_fail(ISO_ERROR_IO, "cannot write %s: %s", writer->path, strerror(errno));
}

/* Gives the file to whom the one before was for: the same mode, and the same owner and group where
 * the process may do so. What fails leaves it more private than that: a file system may know no
 * modes, and this is none of what was asked for. */
static void take_permissions(int descriptor, const struct stat *before) {
  mode_t mode = before->st_mode & 0777;
  if (fchown(descriptor, (uid_t)-1, before->st_gid) != 0)
    mode &= 0707; /* what one group might do is not for another one */
  int failed = fchmod(descriptor, mode);
  if (!failed && before->st_uid != geteuid())
    failed = fchown(descriptor, before->st_uid, (gid_t)-1);
  (void)failed;
}

/* A new file beside the target, so that the rename stays inside one file system. Not mkstemp: that
 * makes the file private, and the umask of a process cannot be read safely among threads. */
static iso_status open_temporary(iso_file_writer *writer) {
  enum { ATTEMPTS = 100 };
  struct stat before;
  bool replaces = stat(writer->path, &before) == 0;
  static _Atomic unsigned counter;
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    char *path = NULL;
    if (asprintf(&path, "%s.%ld-%u.tmp", writer->path, (long)getpid(), counter++) < 0)
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to write %s", writer->path);
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                          replaces ? before.st_mode & 0600 : 0666);
    if (descriptor < 0) {
      int error = errno;
      free(path);
      errno = error;
      if (error == EEXIST)
        continue;
      return fail_write(writer);
    }
    writer->temporary_path = path;
    if (replaces)
      take_permissions(descriptor, &before);
    writer->stream = fdopen(descriptor, "wb");
    if (writer->stream)
      return ISO_OK;
    close(descriptor);
    break;
  }
  return fail_write(writer);
}

/* Where a path leads to: a rename over a symbolic link would replace the link and leave its target
 * as it was. The target need not be there yet. Caller frees *out_target. */
static iso_status follow_links(const char *path, char **out_target) {
  enum { MOST_LINKS = 40 }; /* as Linux */
  char *target = strdup(path), content[PATH_MAX];
  for (int i = 0; target && i <= MOST_LINKS; i++) {
    ssize_t length = readlink(target, content, sizeof content - 1);
    if (length < 0) { /* no link, or nothing: opening it says what is wrong */
      *out_target = target;
      return ISO_OK;
    }
    content[length] = '\0';
    const char *slash = content[0] == '/' ? NULL : strrchr(target, '/');
    int folder = slash ? (int)(slash + 1 - target) : 0;
    char *next = NULL;
    if (asprintf(&next, "%.*s%s", folder, target, content) < 0)
      next = NULL;
    free(target);
    target = next;
  }
  bool endless = target != NULL;
  free(target);
  return endless ? iso_fail(ISO_ERROR_IO, "cannot write %s: %s", path, strerror(ELOOP))
                 : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to write %s", path);
}

/* The rename would put a file in the place of a device or a pipe, /dev/null for one. */
static iso_status refuse_other_target(const char *path) {
  struct stat facts;
  if (stat(path, &facts) != 0 || S_ISREG(facts.st_mode))
    return ISO_OK;
  return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "cannot write %s: it is a %s, not a file", path,
                  S_ISDIR(facts.st_mode) ? "directory" : "device or a pipe");
}

iso_status iso_file_writer_create(const char *path, iso_file_writer **out_writer) {
  *out_writer = NULL;
  iso_file_writer *writer = calloc(1, sizeof *writer);
  if (!writer)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to write %s", path);
  iso_status status = follow_links(path, &writer->path);
  if (status == ISO_OK)
    status = refuse_other_target(path);
  if (status == ISO_OK)
    status = open_temporary(writer);
  if (status != ISO_OK) {
    iso_file_writer_destroy(writer);
    return status;
  }
  *out_writer = writer;
  return ISO_OK;
}

iso_status iso_file_writer_append(iso_file_writer *writer, const void *data, uint64_t bytes) {
  if (bytes > 0 && fwrite(data, 1, bytes, writer->stream) != bytes)
    return fail_write(writer);
  writer->offset += bytes;
  return ISO_OK;
}

iso_status iso_file_writer_pad(iso_file_writer *writer, uint64_t bytes) {
  static const uint8_t zeros[4096];
  while (bytes > 0) {
    uint64_t part = bytes < sizeof zeros ? bytes : sizeof zeros;
    ISO_TRY(iso_file_writer_append(writer, zeros, part));
    bytes -= part;
  }
  return ISO_OK;
}

uint64_t iso_file_writer_offset(const iso_file_writer *writer) { return writer->offset; }

iso_status iso_file_writer_commit(iso_file_writer *writer) {
  if (!writer->stream)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s was committed already", writer->path);
  if (fflush(writer->stream) != 0 || fsync(fileno(writer->stream)) != 0)
    return fail_write(writer);
  int closed = fclose(writer->stream);
  writer->stream = NULL;
  if (closed != 0 || rename(writer->temporary_path, writer->path) != 0)
    return fail_write(writer);
  free(writer->temporary_path);
  writer->temporary_path = NULL;
  return ISO_OK;
}

void iso_file_writer_destroy(iso_file_writer *writer) {
  if (!writer)
    return;
  if (writer->stream)
    fclose(writer->stream);
  if (writer->temporary_path)
    unlink(writer->temporary_path);
  free(writer->temporary_path);
  free(writer->path);
  free(writer);
}
