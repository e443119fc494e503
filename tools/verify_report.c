#include "tools/verify_report.h"

#include "models/tokenizer/tokenizer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_OPS = 5, BAR = 20 };

const char *iso_verify_token_text(const iso_model *model, int32_t token, char *out,
                                  size_t capacity) {
  const iso_tokenizer *tokenizer = iso_model_get_tokenizer(model);
  char *text = NULL;
  size_t length = 0, used = 0;
  if (!tokenizer || iso_tokenizer_decode(tokenizer, &token, 1, 0, &text, &length) != ISO_OK) {
    snprintf(out, capacity, "token %d", token);
    return out;
  }
  out[used++] = '"';
  for (size_t i = 0; i < length && used + 8 < capacity; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c == '\n' || c == '\t')
      used += (size_t)snprintf(out + used, capacity - used, c == '\n' ? "\\n" : "\\t");
    else
      out[used++] = c < 0x20 || c == 0x7F ? '?' : (char)c;
  }
  snprintf(out + used, capacity - used, "\"");
  free(text);
  return out;
}

/* "3", "in" before the first layer, "out" behind the last. */
static void format_layer(int32_t layer, int32_t n_layers, char *out, size_t capacity) {
  if (layer < 0 || layer >= n_layers)
    snprintf(out, capacity, "%s", layer < 0 ? "in" : "out");
  else
    snprintf(out, capacity, "%d", layer);
}

/* "rms_norm in layer 3 (kernel rms_norm.avx2, step 1)" */
static void format_place(const iso_verify_result *result, const iso_verify_entry *entry, char *out,
                         size_t capacity) {
  char layer[32];
  if (entry->layer < 0 || entry->layer >= result->n_layers)
    snprintf(layer, sizeof layer, "%s the layers", entry->layer < 0 ? "before" : "behind");
  else
    snprintf(layer, sizeof layer, "in layer %d", entry->layer);
  snprintf(out, capacity, "%s %s (kernel %s, step %u)", entry->op, layer, entry->kernel,
           entry->step + 1);
}

/* ---- Layers ---------------------------------------------------------------------------------- */

typedef struct layer_row {
  bool any, any_compared, any_checked;
  double share; /* of the tolerance, the largest */
  const iso_verify_entry *worst, *worst_local;
} layer_row;

static double share_of(const iso_verify_entry *entry) {
  return entry->error == 0 ? 0 : entry->error / fmax(entry->tolerance, 1e-300);
}

static bool is_worse_locally(const iso_verify_entry *a, const iso_verify_entry *b) {
  if (a->local.is_wrong != b->local.is_wrong)
    return a->local.is_wrong;
  return a->local.error > b->local.error;
}

static layer_row sum_layer(const iso_verify_result *result, int32_t layer) {
  layer_row row = {0};
  for (uint32_t i = 0; i < result->n_entries; i++) {
    const iso_verify_entry *entry = &result->entries[i];
    if (entry->layer != layer)
      continue;
    row.any = true;
    if (entry->is_compared && (!row.worst || share_of(entry) > row.share)) {
      row.worst = entry;
      row.share = share_of(entry);
    }
    if (entry->local.is_checked && (!row.worst_local || is_worse_locally(entry, row.worst_local)))
      row.worst_local = entry;
  }
  return row;
}

static void print_bar(double share) {
  int filled = isfinite(share) ? (int)(share * BAR + 0.999) : BAR + 1;
  for (int i = 0; i < BAR; i++)
    putchar(i < filled ? '#' : '.');
  printf("%s ", filled > BAR ? "!" : " ");
}

static void print_layers(const iso_verify_result *result) {
  int32_t n_layers = result->n_layers;
  printf("%-6s", "layer");
  if (result->has_judge)
    printf("%-*s %9s %9s %9s  ", BAR + 1, "of tolerance", "error", "worst row", "tolerance");
  printf("%9s  %s\n", "op alone", result->has_judge ? "worst value" : "worst op");
  for (int32_t layer = -1; layer <= n_layers; layer++) {
    layer_row row = sum_layer(result, layer);
    char text[16];
    if (!row.any)
      continue;
    format_layer(layer, n_layers, text, sizeof text);
    printf("%-6s", text);
    if (row.worst) {
      print_bar(row.share);
      printf("%9.2e %9.2e %9.2e  ", row.worst->error, row.worst->worst_row, row.worst->tolerance);
    } else if (result->has_judge) {
      printf("%*s", BAR + 34, "");
    }
    if (row.worst_local)
      printf("%9.2e%s  ", row.worst_local->local.error, row.worst_local->local.is_wrong ? "!" : "");
    else
      printf("%9s  ", "-");
    const iso_verify_entry *named = result->has_judge ? row.worst : row.worst_local;
    printf("%s\n", named ? named->name : "");
  }
}

/* ---- Ops by themselves ----------------------------------------------------------------------- */

/* The worst entry after `last` in the order of is_worse_locally(), one an op and kernel. */
static uint32_t worst_ops(const iso_verify_result *result, const iso_verify_entry *out[SHOWN_OPS]) {
  uint32_t n = 0;
  while (n < SHOWN_OPS) {
    const iso_verify_entry *worst = NULL;
    for (uint32_t i = 0; i < result->n_entries; i++) {
      const iso_verify_entry *entry = &result->entries[i];
      bool known = !entry->local.is_checked;
      for (uint32_t j = 0; j < n && !known; j++)
        known = strcmp(out[j]->kernel, entry->kernel) == 0 && !entry->local.is_wrong;
      for (uint32_t j = 0; j < n && !known; j++)
        known = out[j]->node == entry->node && out[j]->step == entry->step;
      if (!known && (!worst || is_worse_locally(entry, worst)))
        worst = entry;
    }
    if (!worst)
      break;
    out[n++] = worst;
  }
  return n;
}

static void print_ops(const iso_verify_result *result) {
  const iso_verify_entry *ops[SHOWN_OPS];
  uint32_t n = worst_ops(result, ops);
  if (n == 0)
    return;
  printf("\nops on the device's own inputs, against the reference; the worst:\n");
  for (uint32_t i = 0; i < n; i++) {
    char place[256];
    format_place(result, ops[i], place, sizeof place);
    printf("%9.2e%s %s: %s\n", ops[i]->local.error, ops[i]->local.is_wrong ? " WRONG" : "", place,
           ops[i]->shapes);
    if (ops[i]->local.is_wrong)
      printf("%10s %s\n", "", ops[i]->local.detail);
  }
}

static void print_beyond(const iso_verify_result *result) {
  const iso_verify_entry *beyond = iso_verify_first_beyond(result);
  char place[256];
  if (!beyond)
    return;
  format_place(result, beyond, place, sizeof place);
  printf("\nfirst beyond tolerance: %s, error %.2e, tolerance %.2e\n", place, beyond->error,
         beyond->tolerance);
}

/* ---- Text ------------------------------------------------------------------------------------ */

static void print_logits(const iso_verify_result *result, const iso_model *model) {
  char judge[64], device[64];
  if (!result->has_judge)
    return;
  if (result->n_rows > 0)
    printf("\nlogits: KL divergence %.2e nats on average, %.2e at worst; the likeliest token is "
           "the same in %d of %d rows\n",
           result->divergence_sum / result->n_rows, result->divergence_worst, result->n_agree,
           result->n_rows);
  if (result->first_difference < 0)
    printf("greedy: the same %d tokens\n", result->n_output);
  else
    printf("greedy: token %d of %d differs, %s here and %s there, where the judge's two likeliest "
           "are %.3g apart\n",
           result->first_difference + 1, result->n_output,
           iso_verify_token_text(model, result->token, device, sizeof device),
           iso_verify_token_text(model, result->judge_token, judge, sizeof judge),
           result->judge_margin);
  if (result->n_absent > 0)
    printf("%u values are not in the trace and were not compared\n", result->n_absent);
}

static void print_beside(const iso_verify_beside *beside) {
  if (!beside->is_checked)
    return;
  printf(
      "\nbeside each other: %d sequences with prompts of %d to %d tokens, in %d steps: logits are "
      "%.2e at worst from those of each alone, tolerance %.2e; the likeliest token is the same in "
      "%d of %d rows; the worst is of %s\n",
      beside->n_sequences, beside->shortest, beside->longest, beside->n_steps, beside->error,
      beside->tolerance, beside->n_agree, beside->n_rows, beside->worst);
  if (beside->n_wrong > 0)
    printf("%d rows are WRONG; the first is of %s\n", beside->n_wrong, beside->detail);
}

bool iso_verify_verdict(const iso_verify_result *result, const char *judge, char *out,
                        size_t capacity) {
  const iso_verify_entry *wrong = iso_verify_first_wrong(result);
  const iso_verify_entry *beyond = iso_verify_first_beyond(result);
  char place[256];
  if (wrong) {
    format_place(result, wrong, place, sizeof place);
    snprintf(out, capacity,
             "%s is wrong: %s gives another result than the reference for its own "
             "inputs, %s",
             result->device, place, wrong->local.detail);
  } else if (beyond) {
    format_place(result, beyond, place, sizeof place);
    snprintf(out, capacity,
             "%s and %s disagree from %s on: the error is %.2e where rounding "
             "explains %.2e, though every op of %s agrees with the reference by itself: look at %s",
             result->device, judge, place, beyond->error, beyond->tolerance, result->device, judge);
  } else if (result->beside.n_wrong > 0) {
    snprintf(out, capacity,
             "%s is wrong in steps as serving runs them, though every op by itself is right: %s",
             result->device, result->beside.detail);
  } else if (result->has_judge) {
    snprintf(out, capacity, "%s agrees with %s within the rounding of the storage types",
             result->device, judge);
  } else {
    snprintf(out, capacity,
             result->n_entries && result->entries[0].local.is_checked
                 ? "%s: every op agrees with the reference"
                 : "%s is the reference",
             result->device);
  }
  return !wrong && !beyond && result->beside.n_wrong == 0;
}

void iso_verify_print(const iso_verify_result *result, const iso_model *model, const char *judge) {
  char verdict[1024];
  printf("\n%s\n", result->description);
  print_layers(result);
  print_beyond(result);
  print_logits(result, model);
  print_beside(&result->beside);
  print_ops(result);
  iso_verify_verdict(result, judge, verdict, sizeof verdict);
  printf("\n%s.\n", verdict);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* JSON has no infinity: the largest double of 15 digits stands for it. cJSON writes no more of
 * them, and DBL_MAX in 15 is beyond what a reader can hold. */
static void add_number(cJSON *object, const char *key, double value) {
  cJSON_AddNumberToObject(object, key, isfinite(value) ? value : 1.79769313486231e308);
}

static cJSON *entry_json(const iso_verify_entry *entry) {
  cJSON *item = cJSON_CreateObject();
  cJSON_AddStringToObject(item, "value", entry->name);
  cJSON_AddStringToObject(item, "op", entry->op);
  cJSON_AddStringToObject(item, "kernel", entry->kernel);
  cJSON_AddStringToObject(item, "shapes", entry->shapes);
  cJSON_AddNumberToObject(item, "layer", entry->layer);
  cJSON_AddNumberToObject(item, "node", entry->node);
  cJSON_AddNumberToObject(item, "step", entry->step + 1);
  if (entry->is_compared) {
    add_number(item, "error", entry->error);
    add_number(item, "worst_row", entry->worst_row);
    add_number(item, "tolerance", entry->tolerance);
  }
  if (entry->local.is_checked) {
    add_number(item, "op_error", entry->local.error);
    cJSON_AddBoolToObject(item, "op_is_wrong", entry->local.is_wrong);
  }
  if (entry->local.is_wrong)
    cJSON_AddStringToObject(item, "detail", entry->local.detail);
  return item;
}

static void add_layers(const iso_verify_result *result, cJSON *array) {
  for (int32_t layer = -1; layer <= result->n_layers; layer++) {
    layer_row row = sum_layer(result, layer);
    if (!row.any)
      continue;
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(array, item);
    cJSON_AddNumberToObject(item, "layer", layer);
    if (row.worst)
      cJSON_AddItemToObject(item, "worst_value", entry_json(row.worst));
    if (row.worst_local)
      cJSON_AddItemToObject(item, "worst_op", entry_json(row.worst_local));
  }
}

static void add_logits(const iso_verify_result *result, cJSON *root) {
  cJSON *logits = cJSON_AddObjectToObject(root, "logits");
  cJSON_AddNumberToObject(logits, "rows", result->n_rows);
  cJSON_AddNumberToObject(logits, "same_likeliest", result->n_agree);
  if (result->n_rows > 0) {
    add_number(logits, "divergence_mean", result->divergence_sum / result->n_rows);
    add_number(logits, "divergence_worst", result->divergence_worst);
  }
  cJSON *greedy = cJSON_AddObjectToObject(root, "greedy");
  cJSON_AddNumberToObject(greedy, "tokens", result->n_output);
  if (result->first_difference < 0)
    return;
  cJSON_AddNumberToObject(greedy, "first_difference", result->first_difference + 1);
  cJSON_AddNumberToObject(greedy, "token", result->token);
  cJSON_AddNumberToObject(greedy, "judge_token", result->judge_token);
  add_number(greedy, "judge_margin", result->judge_margin);
}

static void add_beside(const iso_verify_beside *beside, cJSON *root) {
  cJSON *object = cJSON_AddObjectToObject(root, "beside");
  cJSON_AddNumberToObject(object, "sequences", beside->n_sequences);
  cJSON_AddNumberToObject(object, "steps", beside->n_steps);
  cJSON_AddNumberToObject(object, "rows", beside->n_rows);
  cJSON_AddNumberToObject(object, "same_likeliest", beside->n_agree);
  add_number(object, "error", beside->error);
  add_number(object, "tolerance", beside->tolerance);
  cJSON_AddStringToObject(object, "worst", beside->worst);
  cJSON_AddNumberToObject(object, "wrong", beside->n_wrong);
  if (beside->n_wrong > 0)
    cJSON_AddStringToObject(object, "detail", beside->detail);
}

cJSON *iso_verify_json(const iso_verify_result *result, const char *judge) {
  cJSON *root = cJSON_CreateObject();
  char verdict[1024];
  bool agrees = iso_verify_verdict(result, judge, verdict, sizeof verdict);
  cJSON_AddStringToObject(root, "device", result->device);
  cJSON_AddStringToObject(root, "description", result->description);
  cJSON_AddBoolToObject(root, "agrees", agrees);
  cJSON_AddStringToObject(root, "verdict", verdict);
  const iso_verify_entry *beyond = iso_verify_first_beyond(result);
  if (beyond)
    cJSON_AddItemToObject(root, "first_beyond", entry_json(beyond));
  cJSON *wrong = cJSON_AddArrayToObject(root, "wrong");
  for (uint32_t i = 0; i < result->n_entries; i++)
    if (result->entries[i].local.is_wrong)
      cJSON_AddItemToArray(wrong, entry_json(&result->entries[i]));
  add_layers(result, cJSON_AddArrayToObject(root, "layers"));
  const iso_verify_entry *ops[SHOWN_OPS];
  uint32_t n = worst_ops(result, ops);
  cJSON *worst = cJSON_AddArrayToObject(root, "worst_ops");
  for (uint32_t i = 0; i < n; i++)
    cJSON_AddItemToArray(worst, entry_json(ops[i]));
  if (result->has_judge)
    add_logits(result, root);
  if (result->beside.is_checked)
    add_beside(&result->beside, root);
  return root;
}
