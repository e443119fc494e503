/* Every record of the CPU backend, of all instruction tiers that this machine has. */
#define CONFORM_DEVICE "cpu"
#include "tests/cts/conform_device.h"
