/*
 * Allocating and freeing in stream order, and memory pools.
 *
 * An allocation is made at once, which work enqueued later cannot distinguish from one in stream order. Freed memory
 * goes back to the system as soon as no stream can use it any more, so a pool never holds memory, and the attributes
 * that say how long it may hold it and who may use it again have nothing to change.
 */
#include "memory.h"

#include <stdlib.h>

STANDIN_SITE(cudaMallocAsync)
STANDIN_SITE(cudaMallocFromPoolAsync)
STANDIN_SITE(cudaFreeAsync)
STANDIN_SITE(cudaMemPoolCreate)
STANDIN_SITE(cudaMemPoolDestroy)
STANDIN_SITE(cudaMemPoolSetAttribute)

struct pool {
  struct nccl4j_standin_object object;
  int device;
};

/* Stores the stream's device; an error if there is no such stream, or it captures, when this would become a node. */
static cudaError_t stream_device(cudaStream_t stream, int *device) {
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) return cudaErrorInvalidResourceHandle;
  *device = s->device;
  bool capturing = nccl4j_standin_stream_capture(s) != 0;
  object_put(s);
  return capturing ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t cudaMallocAsync(void **devPtr, size_t size, cudaStream_t hStream) {
  ENTER(cudaMallocAsync);
  struct region r = {.bytes = size, .type = cudaMemoryTypeDevice, .origin = BY_POOL};
  if (!devPtr) RETURN(cudaErrorInvalidValue);
  cudaError_t error = stream_device(hStream, &r.device);
  RETURN(error == cudaSuccess ? memory_allocate(devPtr, r) : error);
}

cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream) {
  ENTER(cudaMallocFromPoolAsync);
  struct region r = {.bytes = size, .type = cudaMemoryTypeDevice, .origin = BY_POOL};
  struct pool *p = ptr ? object_get(memPool, KIND_POOL) : NULL;
  if (!p) RETURN(cudaErrorInvalidValue);
  int ordered_on; /* any device may order the allocation, which is on the pool's */
  cudaError_t error = stream_device(stream, &ordered_on);
  r.device = p->device;
  object_put(p);
  RETURN(error == cudaSuccess ? memory_allocate(ptr, r) : error);
}

cudaError_t cudaFreeAsync(void *devPtr, cudaStream_t hStream) {
  ENTER(cudaFreeAsync);
  int device;
  cudaError_t error = stream_device(hStream, &device);
  if (error == cudaSuccess && !devPtr) error = cudaErrorInvalidValue;
  RETURN(error == cudaSuccess ? memory_release(devPtr) : error);
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *memPool, const struct cudaMemPoolProps *poolProps) {
  ENTER(cudaMemPoolCreate);
  if (!memPool || !poolProps || poolProps->allocType != cudaMemAllocationTypePinned) RETURN(cudaErrorInvalidValue);
  if (poolProps->location.type != cudaMemLocationTypeDevice || poolProps->handleTypes != cudaMemHandleTypeNone)
    RETURN(cudaErrorNotSupported); /* pools of host memory, and pools that processes share */
  if (!device_valid(poolProps->location.id)) RETURN(cudaErrorInvalidDevice);
  struct pool *p = calloc(1, sizeof *p);
  p->device = poolProps->location.id;
  object_add(p, KIND_POOL, free);
  *memPool = (cudaMemPool_t)p;
  RETURN(cudaSuccess);
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t memPool) {
  ENTER(cudaMemPoolDestroy);
  if (!object_retire(memPool, KIND_POOL)) RETURN(cudaErrorInvalidValue);
  object_put(memPool);
  RETURN(cudaSuccess);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value) {
  ENTER(cudaMemPoolSetAttribute);
  struct pool *p = value ? object_get(memPool, KIND_POOL) : NULL;
  if (!p) RETURN(cudaErrorInvalidValue);
  object_put(p);
  switch (attr) {
    case cudaMemPoolAttrReleaseThreshold:
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies: RETURN(cudaSuccess); /* nothing to do, see above */
    default: RETURN(cudaErrorNotSupported);
  }
}
