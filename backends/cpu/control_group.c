/* A limit of any group between this process's own and the root holds, so all are read and the
 * least counts. Version 2 has one tree with all files; version 1 has a tree a controller. Inside a
 * container the path of a group may be the host's, of which only the root is there to be read. */
#include "backends/cpu/control_group.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PATH_CAPACITY 1024

/* Where a tree is mounted, and what stands for it in /proc/self/cgroup, as "0::/a/b" or
 * "4:cpu,cpuacct:/a/b". */
typedef struct group_tree {
  const char *root, *controller;
} group_tree;

static const group_tree VERSION_2 = {"/sys/fs/cgroup", ""};
static const group_tree VERSION_1_CPU = {"/sys/fs/cgroup/cpu", "cpu"};
static const group_tree VERSION_1_MEMORY = {"/sys/fs/cgroup/memory", "memory"};

/* Whether a comma-separated list has a word; "" is only in the empty list. */
static bool has_word(const char *list, const char *word) {
  size_t length = strlen(word);
  for (;; list += strcspn(list, ",") + 1) {
    if (strcspn(list, ",") == length && strncmp(list, word, length) == 0)
      return true;
    if (!strchr(list, ','))
      return false;
  }
}

/* Path of the process's group below the root of a tree: "" is the root itself. */
static void own_group(const group_tree *tree, char *out_path) {
  FILE *file = fopen("/proc/self/cgroup", "re");
  char line[PATH_CAPACITY];
  out_path[0] = '\0';
  while (file && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'),
         *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
      continue;
    *path++ = '\0';
    if (has_word(controllers + 1, tree->controller) && strcmp(path, "/") != 0)
      snprintf(out_path, PATH_CAPACITY, "%s", path);
  }
  if (file)
    fclose(file);
}

/* Up to two numbers of a group's file; the count of those found. "max" is not a number. */
static int read_numbers(const group_tree *tree, const char *group, const char *name,
                        double *out_first, double *out_second) {
  char path[2 * PATH_CAPACITY];
  snprintf(path, sizeof path, "%s%s/%s", tree->root, group, name);
  FILE *file = fopen(path, "re");
  int found = file ? fscanf(file, "%lf %lf", out_first, out_second) : 0;
  if (file)
    fclose(file);
  return found < 0 ? 0 : found;
}

/* The one number of a file; infinite without one, so that it limits nothing. */
static double read_number(const group_tree *tree, const char *group, const char *name) {
  double number, none;
  return read_numbers(tree, group, name, &number, &none) >= 1 ? number : INFINITY;
}

/* ---- What one group grants; infinite without a limit ---------------------------------------- */

typedef double (*group_limit)(const char *group);

static double cpus(const char *group) {
  double quota, period;
  int found = read_numbers(&VERSION_2, group, "cpu.max", &quota, &period);
  return found == 2 && period > 0 ? quota / period : INFINITY;
}

static double cpus_1(const char *group) {
  double quota = read_number(&VERSION_1_CPU, group, "cpu.cfs_quota_us");
  double period = read_number(&VERSION_1_CPU, group, "cpu.cfs_period_us");
  return quota > 0 && period > 0 && !isinf(period) ? quota / period : INFINITY;
}

static double bytes(const char *group) { return read_number(&VERSION_2, group, "memory.max"); }

static double bytes_1(const char *group) {
  return read_number(&VERSION_1_MEMORY, group, "memory.limit_in_bytes");
}

/* Bytes of a group that hold files and can be had for the asking. */
static double file_bytes(const group_tree *tree, const char *group) {
  char path[2 * PATH_CAPACITY], name[64];
  double total = 0, number;
  snprintf(path, sizeof path, "%s%s/memory.stat", tree->root, group);
  FILE *file = fopen(path, "re");
  while (file && fscanf(file, "%63s %lf", name, &number) == 2)
    if (strcmp(name, "inactive_file") == 0 || strcmp(name, "active_file") == 0)
      total += number;
  if (file)
    fclose(file);
  return total;
}

/* What is left of a limit; all of it where the system does not say how much is in use. */
static double left(const group_tree *tree, const char *group, double limit, const char *usage) {
  double used = read_number(tree, group, usage);
  if (isinf(limit) || isinf(used))
    return limit;
  return fmin(limit, fmax(0, limit - used + file_bytes(tree, group)));
}

static double bytes_left(const char *group) {
  return left(&VERSION_2, group, bytes(group), "memory.current");
}

static double bytes_left_1(const char *group) {
  return left(&VERSION_1_MEMORY, group, bytes_1(group), "memory.usage_in_bytes");
}

/* ---- The least of all groups ---------------------------------------------------------------- */

static double least_of(const group_tree *tree, group_limit limit) {
  char group[PATH_CAPACITY];
  double value = INFINITY;
  for (own_group(tree, group);; *strrchr(group, '/') = '\0') {
    value = fmin(value, limit(group));
    if (!strchr(group, '/'))
      return value;
  }
}

uint32_t iso_cpu_group_cpus(void) {
  double least = fmin(least_of(&VERSION_2, cpus), least_of(&VERSION_1_CPU, cpus_1));
  return least < UINT32_MAX ? (uint32_t)ceil(least) : UINT32_MAX;
}

static uint64_t least_bytes(group_limit limit, group_limit limit_1) {
  double least = fmin(least_of(&VERSION_2, limit), least_of(&VERSION_1_MEMORY, limit_1));
  return least < 0x1p63 ? (uint64_t)least : UINT64_MAX;
}

uint64_t iso_cpu_group_memory(void) { return least_bytes(bytes, bytes_1); }

uint64_t iso_cpu_group_memory_free(void) { return least_bytes(bytes_left, bytes_left_1); }
