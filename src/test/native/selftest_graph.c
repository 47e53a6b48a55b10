/* Tests of captures and graphs; see README.md. */
#include "selftest.h"

#include <pthread.h>

/* Makes `later` wait for `earlier`. */
static void order(cudaStream_t earlier, cudaStream_t later) {
  cudaEvent_t event = event_new();
  OK(cudaEventRecord(event, earlier));
  OK(cudaStreamWaitEvent(later, event, 0));
  OK(cudaEventDestroy(event));
}

/* ---- work ---- */

/* Host functions that arrive here end when `expected` of them have arrived. */
struct meeting {
  atomic_int arrived;
  int expected;
};

static void meet(void *argument) {
  struct meeting *m = argument;
  atomic_fetch_add(&m->arrived, 1);
  while (atomic_load(&m->arrived) < m->expected) usleep(1000);
}

static atomic_int inside, most_inside, calls;

static void count_calls(void *nothing) {
  (void)nothing;
  int now = atomic_fetch_add(&inside, 1) + 1, most = atomic_load(&most_inside);
  while (now > most && !atomic_compare_exchange_weak(&most_inside, &most, now)) {}
  nap();
  atomic_fetch_add(&calls, 1);
  atomic_fetch_sub(&inside, 1);
}

/* Appends a digit to a number, so that the number shows the order. */
struct digit {
  atomic_int *number;
  int digit;
};

static void append_digit(void *argument) {
  const struct digit *d = argument;
  atomic_store(d->number, 10 * atomic_load(d->number) + d->digit);
}

static void count_arrival(void *count) { atomic_fetch_add((atomic_int *)count, 1); }

static cudaGraphExec_t instantiate(cudaGraph_t graph) {
  cudaGraphExec_t exec;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  return exec;
}

static cudaGraphExec_t end_capture(cudaStream_t stream) {
  cudaGraph_t graph;
  OK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec = instantiate(graph);
  OK(cudaGraphDestroy(graph));
  return exec;
}

static void begin_capture(cudaStream_t stream) { OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)); }

/* ---- execution ---- */

/* Host functions in three branches wait for each other, at every launch. */
static void branches(void) {
  static struct meeting m = {.expected = 3};
  cudaStream_t origin = stream_new(), forks[] = {stream_new(), stream_new()};
  begin_capture(origin);
  for (int i = 0; i < 2; i++) {
    order(origin, forks[i]);
    OK(cudaLaunchHostFunc(forks[i], meet, &m));
  }
  OK(cudaLaunchHostFunc(origin, meet, &m));
  for (int i = 0; i < 2; i++) order(forks[i], origin);
  cudaGraphExec_t exec = end_capture(origin);
  for (int i = 1; i <= 3; i++) {
    m.expected = 3 * i;
    OK(cudaGraphLaunch(exec, origin));
    OK(cudaStreamSynchronize(origin));
    SAME(3 * i, atomic_load(&m.arrived));
  }
  OK(cudaGraphExecDestroy(exec));
  for (int i = 0; i < 2; i++) OK(cudaStreamDestroy(forks[i]));
  OK(cudaStreamDestroy(origin));
}

/* A launch waits for earlier work of its stream, later work waits for the launch, and so do other launches. */
static void order_of_launches(void) {
  static atomic_int number;
  static atomic_bool gate;
  static struct digit digits[] = {{&number, 1}, {&number, 2}, {&number, 3}};
  cudaStream_t stream = stream_new(), other = stream_new();
  begin_capture(stream);
  OK(cudaLaunchHostFunc(stream, append_digit, &digits[1]));
  cudaGraphExec_t exec = end_capture(stream);
  OK(cudaLaunchHostFunc(stream, wait_for_gate, &gate));
  OK(cudaLaunchHostFunc(stream, append_digit, &digits[0]));
  OK(cudaGraphLaunch(exec, stream));
  OK(cudaLaunchHostFunc(stream, append_digit, &digits[2]));
  nap();
  SAME(0, atomic_load(&number));
  atomic_store(&gate, true);
  OK(cudaStreamSynchronize(stream));
  SAME(123, atomic_load(&number));
  OK(cudaGraphExecDestroy(exec));

  begin_capture(stream);
  OK(cudaLaunchHostFunc(stream, count_calls, NULL));
  exec = end_capture(stream);
  for (int i = 0; i < 3; i++) {
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaGraphLaunch(exec, other));
  }
  OK(cudaGraphExecDestroy(exec)); /* the launches go on */
  OK(cudaStreamSynchronize(stream));
  OK(cudaStreamSynchronize(other));
  SAME(6, atomic_load(&calls));
  SAME(1, atomic_load(&most_inside));
  OK(cudaStreamDestroy(stream));
  OK(cudaStreamDestroy(other));
}

struct launches {
  cudaGraphExec_t exec;
  cudaStream_t stream;
};

static void *launch_often(void *argument) {
  const struct launches *l = argument;
  for (int i = 0; i < 5000; i++) OK(cudaGraphLaunch(l->exec, l->stream));
  return NULL;
}

/* Threads that launch one executable graph in one stream: each launch waits for the one before it in the stream. */
static void launches_of_threads(void) {
  cudaGraph_t graph;
  cudaGraphNode_t empty;
  pthread_t threads[4];
  OK(cudaGraphCreate(&graph, 0));
  OK(cudaGraphAddEmptyNode(&empty, graph, NULL, 0));
  struct launches l = {instantiate(graph), stream_new()};
  OK(cudaGraphDestroy(graph));
  for (int i = 0; i < 4; i++) OK(pthread_create(&threads[i], NULL, launch_often, &l));
  for (int i = 0; i < 4; i++) OK(pthread_join(threads[i], NULL));
  OK(cudaStreamSynchronize(l.stream));
  OK(cudaGraphExecDestroy(l.exec));
  OK(cudaStreamDestroy(l.stream));
}

/* A launch that a failed stream skips still separates the launches before and after it. */
static void skipped_launch(void) {
  static atomic_int arrived;
  static atomic_bool gate;
  cudaStream_t streams[] = {stream_new(), stream_new(), stream_new()};
  begin_capture(streams[0]);
  OK(cudaLaunchHostFunc(streams[0], count_arrival, &arrived));
  OK(cudaLaunchHostFunc(streams[0], wait_for_gate, &gate));
  cudaGraphExec_t exec = end_capture(streams[0]);
  SAME(0, nccl4j_standin_fail_stream(streams[1], cudaErrorLaunchFailure));
  for (int i = 0; i < 3; i++) OK(cudaGraphLaunch(exec, streams[i]));
  UNTIL(atomic_load(&arrived) > 0);
  for (int i = 0; i < 10; i++) nap();
  SAME(1, atomic_load(&arrived));
  atomic_store(&gate, true);
  OK(cudaStreamSynchronize(streams[0]));
  OK(cudaStreamSynchronize(streams[2]));
  SAME(2, atomic_load(&arrived));
  OK(cudaGraphExecDestroy(exec));
  for (int i = 0; i < 3; i++) OK(cudaStreamDestroy(streams[i]));
}

/* A graph built by hand: 1 before 2 before 3, in spite of the order in which the nodes were added. */
static void building(void) {
  static atomic_int number;
  static struct digit digits[] = {{&number, 1}, {&number, 2}, {&number, 3}};
  static struct meeting m = {.expected = 1};
  cudaGraph_t graph;
  cudaGraphNode_t nodes[3], last, empty;
  cudaStream_t stream = stream_new();
  OK(cudaGraphCreate(&graph, 0));
  for (int i = 2; i >= 0; i--) {
    struct cudaHostNodeParams host = {append_digit, &digits[i]};
    OK(cudaGraphAddHostNode(&nodes[i], graph, NULL, 0, &host));
  }
  OK(cudaGraphAddDependencies(graph, &nodes[0], &nodes[1], NULL, 2));
  SAME(cudaErrorInvalidValue, cudaGraphAddDependencies(graph, &nodes[0], &nodes[1], NULL, 1));
  struct cudaHostNodeParams alone = {meet, &m};
  OK(cudaGraphAddHostNode(&last, graph, &nodes[2], 1, &alone));
  enum cudaGraphNodeType type;
  OK(cudaGraphNodeGetType(last, &type));
  SAME(cudaGraphNodeTypeHost, type);
  cudaGraphExec_t exec = instantiate(graph);
  OK(cudaGraphAddEmptyNode(&empty, graph, &last, 1));
  OK(cudaGraphAddDependencies(graph, &empty, &nodes[0], NULL, 1)); /* a cycle; the executable graph has none */
  cudaGraphExec_t none;
  SAME(cudaErrorInvalidValue, cudaGraphInstantiate(&none, graph, 0));
  OK(cudaGraphLaunch(exec, stream));
  OK(cudaStreamSynchronize(stream));
  SAME(123, atomic_load(&number));
  SAME(1, atomic_load(&m.arrived));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  SAME(cudaErrorInvalidValue, cudaGraphDestroy(graph));
  OK(cudaStreamDestroy(stream));
}

/* ---- events of graphs ---- */

/* A record node makes the event incomplete at the launch; a wait node waits for the record before the launch. */
static void event_nodes(void) {
  static atomic_int number;
  static atomic_bool gates[2];
  static struct digit digits[] = {{&number, 1}, {&number, 2}};
  cudaStream_t stream = stream_new(), other = stream_new();
  cudaEvent_t recorded = event_new(), awaited = event_new();
  SAME(cudaErrorInvalidValue, cudaEventRecordWithFlags(recorded, stream, cudaEventRecordExternal));
  SAME(cudaErrorInvalidValue, cudaStreamWaitEvent(stream, awaited, cudaEventWaitExternal));
  begin_capture(stream);
  OK(cudaStreamWaitEvent(stream, awaited, cudaEventWaitExternal));
  OK(cudaLaunchHostFunc(stream, append_digit, &digits[1]));
  OK(cudaLaunchHostFunc(stream, wait_for_gate, &gates[1]));
  OK(cudaEventRecordWithFlags(recorded, stream, cudaEventRecordExternal));
  cudaGraphExec_t exec = end_capture(stream);

  OK(cudaLaunchHostFunc(other, wait_for_gate, &gates[0]));
  OK(cudaLaunchHostFunc(other, append_digit, &digits[0]));
  OK(cudaEventRecord(awaited, other));
  OK(cudaEventQuery(recorded)); /* never recorded */
  OK(cudaGraphLaunch(exec, stream));
  SAME(cudaErrorNotReady, cudaEventQuery(recorded));
  nap();
  SAME(0, atomic_load(&number));
  atomic_store(&gates[0], true);
  UNTIL(atomic_load(&number) == 12);
  SAME(cudaErrorNotReady, cudaEventQuery(recorded));
  atomic_store(&gates[1], true);
  OK(cudaEventSynchronize(recorded));
  OK(cudaStreamSynchronize(stream));

  SAME(0, nccl4j_standin_fail_stream(stream, cudaErrorLaunchFailure)); /* a skipped launch completes the event too */
  OK(cudaGraphLaunch(exec, stream));
  SAME(cudaErrorLaunchFailure, cudaEventSynchronize(recorded));
  SAME(12, atomic_load(&number));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaStreamDestroy(stream));
  OK(cudaStreamDestroy(other));
  OK(cudaEventDestroy(recorded));
  OK(cudaEventDestroy(awaited));
}

/* One graph after the other waits for an event at its beginning and records it at its end, as NCCL's do. */
static void events_between_graphs(void) {
  static atomic_int number;
  static atomic_bool gate;
  static struct digit digits[] = {{&number, 1}, {&number, 2}};
  cudaStream_t streams[] = {stream_new(), stream_new()};
  cudaEvent_t event = event_new();
  cudaGraphExec_t execs[2];
  for (int i = 0; i < 2; i++) {
    begin_capture(streams[i]);
    OK(cudaStreamWaitEvent(streams[i], event, cudaEventWaitExternal));
    if (i == 0) OK(cudaLaunchHostFunc(streams[i], wait_for_gate, &gate));
    OK(cudaLaunchHostFunc(streams[i], append_digit, &digits[i]));
    OK(cudaEventRecordWithFlags(event, streams[i], cudaEventRecordExternal));
    execs[i] = end_capture(streams[i]);
  }
  for (int i = 0; i < 2; i++) OK(cudaGraphLaunch(execs[i], streams[i]));
  nap();
  SAME(0, atomic_load(&number));
  atomic_store(&gate, true);
  OK(cudaEventSynchronize(event)); /* the record of the second one */
  SAME(12, atomic_load(&number));
  for (int i = 0; i < 2; i++) {
    OK(cudaStreamSynchronize(streams[i]));
    OK(cudaGraphExecDestroy(execs[i]));
    OK(cudaStreamDestroy(streams[i]));
  }
  OK(cudaEventDestroy(event));
}

/* A wait after a record in one graph is for that record, not for one that was pending before the launch. */
static void event_within_a_graph(void) {
  static atomic_bool gates[2];
  cudaStream_t stream = stream_new(), other = stream_new(), fork = stream_new();
  cudaEvent_t event = event_new();
  begin_capture(stream);
  OK(cudaLaunchHostFunc(stream, wait_for_gate, &gates[0]));
  OK(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal));
  order(stream, fork);
  OK(cudaStreamWaitEvent(fork, event, cudaEventWaitExternal));
  order(fork, stream);
  cudaGraphExec_t exec = end_capture(stream);
  OK(cudaLaunchHostFunc(other, wait_for_gate, &gates[1]));
  OK(cudaEventRecord(event, other));
  for (int i = 0; i < 2; i++) OK(cudaGraphLaunch(exec, stream));
  SAME(cudaErrorNotReady, cudaEventQuery(event));
  atomic_store(&gates[0], true);
  UNTIL(cudaStreamQuery(stream) == cudaSuccess);
  OK(cudaEventQuery(event));
  atomic_store(&gates[1], true);
  OK(cudaStreamSynchronize(other));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaStreamDestroy(stream));
  OK(cudaStreamDestroy(other));
  OK(cudaStreamDestroy(fork));
  OK(cudaEventDestroy(event));
}

/* ---- captures ---- */

/* NCCL orders its launches by streams of its own, which it forks into a capture without dependencies, and by event
 * nodes that it adds to the graph itself and never joins. */
static void streams_of_a_library(void) {
  static atomic_int number;
  static struct digit digits[] = {{&number, 1}, {&number, 2}};
  cudaStream_t user = stream_new(), own = stream_new(), temporary = stream_new();
  cudaEvent_t serial = event_new(), finished = event_new();
  enum cudaStreamCaptureStatus status;
  unsigned long long id, same_id;
  cudaGraph_t graph, captured;
  const cudaGraphNode_t *nodes;
  size_t count;
  OK(cudaStreamGetCaptureInfo(user, &status, &id, &graph, NULL, NULL, NULL));
  SAME(cudaStreamCaptureStatusNone, status);
  SAME(cudaErrorIllegalState, cudaStreamUpdateCaptureDependencies(user, NULL, NULL, 0, 0));

  begin_capture(user);
  OK(cudaLaunchHostFunc(user, append_digit, &digits[0]));
  OK(cudaStreamGetCaptureInfo(user, &status, &id, &graph, NULL, NULL, NULL));
  SAME(cudaStreamCaptureStatusActive, status);
  SAME(cudaErrorInvalidValue, cudaGraphDestroy(graph));
  order(user, own);
  OK(cudaStreamGetCaptureInfo(own, &status, &same_id, NULL, &nodes, NULL, &count));
  SAME(id, same_id);
  SAME(1, count);
  OK(cudaStreamUpdateCaptureDependencies(own, NULL, NULL, 0, cudaStreamSetCaptureDependencies));
  OK(cudaStreamGetCaptureInfo(own, &status, NULL, NULL, &nodes, NULL, &count));
  SAME(0, count);
  OK(cudaStreamWaitEvent(own, serial, cudaEventWaitExternal));
  order(own, user);
  OK(cudaStreamGetCaptureInfo(user, &status, NULL, NULL, NULL, NULL, &count));
  SAME(2, count);
  OK(cudaLaunchHostFunc(user, append_digit, &digits[1]));

  OK(cudaEventRecord(finished, user));
  OK(cudaStreamWaitEvent(temporary, finished, 0));
  OK(cudaStreamGetCaptureInfo(temporary, &status, NULL, NULL, &nodes, NULL, &count));
  OK(cudaStreamUpdateCaptureDependencies(own, (cudaGraphNode_t *)nodes, NULL, count, cudaStreamSetCaptureDependencies));
  OK(cudaStreamDestroy(temporary));

  cudaGraphNode_t record;
  OK(cudaGraphAddEventRecordNode(&record, graph, NULL, 0, serial));
  OK(cudaStreamGetCaptureInfo(own, &status, NULL, NULL, &nodes, NULL, &count));
  SAME(1, count);
  OK(cudaGraphAddDependencies(graph, nodes, &record, NULL, 1));
  OK(cudaStreamUpdateCaptureDependencies(own, &record, NULL, 1, cudaStreamSetCaptureDependencies));
  OK(cudaStreamEndCapture(user, &captured));
  SAME((uintptr_t)graph, (uintptr_t)captured);
  OK(cudaStreamIsCapturing(own, &status));
  SAME(cudaStreamCaptureStatusNone, status);
  OK(cudaGraphGetNodes(captured, NULL, &count));
  SAME(4, count);

  cudaGraphExec_t exec = instantiate(captured);
  OK(cudaGraphDestroy(captured));
  for (int i = 0; i < 2; i++) OK(cudaGraphLaunch(exec, user));
  OK(cudaStreamWaitEvent(own, serial, 0));
  OK(cudaStreamSynchronize(own));
  SAME(1212, atomic_load(&number));
  OK(cudaStreamSynchronize(user));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaStreamDestroy(user));
  OK(cudaStreamDestroy(own));
  OK(cudaEventDestroy(serial));
  OK(cudaEventDestroy(finished));
}

static void refused_captures(void) {
  static struct meeting m = {.expected = 1};
  cudaStream_t origin = stream_new(), fork = stream_new(), blocking;
  cudaEvent_t outside = event_new(), never_recorded = event_new();
  enum cudaStreamCaptureStatus status;
  cudaGraph_t graph;
  OK(cudaStreamCreate(&blocking));
  begin_capture(origin);
  order(origin, fork);
  OK(cudaLaunchHostFunc(fork, meet, &m));
  SAME(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(origin, &graph));
  begin_capture(origin);
  order(origin, fork);
  OK(cudaLaunchHostFunc(fork, meet, &m));
  OK(cudaStreamDestroy(fork)); /* what it leaves behind is not joined */
  SAME(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(origin, &graph));
  OK(cudaEventRecord(outside, origin));
  begin_capture(origin);
  OK(cudaStreamWaitEvent(origin, never_recorded, 0)); /* depends on nothing */
  SAME(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(origin, outside, 0));
  OK(cudaStreamIsCapturing(origin, &status));
  SAME(cudaStreamCaptureStatusInvalidated, status);
  SAME(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(origin, &graph));
  begin_capture(blocking);
  SAME(cudaErrorStreamCaptureImplicit, cudaStreamIsCapturing(NULL, &status));
  OK(cudaStreamIsCapturing(blocking, &status)); /* a question does not invalidate */
  SAME(cudaStreamCaptureStatusActive, status);
  OK(cudaStreamEndCapture(blocking, &graph));
  OK(cudaGraphDestroy(graph));
  begin_capture(blocking);
  SAME(cudaErrorStreamCaptureImplicit, cudaEventRecord(never_recorded, NULL)); /* but work does */
  SAME(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(blocking, &graph));
  SAME(0, nccl4j_standin_live("graph"));
  SAME(0, atomic_load(&m.arrived));
  OK(cudaStreamDestroy(origin));
  OK(cudaStreamDestroy(blocking));
  OK(cudaEventDestroy(outside));
  OK(cudaEventDestroy(never_recorded));
}

/* Calls on other objects while a thread captures a stream; which of them CUDA refuses was seen on an H100, driver 580. */
static cudaStream_t new_stream;
static cudaEvent_t new_event;
static cudaGraph_t built;
static cudaGraphExec_t executable;

static cudaError_t create_stream(void) { return cudaStreamCreateWithFlags(&new_stream, cudaStreamNonBlocking); }
static cudaError_t launch(void) { return cudaGraphLaunch(executable, new_stream); }
static cudaError_t query_stream(void) { return cudaStreamQuery(new_stream); }
static cudaError_t create_event(void) { return cudaEventCreateWithFlags(&new_event, cudaEventDisableTiming); }
static cudaError_t record_event(void) { return cudaEventRecord(new_event, new_stream); }
static cudaError_t query_event(void) { return cudaEventQuery(new_event); }
static cudaError_t destroy_event(void) { return cudaEventDestroy(new_event); }
static cudaError_t instantiate_graph(void) { return cudaGraphInstantiate(&executable, built, 0); }
static cudaError_t destroy_executable(void) { return cudaGraphExecDestroy(executable); }
static cudaError_t destroy_graph(void) { return cudaGraphDestroy(built); }
static cudaError_t destroy_stream(void) { return cudaStreamDestroy(new_stream); }

static void calls_beside_a_capture(void) {
  static const struct {
    cudaError_t (*call)(void);
    bool refused;
  } calls[] = {
      {create_stream, false}, {create_event, false}, {query_stream, true}, {query_event, true}, {instantiate_graph, true},
      {launch, false}, {record_event, false}, {destroy_executable, true}, {destroy_graph, false}, {destroy_event, false},
      {destroy_stream, false},
  };
  cudaStream_t stream = stream_new();
  OK(cudaGraphCreate(&built, 0));
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaGraph_t graph;
    begin_capture(stream);
    if (calls[i].refused) SAME(cudaErrorStreamCaptureUnsupported, calls[i].call());
    else OK(calls[i].call());
    SAME(calls[i].refused ? cudaErrorStreamCaptureInvalidated : cudaSuccess, cudaStreamEndCapture(stream, &graph));
    if (!calls[i].refused) OK(cudaGraphDestroy(graph));
    else {
      begin_capture(stream);
      OK(cudaThreadExchangeStreamCaptureMode(&mode));
      OK(calls[i].call());
      OK(cudaThreadExchangeStreamCaptureMode(&mode));
      OK(cudaStreamEndCapture(stream, &graph));
      OK(cudaGraphDestroy(graph));
    }
  }
  OK(cudaStreamDestroy(stream));
}

/* A launch in a capture is a child graph, also the second launch of one graph. */
static void nested_graphs(void) {
  static atomic_int number;
  static struct digit digits[] = {{&number, 1}, {&number, 2}};
  cudaStream_t stream = stream_new();
  begin_capture(stream);
  OK(cudaLaunchHostFunc(stream, append_digit, &digits[1]));
  cudaGraphExec_t child = end_capture(stream);
  begin_capture(stream);
  OK(cudaLaunchHostFunc(stream, append_digit, &digits[0]));
  for (int i = 0; i < 2; i++) OK(cudaGraphLaunch(child, stream));
  cudaGraphExec_t parent = end_capture(stream);
  OK(cudaGraphExecDestroy(child));
  for (int i = 0; i < 2; i++) {
    OK(cudaGraphLaunch(parent, stream));
    OK(cudaStreamSynchronize(stream));
  }
  SAME(122122, atomic_load(&number));
  OK(cudaGraphExecDestroy(parent));
  OK(cudaStreamDestroy(stream));
}

/* ---- user objects ---- */

static atomic_int destroyed;

static void destroy(void *error) {
  *(cudaError_t *)error = cudaGetLastError() == cudaSuccess ? cudaMalloc((void **)&error, 16) : cudaErrorUnknown;
  atomic_fetch_add(&destroyed, 1);
}

static void user_objects(void) {
  static cudaError_t inside_destructor;
  static atomic_bool gate;
  cudaUserObject_t object;
  cudaGraph_t graph;
  cudaStream_t stream = stream_new();
  enum cudaStreamCaptureStatus status;
  SAME(cudaErrorInvalidValue, cudaUserObjectCreate(&object, NULL, destroy, 1, 0));
  OK(cudaUserObjectCreate(&object, &inside_destructor, destroy, 1, cudaUserObjectNoDestructorSync));
  begin_capture(stream);
  OK(cudaLaunchHostFunc(stream, wait_for_gate, &gate));
  OK(cudaStreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL, NULL));
  OK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  OK(cudaGraphRetainUserObject(graph, object, 1, 0)); /* the graph has all references, two */
  SAME(cudaErrorInvalidValue, cudaGraphRetainUserObject(graph, object, INT_MAX, 0));
  cudaGraphExec_t exec = end_capture(stream);
  OK(cudaGraphLaunch(exec, stream));
  OK(cudaGraphExecDestroy(exec));
  nap();
  SAME(0, atomic_load(&destroyed)); /* the launch runs still */
  SAME(1, nccl4j_standin_live("user object"));
  atomic_store(&gate, true);
  OK(cudaStreamSynchronize(stream));
  UNTIL(atomic_load(&destroyed) > 0);
  SAME(1, atomic_load(&destroyed));
  SAME(cudaErrorNotPermitted, inside_destructor);
  SAME(0, nccl4j_standin_live("user object"));

  OK(cudaUserObjectCreate(&object, &inside_destructor, destroy, 1, cudaUserObjectNoDestructorSync));
  begin_capture(stream);
  OK(cudaStreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL, NULL));
  OK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  SAME(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(stream));
  SAME(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &graph));
  UNTIL(atomic_load(&destroyed) == 2);
  OK(cudaStreamDestroy(stream));
}

int main(void) {
  branches();
  order_of_launches();
  launches_of_threads();
  skipped_launch();
  building();
  event_nodes();
  events_between_graphs();
  event_within_a_graph();
  streams_of_a_library();
  refused_captures();
  calls_beside_a_capture();
  nested_graphs();
  user_objects();
  for (const char *const *kind = (const char *const[]){"stream", "event", "graph", "pinned", NULL}; *kind; kind++)
    SAME(0, nccl4j_standin_live(*kind));
  printf("selftest_graph: ok\n");
  return 0;
}
