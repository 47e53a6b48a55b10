/* Memory from NCCL, and the registration of buffers with a communicator, which has no effect here. */
#include "clique.h"

#include <stdlib.h>

NCCL_FUNCTION(ncclMemAlloc)
NCCL_FUNCTION(ncclMemFree)
NCCL_FUNCTION(ncclCommRegister)
NCCL_FUNCTION(ncclCommDeregister)

struct registration {
  void *buffer;
  size_t bytes;
  struct registration *next;
};

ncclResult_t ncclMemAlloc(void **ptr, size_t size) {
  ENTER(ncclMemAlloc);
  ncclResult_t result = require_cuda();
  if (result != ncclSuccess) return result;
  if (!ptr) return cuda_failure(cudaErrorInvalidValue);
  return cuda_failure(nccl4j_standin_allocate(ptr, size, nccl4j_standin_current_device()));
}

ncclResult_t ncclMemFree(void *ptr) {
  ENTER(ncclMemFree);
  ncclResult_t result = require_cuda();
  return result == ncclSuccess ? cuda_failure(nccl4j_standin_free(ptr)) : result;
}

void registrations_free(struct registration *list) {
  while (list) {
    struct registration *next = list->next;
    free(list);
    nccl4j_standin_count(KIND_REGISTRATION, -1);
    list = next;
  }
}

ncclResult_t ncclCommRegister(const ncclComm_t handle, void *buff, size_t size, void **out) {
  ENTER(ncclCommRegister);
  ncclComm_t comm;
  ncclResult_t result = comm_get_ready(handle, "CommRegister", &comm);
  if (result != ncclSuccess) return result;
  if (result == ncclSuccess) result = argument_present(out, "CommRegister", "handle");
  if (result == ncclSuccess) result = argument_present(buff, "CommRegister", "buff");
  if (result == ncclSuccess && nccl4j_standin_memory_device(buff) == -1) {
    object_put(comm); /* host memory is ignored without an error, and gets no handle */
    return ncclSuccess;
  }
  if (result == ncclSuccess && (size == 0 || !nccl4j_standin_reachable(buff, size))) {
    warn("CommRegister : %zu bytes at %p are not memory of a device", size, buff);
    result = ncclInvalidArgument;
  }
  if (result == ncclSuccess) {
    struct registration *r = malloc(sizeof *r);
    pthread_mutex_lock(&comm->clique->lock);
    *r = (struct registration){buff, size, comm->registrations};
    comm->registrations = r;
    pthread_mutex_unlock(&comm->clique->lock);
    nccl4j_standin_count(KIND_REGISTRATION, 1);
    *out = r;
  }
  object_put(comm);
  return result;
}

ncclResult_t ncclCommDeregister(const ncclComm_t handle, void *registration) {
  ENTER(ncclCommDeregister);
  ncclComm_t comm;
  ncclResult_t result = comm_get(handle, "CommDeregister", &comm);
  if (result != ncclSuccess) return result;
  pthread_mutex_lock(&comm->clique->lock);
  struct registration **at = &comm->registrations;
  while (*at && *at != registration) at = &(*at)->next;
  struct registration *gone = *at;
  if (gone) *at = gone->next;
  pthread_mutex_unlock(&comm->clique->lock);
  object_put(comm);
  if (!registration) return ncclSuccess; /* the handle of an ignored registration */
  if (!gone) {
    warn("Deregister: Could not find handle");
    return ncclInvalidUsage;
  }
  gone->next = NULL;
  registrations_free(gone);
  return ncclSuccess;
}
