/* Letters from other threads to the thread of the event loop. */
#ifndef ISOMER_SERVER_MAILBOX_H
#define ISOMER_SERVER_MAILBOX_H

#include <event2/event.h>
#include <isomer/status.h>

/* Embedded first in what is sent. `deliver` runs on the loop's thread and frees the letter. */
typedef struct iso_letter {
  struct iso_letter *next;
  void (*deliver)(struct iso_letter *letter);
} iso_letter;

typedef struct iso_mailbox iso_mailbox;

ISO_MUST_CHECK iso_status iso_mailbox_create(struct event_base *base, iso_mailbox **out_mailbox);
/* No thread may post any more. Letters still there are delivered. */
void iso_mailbox_destroy(iso_mailbox *mailbox);
/* Never blocks for longer than a push. In order, from any thread. The letter lies there until the
 * loop is woken. */
void iso_mailbox_put(iso_mailbox *mailbox, iso_letter *letter);
/* Wakes the loop where letters wait. */
void iso_mailbox_wake(iso_mailbox *mailbox);
/* Puts and wakes. */
void iso_mailbox_post(iso_mailbox *mailbox, iso_letter *letter);

#endif
