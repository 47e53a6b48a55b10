package io.nccl4j;

import io.nccl4j.internal.jfr.FlightRecorderEvents;
import io.nccl4j.internal.jfr.GraphEvent;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.spi.GraphDriver;
import io.nccl4j.spi.LaunchListener;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * Operations that are captured from a stream once and can then be launched repeatedly as a unit.
 *
 * {@snippet :
 * try (Graph step =
 *     Graph.capture(stream, () -> comm.allReduce(gradients, gradients, ReduceOp.SUM, stream))) {
 *   for (int i = 0; i < steps; i++) {
 *     step.launch(stream);
 *   }
 *   stream.synchronize();
 * }
 * }
 *
 * <p>On CUDA it is an executable CUDA graph, which is launched with one call regardless of the
 * number of operations. The reference backend enqueues the operations again at each launch.
 *
 * <p>A capture accepts operations of communicators and {@link Group}s of them; all other calls on a
 * captured stream are rejected until the capture ends. Every rank captures the same operations and
 * launches its graph the same number of times. The caller owns the buffers and created operators,
 * and must keep them open while the graph is used.
 *
 * <p>The caller owns a graph and closes it before the communicators in it. If a communicator ends
 * first, by {@link Communicator#close} or {@link Communicator#abort}, it ends its graphs, because
 * NCCL would wait for them without a timeout. Such a graph cannot be launched any more; previous
 * launches still run, and closing the graph has no effect. Any thread may launch a graph, one
 * thread at a time.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/cudagraph.html">Using
 *     NCCL with CUDA graphs</a>
 */
@NullMarked
public final class Graph implements AutoCloseable {
  private static final AtomicLong GRAPHS = new AtomicLong();

  private final long number = GRAPHS.incrementAndGet();
  private final DeviceType deviceType;
  private final int device;
  private final List<List<Call>> launches;
  // Null if the operations are enqueued again at each launch.
  private final @Nullable GraphDriver driver;
  // One object, which identifies this graph in its communicators.
  private final Runnable ending = this::end;
  private volatile boolean closed;
  // Guarded by this. A running launch defers the release to its end.
  private int launching;
  private boolean ended;
  private boolean released;

  /**
   * Creates a graph for one device.
   *
   * @param launches the operations, grouped as they were launched
   * @param driver launches all operations in one call; null if they are enqueued again
   */
  Graph(
      DeviceType deviceType, int device, List<List<Call>> launches, @Nullable GraphDriver driver) {
    this.deviceType = deviceType;
    this.device = device;
    this.launches = launches;
    this.driver = driver;
    Statistics.GRAPHS.incrementAndGet();
  }

  /**
   * Captures the operations that a lambda enqueues, instead of running them. C: {@code
   * cudaStreamBeginCapture}, {@code cudaStreamEndCapture}, {@code cudaGraphInstantiate}.
   *
   * @param streams the streams to capture, without duplicates; one for each rank that this thread
   *     drives
   * @param body enqueues operations on these streams, from this thread, and nothing else: creating
   *     streams, events, buffers and communicators, and closing a communicator, are rejected during
   *     the capture
   * @return a graph for each stream, in the same order; the caller closes it
   * @throws IllegalStateException if a stream is closed or is being captured already, or if called
   *     in a group
   * @throws NcclException if the library rejects an operation; the capture is then discarded, as
   *     after any exception of the lambda
   * @throws CudaException if the CUDA runtime rejects the capture; it is then discarded
   * @throws IllegalArgumentException if {@code streams} is empty or contains a stream twice
   */
  public static List<Graph> capture(List<? extends Stream> streams, Runnable body) {
    Objects.requireNonNull(body, "body");
    check(streams);
    List<Stream> begun = new ArrayList<>();
    List<Graph> graphs = new ArrayList<>();
    List<GraphEvent> events = new ArrayList<>();
    Capture capture = Capture.begin();
    try {
      for (Stream stream : streams) {
        events.add(new GraphEvent("capture", stream.device(), stream.number()));
        stream.startCapture();
        begun.add(stream);
      }
      body.run();
      for (Stream stream : streams) {
        List<List<Call>> launches = capture.launches(stream);
        begun.remove(stream);
        @Nullable GraphDriver driver = stream.finishCapture();
        graphs.add(new Graph(stream.deviceType(), stream.device(), launches, driver));
      }
      graphs.forEach(Graph::endWithCommunicators);
      for (int i = 0; i < graphs.size(); i++) {
        graphs.get(i).fill(events.get(i));
        events.get(i).commit();
      }
    } catch (Throwable failure) {
      undo(begun, graphs, failure);
      throw failure;
    } finally {
      Capture.end();
    }
    return List.copyOf(graphs);
  }

  /**
   * Captures the operations that a lambda enqueues on one stream, as {@link #capture(List,
   * Runnable)} does for several.
   *
   * @param stream the stream to capture
   * @param body enqueues operations on this stream, from this thread, and nothing else
   * @return the graph; the caller closes it
   * @throws IllegalStateException if the stream is closed or is being captured already, or if
   *     called in a group
   * @throws NcclException if the library rejects an operation; the capture is then discarded, as
   *     after any exception of the lambda
   * @throws CudaException if the CUDA runtime rejects the capture; it is then discarded
   */
  public static Graph capture(Stream stream, Runnable body) {
    return capture(List.of(Objects.requireNonNull(stream, "stream")), body).getFirst();
  }

  /** Discards a failed capture; failures of the cleanup are suppressed in the cause. */
  private static void undo(List<Stream> begun, List<Graph> graphs, Throwable cause) {
    List<Runnable> steps = new ArrayList<>();
    begun.forEach(stream -> steps.add(stream::dropCapture));
    graphs.forEach(graph -> steps.add(graph::close));
    steps.forEach(step -> CloseAll.after(cause, step));
  }

  private static void check(List<? extends Stream> streams) {
    Arguments.noNulls(streams, "streams");
    if (streams.isEmpty()) {
      throw new IllegalArgumentException("streams is empty; there must be one to capture");
    }
    ThreadScope.checkNotCapturing("a capture");
    if (Group.current() != null) {
      throw new IllegalStateException(
          "a capture cannot begin in a group; open the group within the capture");
    }
    Set<Stream> seen = new HashSet<>();
    for (Stream stream : streams) {
      stream.checkOpen();
      stream.checkNotCaptured("capture");
      if (!seen.add(stream)) {
        throw new IllegalArgumentException("streams has " + stream + " twice");
      }
    }
  }

  /**
   * Enqueues the captured operations. C: {@code cudaGraphLaunch}.
   *
   * @param stream the stream that orders them; a stream of the captured stream's device
   * @throws IllegalArgumentException if the stream is of another device or backend
   * @throws IllegalStateException if the graph, the stream or an object that the operations use is
   *     closed, or if the stream is being captured
   * @throws CudaException if the CUDA runtime reports an error
   */
  public void launch(Stream stream) {
    Objects.requireNonNull(stream, "stream");
    if (closed) {
      throw new IllegalStateException("graph is closed: " + this);
    }
    stream.checkOpen();
    stream.checkNotCaptured("launch");
    if (stream.deviceType() != deviceType || stream.device() != device) {
      throw new IllegalArgumentException(
          "stream is "
              + stream
              + "; it must be of the graph's device, "
              + deviceType
              + " device "
              + device);
    }
    for (Call call : calls()) {
      call.checkStillOpen();
      call.communicator().use(stream);
    }
    beginLaunch();
    try {
      replay(stream);
    } finally {
      endLaunch();
    }
  }

  private synchronized void beginLaunch() {
    if (ended) {
      throw new IllegalStateException("graph has ended with a communicator of it: " + this);
    }
    launching++;
  }

  private void endLaunch() {
    synchronized (this) {
      launching--;
    }
    releaseIfEnded();
  }

  /** Ends this graph; its resources are released now, or at the end of a running launch. */
  void end() {
    synchronized (this) {
      ended = true;
    }
    releaseIfEnded();
  }

  private void releaseIfEnded() {
    synchronized (this) {
      if (!ended || launching > 0 || released) {
        return;
      }
      released = true;
    }
    Statistics.GRAPHS.decrementAndGet();
    if (driver != null) {
      driver.release();
    }
  }

  /**
   * Registers this graph with its communicators, which end it when they end, or now if they have
   * ended.
   */
  private void endWithCommunicators() {
    communicators().forEach(communicator -> communicator.captured(ending));
  }

  private Set<CommunicatorCore> communicators() {
    return calls().stream().map(Call::communicator).collect(Collectors.toSet());
  }

  private void replay(Stream stream) {
    if (driver == null) {
      for (List<Call> together : launches) {
        CallLauncher.launchNow(together.stream().map(call -> call.on(stream)).toList());
      }
      return;
    }
    List<Call> calls = calls().stream().map(call -> call.on(stream)).toList();
    if (calls.isEmpty()) { // a graph of other code's work
      driver.launch(stream.driver());
      return;
    }
    Launched launched = Launched.countOfGraph(calls);
    boolean refused = true;
    try {
      launched.announce(true);
      refused = false;
      if (FlightRecorderEvents.on()) {
        GraphEvent event = new GraphEvent("launch", stream.device(), stream.number());
        fill(event);
        LaunchTrace.record(event, stream, () -> driver.launch(stream.driver()));
      } else {
        driver.launch(stream.driver());
      }
      launched.conclude(LaunchListener.Outcome.LAUNCHED);
    } catch (Throwable failure) {
      launched.conclude(refused ? LaunchListener.Outcome.REJECTED : LaunchListener.Outcome.FAILED);
      throw failure;
    } finally {
      if (refused) {
        launched.reject();
      } else {
        calls.forEach(call -> call.trackOperands(stream));
      }
    }
    launched.follow();
  }

  private List<Call> calls() {
    return launches.stream().flatMap(List::stream).toList();
  }

  private void fill(GraphEvent event) {
    List<Call> calls = calls();
    CommunicatorCore first = calls.isEmpty() ? null : calls.getFirst().communicator();
    event.graph = number;
    event.operations = calls.size();
    event.communicator = first == null ? null : first.identity();
    event.firstRank = first == null ? -1 : first.firstRank();
  }

  /**
   * Returns the driver that launches all operations in one call; null if they are enqueued again.
   */
  @Nullable GraphDriver driver() {
    return driver;
  }

  /**
   * Releases the graph; enqueued launches still run. Idempotent. C: {@code cudaGraphExecDestroy}.
   *
   * @throws CudaException if the CUDA runtime reports an error
   */
  @Override
  public void close() {
    closed = true;
    communicators().forEach(communicator -> communicator.forget(ending));
    end();
  }

  @Override
  public String toString() {
    return "Graph[%d launches, %s device %d]".formatted(launches.size(), deviceType, device);
  }
}
