/* Tests of memory that two processes share: this program starts itself again with a role. See README.md. */
#include "selftest_driver.h"

#include <fcntl.h>
#include <sys/socket.h>

/* Starts this program again with a role; returns its process and this end of a connection. */
static pid_t start_peer(const char *role, int *connection) {
  int ends[2];
  char end[16];
  OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
  snprintf(end, sizeof end, "%d", ends[1]);
  pid_t peer = fork();
  CHECK(peer >= 0);
  if (peer == 0) {
    fcntl(ends[1], F_SETFD, 0);
    run_again((char *[]){program_invocation_name, (char *)role, end, NULL});
  }
  close(ends[1]);
  *connection = ends[0];
  return peer;
}

static void end_peer(pid_t peer, int connection) {
  int status;
  CHECK(waitpid(peer, &status, 0) == peer);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  close(connection);
}

static void send_all(int connection, const void *data, size_t bytes) {
  CHECK(write(connection, data, bytes) == (ssize_t)bytes);
}

static void receive_all(int connection, void *data, size_t bytes) {
  CHECK(recv(connection, data, bytes, MSG_WAITALL) == (ssize_t)bytes);
}

static void send_descriptor(int connection, int descriptor) {
  char byte = 0;
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof descriptor)];
  } control = {.header = {.cmsg_len = CMSG_LEN(sizeof descriptor), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
                           .msg_controllen = sizeof control};
  memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
  CHECK(sendmsg(connection, &message, 0) == 1);
}

static int receive_descriptor(int connection) {
  char byte;
  int descriptor;
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof descriptor)];
  } control;
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
                           .msg_controllen = sizeof control};
  CHECK(recvmsg(connection, &message, 0) == 1 && message.msg_controllen >= sizeof control.header);
  memcpy(&descriptor, CMSG_DATA(&control.header), sizeof descriptor);
  return descriptor;
}

static void peer_imports(int connection) {
  int descriptor = receive_descriptor(connection);
  CUmemGenericAllocationHandle handle, again;
  CUmemAllocationProp found;
  CUdeviceptr base;
  OK(cudaSetDevice(0));
  size_t before = free_memory(2);
  OK(cu.import(&handle, (void *)(intptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  OK(cu.import(&again, (void *)(intptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  OK(cu.release(again));
  OK(close(descriptor));
  CHECK(free_memory(2) == before); /* charged to the process that created it */
  OK(cu.properties(&found, handle));
  CHECK(found.location.type == CU_MEM_LOCATION_TYPE_DEVICE && found.location.id == 2);
  OK(cu.reserve(&base, GRANULE, 0, 0, 0));
  CHECK(cu.map(base, 2 * GRANULE, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  OK(cu.map(base, GRANULE, 0, handle, 0));
  OK(let_use(base, GRANULE, 0));
  char *memory = (char *)(uintptr_t)base;
  CHECK(memory[0] == 11);
  memory[GRANULE - 1] = 22;
  OK(cu.unmap(base, GRANULE));
  OK(cu.release(handle));
  OK(cu.unreserve(base, GRANULE));
}

static void shared_descriptors(void) {
  CUmemAllocationProp properties = on_device(2);
  CUmemGenericAllocationHandle handle;
  CUdeviceptr base;
  int connection, descriptor;
  OK(cu.create(&handle, GRANULE, &properties, 0));
  OK(cu.reserve(&base, GRANULE, 0, 0, 0));
  OK(cu.map(base, GRANULE, 0, handle, 0));
  OK(let_use(base, GRANULE, 2));
  char *memory = (char *)(uintptr_t)base;
  memory[0] = 11;
  pid_t peer = start_peer("imports", &connection);
  OK(cu.export(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  send_descriptor(connection, descriptor);
  OK(close(descriptor));
  end_peer(peer, connection);
  CHECK(memory[GRANULE - 1] == 22);
  OK(cu.unmap(base, GRANULE));
  OK(cu.release(handle));
  OK(cu.unreserve(base, GRANULE));
}

/* Opens the memory of the other process, then exports its own and ends with that handle as its last word. */
static void peer_opens(int connection) {
  cudaIpcMemHandle_t theirs, mine;
  char *memory, *again, *own;
  receive_all(connection, &theirs, sizeof theirs);
  OK(cudaIpcOpenMemHandle((void **)&memory, theirs, cudaIpcMemLazyEnablePeerAccess));
  OK(cudaIpcOpenMemHandle((void **)&again, theirs, cudaIpcMemLazyEnablePeerAccess));
  CHECK(memory == again && nccl4j_standin_live("mapping") == 1);
  CHECK(memory[0] == 33 && nccl4j_standin_memory_device(memory) == 5);
  CHECK(nccl4j_standin_reachable(memory, 5000) && !nccl4j_standin_reachable(memory, 5001));
  CHECK(cudaFree(memory) == cudaErrorInvalidValue);
  CHECK(cudaIpcGetMemHandle(&mine, memory) == cudaErrorInvalidValue);
  OK(cudaIpcCloseMemHandle(memory));
  memory[4999] = 44; /* still open once */
  OK(cudaIpcCloseMemHandle(memory));
  CHECK(cudaIpcCloseMemHandle(memory) == cudaErrorInvalidValue);
  CHECK(nccl4j_standin_live("mapping") == 0);
  OK(cudaMalloc((void **)&own, 100));
  OK(cudaIpcGetMemHandle(&mine, own));
  send_all(connection, &mine, sizeof mine);
}

static void shared_by_ipc(void) {
  char *memory, *other;
  cudaIpcMemHandle_t handle, theirs;
  int connection;
  OK(cudaSetDevice(5));
  OK(cudaMalloc((void **)&memory, 5000));
  memory[0] = 33;
  OK(cudaIpcGetMemHandle(&handle, memory));
  CHECK(cudaIpcOpenMemHandle((void **)&other, handle, cudaIpcMemLazyEnablePeerAccess) == cudaErrorDeviceUninitialized);
  pid_t peer = start_peer("opens", &connection);
  send_all(connection, &handle, sizeof handle);
  receive_all(connection, &theirs, sizeof theirs);
  end_peer(peer, connection);
  CHECK(memory[4999] == 44);
  CHECK(cudaIpcOpenMemHandle((void **)&other, theirs, cudaIpcMemLazyEnablePeerAccess) ==
        cudaErrorMapBufferObjectFailed); /* its process has ended */
  OK(cudaFree(memory));
  CHECK(cudaIpcGetMemHandle(&handle, memory) == cudaErrorInvalidValue);
  memset(&handle, 7, sizeof handle);
  CHECK(cudaIpcOpenMemHandle((void **)&other, handle, cudaIpcMemLazyEnablePeerAccess) ==
        cudaErrorInvalidResourceHandle);
}

/* Opens memory that has been freed by then, and whose descriptor number may stand for something else. */
static void peer_comes_late(int connection) {
  cudaIpcMemHandle_t handle;
  void *memory;
  receive_all(connection, &handle, sizeof handle);
  CHECK(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess) == cudaErrorMapBufferObjectFailed);
}

static void freed_before_it_is_opened(void) {
  void *memory, *other;
  cudaIpcMemHandle_t handle;
  int connection;
  OK(cudaMalloc(&memory, 5000));
  OK(cudaIpcGetMemHandle(&handle, memory));
  OK(cudaFree(memory));
  OK(cudaMalloc(&other, 5000)); /* takes the same descriptor */
  pid_t peer = start_peer("late", &connection);
  send_all(connection, &handle, sizeof handle);
  end_peer(peer, connection);
  OK(cudaFree(other));
}

static int peer(const char *role, int connection) {
  if (strcmp(role, "imports") == 0) peer_imports(connection);
  else if (strcmp(role, "opens") == 0) peer_opens(connection);
  else if (strcmp(role, "late") == 0) peer_comes_late(connection);
  else return 2;
  return 0;
}

int main(int count, char **arguments) {
  find_memory_functions();
  if (count == 3) return peer(arguments[1], atoi(arguments[2]));
  shared_descriptors();
  shared_by_ipc();
  freed_before_it_is_opened();
  nothing_left();
  printf("selftest_sharing: ok\n");
  return 0;
}
