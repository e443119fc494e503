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
#include "bench/kernels/cpu_tiles.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#define THREADS 2
#define MAX_TASKS 64

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
