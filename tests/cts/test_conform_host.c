/* Trivially equal to the reference: what this shows is that the grid itself is sound. */
#define CONFORM_DEVICE "host"
#include "tests/cts/conform_device.h"
