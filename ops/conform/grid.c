/* The grid: a few lines an op. Commas list alternatives and every combination is a case; @names
 * stand for sets of schemes. See ops/conform/conform.h for the meaning of the words. */
#include "ops/conform/case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EDGES "1,2,15,16,17,255,256,257"

static const char *const grid[] = {
    "embedding T=1,17 V=33 D=256,512 table=@any rows=@float scale=1",
    "embedding T=0,5 V=1,100 D=1,33,96 table=@float rows=f32 scale=1,45.25 gap=0,4",

    "rms_norm *=0," EDGES " D=576",
    "rms_norm *=3 D=1,2,15,17,31,32,33,63,64,65,255,257,1024,4096,14336 rows=@float",
    "rms_norm *=none,2x3,2x3x5 D=96 rows=@float gap=0,64 weight_offset=0,1 epsilon=1e-6,1",
    "rms_norm *=4 D=576 rows=@float fill=large,tiny,extreme,outlier",

    "layer_norm *=0," EDGES " D=320",
    "layer_norm *=3 D=1,2,15,17,31,32,33,255,257,1024,4096 rows=@float bias=none,f32",
    "layer_norm *=none,2x3 D=96 rows=@float gap=0,64 bias=f32 epsilon=1e-6,1",
    "layer_norm *=4 D=576 rows=@float fill=large,tiny,extreme,outlier",

    "matmul *=" EDGES " N=33 K=256 weight=@any",
    "matmul *=1,3,17 N=1,2,7,8,15,16,17,31,48,65 K=512 weight=@any",
    "matmul *=1,2,17 N=5,32 K=32,64,96,160,288 weight=@block32",
    "matmul *=1,2,17 N=5,32 K=768,1280 weight=@block256",
    "matmul *=1,2,5,33 N=1,5,33 K=1,2,3,7,15,17,31,33,65,127 weight=@float rows=f32",
    "matmul *=1,4 N=16,19 K=256 weight=@any rows=f16,bf16 bias=none,f32",
    "matmul *=6 N=24 K=256 weight=@any x=f32,bf16 y=f32,f16,bf16",
    "matmul *=0,none,2x3,2x1x3 N=16 K=256 weight=f32,q8_0,q4_k rows=f32,bf16 bias=f32 gap=0,64",
    "matmul *=1,9 N=24 K=512 weight=@any fill=large,tiny,extreme,outlier",
    "matmul *=1,3 N=7,16 K=14336 weight=@any",
    "matmul *=64 N=192 K=576 weight=@block32,f32,f16,bf16",
    "matmul *=1,2,15,16,17,33,257 N=33,80 K=768 weight=@any operand_bits=8",
    "matmul *=5,64 N=70 K=64,576,1088 weight=@block32 operand_bits=8 bias=none,f32",
    "matmul *=64 N=72 K=512 weight=@any x=f32,bf16 y=f32,bf16 operand_bits=8",
    "matmul *=3,40 N=16 K=512 weight=@any operand_bits=8 fill=large,tiny,outlier",
    "matmul *=1,16,257 N=80 K=768 weight=@any operand_bits=8 operand_neighbours=32",
    "matmul *=40 N=16 K=64,1088 weight=@block32 operand_bits=8 operand_neighbours=32 "
    "fill=normal,outlier",
    "matmul *=31,32,257 N=33,80 K=768 weight=@any operand_bits=16",
    "matmul *=64 N=72 K=64,1088 weight=@block32 x=f32,bf16 y=f32,bf16 operand_bits=16 "
    "bias=none,f32",
    "matmul *=40 N=16 K=512 weight=@any operand_bits=16 fill=large,tiny,outlier",
    "matmul *=20,130,520 N=300 K=384 weight=i8_g128,f8_g128 rows=f32,bf16 operand_bits=8 bias=f32",
    "matmul *=512,515 N=80 K=128,256 weight=f8_g128 rows=f32,bf16 operand_bits=8 "
    "fill=normal,extreme",

    "rope T=0," EDGES " H=3 D=64 F=32 interleaved=0,1",
    "rope T=5 H=1,4 D=2,16,20,80,128 F=1 rows=@float interleaved=0,1 settled=0,1",
    "rope T=5 H=2 D=64,96,128 F=8,24,32 rows=@float interleaved=0,1 magnitude=1,1.25 gap=0,64",
    "rope T=5 H=2 D=128 F=64 rows=@float fill=large interleaved=0,1",
    "rope T=257 H=3,9 D=128 F=64 rows=@float interleaved=0,1 magnitude=1,1.25 gap=0,64",
    "rope T=256 H=9 D=64 F=32 rows=f16,bf16 interleaved=0,1",
    "rope T=300 H=2 D=96 F=48 rows=bf16 interleaved=0,1",
    "rope T=300 H=2 D=256 F=128 rows=bf16,f32 interleaved=0,1",

    "kv_write T=0,1,7,16,17 G=1,3 D=64 E=64 P=5 S=4,16 rows=f32 k_cache=@kv v_cache=@kv",
    "kv_write T=9 G=2 D=32,96,128 E=32,128 P=3 S=16 rows=@float k_cache=@kv v_cache=f32,q8_0 "
    "gap=0,64",
    "kv_write T=6 G=2 D=1,5,80 E=3,64 P=3 S=16 rows=@float k_cache=@float v_cache=@float",
    "kv_write T=40 G=1 D=32 E=32 P=2 S=4 k_cache=@kv v_cache=@kv settled=0,1",
    "kv_write T=9 G=2 D=128,256 E=128 P=3 S=16 rows=@float k_cache=f8_g128 "
    "v_cache=f8_g128,q8_0,f16 "
    "gap=0,64",
    "kv_write T=6 G=2 D=128 E=256 P=3 S=16 k_cache=f32,f8_g128 v_cache=f8_g128 "
    "fill=large,tiny,extreme,outlier",
    "kv_write T=6 G=2 D=64 E=64 P=3 S=16 k_cache=f32,q8_0 v_cache=f32,q8_0 "
    "fill=large,tiny,extreme",

    "paged_attention T=" EDGES " H=4 G=2 D=64 E=64 P=40 S=16 Q=4 B=20 batch=mixed",
    "paged_attention T=1,5,16,17 H=4 G=1 D=64 E=64 P=80 S=16 Q=17 B=5 batch=decode rows=@float "
    "k_cache=@kv v_cache=@kv settled=0,1",
    "paged_attention T=40 H=6 G=2 D=64,128 E=64,128 P=30 S=16 Q=3 B=8 batch=mixed,prefill "
    "rows=@float k_cache=@kv v_cache=@kv",
    "paged_attention T=17,40 H=6 G=2 D=128,256 E=128 P=60 S=16 Q=3 B=20 batch=mixed,prefill,decode "
    "rows=@float k_cache=f8_g128 v_cache=f8_g128,f16",
    "paged_attention T=160 H=32 G=8 D=128 E=128 P=40 S=16 Q=30 B=12 batch=serve,prefill rows=bf16 "
    "cache=bf16,q8_0,f8_g128 settled=0,1",
    "paged_attention T=140 H=32 G=8 D=128 E=128 P=60 S=16 Q=40 B=12 batch=serve,mixed rows=bf16 "
    "cache=bf16,q8_0,f8_g128",
    "paged_attention T=33 H=4 G=1 D=128 E=256 P=30 S=16 Q=3 B=8 k_cache=f8_g128,q8_0 "
    "v_cache=f8_g128 "
    "window=0,40 causal=0,1 soft_cap=0,5",
    "paged_attention T=21 H=4 G=2 D=128 E=128 P=30 S=16 Q=3 B=8 rows=f32,bf16 cache=f8_g128 "
    "fill=large,tiny gap=0,64",
    "paged_attention T=12 H=1,3,8 G=1 D=32,80,96,256 E=32,80,96,256 P=30 S=1,7,32 Q=5 B=6 "
    "cache=f32",
    "paged_attention T=33 H=4 G=4,2,1 D=64 E=64 P=30 S=16 Q=3 B=8 k_cache=f32,q8_0,f16 "
    "v_cache=f32,q8_0,f16 window=0,1,5,40 causal=0,1",
    "paged_attention T=33 H=4 G=2 D=64 E=64 P=30 S=16 Q=3 B=8 soft_cap=0,5 scale=0,0.3 "
    "alibi_slopes=none,f32 window=0,9 causal=0,1 rows=f32,bf16",
    "paged_attention T=21 H=4 G=2 D=64 E=64 P=30 S=16 Q=3 B=8 rows=f32 cache=f32 "
    "fill=large,tiny,extreme gap=0,64",
    "paged_attention T=21 H=4 G=2 D=64 E=64 P=30 S=16 Q=3 B=8 rows=f16 cache=f16 "
    "fill=large,tiny gap=0,64",
    "paged_attention T=21 H=4 G=2 D=64 E=64 P=30 S=16 Q=3 B=8 rows=bf16 cache=bf16 "
    "fill=large,tiny gap=0,64",
    "paged_attention T=90 H=4 G=2 D=64,128 E=64,128 P=60 S=16 Q=3 B=8 batch=mixed,prefill,serve "
    "cache=f16,bf16 fill=sharp window=0,40",
    "paged_attention T=4 H=16 G=2 D=64,128 E=64,128 P=60 S=16 Q=4 B=12 batch=decode "
    "cache=f16,bf16 fill=sharp",
    "paged_attention T=6 H=2 G=1 D=64 E=64 P=80 S=64 Q=2 B=40 batch=mixed,decode",
    "paged_attention T=4 H=8 G=2 D=128 E=128 P=50 S=64 Q=4 B=12 batch=full rows=bf16 "
    "cache=bf16,q8_0,f8_g128",
    "paged_attention T=1 H=8 G=1,2,8 D=64 E=64 P=80 S=16,48 Q=1 B=70 batch=decode rows=f16,bf16 "
    "cache=f16,bf16 settled=0,1",
    "paged_attention T=1 H=6 G=1,2 D=128 E=128 P=80 S=16,64 Q=1 B=70 batch=decode rows=f16,bf16 "
    "cache=f16,bf16 window=0,700 settled=0,1",
    "paged_attention T=1 H=4 G=1 D=128 E=128 P=30 S=16 Q=1 B=1,20 batch=decode rows=bf16 "
    "cache=bf16 fill=large,tiny,extreme gap=0,64",
    "paged_attention T=0 H=2 G=1 D=64 E=64 P=4 S=16 Q=0,2 B=2",

    "glu *=0," EDGES " D=96 activation=0",
    "glu *=none,3,2x3 D=1,31,257,1536 rows=@float activation=0,1,2,3,4 gap=0,4",
    "glu *=3 D=576 rows=@float activation=0,1,2 fill=large,tiny",

    "activate *=0," EDGES " D=96 activation=1",
    "activate *=none,3,2x3 D=1,31,257,1536 rows=@float activation=0,1,2,3,4 gap=0,4",
    "activate *=3 D=576 rows=@float activation=0,1,2,4 fill=large,tiny",

    "add *=0," EDGES " D=96",
    "add *=none,3,2x3 D=1,31,257,1536 rows=@float gap=0,4",
    "add *=3,2x3 D=1,31,257,1536 ?=row rows=@float gap=0,4",
    "add *=3 D=576 rows=@float fill=large,tiny",
    "add *=3 D=64 a=f32,bf16 b=f32,bf16 y=f32,bf16",

    "softmax *=0," EDGES " D=96",
    "softmax *=none,3,2x3 D=1,2,31,257,1536 rows=@float gap=0,4",
    "softmax *=3 D=576 rows=@float fill=large,tiny,ties",

    "route_top_k T=0," EDGES " E=8 k=2",
    "route_top_k T=5 E=8,60,64,128,256 k=1,2,8 normalize=0,1 rows=@float scale=1,2.5",
    "route_top_k T=9 E=1,3,5 k=1 rows=f32",
    "route_top_k T=33 E=16 k=4,16 rows=@float fill=ties,large normalize=0,1",

    "grouped_matmul T=1,2,17,64 C=2 J=1,2 E=8 N=33 K=256 weight=@any",
    "grouped_matmul T=5 C=1,3 J=1 E=1,4 N=16 K=32,96,288 weight=@block32,f32",
    "grouped_matmul T=0,5 C=2 J=1,2 E=4 N=8 K=256 weight=f32,q8_0,q4_k rows=@float gap=0,64",
    "grouped_matmul T=3 C=2 J=1 E=4 N=16 K=512 weight=@any fill=large,extreme,outlier",

    "combine_experts T=0," EDGES " C=2 D=96",
    "combine_experts T=3 C=1,3,8 D=1,31,257,1536 rows=@float gap=0,4",

    "gather_rows T=1,300 R=0," EDGES " D=96 rows=@float",
    "gather_rows T=5 R=7 D=1,31,257,1536 x=@float gap=0,4",

    "convert *=0," EDGES " D=96 x=@float scheme=@float",
    "convert *=none,3,2x3 D=1,31,257,1536 x=@float scheme=@float gap=0,4",
    "convert *=3 D=576 x=@float scheme=f32,bf16 fill=large,tiny",

    "quantize_rows *=0,1,17 D=256,768 x=@float scheme=@block",
    "quantize_rows *=2x3,none D=32,96 x=@float scheme=@block32 gap=0,64",
    "quantize_rows *=3 D=256 x=f32 scheme=@block fill=large,tiny,extreme,outlier",

    "soft_cap *=0," EDGES " D=96 cap=30",
    "soft_cap *=none,3,2x3 D=1,31,257,1536 rows=@float cap=0,30 scale=1,0.25 gap=0,4",
    "soft_cap *=3 D=576 rows=f32 cap=30 fill=large,tiny",

    "argmax R=0," EDGES " V=100",
    "argmax R=3 V=1,2,31,257,1000,32000,151936 fill=normal,ties",

    "sample R=0," EDGES " V=100 W=8 M=4 allowed=none",
    "sample R=40 V=1000 W=1,33 M=32 allowed=none,i32 fill=normal,tiny",
    "sample R=6 V=1,31,32,33,257 W=5 M=1 allowed=none",
    "sample R=3 V=32000 W=64 M=1000 allowed=none,i32",
};

/* Shapes of an 8-billion-parameter model, and of one of half a billion. */
static const char *const perf_grid[] = {
    "matmul *=1,8,64,512 N=4096 K=4096 weight=@any rows=f32,bf16",
    "matmul *=1,512 N=14336 K=4096 weight=f16,bf16,q8_0,q4_0,q4_k,q6_k",
    "matmul *=1,512 N=4096 K=14336 weight=f16,bf16,q8_0,q4_0,q4_k,q6_k",
    "matmul *=1,512 N=896 K=896 weight=f32,f16,q8_0,q4_0",
    "grouped_matmul T=1,64 C=2 J=1 E=8 N=4096 K=4096 weight=f16,q8_0,q4_k",
    "paged_attention T=1 H=32 G=8 D=128 E=128 P=130 S=64 Q=1 B=128 batch=decode "
    "cache=f32,f16,q8_0,f8_g128",
    "paged_attention T=64 H=32 G=8 D=128 E=128 P=1030 S=64 Q=64 B=16 batch=decode "
    "cache=f16,q8_0,f8_g128",
    "paged_attention T=512 H=32 G=8 D=128 E=128 P=18 S=64 Q=1 B=16 batch=prefill "
    "cache=f32,f16",
    "embedding T=512 V=32000 D=4096 table=f16,q8_0,q4_k",
    "rms_norm *=1,512 D=4096 rows=f32,bf16",
    "layer_norm *=1,512 D=4096 rows=f32,bf16 bias=f32",
    "rope T=1,512 H=32 D=128 F=64 rows=f32,bf16",
    "kv_write T=1,512 G=8 D=128 E=128 P=32 S=64 cache=f32,f16,q8_0,f8_g128",
    "glu *=1,512 D=14336 rows=f32,bf16",
    "activate *=512 D=14336 rows=f32,bf16 activation=1",
    "add *=1,512 D=4096 rows=f32,bf16",
    "softmax *=64 D=32000",
    "route_top_k T=512 E=64 k=8",
    "combine_experts T=512 C=8 D=4096",
    "gather_rows T=512 R=64 D=4096",
    "convert *=512 D=4096 x=f32 scheme=f16,bf16",
    "quantize_rows *=512 D=4096 x=f32 scheme=q8_0",
    "soft_cap *=64 D=128256 cap=30",
    "argmax R=1,64 V=128256",
    "sample R=1,64 V=128256 W=512 M=4008 allowed=none",
};

/* ---- Expansion
 * ----------------------------------------------------------------------------------- */

enum { MAX_WORDS = 24, LINE_BYTES = 512 };

/* Names of sets of schemes, by what a member is. */
static bool in_set(const char *set, iso_scheme scheme) {
  const iso_scheme_info *info = iso_scheme_get_info(scheme);
  bool block = info->kind == ISO_SCHEME_KIND_BLOCK;
  if (strcmp(set, "@float") == 0)
    return info->kind == ISO_SCHEME_KIND_PLAIN_FLOAT;
  if (strcmp(set, "@block") == 0)
    return block;
  if (strcmp(set, "@block32") == 0)
    return block && info->block_elements == 32;
  if (strcmp(set, "@block256") == 0)
    return block && info->block_elements == 256;
  if (strcmp(set, "@kv") == 0) /* for heads of whole 32s; those of larger blocks are named */
    return info->block_elements <= 32 &&
           (iso_operand_schemes(ISO_OPERAND_KV) & ISO_SCHEME_BIT(scheme));
  return strcmp(set, "@any") == 0 &&
         (iso_operand_schemes(ISO_OPERAND_WEIGHT) & ISO_SCHEME_BIT(scheme));
}

/* One "key=a,b,@set" of a line: the key, and its alternatives one after another. */
typedef struct word {
  const char *key;
  char values[LINE_BYTES]; /* NUL between values, two at the end */
  const char *value;       /* the chosen one */
} word;

static void append_value(word *out, size_t *used, const char *value) {
  size_t length = strlen(value) + 1;
  if (*used + length + 1 <= sizeof out->values) {
    memcpy(out->values + *used, value, length);
    *used += length;
  }
}

static void split_values(word *out, char *list) {
  size_t used = 0;
  char *rest = NULL;
  for (char *value = strtok_r(list, ",", &rest); value; value = strtok_r(NULL, ",", &rest)) {
    if (*value != '@') {
      append_value(out, &used, value);
      continue;
    }
    for (int scheme = 0; scheme < ISO_SCHEME_COUNT; scheme++)
      if (in_set(value, (iso_scheme)scheme))
        append_value(out, &used, iso_scheme_get_info((iso_scheme)scheme)->name);
  }
  out->values[used] = 0;
  out->value = out->values;
}

/* Chooses the next combination, the last word turning fastest; false after the last one. */
static bool advance(word *words, uint32_t n_words) {
  for (uint32_t i = n_words; i-- > 0;) {
    words[i].value += strlen(words[i].value) + 1;
    if (*words[i].value)
      return true;
    words[i].value = words[i].values;
  }
  return false;
}

static iso_status expand(const char *line, word *words, iso_case_visitor visitor, void *context) {
  char copy[LINE_BYTES];
  snprintf(copy, sizeof copy, "%s", line);
  char *rest = NULL, *op = strtok_r(copy, " ", &rest);
  uint32_t n_words = 0;
  for (char *text = strtok_r(NULL, " ", &rest); text && n_words < MAX_WORDS;
       text = strtok_r(NULL, " ", &rest)) {
    char *equals = strchr(text, '=');
    if (!equals)
      return iso_fail(ISO_ERROR_INTERNAL, "grid line \"%s\": %s has no value", line, text);
    *equals = 0;
    words[n_words].key = text;
    split_values(&words[n_words++], equals + 1);
  }
  do {
    char text[ISO_CASE_TEXT];
    size_t used = (size_t)snprintf(text, sizeof text, "%s", op);
    for (uint32_t i = 0; i < n_words && used < sizeof text; i++)
      used +=
          (size_t)snprintf(text + used, sizeof text - used, " %s=%s", words[i].key, words[i].value);
    if (used >= sizeof text)
      return iso_fail(ISO_ERROR_INTERNAL, "grid line \"%s\" makes texts that are too long", line);
    ISO_TRY(visitor(context, text));
  } while (advance(words, n_words));
  return ISO_OK;
}

iso_status iso_case_each(bool perf, iso_case_visitor visitor, void *context) {
  const char *const *lines = perf ? perf_grid : grid;
  size_t n_lines = perf ? sizeof perf_grid / sizeof *perf_grid : sizeof grid / sizeof *grid;
  word *words = calloc(MAX_WORDS, sizeof *words);
  if (!words)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for conformance cases");
  iso_status status = ISO_OK;
  for (size_t i = 0; i < n_lines && status == ISO_OK; i++)
    status = expand(lines[i], words, visitor, context);
  free(words);
  return status;
}
