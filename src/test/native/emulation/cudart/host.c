/* Host functions and callbacks, which a stream's worker calls. */
#include "graph.h"

#include <stdlib.h>

STANDIN_SITE(cudaStreamAddCallback)
STANDIN_SITE(cudaLaunchHostFunc)
STANDIN_SITE(cudaGraphAddHostNode)

struct host_call {
  cudaHostFn_t function;
  cudaStreamCallback_t callback;
  cudaStream_t stream;
  void *data;
};

static cudaError_t host_call_finish(void *spec) {
  struct host_call *call = spec;
  in_host_function = true;
  if (call->function) call->function(call->data);
  else call->callback(call->stream, stream_error, call->data);
  in_host_function = false;
  return cudaSuccess;
}

static const struct nccl4j_standin_work host_function_work = {
    .finish = host_call_finish, .release = free, .type = cudaGraphNodeTypeHost};
static const struct nccl4j_standin_work callback_work = {
    .finish = host_call_finish, .release = free, .always = true, .type = cudaGraphNodeTypeHost};

static struct host_call *host_call_new(struct host_call call) {
  struct host_call *spec = malloc(sizeof *spec);
  *spec = call;
  return spec;
}

static cudaError_t enqueue_host_call(cudaStream_t stream, const struct nccl4j_standin_work *work,
                                     struct host_call call) {
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) return cudaErrorInvalidResourceHandle;
  cudaError_t error = nccl4j_standin_enqueue(s, work, host_call_new(call));
  object_put(s);
  return error;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData) {
  ENTER(cudaLaunchHostFunc);
  if (!fn) RETURN(cudaErrorInvalidValue);
  RETURN(enqueue_host_call(stream, &host_function_work, (struct host_call){.function = fn, .data = userData}));
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *userData,
                                  unsigned int flags) {
  ENTER(cudaStreamAddCallback);
  if (!callback || flags != 0) RETURN(cudaErrorInvalidValue);
  struct host_call call = {.callback = callback, .stream = stream, .data = userData};
  RETURN(enqueue_host_call(stream, &callback_work, call));
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
                                 size_t numDependencies, const struct cudaHostNodeParams *pNodeParams) {
  ENTER(cudaGraphAddHostNode);
  if (!pNodeParams || !pNodeParams->fn) RETURN(cudaErrorInvalidValue);
  struct host_call call = {.function = pNodeParams->fn, .data = pNodeParams->userData};
  RETURN(graph_add(pGraphNode, graph, pDependencies, numDependencies, &host_function_work, host_call_new(call)));
}
