/* What the benchmarks of AMX tiles share: CPUs that they may run on, and how quick those are now.
 */
#ifndef ISOMER_BENCH_KERNELS_CPU_TILES_H
#define ISOMER_BENCH_KERNELS_CPU_TILES_H

#include "backends/cpu/matmul/tiles.h"

#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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

#endif
