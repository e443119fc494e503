/* /v1/embeddings */
#include "server/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool prepare(iso_job *job, iso_api_error *refusal) {
  const iso_fields *fields = &job->fields;
  const char *encoding = fields->encoding_format;
  bool base64 = encoding && strcmp(encoding, "base64") == 0;
  if (encoding && !base64 && strcmp(encoding, "float") != 0)
    return iso_refuse(refusal, 400, "encoding_format", "invalid_value",
                      "'encoding_format' must be \"float\" or \"base64\"");
  if (fields->dimensions > iso_model_get_config(job->server->model)->hidden_size)
    return iso_refuse(refusal, 400, "dimensions", "invalid_value",
                      "'dimensions' is %d; this model's vectors have %d elements",
                      fields->dimensions, iso_model_get_config(job->server->model)->hidden_size);
  job->base64 = base64;
  job->request =
      (iso_request){.sampling = iso_sampling_default(),
                    .embed = true,
                    .timeout_us = (uint64_t)(job->server->options.request_seconds * 1e6)};
  return iso_job_add_prompts(job, fields->prompt, "input", false, refusal);
}

static void write_base64(const float *vector, int32_t count, iso_json_writer *w) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const unsigned char *bytes = (const unsigned char *)vector;
  size_t length = (size_t)count * sizeof *vector;
  iso_printer text = {0};
  for (size_t i = 0; i < length; i += 3) {
    unsigned group = (unsigned)bytes[i] << 16;
    if (i + 1 < length)
      group |= (unsigned)bytes[i + 1] << 8;
    if (i + 2 < length)
      group |= bytes[i + 2];
    char out[4] = {digits[group >> 18], digits[group >> 12 & 63], digits[group >> 6 & 63],
                   digits[group & 63]};
    if (i + 2 >= length)
      out[3] = '=';
    if (i + 1 >= length)
      out[2] = '=';
    iso_printer_append(&text, out, 4);
  }
  w->text.failed |= text.failed;
  iso_json_text(w, "embedding", text.data ? text.data : "", text.size);
  free(text.data);
}

/* The first elements, of length 1 again. */
static int32_t cut(float *vector, int32_t count, int32_t wanted) {
  double sum = 0;
  if (wanted == 0 || wanted >= count)
    return count;
  for (int32_t i = 0; i < wanted; i++)
    sum += (double)vector[i] * vector[i];
  for (int32_t i = 0; i < wanted && sum > 0; i++)
    vector[i] = (float)(vector[i] / sqrt(sum));
  return wanted;
}

static void write_result(iso_job *job, iso_json_writer *w) {
  iso_json_begin(w, NULL, '{');
  iso_json_string(w, "object", "list");
  iso_json_string(w, "model", iso_served_name(job->server, job->adapter));
  iso_json_begin(w, "data", '[');
  for (int i = 0; i < job->n_prompts; i++) {
    iso_part *part = &job->parts[i];
    int32_t count = cut(part->embedding, part->n_embedding, job->fields.dimensions);
    iso_json_begin(w, NULL, '{');
    iso_json_string(w, "object", "embedding");
    iso_json_int(w, "index", i);
    if (job->base64) {
      write_base64(part->embedding, count, w);
    } else {
      iso_json_begin(w, "embedding", '[');
      for (int32_t k = 0; k < count; k++)
        iso_json_number(w, NULL, part->embedding[k]);
      iso_json_end(w, ']');
    }
    iso_json_end(w, '}');
  }
  iso_json_end(w, ']');
  iso_write_usage(job, w);
  iso_json_end(w, '}');
}

const iso_format iso_format_embedding = {.body = ISO_BODY_EMBEDDING,
                                         .id_prefix = "embd",
                                         .prepare = prepare,
                                         .write_result = write_result};
