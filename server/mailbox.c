#include "server/mailbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct iso_mailbox {
  pthread_mutex_t lock;
  iso_letter *first, **last;
  bool is_woken; /* and has not come yet */
  int wake;      /* an eventfd */
  struct event *event;
};

static void deliver_all(iso_mailbox *mailbox) {
  pthread_mutex_lock(&mailbox->lock);
  iso_letter *letter = mailbox->first;
  mailbox->first = NULL;
  mailbox->last = &mailbox->first;
  mailbox->is_woken = false;
  pthread_mutex_unlock(&mailbox->lock);
  while (letter) {
    iso_letter *next = letter->next;
    letter->deliver(letter);
    letter = next;
  }
}

static void on_wake(evutil_socket_t descriptor, short what, void *context) {
  uint64_t count;
  (void)what;
  (void)!read(descriptor, &count, sizeof count);
  deliver_all(context);
}

iso_status iso_mailbox_create(struct event_base *base, iso_mailbox **out_mailbox) {
  iso_mailbox *mailbox = calloc(1, sizeof *mailbox);
  if (!mailbox)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a mailbox");
  mailbox->last = &mailbox->first;
  pthread_mutex_init(&mailbox->lock, NULL);
  mailbox->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (mailbox->wake >= 0)
    mailbox->event = event_new(base, mailbox->wake, EV_READ | EV_PERSIST, on_wake, mailbox);
  if (!mailbox->event || event_add(mailbox->event, NULL) != 0) {
    iso_mailbox_destroy(mailbox);
    return iso_fail(ISO_ERROR_IO, "no event descriptor: %s", strerror(errno));
  }
  *out_mailbox = mailbox;
  return ISO_OK;
}

void iso_mailbox_destroy(iso_mailbox *mailbox) {
  if (!mailbox)
    return;
  deliver_all(mailbox);
  if (mailbox->event)
    event_free(mailbox->event);
  if (mailbox->wake >= 0)
    close(mailbox->wake);
  pthread_mutex_destroy(&mailbox->lock);
  free(mailbox);
}

static void put(iso_mailbox *mailbox, iso_letter *letter) {
  letter->next = NULL;
  *mailbox->last = letter;
  mailbox->last = &letter->next;
}

static void wake(iso_mailbox *mailbox) {
  static const uint64_t one = 1;
  if (mailbox->first && !mailbox->is_woken)
    (void)!write(mailbox->wake, &one, sizeof one);
  mailbox->is_woken = mailbox->first != NULL;
}

void iso_mailbox_put(iso_mailbox *mailbox, iso_letter *letter) {
  pthread_mutex_lock(&mailbox->lock);
  put(mailbox, letter);
  pthread_mutex_unlock(&mailbox->lock);
}

void iso_mailbox_wake(iso_mailbox *mailbox) {
  pthread_mutex_lock(&mailbox->lock);
  wake(mailbox);
  pthread_mutex_unlock(&mailbox->lock);
}

void iso_mailbox_post(iso_mailbox *mailbox, iso_letter *letter) {
  pthread_mutex_lock(&mailbox->lock);
  put(mailbox, letter);
  /* Under the lock: once it is released, the loop may deliver the last letter and destroy us. */
  wake(mailbox);
  pthread_mutex_unlock(&mailbox->lock);
}
