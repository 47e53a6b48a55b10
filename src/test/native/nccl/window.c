/*
 * Windows: memory that all ranks of a communicator register together, so that peers may write to it.
 *
 * The k-th registrations of all ranks belong together, as with splits; a rank that fails leaves its peers waiting, as
 * in the real library. A window's handle is valid on the rank and in the communicator that created it.
 */
#include "clique.h"

#include <stdlib.h>

NCCL_FUNCTION(ncclCommWindowRegister)
NCCL_FUNCTION(ncclCommWindowDeregister)
NCCL_FUNCTION(ncclWinGetUserPtr)
NCCL_FUNCTION(ncclGetPeerDevicePointer)
NCCL_FUNCTION(ncclGetLsaMultimemDevicePointer)

/* A collective registration while its ranks arrive. */
struct window_registration {
  uint64_t number;
  int arrived, left;
  bool complete;
  struct window_registration *next;
};

static struct window_registration *window_registration_numbered(struct clique *c, uint64_t number) {
  for (struct window_registration *m = c->window_registrations; m; m = m->next)
    if (m->number == number) return m;
  struct window_registration *m = calloc(1, sizeof *m);
  m->number = number;
  m->next = c->window_registrations;
  c->window_registrations = m;
  return m;
}

static void window_registration_remove(struct clique *c, struct window_registration *gone) {
  struct window_registration **at = &c->window_registrations;
  while (*at != gone) at = &(*at)->next;
  *at = gone->next;
  free(gone);
}

void window_registrations_free(struct window_registration *window_registrations) {
  while (window_registrations) {
    struct window_registration *next = window_registrations->next;
    free(window_registrations);
    window_registrations = next;
  }
}

void windows_free(struct ncclWindow_vidmem *windows) {
  while (windows) {
    struct ncclWindow_vidmem *next = windows->next;
    free(windows);
    nccl4j_standin_count(KIND_WINDOW, -1);
    windows = next;
  }
}

/* Makes the communicator own the window. */
static void window_link(ncclComm_t comm, struct ncclWindow_vidmem *window) {
  window->next = comm->windows;
  comm->windows = window;
  nccl4j_standin_count(KIND_WINDOW, 1);
}

/* Returns the window, unlinked and owned by the caller, or NULL if this rank does not have it. */
static struct ncclWindow_vidmem *window_unlink(ncclComm_t comm, ncclWindow_t handle) {
  struct ncclWindow_vidmem **at = &comm->windows;
  while (*at && *at != handle) at = &(*at)->next;
  struct ncclWindow_vidmem *gone = *at;
  if (gone) {
    *at = gone->next;
    gone->next = NULL;
  }
  return gone;
}

struct ncclWindow_vidmem *window_of(ncclComm_t comm, ncclWindow_t handle) {
  struct ncclWindow_vidmem *window = comm->windows;
  while (window && window != handle) window = window->next;
  return window;
}

struct ncclWindow_vidmem *window_numbered(ncclComm_t comm, uint64_t number) {
  struct ncclWindow_vidmem *window = comm->windows;
  while (window && window->number != number) window = window->next;
  return window;
}

struct ncclWindow_vidmem *window_around(ncclComm_t comm, const void *pointer) {
  uintptr_t at = (uintptr_t)pointer;
  for (struct ncclWindow_vidmem *window = comm->windows; window; window = window->next)
    if (at >= (uintptr_t)window->base && at - (uintptr_t)window->base < window->bytes) return window;
  return NULL;
}

/* ---- registering: a job of a group, like a split ---- */

static ncclResult_t window_check(const struct ncclWindow_vidmem *window) {
  if (!nccl4j_standin_by_nccl(window->base, window->bytes)) {
    warn("CommWindowRegister : %zu bytes at %p are not memory of ncclMemAlloc", window->bytes, window->base);
    return ncclUnhandledCudaError;
  }
  if ((uintptr_t)window->base % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    warn("Window address must be suitably aligned.");
    return ncclInvalidArgument;
  }
  return ncclSuccess;
}

ncclResult_t window_begin(struct job *job) {
  ncclComm_t comm = job->comm;
  struct clique *c = comm->clique;
  ncclResult_t result = window_check(job->window);
  pthread_mutex_lock(&c->lock);
  job->window->number = comm->registered_windows++;
  if (result == ncclSuccess && !comm->silent && !comm->aborted) {
    window_link(comm, job->window); /* a peer may write to it as soon as the last rank has arrived */
    job->window_registration = window_registration_numbered(c, job->window->number);
    job->window_registration->complete = ++job->window_registration->arrived == c->ranks;
    if (job->window_registration->complete) clique_wake(c);
  }
  pthread_mutex_unlock(&c->lock);
  return result;
}

/* Called when this rank has its window, or gives up. Needs the clique's lock. */
static void window_registration_leave(struct clique *c, struct window_registration *m) {
  if (!m->complete) m->arrived--;
  else m->left++;
  if (m->complete ? m->left == c->ranks : m->arrived == 0) window_registration_remove(c, m);
}

ncclResult_t window_finish(struct job *job) {
  ncclComm_t comm = job->comm;
  struct clique *c = comm->clique;
  pthread_mutex_lock(&c->lock);
  while (!comm->aborted && !(job->window_registration && job->window_registration->complete))
    pthread_cond_wait(&comm->changed, &c->lock);
  bool aborted = comm->aborted;
  if (job->window_registration) {
    window_registration_leave(c, job->window_registration);
    if (aborted) windows_free(window_unlink(comm, job->window));
    else *job->window_out = job->window; /* after an abort the memory may have been freed */
  }
  pthread_mutex_unlock(&c->lock);
  if (aborted) warn("the registration of a window was aborted");
  return aborted ? ncclInternalError : ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t handle, void *buff, size_t size, ncclWindow_t *win, int winFlags) {
  ENTER_COLLECTED(ncclCommWindowRegister);
  ncclComm_t comm;
  ncclResult_t result = comm_get(handle, "ncclCommWindowRegister", &comm);
  if (result != ncclSuccess) return result;
  result = argument_present(win, "ncclCommWindowRegister", "win");
  if (result == ncclSuccess) *win = NULL;
  if (result == ncclSuccess && (!buff || size == 0)) {
    warn("invalid pointer %p / size %zu", buff, size);
    result = ncclInvalidArgument;
  }
  object_put(comm);
  if (result != ncclSuccess || !windows_supported()) return result;
  result = comm_get_ready(handle, "ncclCommWindowRegister", &comm);
  if (result != ncclSuccess) return group_refuse(result);
  struct job *job = calloc(1, sizeof *job);
  job->kind = JOB_WINDOW;
  job->comm = comm;
  job->window = calloc(1, sizeof *job->window);
  *job->window = (struct ncclWindow_vidmem){.comm = comm, .base = buff, .bytes = size, .flags = winFlags};
  job->window_out = win;
  result = group_submit(job);
  return result == ncclInProgress && pitfall_on(4) ? ncclSuccess : result;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t handle, ncclWindow_t win) {
  ENTER(ncclCommWindowDeregister);
  ncclComm_t comm;
  ncclResult_t result = comm_get(handle, "ncclCommWindowDeregister", &comm);
  if (result != ncclSuccess) return result;
  pthread_mutex_lock(&comm->clique->lock);
  struct ncclWindow_vidmem *gone = window_unlink(comm, win);
  pthread_mutex_unlock(&comm->clique->lock);
  object_put(comm);
  if (!win) return ncclSuccess;
  if (!gone) {
    warn("Device object does not exist in shadow pool.");
    return ncclInternalError;
  }
  windows_free(gone);
  return ncclSuccess;
}

ncclResult_t ncclWinGetUserPtr(ncclComm_t handle, ncclWindow_t win, void **outUserPtr) {
  ENTER(ncclWinGetUserPtr);
  ncclComm_t comm;
  ncclResult_t result = comm_get(handle, "ncclWinGetUserPtr", &comm);
  if (result != ncclSuccess) return result;
  result = argument_present(outUserPtr, "ncclWinGetUserPtr", "outUserPtr");
  if (result == ncclSuccess && !windows_supported()) {
    *outUserPtr = NULL;
  } else if (result == ncclSuccess) {
    result = argument_present(win, "ncclWinGetUserPtr", "win");
    pthread_mutex_lock(&comm->clique->lock);
    struct ncclWindow_vidmem *window = window_of(comm, win);
    if (window) *outUserPtr = window->base;
    pthread_mutex_unlock(&comm->clique->lock);
    if (result == ncclSuccess && !window) {
      warn("Device object does not exist in shadow pool.");
      result = ncclInternalError;
    }
  }
  object_put(comm);
  return result;
}

/* These take no communicator: a window's handle is a pointer, and must be open. */

ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t win, size_t offset, int peer, void **outPtr) {
  ENTER(ncclGetPeerDevicePointer);
  ncclResult_t result = argument_present(win, "ncclGetPeerDevicePointer", "window");
  if (result == ncclSuccess) result = argument_present(outPtr, "ncclGetPeerDevicePointer", "outPtr");
  if (result != ncclSuccess) return result;
  struct clique *c = win->comm->clique;
  if (peer < 0 || peer >= c->ranks) {
    warn("peer %d is not within valid range of ranks %d.", peer, c->ranks);
    return ncclInvalidArgument;
  }
  pthread_mutex_lock(&c->lock);
  struct ncclWindow_vidmem *theirs = c->members[peer] ? window_numbered(c->members[peer], win->number) : NULL;
  *outPtr = theirs ? (char *)theirs->base + offset : NULL;
  pthread_mutex_unlock(&c->lock);
  return ncclSuccess;
}

/* There is no multicast memory. */
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t win, size_t offset, void **outPtr) {
  ENTER(ncclGetLsaMultimemDevicePointer);
  (void)offset;
  ncclResult_t result = argument_present(win, "ncclGetLsaMultimemDevicePointer", "window");
  if (result == ncclSuccess) result = argument_present(outPtr, "ncclGetLsaMultimemDevicePointer", "outPtr");
  if (result == ncclSuccess) *outPtr = NULL;
  return result;
}
