/*
 * Kernel launches. A kernel is the address of its host stub, and known by the name of that symbol. The stream's worker
 * polls an execution until it ends: kernels of different streams make progress together, as NCCL's need to.
 */
#include "launch.h"

#include "cudart/graph.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

STANDIN_SITE(cudaGetFuncBySymbol)
STANDIN_SITE(cudaFuncGetAttributes)
STANDIN_SITE(cudaFuncSetAttribute)
STANDIN_SITE(cudaLaunchKernel)
STANDIN_SITE(cudaLaunchKernelExC)
STANDIN_SITE(cudaGraphAddKernelNode)

#define SHARED_BYTES 49152      /* of a block without cudaFuncSetAttribute */
#define SHARED_BYTES_MOST 232448
#define BLOCK_THREADS 1024
#define CLUSTER_BLOCKS 16

/* ---- functions ---- */

/* A cudaFunction_t and CUfunction. Its attributes are the same for all devices, unlike in CUDA. */
struct function {
  const void *symbol;
  const char *name; /* in the symbol table of its library */
  atomic_int dynamic_shared, carveout;
  struct function *next;
};

#define BUCKETS 256
static pthread_mutex_t functions_lock = PTHREAD_MUTEX_INITIALIZER;
static struct function *functions[BUCKETS];

/* Returns NULL if no exported symbol has this address. */
static struct function *function_new(const void *symbol) {
  Dl_info info;
  if (!dladdr(symbol, &info) || !info.dli_sname || info.dli_saddr != symbol) return NULL;
  struct function *f = calloc(1, sizeof *f);
  f->symbol = symbol;
  f->name = info.dli_sname;
  atomic_init(&f->dynamic_shared, SHARED_BYTES);
  atomic_init(&f->carveout, cudaSharedmemCarveoutDefault);
  return f;
}

static struct function *function_of(const void *symbol) {
  struct function **bucket = &functions[((uintptr_t)symbol >> 4) % BUCKETS];
  pthread_mutex_lock(&functions_lock);
  struct function *f = *bucket;
  while (f && f->symbol != symbol) f = f->next;
  if (!f && (f = function_new(symbol))) {
    f->next = *bucket;
    *bucket = f;
  }
  pthread_mutex_unlock(&functions_lock);
  return f;
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *functionPtr, const void *symbolPtr) {
  ENTER(cudaGetFuncBySymbol);
  if (!functionPtr) RETURN(cudaErrorInvalidValue);
  struct function *f = function_of(symbolPtr);
  if (f) *functionPtr = (cudaFunction_t)f;
  RETURN(f ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

/* The numbers are those of a plausible kernel of a device of compute capability 9.0. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *func) {
  ENTER(cudaFuncGetAttributes);
  if (!attr) RETURN(cudaErrorInvalidValue);
  struct function *f = function_of(func);
  if (!f) RETURN(cudaErrorInvalidDeviceFunction);
  *attr = (struct cudaFuncAttributes){
      .maxThreadsPerBlock = BLOCK_THREADS,
      .numRegs = 64,
      .ptxVersion = 90,
      .binaryVersion = 90,
      .maxDynamicSharedSizeBytes = atomic_load(&f->dynamic_shared),
      .preferredShmemCarveout = atomic_load(&f->carveout),
  };
  RETURN(cudaSuccess);
}

cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value) {
  ENTER(cudaFuncSetAttribute);
  struct function *f = function_of(func);
  if (!f) RETURN(cudaErrorInvalidDeviceFunction);
  switch (attr) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
      if (value < 0 || value > SHARED_BYTES_MOST) RETURN(cudaErrorInvalidValue);
      atomic_store(&f->dynamic_shared, value);
      RETURN(cudaSuccess);
    case cudaFuncAttributePreferredSharedMemoryCarveout: /* a hint */
      if (value < cudaSharedmemCarveoutDefault || value > cudaSharedmemCarveoutMaxShared)
        RETURN(cudaErrorInvalidValue);
      atomic_store(&f->carveout, value);
      RETURN(cudaSuccess);
    default: not_emulated("attribute %d of a function", (int)attr);
  }
}

/* ---- what a stream executes ---- */

struct launch {
  struct function *function;
  struct kernel_shape shape;
  int device;
  void *arguments;
  size_t bytes;
};

static void *launch_begin(void *spec) {
  const struct launch *l = spec;
  return kernel_new(l->function->name, &l->shape, l->arguments, l->bytes, l->device);
}

static cudaError_t launch_finish(void *kernel) {
  unsigned int polls = 0;
  for (;;) {
    switch (kernel_poll(kernel)) {
      case KERNEL_WAITS: poll_pause(&polls); break;
      case KERNEL_MOVED: polls = 0; break;
      case KERNEL_DONE: return cudaSuccess;
      case KERNEL_FAILED: return cudaErrorLaunchFailure;
    }
  }
}

static void launch_end(void *kernel) { kernel_free(kernel); }

static void launch_release(void *spec) {
  struct launch *l = spec;
  free(l->arguments);
  free(l);
}

static const struct nccl4j_standin_work launch_work = {
    .begin = launch_begin,
    .finish = launch_finish,
    .end = launch_end,
    .release = launch_release,
    .type = cudaGraphNodeTypeKernel,
};

/* ---- checking ---- */

static size_t volume(struct kernel_dimensions d) { return (size_t)d.x * d.y * d.z; }

static cudaError_t check_shape(const struct kernel_shape *shape, const struct function *f) {
  const struct kernel_dimensions *grid = &shape->grid, *cluster = &shape->cluster;
  if (volume(shape->grid) == 0 || grid->y > 65535 || grid->z > 65535) return cudaErrorInvalidConfiguration;
  if (volume(shape->block) == 0 || volume(shape->block) > BLOCK_THREADS) return cudaErrorInvalidConfiguration;
  if (volume(*cluster) > 0) {
    if (grid->x % cluster->x || grid->y % cluster->y || grid->z % cluster->z) return cudaErrorInvalidConfiguration;
    if (volume(*cluster) > CLUSTER_BLOCKS) return cudaErrorInvalidClusterSize;
  }
  return shape->shared <= (size_t)atomic_load(&f->dynamic_shared) ? cudaSuccess : cudaErrorInvalidValue;
}

/* Copies the parameters of a launch into l->arguments. */
static cudaError_t copy_arguments(struct launch *l, void **parameters, void **extra) {
  const void *buffer = NULL;
  const size_t *bytes = NULL;
  if (parameters && extra) return cudaErrorInvalidValue;
  if (parameters) l->bytes = kernel_gather(l->function->name, parameters, &l->arguments);
  if (!extra) return cudaSuccess;
  for (void **at = extra; *at != LAUNCH_BUFFER_END; at += 2) {
    if (*at == LAUNCH_BUFFER_POINTER) buffer = at[1];
    else if (*at == LAUNCH_BUFFER_SIZE) bytes = at[1];
    else return cudaErrorInvalidValue;
  }
  if (!buffer || !bytes) return cudaErrorInvalidValue;
  l->bytes = *bytes;
  l->arguments = malloc(l->bytes ? l->bytes : 1);
  memcpy(l->arguments, buffer, l->bytes);
  return cudaSuccess;
}

static cudaError_t launch_new(struct launch **launch, const struct kernel_launch *request, int device) {
  struct function *f = (struct function *)request->function;
  if (!f) return cudaErrorInvalidResourceHandle;
  struct launch *l = calloc(1, sizeof *l);
  *l = (struct launch){.function = f, .shape = request->shape, .device = device};
  cudaError_t error = check_shape(&l->shape, f);
  if (error == cudaSuccess) error = copy_arguments(l, request->parameters, request->extra);
  if (error == cudaSuccess) *launch = l;
  else launch_release(l);
  return error;
}

/* ---- launching ---- */

/* The event of a launch is complete once the kernel's blocks have begun. They begin as soon as the stream reaches the
 * kernel, so the event is recorded just before it; in a capture it depends on the kernel's beginning. */
static cudaError_t launch_in(stream_t *s, const struct kernel_launch *request) {
  struct launch *l;
  if (s->device != nccl4j_standin_current_device()) return cudaErrorInvalidResourceHandle;
  cudaError_t error = launch_new(&l, request, s->device);
  if (error != cudaSuccess) return error;
  bool capturing = nccl4j_standin_stream_capture(s) != 0;
  if (request->begun && !capturing) error = event_record(request->begun, s);
  if (error != cudaSuccess) {
    launch_release(l);
    return error;
  }
  error = nccl4j_standin_enqueue(s, &launch_work, l);
  if (error == cudaSuccess && request->begun && capturing) error = event_record_begun(request->begun, s);
  return error;
}

cudaError_t launch_kernel(const struct kernel_launch *request) {
  stream_t *s = nccl4j_standin_stream_get(request->stream, nccl4j_standin_current_device());
  if (!s) return cudaErrorInvalidResourceHandle;
  cudaError_t error = launch_in(s, request);
  object_put(s);
  return error;
}

void launch_attributes(struct kernel_launch *request, const cudaLaunchAttribute *attributes, unsigned int count) {
  for (unsigned int i = 0; i < count; i++) {
    const cudaLaunchAttribute *a = &attributes[i];
    switch (a->id) {
      case cudaLaunchAttributeClusterDimension:
        request->shape.cluster =
            (struct kernel_dimensions){a->val.clusterDim.x, a->val.clusterDim.y, a->val.clusterDim.z};
        break;
      case cudaLaunchAttributeLaunchCompletionEvent:
        if (a->val.launchCompletionEvent.flags) not_emulated("a launch completion event with flags");
        request->begun = a->val.launchCompletionEvent.event;
        break;
      /* These change when and where a kernel runs, within what CUDA permits anyway, and never its results. */
      case cudaLaunchAttributeIgnore:
      case cudaLaunchAttributeCooperative:
      case cudaLaunchAttributeClusterSchedulingPolicyPreference:
      case cudaLaunchAttributeProgrammaticStreamSerialization:
      case cudaLaunchAttributePriority:
      case cudaLaunchAttributeMemSyncDomainMap:
      case cudaLaunchAttributeMemSyncDomain:
      case cudaLaunchAttributePreferredSharedMemoryCarveout:
      case cudaLaunchAttributeNvlinkUtilCentricScheduling: break;
      default: not_emulated("attribute %d of a kernel launch", (int)a->id);
    }
  }
}

static struct kernel_dimensions dimensions(dim3 d) { return (struct kernel_dimensions){d.x, d.y, d.z}; }

cudaError_t cudaLaunchKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
                             cudaStream_t stream) {
  ENTER(cudaLaunchKernel);
  struct kernel_launch request = {
      .function = (cudaFunction_t)function_of(func),
      .shape = {.grid = dimensions(gridDim), .block = dimensions(blockDim), .shared = sharedMem},
      .stream = stream,
      .parameters = args,
  };
  RETURN(request.function ? launch_kernel(&request) : cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *func, void **args) {
  ENTER(cudaLaunchKernelExC);
  if (!config || (config->numAttrs && !config->attrs)) RETURN(cudaErrorInvalidValue);
  struct kernel_launch request = {
      .function = (cudaFunction_t)function_of(func),
      .shape = {.grid = dimensions(config->gridDim),
                .block = dimensions(config->blockDim),
                .shared = config->dynamicSmemBytes},
      .stream = config->stream,
      .parameters = args,
  };
  launch_attributes(&request, config->attrs, config->numAttrs);
  RETURN(request.function ? launch_kernel(&request) : cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
                                   size_t numDependencies, const struct cudaKernelNodeParams *pNodeParams) {
  ENTER(cudaGraphAddKernelNode);
  int device;
  struct launch *l;
  if (!pNodeParams) RETURN(cudaErrorInvalidValue);
  struct kernel_launch request = {
      .function = (cudaFunction_t)function_of(pNodeParams->func),
      .shape = {.grid = dimensions(pNodeParams->gridDim),
                .block = dimensions(pNodeParams->blockDim),
                .shared = pNodeParams->sharedMemBytes},
      .parameters = pNodeParams->kernelParams,
      .extra = pNodeParams->extra,
  };
  if (!request.function) RETURN(cudaErrorInvalidDeviceFunction);
  cudaError_t error = device_current(&device);
  if (error == cudaSuccess) error = launch_new(&l, &request, device);
  if (error == cudaSuccess) error = graph_add(pGraphNode, graph, pDependencies, numDependencies, &launch_work, l);
  RETURN(error);
}
