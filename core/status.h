/* Failures of this thread, for the core. */
#ifndef ISOMER_CORE_STATUS_H
#define ISOMER_CORE_STATUS_H

#include <isomer/status.h>

/* How many sentences this thread has stored. A callee that fails and leaves the number as it was
 * gave no reason, and iso_status_message() is of another failure. */
uint64_t iso_status_count(void);

#endif
