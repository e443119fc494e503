/* A device's values against a judge's trace. */
#ifndef ISOMER_TOOLS_VERIFY_COMPARE_H
#define ISOMER_TOOLS_VERIFY_COMPARE_H

#include "tools/verify_run.h"

/* One output of one node in one step, judged.
 *
 * The tolerance of a value follows from the storage types and from the depth. Each op may round:
 * by its arithmetic, activations to the type of its weights (8 bits for block-quantized ones), keys
 * and values to the type of the cache. How much that may be on the inputs of this very run is known
 * from each device's check against the reference (iso_verify_local.rounding). Such errors are
 * independent, so what has come together at a value is the root of the sum of their squares over
 * all ops before it, the judge's included. ISO_VERIFY_ALLOWANCE times that is allowed, since a
 * model's layers may enlarge what they are given, but never more than ISO_VERIFY_MOST: beyond it,
 * rounding would leave no model usable. */
typedef struct iso_verify_entry {
  char name[ISO_TRACE_NAME], op[32], kernel[ISO_TRACE_NAME];
  char shapes[128];
  uint32_t step;
  int32_t node, layer;
  bool is_compared; /* false: a state, integers, or nothing to compare with */
  double error;     /* root mean square over rows of each row's error relative to the judge's row */
  double worst_row; /* the largest of them */
  double tolerance; /* of `error` */
  iso_verify_local local;
} iso_verify_entry;

#define ISO_VERIFY_ALLOWANCE 4.0
#define ISO_VERIFY_MOST 0.25

enum { ISO_VERIFY_PLACE = 160 };

/* Sequences of one device beside each other, against each of them alone: see verify_beside.h. */
typedef struct iso_verify_beside {
  bool is_checked;
  int32_t n_sequences, n_steps; /* steps with several of them */
  int32_t shortest, longest;    /* prompts, in tokens */
  int32_t n_rows, n_agree;      /* rows of logits, and those whose likeliest token is the same */
  double error, tolerance;      /* of a row relative to the one alone: the largest, and the bound */
  char worst[ISO_VERIFY_PLACE]; /* where that is */
  int32_t n_wrong;              /* rows beyond it, or from which another token was drawn */
  char detail[2 * ISO_VERIFY_PLACE]; /* of the first of them */
} iso_verify_beside;

typedef struct iso_verify_result {
  char device[80];
  char description[512];
  int32_t n_layers;
  bool has_judge; /* false: only checked against the reference */
  iso_verify_entry *entries;
  uint32_t n_entries, capacity;
  uint32_t n_absent; /* values that the judge's trace lacks */
  double rounding2;  /* sum of squares so far in this step, both devices */
  /* Logits, over all rows of the prompt. */
  int32_t n_rows, n_agree; /* rows, and those whose likeliest token is the judge's */
  double divergence_sum, divergence_worst; /* Kullback-Leibler, judge to device, in nats */
  /* Greedy tokens after the prompt. */
  int32_t n_output, first_difference; /* -1: none */
  int32_t judge_token, token;         /* there */
  double judge_margin;                /* between the judge's two likeliest logits there */
  float *last_logits;                 /* behind the prompt */
  iso_verify_beside beside;
} iso_verify_result;

/* A run's receiver: collects entries and logits, compared with `judge` where that is not NULL, and
 * writes a trace to `path` where that is not NULL. */
typedef struct iso_verify_collector {
  const iso_model *model;
  const iso_verify_prompt *prompt;
  const iso_trace *judge;
  const char *path;
  iso_verify_result *result;
  iso_trace_writer *writer;
  uint32_t step, n_steps; /* `step` of the current one */
  uint32_t hint;
} iso_verify_collector;

iso_verify_visitor iso_verify_collect(iso_verify_collector *collector);
/* After the run, failed or not. */
void iso_verify_collector_finish(iso_verify_collector *collector);
void iso_verify_result_free(iso_verify_result *result);

/* The first value beyond its tolerance, and the first op that is wrong by itself; NULL: none. */
const iso_verify_entry *iso_verify_first_beyond(const iso_verify_result *result);
const iso_verify_entry *iso_verify_first_wrong(const iso_verify_result *result);

/* Relative error of one row; infinite where either holds what is no number. */
double iso_verify_row_error(const float *got, const float *want, int64_t n);

/* FNV-1a of the names, shapes and schemes of a model's tensors, and the size of its adapters. */
uint64_t iso_verify_fingerprint(const iso_model *model, const iso_adapter_list *adapters);

#endif
