/* Steps that are replayed: where a whole step is one device's work and its queue can record, the
 * second run at the same sizes records it, and later ones replay the recording. What a launch is
 * told depends on the sizes alone, copies on the step's place among those under way and on what it
 * takes from the one before, and all buffers stay where they are: so a recording is good for as
 * long as the executor lives. */
#include "core/backend_call.h"
#include "core/device.h"
#include "core/executor.h"
#include "core/log.h"
#include <stdio.h>
#include <string.h>

iso_open_device *iso_executor_find_recorder(const iso_executor *executor) {
  int32_t index = iso_executor_only_device(executor->plan);
  if (index < 0)
    return NULL;
  iso_open_device *device = executor->devices[index].open;
  /* Inputs must go the way of a copy: what the host writes in place cannot be waited for. */
  return device->can_record && executor->devices[index].input_staging[0] ? device : NULL;
}

/* The entry of this work; else the one used longest ago, emptied and made its own. */
static executor_recording *find_entry(iso_executor *executor, const executor_work *work) {
  executor_recording *oldest = &executor->recordings[0];
  for (uint32_t i = 0; i < EXECUTOR_RECORDINGS; i++) {
    executor_recording *entry = &executor->recordings[i];
    if (entry->last_use > 0 && memcmp(&entry->work, work, sizeof *work) == 0)
      return entry;
    if (entry->last_use < oldest->last_use)
      oldest = entry;
  }
  if (oldest->recording)
    executor->recorder->queue_table.recording_destroy(executor->recorder->queue, oldest->recording);
  *oldest = (executor_recording){.work = *work};
  return oldest;
}

/* Records the steps, if that can be done: a queue that cannot after all is not asked again, nor is
 * one for work that cannot be launched while it is recorded. Such work runs as it would have, which
 * tells whether it can be done at all. */
static void record(iso_executor *executor, executor_recording *entry,
                   executor_steps_function run_steps) {
  iso_open_device *device = executor->recorder;
  iso_status status = iso_device_record_begin(device), launched = ISO_OK;
  char message[1024] = "";
  if (status == ISO_OK) {
    launched = run_steps(executor);
    snprintf(message, sizeof message, "%s", iso_status_message());
    status = iso_device_record_end(device, &entry->recording);
  }
  if (launched != ISO_OK) {
    if (status == ISO_OK)
      device->queue_table.recording_destroy(device->queue, entry->recording);
    entry->recording = NULL;
    entry->is_refused = true;
    iso_log(ISO_LOG_DEBUG, "%s: a step is not recorded: %s", device->spec, message);
  } else if (status != ISO_OK) {
    iso_executor_release_recordings(executor);
    executor->recorder = NULL;
    iso_log(ISO_LOG_NOTICE, "%s: steps are not recorded: %s", device->spec, iso_status_message());
  }
}

iso_status iso_executor_run_recorded(iso_executor *executor, executor_steps_function run_steps) {
  iso_open_device *device = executor->recorder;
  if (!device || executor->observer || executor->work.n_feeds > EXECUTOR_RECORDED_FEEDS)
    return run_steps(executor);
  executor_recording *entry = find_entry(executor, &executor->work);
  bool is_first = entry->last_use == 0;
  entry->last_use = ++executor->recording_clock;
  if (!is_first && !entry->recording && !entry->is_refused)
    record(executor, entry, run_steps);
  if (entry->recording)
    return iso_device_replay(device, entry->recording);
  iso_status status = run_steps(executor);
  if (status != ISO_OK) /* either way: says nothing of recordings */
    entry->is_refused = false;
  return status;
}

void iso_executor_release_recordings(iso_executor *executor) {
  for (uint32_t i = 0; i < EXECUTOR_RECORDINGS && executor->recorder; i++) {
    executor_recording *entry = &executor->recordings[i];
    if (entry->recording)
      executor->recorder->queue_table.recording_destroy(executor->recorder->queue,
                                                        entry->recording);
    *entry = (executor_recording){0};
  }
}
