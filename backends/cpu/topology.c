/* How many threads this process should run: affinity, core siblings and control-group quota. */
#include "backends/cpu/threads.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Lowest CPU that shares a core with `cpu`, or `cpu` itself where the system does not say. */
static int first_sibling(int cpu) {
  char path[96];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
  FILE *file = fopen(path, "re");
  int first = cpu;
  if (file) {
    if (fscanf(file, "%d", &first) != 1)
      first = cpu;
    fclose(file);
  }
  return first;
}

/* CPUs' worth of time that a control group grants, rounded up; UINT32_MAX without a limit.
 * cgroup v2 has "quota period" or "max period" in one file, v1 has two files. */
static uint32_t quota_cpus(void) {
  double quota = -1, period = 0;
  FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
  if (file) {
    if (fscanf(file, "%lf %lf", &quota, &period) != 2)
      quota = -1;
    fclose(file);
  } else if ((file = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re"))) {
    if (fscanf(file, "%lf", &quota) != 1)
      quota = -1;
    fclose(file);
    if ((file = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "re"))) {
      if (fscanf(file, "%lf", &period) != 1)
        quota = -1;
      fclose(file);
    }
  }
  if (quota <= 0 || period <= 0 || quota / period > ISO_CPU_MAX_THREADS)
    return UINT32_MAX;
  uint32_t whole = (uint32_t)(quota / period);
  return whole + (whole < quota / period);
}

uint32_t iso_cpu_default_threads(uint32_t *out_n_cpus) {
  uint32_t n_cpus = 0, n_cores = 0;
  enum { MAX_CPUS = 8192 };
  cpu_set_t *allowed = CPU_ALLOC(MAX_CPUS), *seen = CPU_ALLOC(MAX_CPUS);
  size_t bytes = CPU_ALLOC_SIZE(MAX_CPUS);
  if (allowed && seen && sched_getaffinity(0, bytes, allowed) == 0) {
    CPU_ZERO_S(bytes, seen);
    for (int cpu = 0; cpu < MAX_CPUS; cpu++) {
      if (!CPU_ISSET_S(cpu, bytes, allowed))
        continue;
      n_cpus++;
      int core = first_sibling(cpu);
      if (core < 0 || core >= MAX_CPUS || CPU_ISSET_S(core, bytes, seen))
        continue;
      CPU_SET_S(core, bytes, seen);
      n_cores++;
    }
  }
  CPU_FREE(allowed);
  CPU_FREE(seen);
  if (!n_cpus) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    n_cpus = n_cores = online > 0 ? (uint32_t)online : 1;
  }
  uint32_t quota = quota_cpus();
  *out_n_cpus = n_cpus;
  uint32_t threads = n_cores < quota ? n_cores : quota;
  return threads < 1 ? 1 : threads < ISO_CPU_MAX_THREADS ? threads : ISO_CPU_MAX_THREADS;
}
