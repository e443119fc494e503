/* Runs a program whose two busiest threads are kept on CPUs that have a core to themselves: on a
 * virtual machine a CPU may be half of a core that another guest uses too, and tiles then take
 * twice as long, for seconds (backends/cpu/README.md).
 *
 *   cpu_whole_cores COMMAND...
 *
 * Every 20 ms products of tiles are timed for some microseconds on each CPU that it may run on
 * (taskset), those of the program included, and a thread on a slow one is moved to the fastest. At
 * the end it says how often there was none. Alone:
 *
 *   gcc -O3 -march=sapphirerapids -I. bench/kernels/cpu_whole_cores.c */
#define _GNU_SOURCE
#include "backends/cpu/matmul/tiles.h"

#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 2
#define MAX_TASKS 64
#define TILE 1024
#define MAX_CPUS 64
/* Of the fastest time, below which a CPU has a core to itself. */
#define FAST 1.25

static int cpus[MAX_CPUS], n_cpus;
/* The least time of a product with loads that was seen, ns. */
static double fastest = 1e9;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pin(int thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(thread, sizeof set, &set);
}

/* Lists the CPUs and asks for leave to use tiles. */
static void begin_cpus(void) {
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
  syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA);
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  for (int i = 0; i < CPU_SETSIZE && n_cpus < MAX_CPUS; i++)
    if (CPU_ISSET(i, &set))
      cpus[n_cpus++] = i;
}

/* ns a product of int8 with its loads, both sides in the first level: some 7 on a core of its own,
 * twice that while another thread has the other half. */
static double time_loads(int rounds) {
  static _Thread_local _Alignas(64) uint8_t tiles[20 * TILE];
  memset(tiles, 1, sizeof tiles);
  tile_begin();
  tile_zero(0);
  tile_zero(1);
  tile_zero(2);
  tile_zero(3);
  tile_fence();
  double start = now();
  for (int i = 0; i < rounds; i++) {
    const uint8_t *at = tiles + i % 4 * 4 * TILE;
    tile_load(4, tiles + 16 * TILE + i % 4 * TILE, 64);
    tile_load(5, at, 64);
    tile_dot_int8(0, 4, 5);
    tile_load(5, at + TILE, 64);
    tile_dot_int8(1, 4, 5);
    tile_load(5, at + 2 * TILE, 64);
    tile_dot_int8(2, 4, 5);
    tile_load(5, at + 3 * TILE, 64);
    tile_dot_int8(3, 4, 5);
  }
  uint8_t out[TILE];
  tile_store(0, out, 64);
  double time = now() - start;
  tile_end();
  return 1e9 * time / (4.0 * rounds);
}

/* The time on the CPU where this thread is; remembers the least. */
static double look_at_cpu(int rounds) {
  time_loads(rounds / 4);
  double time = time_loads(rounds);
  fastest = time < fastest ? time : fastest;
  return time;
}

typedef struct task {
  int id, cpu; /* 0: none; -1: where it likes */
  long ticks, busy;
} task;

/* Reads the CPU time of all threads of a process; `busy` is what was used since. */
static void read_tasks(int process, task *tasks) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", process);
  DIR *folder = opendir(path);
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    int id = atoi(entry->d_name), i = 0;
    char name[96];
    long ran = 0, waited = 0;
    while (i < MAX_TASKS && tasks[i].id && tasks[i].id != id)
      i++;
    snprintf(name, sizeof name, "%s/%d/schedstat", path, id);
    FILE *file = id && i < MAX_TASKS ? fopen(name, "r") : NULL;
    if (!file)
      continue;
    if (fscanf(file, "%ld %ld", &ran, &waited) == 2) {
      tasks[i].busy = tasks[i].id ? ran - tasks[i].ticks : 0;
      if (!tasks[i].id)
        tasks[i].cpu = -1;
      tasks[i].id = id;
      tasks[i].ticks = ran;
    }
    fclose(file);
  }
  if (folder)
    closedir(folder);
}

/* Moves the two busiest threads off CPUs that are slow; false if one stays on such a CPU. */
static bool move_tasks(task *tasks) {
  double times[MAX_CPUS];
  bool all_fast = true;
  for (int i = 0; i < n_cpus; i++) {
    pin(0, cpus[i]);
    times[i] = look_at_cpu(300);
  }
  task *chosen[THREADS] = {NULL};
  for (int t = 0; t < THREADS; t++)
    for (int i = 0; i < MAX_TASKS; i++)
      if (tasks[i].id && &tasks[i] != chosen[0] && tasks[i].busy > 2000000 &&
          (!chosen[t] || tasks[i].busy > chosen[t]->busy))
        chosen[t] = &tasks[i];
  for (int t = 0; t < THREADS; t++) {
    const task *other = chosen[!t];
    int best = -1;
    bool stays = false;
    for (int i = 0; chosen[t] && i < n_cpus; i++) {
      if (other && other->cpu == cpus[i])
        continue;
      stays = stays || (cpus[i] == chosen[t]->cpu && times[i] < FAST * fastest);
      if (best < 0 || times[i] < times[best])
        best = i;
    }
    if (best < 0 || stays)
      continue;
    chosen[t]->cpu = cpus[best];
    pin(chosen[t]->id, cpus[best]);
    all_fast = all_fast && times[best] < FAST * fastest;
  }
  return all_fast;
}

static int run_command(char **command) {
  static task tasks[MAX_TASKS];
  int process = fork(), status = 0, looks = 0, fast = 0;
  if (process == 0) {
    execvp(command[0], command);
    _exit(127);
  }
  usleep(300000); /* it starts its threads where it likes */
  while (waitpid(process, &status, WNOHANG) == 0) {
    read_tasks(process, tasks);
    fast += move_tasks(tasks);
    looks++;
    usleep(20000);
  }
  fprintf(stderr, "found no fast CPU at %d of %d looks\n", looks - fast, looks);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: cpu_whole_cores COMMAND...\n");
    return 2;
  }
  begin_cpus();
  return run_command(argv + 1);
}
