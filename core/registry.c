/* The set of backends: linked in, found in folders, loaded by path. */
#include "core/registry.h"
#include "core/backend_call.h"
#include "core/file.h"
#include "core/log.h"
#include "core/printer.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More devices than this are not listed. */
enum { MAX_LISTED_DEVICES = 64, NAME_BYTES = 32, REASON_BYTES = 256 };

typedef struct registry_entry {
  char name[NAME_BYTES];
  iso_loaded_backend *backend; /* NULL: refused, `reason` says why */
  bool is_chosen;              /* the library that was named: others of this name are passed over */
  char reason[REASON_BYTES];
} registry_entry;

struct iso_registry {
  registry_entry **entries; /* each stays where it is: listings point to names */
  uint32_t count;
};

#define ISO_BACKEND(query) const iso_backend *query(uint32_t host_abi, const iso_host *host);
#include "core/backends.def"
#undef ISO_BACKEND

static const iso_backend_query_function linked_in[] = {
#define ISO_BACKEND(query) query,
#include "core/backends.def"
#undef ISO_BACKEND
};

static registry_entry *find(iso_registry *registry, const char *name) {
  for (uint32_t i = 0; i < registry->count; i++)
    if (strcmp(registry->entries[i]->name, name) == 0)
      return registry->entries[i];
  return NULL;
}

static registry_entry *append_entry(iso_registry *registry, const char *name) {
  registry_entry **grown =
      realloc(registry->entries, (registry->count + 1) * sizeof *registry->entries);
  registry_entry *entry = grown ? calloc(1, sizeof *entry) : NULL;
  if (grown)
    registry->entries = grown;
  if (!entry)
    return NULL;
  snprintf(entry->name, sizeof entry->name, "%s", name);
  registry->entries[registry->count++] = entry;
  return entry;
}

/* Takes the backend over, also on failure. A backend takes the place of a refused one. */
static iso_status add_backend(iso_registry *registry, iso_loaded_backend *backend, const char *name,
                              const char *reason) {
  registry_entry *entry = find(registry, name);
  iso_status status = ISO_OK;
  if (entry && (entry->backend || !backend))
    status = iso_fail(ISO_ERROR_INVALID_ARGUMENT, "there already is a backend %s", name);
  else if (!entry && !(entry = append_entry(registry, name)))
    status = iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a backend");
  if (status != ISO_OK) {
    iso_backend_unload(backend);
    return status;
  }
  snprintf(entry->reason, sizeof entry->reason, "%s", reason);
  entry->backend = backend;
  return ISO_OK;
}

iso_status iso_registry_add(iso_registry *registry, const iso_backend *backend) {
  iso_loaded_backend *loaded;
  ISO_TRY(iso_backend_adopt(backend, &loaded));
  return add_backend(registry, loaded, loaded->backend.name, "");
}

iso_status iso_registry_load(iso_registry *registry, const char *path) {
  iso_loaded_backend *loaded;
  ISO_TRY(iso_backend_open_library(path, &loaded));
  return iso_fail_context(add_backend(registry, loaded, loaded->backend.name, ""), "backend %s",
                          path);
}

/* ---- Folders ----------------------------------------------------------------------------- */

static const char prefix[] = "libisomer-", suffix[] = ".so";

/* The <name> of libisomer-<name>.so; false for other files. */
static bool name_of_file(const char *file, char out_name[NAME_BYTES]) {
  size_t length = strlen(file), affixes = sizeof prefix - 1 + sizeof suffix - 1;
  if (length <= affixes || length - affixes >= NAME_BYTES ||
      strncmp(file, prefix, sizeof prefix - 1) != 0 ||
      strcmp(file + length - (sizeof suffix - 1), suffix) != 0)
    return false;
  snprintf(out_name, NAME_BYTES, "%.*s", (int)(length - affixes), file + sizeof prefix - 1);
  return true;
}

/* A library that is refused is remembered with its reason, so that asking for it says why. */
static iso_status load_found(iso_registry *registry, const char *folder, const char *file) {
  char name[NAME_BYTES];
  if (!name_of_file(file, name))
    return ISO_OK;
  const registry_entry *known = find(registry, name);
  if (known && known->is_chosen)
    return ISO_OK;
  char *path = iso_file_join(folder, file);
  if (!path)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a path");
  iso_status status = iso_registry_load(registry, path);
  free(path);
  if (status == ISO_OK)
    return ISO_OK;
  iso_log(ISO_LOG_WARNING, "%s", iso_status_message());
  char reason[REASON_BYTES];
  snprintf(reason, sizeof reason, "%s", iso_status_message());
  return find(registry, name) ? ISO_OK : add_backend(registry, NULL, name, reason);
}

static iso_status load_folder(iso_registry *registry, const char *folder) {
  struct dirent **files;
  int n = scandir(folder, &files, NULL, alphasort);
  if (n < 0) { /* a folder that is not there holds no backends */
    iso_log(ISO_LOG_WARNING, "no backends from the folder %s: %s", folder, strerror(errno));
    return ISO_OK;
  }
  iso_status status = ISO_OK;
  for (int i = 0; i < n; i++) {
    if (status == ISO_OK)
      status = load_found(registry, folder, files[i]->d_name);
    free(files[i]);
  }
  free(files);
  return status;
}

static iso_status load_search_path(iso_registry *registry) {
  const char *variable = getenv("ISOMER_BACKEND_PATH");
  char *folders = strdup(variable ? variable : "");
  if (!folders)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a path");
  iso_status status = ISO_OK;
  char *rest = NULL;
  for (char *folder = strtok_r(folders, ":", &rest); folder && status == ISO_OK;
       folder = strtok_r(NULL, ":", &rest))
    status = load_folder(registry, folder);
  free(folders);
  return status;
}

/* Loads folder/name; false in *out_there when there is no such folder. */
static iso_status load_subfolder(iso_registry *registry, const char *folder, const char *name,
                                 bool *out_there) {
  char *path = iso_file_join(folder, name);
  if (!path)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a path");
  DIR *opened = opendir(path);
  *out_there = opened != NULL;
  if (opened)
    closedir(opened);
  iso_status status = *out_there ? load_folder(registry, path) : ISO_OK;
  free(path);
  return status;
}

/* "isomer" beside the file that holds this code: <libdir>/isomer for an installed library. A
 * program that holds it, such as the installed tool, finds the same folder from where it is. */
static iso_status load_own_folder(iso_registry *registry) {
  Dl_info self;
  if (!dladdr((const void *)&iso_core_host, &self) || !self.dli_fname)
    return ISO_OK;
  const char *slash = strrchr(self.dli_fname, '/');
  if (!slash)
    return ISO_OK;
  char *folder = strndup(self.dli_fname, (size_t)(slash - self.dli_fname));
  if (!folder)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a path");
  bool there = false;
  iso_status status = load_subfolder(registry, folder, "isomer", &there);
  if (status == ISO_OK && !there)
    status = load_subfolder(registry, folder, ISO_BACKENDS_FROM_PROGRAMS, &there);
  free(folder);
  return status;
}

/* After what is linked in, to whose names it has no right. */
static iso_status load_chosen(iso_registry *registry, const char *library) {
  ISO_TRY(iso_registry_load(registry, library));
  registry->entries[registry->count - 1]->is_chosen = true;
  return ISO_OK;
}

iso_status iso_registry_create_with(const char *library, iso_registry **out_registry) {
  iso_registry *registry = calloc(1, sizeof *registry);
  if (!registry)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for the backend registry");
  iso_status status = ISO_OK;
  for (size_t i = 0; i < sizeof linked_in / sizeof *linked_in && status == ISO_OK; i++) {
    iso_loaded_backend *loaded;
    status = iso_backend_query(linked_in[i], &loaded);
    if (status == ISO_OK)
      status = add_backend(registry, loaded, loaded->backend.name, "");
  }
  if (status == ISO_OK && library)
    status = load_chosen(registry, library);
  if (status == ISO_OK)
    status = load_search_path(registry);
  if (status == ISO_OK)
    status = load_own_folder(registry);
  if (status != ISO_OK) {
    iso_registry_destroy(registry);
    return status;
  }
  *out_registry = registry;
  return ISO_OK;
}

iso_status iso_registry_create(iso_registry **out_registry) {
  return iso_registry_create_with(NULL, out_registry);
}

void iso_registry_destroy(iso_registry *registry) {
  if (!registry)
    return;
  for (uint32_t i = 0; i < registry->count; i++) {
    iso_backend_unload(registry->entries[i]->backend);
    free(registry->entries[i]);
  }
  free(registry->entries);
  free(registry);
}

/* ---- Asking ------------------------------------------------------------------------------ */

iso_status iso_registry_find(iso_registry *registry, const char *name,
                             const iso_loaded_backend **out_backend) {
  const registry_entry *entry = find(registry, name);
  if (entry && entry->backend) {
    *out_backend = entry->backend;
    return ISO_OK;
  }
  if (entry)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "%s cannot be used: %s", name, entry->reason);
  char known[512] = "";
  size_t used = 0;
  for (uint32_t i = 0; i < registry->count && used < sizeof known; i++)
    used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                             registry->entries[i]->name);
  return iso_fail(ISO_ERROR_NOT_FOUND,
                  "there is no backend \"%s\"; known are: %s; for another put the folder of its "
                  "libisomer-NAME.so into ISOMER_BACKEND_PATH",
                  name, *known ? known : "none");
}

static iso_status call_enumerate(const iso_loaded_backend *backend, uint32_t capacity,
                                 iso_device_info *infos, uint32_t *count, char *reason) {
  const char *name = backend->backend.name;
  iso_status status = ISO_BACKEND_CALL(name, "driver.enumerate",
                                       backend->driver.enumerate(capacity, infos, count, reason));
  reason[REASON_BYTES - 1] = 0;
  return iso_fail_context(status, "%s cannot list its devices", name);
}

iso_status iso_backend_enumerate(const iso_loaded_backend *backend, iso_device_info **out_infos,
                                 uint32_t *out_count, char *out_reason) {
  *out_infos = NULL;
  *out_count = 0;
  out_reason[0] = 0;
  uint32_t count = 0;
  ISO_TRY(call_enumerate(backend, 0, NULL, &count, out_reason));
  if (count == 0)
    return ISO_OK;
  uint32_t capacity = count < MAX_LISTED_DEVICES ? count : MAX_LISTED_DEVICES;
  /* A newer backend writes larger entries: there is room, and each tells its size. */
  char *raw = calloc(capacity, ISO_ABI_ROOM);
  iso_device_info *infos = calloc(capacity, sizeof *infos);
  iso_status status =
      raw && infos
          ? call_enumerate(backend, capacity, (iso_device_info *)(void *)raw, &count, out_reason)
          : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory to list devices");
  count = count < capacity ? count : capacity;
  uint32_t stride;
  if (status == ISO_OK && count > 0) {
    memcpy(&stride, raw, sizeof stride);
    if (stride < offsetof(iso_device_info, name) || stride > ISO_ABI_ROOM)
      status = iso_fail(ISO_ERROR_DEVICE, "%s describes devices in %u bytes", backend->backend.name,
                        stride);
    for (uint32_t i = 0; i < count && status == ISO_OK; i++)
      iso_abi_copy_info(&infos[i], raw + (size_t)i * stride);
  }
  free(raw);
  if (status != ISO_OK) {
    free(infos);
    return status;
  }
  *out_infos = infos;
  *out_count = count;
  return ISO_OK;
}

/* Appends the rows of one backend, at least one. */
static iso_status list_entry(const registry_entry *entry, iso_device_listing **listings,
                             uint32_t *count) {
  iso_device_info *infos = NULL;
  uint32_t n = 0;
  char reason[REASON_BYTES];
  memcpy(reason, entry->reason, sizeof reason);
  if (entry->backend && iso_backend_enumerate(entry->backend, &infos, &n, reason) != ISO_OK)
    snprintf(reason, sizeof reason, "%s", iso_status_message());
  uint32_t n_rows = n ? n : 1;
  iso_device_listing *grown = realloc(*listings, (*count + n_rows) * sizeof *grown);
  if (!grown) {
    free(infos);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory to list devices");
  }
  for (uint32_t i = 0; i < n_rows; i++) {
    iso_device_listing *row = &grown[*count + i];
    *row = (iso_device_listing){.backend = entry->name};
    if (n == 0) {
      snprintf(row->reason, sizeof row->reason, "%s", *reason ? reason : "no device found");
    } else {
      row->info = infos[i];
      snprintf(row->spec, sizeof row->spec, "%s:%u", entry->name, i);
    }
  }
  free(infos);
  *listings = grown;
  *count += n_rows;
  return ISO_OK;
}

iso_status iso_registry_list(iso_registry *registry, iso_device_listing **out_listings,
                             uint32_t *out_count) {
  iso_device_listing *listings = NULL;
  uint32_t count = 0;
  for (uint32_t i = 0; i < registry->count; i++) {
    iso_status status = list_entry(registry->entries[i], &listings, &count);
    if (status != ISO_OK) {
      free(listings);
      return status;
    }
  }
  *out_listings = listings;
  *out_count = count;
  return ISO_OK;
}
