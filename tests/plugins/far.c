/* The host backend with memory that the host cannot look into, for tests of what discrete devices
 * need: staged copies, and tokens drawn on the device. */
#include <isomer/reference.h>

#define ISO_FEATURE_HOST_MEMORY 0u
#define HOST_BACKEND_LIBRARY
#define HOST_BACKEND_NAME "far"
#include "backends/host/host.c"
