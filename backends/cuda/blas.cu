#include "backends/cuda/blas.h"
#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The functions that are used, looked up by name. */
#define FUNCTIONS(X)                                                                               \
  X(cublasLtCreate)                                                                                \
  X(cublasLtDestroy)                                                                               \
  X(cublasLtMatmulDescCreate)                                                                      \
  X(cublasLtMatmulDescDestroy)                                                                     \
  X(cublasLtMatmulDescSetAttribute)                                                                \
  X(cublasLtMatrixLayoutCreate)                                                                    \
  X(cublasLtMatrixLayoutDestroy)                                                                   \
  X(cublasLtMatmulPreferenceCreate)                                                                \
  X(cublasLtMatmulPreferenceDestroy)                                                               \
  X(cublasLtMatmulPreferenceSetAttribute)                                                          \
  X(cublasLtMatmulAlgoGetHeuristic)                                                                \
  X(cublasLtMatmul)

/* What decides the algorithm. */
struct shape {
  int64_t m, n, k, x_stride, w_stride, y_stride;
  int32_t scheme, y_scheme, scaling, unused;
};

struct plan {
  shape key;
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t w, x, y;
  cublasLtMatmulAlgo_t algorithm;
  bool made;
};

/* Plans are few: matrices of a model times numbers of rows. */
enum { PLANS = 1024 };

/* Numbers of rows near each other share an algorithm, that of the largest: asking for one takes the
 * host about a millisecond. */
enum { ALGORITHMS = 512 };
struct known_algorithm {
  shape key;
  cublasLtMatmulAlgo_t algorithm;
  bool made;
};
static int64_t rounded_rows(int64_t m) {
  int64_t step = m <= 64 ? 16 : m <= 512 ? 64 : 128;
  return (m + step - 1) / step * step;
}

struct cuda_blas {
  void *library;
#define DECLARE(name) decltype(&name) name##_;
  FUNCTIONS(DECLARE)
#undef DECLARE
  cublasLtHandle_t handle;
  pthread_mutex_t lock;
  plan plans[PLANS];
  known_algorithm algorithms[ALGORITHMS];
};

static iso_status blas_failure(cublasStatus_t status, const char *what) {
  return iso_backend_fail(
      cuda_host, status == CUBLAS_STATUS_ALLOC_FAILED ? ISO_ERROR_OUT_OF_MEMORY : ISO_ERROR_DEVICE,
      "%s: cuBLASLt status %d", what, (int)status);
}

#define BLAS_TRY(call)                                                                             \
  do {                                                                                             \
    cublasStatus_t blas_status_ = (call);                                                          \
    if (blas_status_ != CUBLAS_STATUS_SUCCESS)                                                     \
      return blas_failure(blas_status_, #call);                                                    \
  } while (0)

/* ---- Library --------------------------------------------------------------------------------- */

static bool look_up(cuda_blas *blas) {
  bool complete = true;
#define LOOK_UP(name)                                                                              \
  blas->name##_ = (decltype(&name))dlsym(blas->library, #name);                                    \
  complete &= blas->name##_ != nullptr;
  FUNCTIONS(LOOK_UP)
#undef LOOK_UP
  return complete;
}

cuda_blas *cuda_blas_create(void) {
  char versioned[32];
  snprintf(versioned, sizeof versioned, "libcublasLt.so.%d", CUDART_VERSION / 1000);
  cuda_blas *blas = (cuda_blas *)calloc(1, sizeof *blas);
  if (!blas)
    return nullptr;
  blas->library = dlopen(versioned, RTLD_NOW | RTLD_LOCAL);
  if (blas->library && look_up(blas) &&
      blas->cublasLtCreate_(&blas->handle) == CUBLAS_STATUS_SUCCESS) {
    pthread_mutex_init(&blas->lock, nullptr);
    return blas;
  }
  cuda_host->log(ISO_LOG_NOTICE,
                 "cuda: %s %s; products of many rows by float weights run on Isomer's own kernels",
                 versioned, blas->library ? "does not start" : "is not installed");
  if (blas->library)
    dlclose(blas->library);
  free(blas);
  return nullptr;
}

static void clear_plan(cuda_blas *blas, plan *p) {
  if (p->operation)
    blas->cublasLtMatmulDescDestroy_(p->operation);
  for (cublasLtMatrixLayout_t layout : {p->w, p->x, p->y})
    if (layout)
      blas->cublasLtMatrixLayoutDestroy_(layout);
  *p = plan{};
}

void cuda_blas_destroy(cuda_blas *blas) {
  if (!blas)
    return;
  for (plan &p : blas->plans)
    clear_plan(blas, &p);
  blas->cublasLtDestroy_(blas->handle);
  pthread_mutex_destroy(&blas->lock);
  dlclose(blas->library);
  free(blas);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static cudaDataType_t type_of(iso_scheme scheme) {
  return scheme == ISO_SCHEME_F32   ? CUDA_R_32F
         : scheme == ISO_SCHEME_F16 ? CUDA_R_16F
                                    : CUDA_R_16BF;
}

static uint64_t hash_of(const shape &key) {
  uint64_t hash = UINT64_C(14695981039346656037);
  const unsigned char *bytes = (const unsigned char *)&key;
  for (size_t i = 0; i < sizeof key; i++)
    hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
  return hash ^ hash >> 32; /* the low bits see little of sizes that are multiples of 1,024 */
}

/* The entry of this key, at its hash or close behind; else one that is free there, or the first. */
template <typename Entry, size_t N>
static Entry *find_entry(Entry (&entries)[N], const shape &key) {
  enum { NEAR = 4 };
  Entry *found = nullptr;
  uint64_t hash = hash_of(key);
  for (int i = 0; i < NEAR; i++) {
    Entry *entry = &entries[(hash + (uint64_t)i) % N];
    if (entry->made && memcmp(&entry->key, &key, sizeof key) == 0)
      return entry;
    if (!found && !entry->made)
      found = entry;
  }
  return found ? found : &entries[hash % N];
}

/* cuBLASLt counts columns first: y^T [n, m] = w^T' x^T with w and x as they lie. */
static iso_status describe(cuda_blas *blas, const shape &key, plan *p) {
  cublasOperation_t transpose = CUBLAS_OP_T;
  p->key = key;
  BLAS_TRY(blas->cublasLtMatmulDescCreate_(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  BLAS_TRY(blas->cublasLtMatmulDescSetAttribute_(p->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                 &transpose, sizeof transpose));
  cudaDataType_t type = type_of((iso_scheme)key.scheme);
  if (key.scaling != CUDA_UNSCALED) {
#if CUDART_VERSION >= 12090
    type = CUDA_R_8F_E4M3;
    cublasLtMatmulMatrixScale_t mode = key.scaling == CUDA_SCALED_ROWS
                                           ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
                                           : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    BLAS_TRY(blas->cublasLtMatmulDescSetAttribute_(p->operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
                                                   &mode, sizeof mode));
    BLAS_TRY(blas->cublasLtMatmulDescSetAttribute_(p->operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
                                                   &mode, sizeof mode));
#else
    return blas_failure(CUBLAS_STATUS_NOT_SUPPORTED, "scales by row or group");
#endif
  }
  BLAS_TRY(blas->cublasLtMatrixLayoutCreate_(&p->w, type, (uint64_t)key.k, (uint64_t)key.n,
                                             key.w_stride));
  BLAS_TRY(blas->cublasLtMatrixLayoutCreate_(&p->x, type, (uint64_t)key.k, (uint64_t)key.m,
                                             key.x_stride));
  BLAS_TRY(blas->cublasLtMatrixLayoutCreate_(&p->y, type_of((iso_scheme)key.y_scheme),
                                             (uint64_t)key.n, (uint64_t)key.m, key.y_stride));
  return ISO_OK;
}

/* The device addresses of scales; they must be set when an algorithm is asked for, too. */
static iso_status set_scales(cuda_blas *blas, plan *p, const float *w, const float *x) {
  BLAS_TRY(blas->cublasLtMatmulDescSetAttribute_(p->operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                                 &w, sizeof w));
  BLAS_TRY(blas->cublasLtMatmulDescSetAttribute_(p->operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                                                 &x, sizeof x));
  return ISO_OK;
}

static iso_status ask(cuda_blas *blas, plan *p, cublasLtMatmulAlgo_t *out_algorithm) {
  cublasLtMatmulPreference_t preference;
  size_t workspace = CUDA_BLAS_WORKSPACE;
  BLAS_TRY(blas->cublasLtMatmulPreferenceCreate_(&preference));
  /* The library's first choice is not its best for few rows. Of the first four the one with most
   * waves up to one is, or nearly (backends/cuda/hopper/README.md): no other leaves less of the
   * device idle, and no clock has a say. */
  enum { FEW_ROWS = 128, CANDIDATES = 4 };
  cublasLtMatmulHeuristicResult_t results[CANDIDATES] = {};
  bool few = p->key.m <= FEW_ROWS && p->key.scaling == CUDA_UNSCALED;
  int wanted = few ? CANDIDATES : 1, found = 0;
  cublasStatus_t status = blas->cublasLtMatmulPreferenceSetAttribute_(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = blas->cublasLtMatmulAlgoGetHeuristic_(blas->handle, p->operation, p->w, p->x, p->y,
                                                   p->y, preference, wanted, results, &found);
  blas->cublasLtMatmulPreferenceDestroy_(preference);
  if (status == CUBLAS_STATUS_SUCCESS && found == 0)
    status = CUBLAS_STATUS_NOT_SUPPORTED;
  BLAS_TRY(status);
  int best = 0;
  for (int i = 1; i < found; i++)
    if (results[i].state == CUBLAS_STATUS_SUCCESS && results[i].wavesCount <= 1 &&
        (results[best].wavesCount > 1 || results[i].wavesCount > results[best].wavesCount))
      best = i;
  *out_algorithm = results[best].algo;
  return ISO_OK;
}

/* The algorithm of the next rounded number of rows. */
static iso_status find_algorithm(cuda_blas *blas, const plan &p, const float *w_scales,
                                 const float *x_scales, cublasLtMatmulAlgo_t *out_algorithm) {
  shape key = p.key;
  key.m = rounded_rows(key.m);
  known_algorithm *known = find_entry(blas->algorithms, key);
  if (!known->made || memcmp(&known->key, &key, sizeof key) != 0) {
    plan rounded = {};
    iso_status status = describe(blas, key, &rounded);
    if (status == ISO_OK && key.scaling != CUDA_UNSCALED)
      status = set_scales(blas, &rounded, w_scales, x_scales);
    if (status == ISO_OK)
      status = ask(blas, &rounded, &known->algorithm);
    clear_plan(blas, &rounded);
    known->made = status == ISO_OK;
    if (status != ISO_OK)
      return status;
    known->key = key;
  }
  *out_algorithm = known->algorithm;
  return ISO_OK;
}

static iso_status make_plan(cuda_blas *blas, const shape &key, const float *w_scales,
                            const float *x_scales, plan *p) {
  ISO_TRY(describe(blas, key, p));
  if (key.scaling != CUDA_UNSCALED)
    ISO_TRY(set_scales(blas, p, w_scales, x_scales));
  ISO_TRY(find_algorithm(blas, *p, w_scales, x_scales, &p->algorithm));
  p->made = true;
  return ISO_OK;
}

static iso_status find_plan(cuda_blas *blas, const cuda_product *product, plan **out_plan) {
  shape key;
  memset(&key, 0, sizeof key);
  key.m = product->m, key.n = product->n, key.k = product->k;
  key.x_stride = product->x_stride, key.w_stride = product->w_stride;
  key.y_stride = product->y_stride;
  key.scheme = product->scheme, key.y_scheme = product->y_scheme;
  key.scaling = product->scaling;
  plan *p = find_entry(blas->plans, key);
  if (!p->made || memcmp(&p->key, &key, sizeof key) != 0) {
    clear_plan(blas, p);
    iso_status status = make_plan(blas, key, product->w_scales, product->x_scales, p);
    if (status != ISO_OK) {
      clear_plan(blas, p);
      return status;
    }
  }
  *out_plan = p;
  return ISO_OK;
}

static cublasStatus_t enqueue(iso_queue *queue, const cuda_product *product, plan *p) {
  cuda_blas *blas = queue->device->blas;
  const float one = 1, beta = product->accumulate ? 1.0f : 0.0f;
  return blas->cublasLtMatmul_(blas->handle, p->operation, &one, product->w, p->w, product->x, p->x,
                               &beta, product->y, p->y, product->y, p->y, &p->algorithm,
                               product->workspace, CUDA_BLAS_WORKSPACE, queue->stream);
}

static iso_status multiply(iso_queue *queue, const cuda_product *product) {
  cuda_blas *blas = queue->device->blas;
  plan *p = nullptr;
  ISO_TRY(find_plan(blas, product, &p));
  if (product->scaling != CUDA_UNSCALED)
    ISO_TRY(set_scales(blas, p, product->w_scales, product->x_scales));
  cublasStatus_t status = enqueue(queue, product, p);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
    ISO_TRY(ask(blas, p, &p->algorithm)); /* what does for more rows need not for these */
    status = enqueue(queue, product, p);
  }
  BLAS_TRY(status);
  return cuda_launched(queue, "matmul by cuBLASLt");
}

bool cuda_blas_has(const iso_device *device, const cuda_product *product) {
  if (cudaSetDevice(device->ordinal) != cudaSuccess)
    return false;
  cuda_blas *blas = device->blas;
  plan *p = nullptr;
  cuda_product asked = *product;
  asked.w_scales = asked.x_scales = (const float *)CUDA_ALIGNMENT; /* an address, never read */
  pthread_mutex_lock(&blas->lock);
  bool has = find_plan(blas, &asked, &p) == ISO_OK;
  pthread_mutex_unlock(&blas->lock);
  return has;
}

iso_status cuda_blas_multiply(iso_queue *queue, const cuda_product *product) {
  CUDA_TRY(cudaSetDevice(queue->device->ordinal));
  ISO_TRY(simt_flush_deferred(queue, &queue->deferred));
  cuda_blas *blas = queue->device->blas;
  pthread_mutex_lock(&blas->lock);
  iso_status status = multiply(queue, product);
  pthread_mutex_unlock(&blas->lock);
  return status;
}
