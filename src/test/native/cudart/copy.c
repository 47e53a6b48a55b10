/*
 * Copying and setting memory. Transfers run in stream order; pageable sources are staged when the call is made.
 */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

STANDIN_SITE(cudaMemcpy)
STANDIN_SITE(cudaMemcpyAsync)
STANDIN_SITE(cudaMemcpyBatchAsync)
STANDIN_SITE(cudaMemset)
STANDIN_SITE(cudaMemsetAsync)

struct transfer {
  void *to;
  const void *from; /* NULL: set to `value` */
  int value;
  size_t bytes;
  void *staged; /* a copy of pageable memory, made when the transfer is enqueued */
};

static cudaError_t transfer_start(void *spec) {
  struct transfer *t = spec;
  if (t->staged) memcpy(t->to, t->staged, t->bytes);
  else if (t->from) memmove(t->to, t->from, t->bytes);
  else if (t->value == 0) memory_zero(t->to, t->bytes);
  else memset(t->to, t->value, t->bytes);
  return cudaSuccess;
}

static void transfer_release(void *spec) {
  free(((struct transfer *)spec)->staged);
  free(spec);
}

static const struct nccl4j_standin_work copy_work = {
    .start = transfer_start, .release = transfer_release, .type = cudaGraphNodeTypeMemcpy};
static const struct nccl4j_standin_work set_work = {
    .start = transfer_start, .release = transfer_release, .type = cudaGraphNodeTypeMemset};

enum side { HOST_SIDE, DEVICE_SIDE, ANY_SIDE };

static cudaError_t check_side(const void *pointer, size_t bytes, enum side side, bool writes, bool *pageable) {
  int device = nccl4j_standin_memory_device(pointer);
  *pageable = device == -2;
  if (!pointer) return cudaErrorInvalidValue;
  if (*pageable) return side == DEVICE_SIDE ? cudaErrorInvalidValue : cudaSuccess;
  if (side == HOST_SIDE && device >= 0) return cudaErrorInvalidValue;
  bool allowed = writes ? nccl4j_standin_writable(pointer, bytes, -1) : nccl4j_standin_reachable(pointer, bytes);
  return allowed ? cudaSuccess : cudaErrorInvalidValue;
}

#define SMALL_BYTES 65536

/* CUDA copies little pageable memory by itself, not by the device: with nothing before it in the stream, such a copy is
 * as good as done when the call returns. NCCL counts on it: a graph that holds the first operation with a peer does not
 * wait for the copy of that connection, which NCCL made in another stream. */
static bool at_once(stream_t *s, const struct transfer *t, bool stage, bool capturing) {
  return stage && !capturing && t->bytes <= SMALL_BYTES && capture_forbids_legacy(s) == cudaSuccess && stream_idle(s);
}

static cudaError_t enqueue_transfer(cudaStream_t stream, struct transfer t, bool wait, bool stage) {
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) return cudaErrorInvalidResourceHandle;
  bool capturing = nccl4j_standin_stream_capture(s) != 0;
  if (at_once(s, &t, stage, capturing)) {
    transfer_start(&t);
    object_put(s);
    return cudaSuccess;
  }
  struct transfer *spec = malloc(sizeof *spec);
  *spec = t;
  if (stage && !wait && !capturing) {
    spec->staged = malloc(t.bytes);
    if (spec->staged) memcpy(spec->staged, t.from, t.bytes);
    else wait = true;
  }
  cudaError_t error = nccl4j_standin_enqueue(s, t.from ? &copy_work : &set_work, spec);
  if (error == cudaSuccess && wait && !capturing) error = stream_synchronize(s);
  object_put(s);
  return error;
}

static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream,
                        bool wait) {
  static const enum side from_side[] = {HOST_SIDE, HOST_SIDE, DEVICE_SIDE, DEVICE_SIDE, ANY_SIDE};
  static const enum side to_side[] = {HOST_SIDE, DEVICE_SIDE, HOST_SIDE, DEVICE_SIDE, ANY_SIDE};
  bool from_pageable, to_pageable;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (bytes == 0) return cudaSuccess;
  cudaError_t error = check_side(to, bytes, to_side[kind], true, &to_pageable);
  if (error == cudaSuccess) error = check_side(from, bytes, from_side[kind], false, &from_pageable);
  if (error != cudaSuccess) return error;
  struct transfer t = {.to = to, .from = from, .bytes = bytes};
  return enqueue_transfer(stream, t, wait || to_pageable, from_pageable);
}

/* The synchronous forms use the legacy stream, and are refused during a capture. */
static cudaError_t synchronous_allowed(void) {
  stream_t *legacy = nccl4j_standin_stream_get(cudaStreamLegacy, nccl4j_standin_current_device());
  if (!legacy) return cudaErrorInsufficientDriver;
  cudaError_t error = capture_forbids_legacy(legacy);
  object_put(legacy);
  return error == cudaSuccess ? nccl4j_standin_unsafe() : error;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind) {
  ENTER(cudaMemcpy);
  cudaError_t error = synchronous_allowed();
  RETURN(error == cudaSuccess ? copy(dst, src, count, kind, cudaStreamLegacy, true) : error);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream) {
  ENTER(cudaMemcpyAsync);
  RETURN(copy(dst, src, count, kind, stream, false));
}

static cudaError_t set(void *pointer, int value, size_t bytes, cudaStream_t stream, bool wait) {
  bool pageable;
  if (bytes == 0) return cudaSuccess;
  cudaError_t error = check_side(pointer, bytes, DEVICE_SIDE, true, &pageable);
  if (error != cudaSuccess) return error;
  return enqueue_transfer(stream, (struct transfer){.to = pointer, .value = value, .bytes = bytes}, wait, false);
}

cudaError_t cudaMemset(void *devPtr, int value, size_t count) {
  ENTER(cudaMemset);
  cudaError_t error = synchronous_allowed();
  RETURN(error == cudaSuccess ? set(devPtr, value, count, cudaStreamLegacy, true) : error);
}

cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream) {
  ENTER(cudaMemsetAsync);
  RETURN(set(devPtr, value, count, stream, false));
}

/* ---- batches ---- */

struct batch {
  size_t count;
  struct transfer transfers[];
};

static cudaError_t batch_start(void *spec) {
  struct batch *b = spec;
  for (size_t i = 0; i < b->count; i++) transfer_start(&b->transfers[i]);
  return cudaSuccess;
}

static void batch_release(void *spec) {
  struct batch *b = spec;
  for (size_t i = 0; i < b->count; i++) free(b->transfers[i].staged);
  free(b);
}

static const struct nccl4j_standin_work batch_work = {.start = batch_start, .release = batch_release};

/* The number of copies that an entry of `attributes` applies to must be positive, and they must be all copies. */
static bool attributes_valid(const struct cudaMemcpyAttributes *attributes, const size_t *first, size_t entries,
                             size_t copies) {
  if (!attributes || !first || entries == 0 || entries > copies || first[0] != 0) return false;
  for (size_t i = 0; i < entries; i++) {
    const struct cudaMemcpyAttributes *a = &attributes[i];
    if (first[i] >= copies || (i > 0 && first[i] <= first[i - 1])) return false;
    if (a->srcAccessOrder < cudaMemcpySrcAccessOrderStream || a->srcAccessOrder > cudaMemcpySrcAccessOrderAny)
      return false;
    if (a->flags & ~(unsigned)cudaMemcpyFlagPreferOverlapWithCompute) return false;
  }
  return true;
}

/* Sources are read in stream order, unless the attributes say that they are valid during the call only. */
static cudaError_t batch_add(struct batch *b, void *to, const void *from, size_t bytes,
                             enum cudaMemcpySrcAccessOrder order) {
  bool pageable;
  cudaError_t error = check_side(to, bytes, ANY_SIDE, true, &pageable);
  if (error == cudaSuccess) error = check_side(from, bytes, ANY_SIDE, false, &pageable);
  if (error != cudaSuccess) return error;
  struct transfer *t = &b->transfers[b->count++];
  *t = (struct transfer){.to = to, .from = from, .bytes = bytes};
  if (order != cudaMemcpySrcAccessOrderDuringApiCall) return cudaSuccess;
  t->staged = malloc(bytes ? bytes : 1);
  if (!t->staged) return cudaErrorMemoryAllocation;
  memcpy(t->staged, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyBatchAsync(void *const *dsts, const void *const *srcs, const size_t *sizes, size_t count,
                                 struct cudaMemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                                 cudaStream_t stream) {
  ENTER(cudaMemcpyBatchAsync);
  if (!dsts || !srcs || !sizes || count == 0 || !attributes_valid(attrs, attrsIdxs, numAttrs, count))
    RETURN(cudaErrorInvalidValue);
  if (stream == NULL || stream == cudaStreamLegacy) RETURN(cudaErrorInvalidValue);
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) RETURN(cudaErrorInvalidResourceHandle);
  struct batch *b = calloc(1, sizeof *b + count * sizeof *b->transfers);
  bool capturing = nccl4j_standin_stream_capture(s) != 0;
  cudaError_t error = capturing ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
  for (size_t i = 0, entry = 0; i < count && error == cudaSuccess; i++) {
    if (entry + 1 < numAttrs && attrsIdxs[entry + 1] == i) entry++;
    error = batch_add(b, dsts[i], srcs[i], sizes[i], attrs[entry].srcAccessOrder);
  }
  if (error == cudaSuccess) error = nccl4j_standin_enqueue(s, &batch_work, b);
  else batch_release(b);
  object_put(s);
  RETURN(error);
}
