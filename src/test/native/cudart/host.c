/* Host functions, which a stream's worker calls. */
#include "graph.h"

#include <stdlib.h>

STANDIN_SITE(cudaLaunchHostFunc)
STANDIN_SITE(cudaGraphAddHostNode)

static cudaError_t host_finish(void *spec) {
  const struct cudaHostNodeParams *call = spec;
  in_host_function = true;
  call->fn(call->userData);
  in_host_function = false;
  return cudaSuccess;
}

static const struct nccl4j_standin_work host_work = {
    .finish = host_finish, .release = free, .type = cudaGraphNodeTypeHost};

static struct cudaHostNodeParams *host_new(struct cudaHostNodeParams call) {
  struct cudaHostNodeParams *spec = malloc(sizeof *spec);
  *spec = call;
  return spec;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData) {
  ENTER(cudaLaunchHostFunc);
  if (!fn) RETURN(cudaErrorInvalidValue);
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) RETURN(cudaErrorInvalidResourceHandle);
  cudaError_t error = nccl4j_standin_enqueue(s, &host_work, host_new((struct cudaHostNodeParams){fn, userData}));
  object_put(s);
  RETURN(error);
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
                                 size_t numDependencies, const struct cudaHostNodeParams *pNodeParams) {
  ENTER(cudaGraphAddHostNode);
  if (!pNodeParams || !pNodeParams->fn) RETURN(cudaErrorInvalidValue);
  RETURN(graph_add(pGraphNode, graph, pDependencies, numDependencies, &host_work, host_new(*pNodeParams)));
}
