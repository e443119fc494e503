/* A few threads for work that would hold up the event loop: parsing and tokenizing large bodies. */
#ifndef ISOMER_SERVER_WORKERS_H
#define ISOMER_SERVER_WORKERS_H

#include <isomer/status.h>

typedef struct iso_workers iso_workers;

/* Embedded in what is worked on. `run` is called once, on some worker. */
typedef struct iso_work {
  struct iso_work *next;
  void (*run)(struct iso_work *work);
} iso_work;

ISO_MUST_CHECK iso_status iso_workers_create(int n_threads, iso_workers **out_workers);
/* Finishes the work at hand, then the threads. */
void iso_workers_destroy(iso_workers *workers);
void iso_workers_submit(iso_workers *workers, iso_work *work);
/* Whether the work had not begun; it is then the caller's again and will not be run. For what
 * nobody waits for any more: it must not hold memory in the queue, nor a thread later. */
bool iso_workers_take_back(iso_workers *workers, iso_work *work);

#endif
