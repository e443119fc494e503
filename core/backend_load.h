/* From a backend's own tables, of whatever minor version, to tables of this host's size with
 * every slot filled. */
#ifndef ISOMER_CORE_BACKEND_LOAD_H
#define ISOMER_CORE_BACKEND_LOAD_H

#include <isomer/backend.h>

/* Most bytes that a struct written by a newer backend may have. */
#define ISO_ABI_ROOM 4096u

typedef struct iso_loaded_backend {
  iso_backend backend; /* points to the tables below; `name` is the backend's own string */
  iso_driver_table driver;
  iso_device_table device;
  iso_memory_table memory;
  iso_queue_table queue;
  iso_kernel *kernels; /* dense; records of ops that this host does not know are left out */
  bool can_record;     /* the backend itself offers recording */
  void *library;       /* of dlopen(); NULL when linked in */
} iso_loaded_backend;

/* What backends are given. */
extern const iso_host iso_core_host;

/* Checks and copies a backend. UNSUPPORTED with both versions for another ABI major,
 * INVALID_ARGUMENT naming the slot or kernel for an incomplete table. */
ISO_MUST_CHECK iso_status iso_backend_adopt(const iso_backend *source,
                                            iso_loaded_backend **out_backend);
/* Calls an entry and adopts what it returns. */
ISO_MUST_CHECK iso_status iso_backend_query(iso_backend_query_function query,
                                            iso_loaded_backend **out_backend);
/* Opens a shared library and queries its entry. Errors name the path. */
ISO_MUST_CHECK iso_status iso_backend_open_library(const char *path,
                                                   iso_loaded_backend **out_backend);
/* After every device of the backend is closed. NULL is fine. */
void iso_backend_unload(iso_loaded_backend *backend);

/* Copies a size-prefixed struct: the smaller of both sizes, the rest zero, the size set to
 * `target_bytes`. */
void iso_abi_copy(void *target, uint32_t target_bytes, const void *source);
/* The same of a device's facts, whose texts end where a backend has filled them to the brim. */
void iso_abi_copy_info(iso_device_info *target, const void *source);

#endif
