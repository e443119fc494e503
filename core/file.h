/* Files: read-only mappings, bounded reads, and writes that appear whole or not at all.
 *
 * Every function names the path in its error. Directories, devices, pipes and empty files are
 * refused, and so is a Git-LFS pointer standing where a file's content should be. */
#ifndef ISOMER_CORE_FILE_H
#define ISOMER_CORE_FILE_H

#include <isomer/status.h>

/* A read-only mapping of a whole file. The bytes must not be changed by anyone while mapped: a
 * file that shrinks under a mapping is a signal (SIGBUS), not an error, as with every mapping. */
typedef struct iso_file_map {
  const uint8_t *data; /* page aligned; NULL when closed */
  uint64_t size;       /* bytes, at least 1 while open */
} iso_file_map;

/* Maps `path`. On failure *out_map is closed. NOT_FOUND when there is no such file. */
ISO_MUST_CHECK iso_status iso_file_map_open(const char *path, iso_file_map *out_map);
/* Unmaps; does nothing on a closed map. Pointers into the map are then invalid. */
void iso_file_map_close(iso_file_map *map);

typedef enum iso_file_advice {
  ISO_FILE_SEQUENTIAL, /* will be read once, in order: read ahead far */
  ISO_FILE_WILL_NEED,  /* start reading now */
  ISO_FILE_DONT_NEED   /* read and copied: the pages may go (the content stays readable) */
} iso_file_advice;

/* A hint about bytes [offset, offset + bytes), clipped to the map. Never fails. WILL_NEED covers
 * every page touched, DONT_NEED only pages wholly inside, so that neighbours stay. */
void iso_file_map_advise(const iso_file_map *map, uint64_t offset, uint64_t bytes,
                         iso_file_advice advice);

/* Reads a whole file of at most `limit` bytes. *out_data is malloc'ed, the caller frees it, and a
 * NUL follows the *out_size bytes. ISO_ERROR_LIMIT when the file is larger. */
ISO_MUST_CHECK iso_status iso_file_read(const char *path, uint64_t limit, char **out_data,
                                        size_t *out_size);

/* Whether `path` is a regular file (links followed). */
bool iso_file_exists(const char *path);

/* "folder/name" in malloc'ed memory; NULL when memory is out. */
char *iso_file_join(const char *folder, const char *name);

/* Writes a file through a temporary one beside it, so that `path` is either untouched or whole; a
 * symbolic link stays, and what it leads to is written so. A file that is replaced hands on its
 * mode, and its owner and group where the process may give them. What is there and is no regular
 * file is refused. Not thread safe: one thread a writer. */
typedef struct iso_file_writer iso_file_writer;

ISO_MUST_CHECK iso_status iso_file_writer_create(const char *path, iso_file_writer **out_writer);
ISO_MUST_CHECK iso_status iso_file_writer_append(iso_file_writer *writer, const void *data,
                                                 uint64_t bytes);
/* Appends `bytes` zeros. */
ISO_MUST_CHECK iso_status iso_file_writer_pad(iso_file_writer *writer, uint64_t bytes);
/* Bytes appended so far. */
uint64_t iso_file_writer_offset(const iso_file_writer *writer);
/* Flushes to the disk and renames over `path`. The writer stays to be destroyed. */
ISO_MUST_CHECK iso_status iso_file_writer_commit(iso_file_writer *writer);
/* Frees the writer; without a successful commit the temporary file is removed. NULL is fine. */
void iso_file_writer_destroy(iso_file_writer *writer);

#endif
