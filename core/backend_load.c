#include "core/backend_load.h"
#include "core/defaults.h"
#include "core/file.h"
#include "core/log.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const iso_host iso_core_host = {
    .size = sizeof(iso_host), .abi = ISO_ABI_VERSION, .fail = iso_fail_at, .log = iso_log};

void iso_abi_copy(void *target, uint32_t target_bytes, const void *source) {
  uint32_t size;
  memcpy(&size, source, sizeof size);
  memset(target, 0, target_bytes);
  memcpy(target, source, size < target_bytes ? size : target_bytes);
  memcpy(target, &target_bytes, sizeof target_bytes);
}

void iso_abi_copy_info(iso_device_info *target, const void *source) {
  iso_abi_copy(target, sizeof *target, source);
  target->name[sizeof target->name - 1] = 0;
  target->id[sizeof target->id - 1] = 0;
  target->detail[sizeof target->detail - 1] = 0;
}

typedef void (*slot)(void);

static const struct {
  const char *name;
  size_t offset;
} required_slots[] = {
#define REQUIRED(table, name)                                                                      \
  { #table "." #name, offsetof(iso_loaded_backend, table.name) }
    REQUIRED(driver, enumerate), REQUIRED(driver, open),  REQUIRED(device, info),
    REQUIRED(device, close),     REQUIRED(memory, alloc), REQUIRED(memory, free),
    REQUIRED(memory, map),       REQUIRED(queue, create), REQUIRED(queue, destroy),
    REQUIRED(queue, copy),       REQUIRED(queue, fill),
#undef REQUIRED
};

/* The name stands before ':' in --device and in file names. */
static bool is_backend_name(const char *name) {
  size_t length = name ? strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
  return length >= 1 && length <= 31 && name[length] == 0;
}

static iso_status copy_tables(iso_loaded_backend *loaded) {
  iso_backend *backend = &loaded->backend;
  const struct {
    const char *name;
    const void *source;
    void *target;
    uint32_t bytes;
  } tables[] = {
      {"driver", backend->driver, &loaded->driver, sizeof loaded->driver},
      {"device", backend->device, &loaded->device, sizeof loaded->device},
      {"memory", backend->memory, &loaded->memory, sizeof loaded->memory},
      {"queue", backend->queue, &loaded->queue, sizeof loaded->queue},
  };
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    if (!tables[i].source)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the %s table is missing", tables[i].name);
    iso_abi_copy(tables[i].target, tables[i].bytes, tables[i].source);
  }
  for (size_t i = 0; i < sizeof required_slots / sizeof *required_slots; i++) {
    slot function;
    memcpy(&function, (const char *)loaded + required_slots[i].offset, sizeof function);
    if (!function)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s is required and missing",
                      required_slots[i].name);
  }
  backend->driver = &loaded->driver;
  backend->device = &loaded->device;
  backend->memory = &loaded->memory;
  backend->queue = &loaded->queue;
  return ISO_OK;
}

static iso_status check_kernel(const iso_kernel *kernel, uint32_t index) {
  if (!kernel->name)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "kernel %u has no name", index);
  if (!kernel->launch)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "kernel %s: launch is required and missing",
                    kernel->name);
  if (!kernel->pack != !kernel->packed_bytes)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "kernel %s: %s is missing, its other half is there",
                    kernel->name, kernel->pack ? "packed_bytes" : "pack");
  if (kernel->pack && kernel->layout == ISO_LAYOUT_PLAIN)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "kernel %s packs into layout 0, which is the plain one: give it a number of "
                    "its own",
                    kernel->name);
  return ISO_OK;
}

/* One record of a layout that packs is enough for all of its op. */
static iso_status check_packer(const iso_kernel *kernels, uint32_t count,
                               const iso_kernel *asking) {
  if (asking->layout == ISO_LAYOUT_PLAIN)
    return ISO_OK;
  for (uint32_t i = 0; i < count; i++)
    if (kernels[i].op == asking->op && kernels[i].layout == asking->layout && kernels[i].pack)
      return ISO_OK;
  return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                  "kernel %s wants its weight in layout %u, which no record of its op packs",
                  asking->name, asking->layout);
}

static iso_status copy_kernels(iso_loaded_backend *loaded) {
  iso_backend *backend = &loaded->backend;
  const char *source = (const char *)backend->kernels;
  uint32_t stride = backend->kernel_stride, kept = 0;
  if (backend->kernel_count > 0 && (!source || stride < offsetof(iso_kernel, name)))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%u kernels with a stride of %u bytes",
                    backend->kernel_count, stride);
  loaded->kernels = calloc((size_t)backend->kernel_count + 1, sizeof *loaded->kernels);
  if (!loaded->kernels)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for %u kernel records",
                    backend->kernel_count);
  for (uint32_t i = 0; i < backend->kernel_count; i++) {
    iso_kernel *kernel = &loaded->kernels[kept];
    uint32_t size;
    memcpy(&size, source + (size_t)i * stride, sizeof size);
    if (size > stride)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "kernel %u has %u bytes, and the next one begins after %u: kernel_stride "
                      "is the size of the record",
                      i, size, stride);
    iso_abi_copy(kernel, sizeof *kernel, source + (size_t)i * stride);
    if ((unsigned)kernel->op >= ISO_OP_COUNT)
      continue; /* an op of a newer version */
    ISO_TRY(check_kernel(kernel, i));
    kept++;
  }
  for (uint32_t i = 0; i < kept; i++)
    ISO_TRY(check_packer(loaded->kernels, kept, &loaded->kernels[i]));
  backend->kernels = loaded->kernels;
  backend->kernel_count = kept;
  backend->kernel_stride = sizeof *loaded->kernels;
  return ISO_OK;
}

static iso_status adopt(const iso_backend *source, iso_loaded_backend *loaded) {
  if (source->abi >> 16 != ISO_ABI_MAJOR)
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    "the backend speaks ABI %u.%u, this Isomer %u.%u; their first numbers must "
                    "agree, so one of them must be rebuilt",
                    source->abi >> 16, source->abi & 0xffff, ISO_ABI_MAJOR, ISO_ABI_MINOR);
  iso_abi_copy(&loaded->backend, sizeof loaded->backend, source);
  if (!is_backend_name(loaded->backend.name))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "the backend's name must be 1 to 31 of a-z, 0-9 and _");
  ISO_TRY(copy_tables(loaded));
  ISO_TRY(copy_kernels(loaded));
  return iso_defaults_install(loaded);
}

iso_status iso_backend_adopt(const iso_backend *source, iso_loaded_backend **out_backend) {
  iso_loaded_backend *loaded = calloc(1, sizeof *loaded);
  if (!loaded)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a backend");
  iso_status status = adopt(source, loaded);
  if (status != ISO_OK) {
    iso_backend_unload(loaded);
    return status;
  }
  *out_backend = loaded;
  return ISO_OK;
}

/* Entries fill static tables, which are copied here: one thread at a time. */
iso_status iso_backend_query(iso_backend_query_function query, iso_loaded_backend **out_backend) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  /* Stands when the backend refuses without a word. */
  (void)iso_fail(ISO_ERROR_UNSUPPORTED, "the backend refuses this host and gives no reason");
  pthread_mutex_lock(&lock);
  const iso_backend *backend = query(ISO_ABI_VERSION, &iso_core_host);
  iso_status status = backend ? iso_backend_adopt(backend, out_backend) : ISO_ERROR_UNSUPPORTED;
  pthread_mutex_unlock(&lock);
  return status;
}

/* A file name alone is a file of the current folder here, where dlopen() would look for it in the
 * system's folders. */
static void *open_path(const char *path) {
  char *here = strchr(path, '/') ? NULL : iso_file_join(".", path);
  void *library = dlopen(here ? here : path, RTLD_NOW | RTLD_LOCAL);
  free(here);
  return library;
}

static iso_status open_library(const char *path, void **out_library,
                               iso_loaded_backend **out_backend) {
  *out_library = open_path(path);
  if (!*out_library)
    return iso_fail(ISO_ERROR_NOT_FOUND, "%s", dlerror());
  void *symbol = dlsym(*out_library, ISO_BACKEND_ENTRY);
  if (!symbol)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "not an Isomer backend: it has no %s",
                    ISO_BACKEND_ENTRY);
  iso_backend_query_function query;
  memcpy(&query, &symbol, sizeof query);
  return iso_backend_query(query, out_backend);
}

iso_status iso_backend_open_library(const char *path, iso_loaded_backend **out_backend) {
  void *library = NULL;
  iso_status status = open_library(path, &library, out_backend);
  if (status == ISO_OK) {
    (*out_backend)->library = library;
    return ISO_OK;
  }
  /* The sentence is stored, so the library and its strings may go. */
  if (library)
    dlclose(library);
  return iso_fail_context(status, "backend %s", path);
}

void iso_backend_unload(iso_loaded_backend *backend) {
  if (!backend)
    return;
  void *library = backend->library;
  free(backend->kernels);
  free(backend);
  if (library)
    dlclose(library);
}
