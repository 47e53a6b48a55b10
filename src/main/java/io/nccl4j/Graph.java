package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.spi.GraphDriver;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Operations that were captured from a stream once and are launched again and again, as one. On
 * CUDA it is an executable CUDA graph, whose launch costs one call however many operations it has;
 * the reference backend enqueues the operations anew.
 *
 * <p>A capture takes operations of communicators and {@link Group}s of them; anything else on a
 * captured stream is refused until the capture ends. Every rank captures the same operations and
 * launches its graph as often as the others do. The buffers and created operators stay the
 * caller's, who keeps them open while the graph is used.
 *
 * <p>A graph belongs to the code that captured it, which closes it before the communicators in it.
 * A communicator that ends first, by {@link Communicator#close} or {@link Communicator#abort}, ends
 * its graphs: NCCL would wait for their end, without a deadline. Such a graph cannot be launched
 * any more; what has been launched still runs, and closing the graph does nothing. Any thread may
 * launch a graph, one at a time.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/cudagraph.html">Using
 *     NCCL with CUDA graphs</a>
 */
public final class Graph implements AutoCloseable {
  private static final AtomicLong GRAPHS = new AtomicLong();

  private final long number = GRAPHS.incrementAndGet();
  private final DeviceType deviceType;
  private final int device;
  private final List<List<CheckedCall>> launches;
  // Null where the operations are enqueued anew.
  private final GraphDriver driver;
  // One object, by which communicators know this graph.
  private final Runnable ending = this::end;
  private volatile boolean closed;
  // Guarded by this. What a launch uses is released by its thread, when it is through.
  private int launching;
  private boolean ended;
  private boolean released;

  /**
   * Makes a graph of one device.
   *
   * @param launches the operations, in the parts in which they were launched
   * @param driver what launches them all in one call, or null where they are enqueued anew
   */
  Graph(DeviceType platform, int device, List<List<CheckedCall>> launches, GraphDriver driver) {
    this.deviceType = platform;
    this.device = device;
    this.launches = launches;
    this.driver = driver;
  }

  /**
   * Captures what a lambda enqueues, instead of running it. C: {@code cudaStreamBeginCapture},
   * {@code cudaStreamEndCapture}, {@code cudaGraphInstantiate}.
   *
   * @param streams the streams to capture, each once; one for each rank that this thread drives
   * @param body enqueues operations on these streams, from this thread, and nothing else: making or
   *     allocating anything and closing a communicator is refused meanwhile
   * @return a graph for each stream, in the same order; the caller closes it
   * @throws IllegalStateException if a stream is closed or is being captured already, or if called
   *     in a group
   * @throws NcclException if the library refuses an operation; nothing is left captured then, as
   *     with whatever the lambda throws
   * @throws CudaException if the CUDA runtime reports an error the capture; likewise
   * @throws IllegalArgumentException if there is no stream, or one twice
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
        events.add(new GraphEvent("capture", stream));
        stream.startCapture();
        begun.add(stream);
      }
      body.run();
      for (Stream stream : streams) {
        List<List<CheckedCall>> launches = capture.launches(stream);
        begun.remove(stream);
        GraphDriver driver = stream.finishCapture();
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
   * Captures what a lambda enqueues on one stream, as {@link #capture(List, Runnable)} does for
   * several.
   *
   * @param stream the stream to capture
   * @param body enqueues operations on this stream, from this thread, and nothing else
   * @return the graph; the caller closes it
   * @throws IllegalStateException if the stream is closed or is being captured already, or if
   *     called in a group
   * @throws NcclException if the library refuses an operation; nothing is left captured then, as
   *     with whatever the lambda throws
   * @throws CudaException if the CUDA runtime reports an error the capture; likewise
   */
  public static Graph capture(Stream stream, Runnable body) {
    return capture(List.of(Objects.requireNonNull(stream, "stream")), body).getFirst();
  }

  /** Ends what a capture has begun, whatever fails on the way, which is added to the cause. */
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
          "a capture cannot begin in a group; make the group in the capture");
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
   * @param stream the stream that orders them, of the captured stream's device
   * @throws IllegalArgumentException if the stream is of another device or backend
   * @throws IllegalStateException if the graph, the stream or anything that the operations use is
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
    for (List<CheckedCall> together : launches) {
      for (CheckedCall call : together) {
        call.communicator().checkConnected();
        call.checkOperandsOpen();
        call.communicator().use(stream);
      }
    }
    beginLaunch();
    try {
      replayAndCount(stream);
    } finally {
      launches.forEach(together -> together.forEach(call -> call.trackOperands(stream)));
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

  /** Ends this graph; what it holds is released now, or by the thread that is launching it. */
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
    if (driver != null) {
      driver.release();
    }
  }

  /** Lets the end of any of its communicators end this graph, from now on or at once. */
  private void endWithCommunicators() {
    communicators().forEach(communicator -> communicator.captured(ending));
  }

  private Set<CommunicatorCore> communicators() {
    Set<CommunicatorCore> found = new HashSet<>();
    launches.forEach(together -> together.forEach(call -> found.add(call.communicator())));
    return found;
  }

  private void replayAndCount(Stream stream) {
    if (driver == null) {
      // Its operations are counted, and recorded, as they are enqueued anew.
      for (List<CheckedCall> together : launches) {
        Group.launchAndCount(together.stream().map(call -> call.on(stream)).toList(), null, false);
      }
      return;
    }
    launches.forEach(together -> together.forEach(Graph::count));
    if (FlightRecorderEvents.on()) {
      GraphEvent event = new GraphEvent("launch", stream);
      fill(event);
      LaunchTrace.record(event, stream, () -> driver.launch(stream.driver()));
    } else {
      driver.launch(stream.driver());
    }
  }

  private static void count(CheckedCall call) {
    if (call instanceof CheckedOperation one) {
      one.takeNumber();
    }
  }

  private void fill(GraphEvent event) {
    List<CheckedCall> calls = launches.stream().flatMap(List::stream).toList();
    event.of(number, calls.size(), calls.isEmpty() ? null : calls.getFirst().communicator());
  }

  /** Returns what launches all operations in one call, or null where they are enqueued anew. */
  GraphDriver driver() {
    return driver;
  }

  /**
   * Releases the graph; launches that are enqueued still run. Idempotent. C: {@code
   * cudaGraphExecDestroy}.
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
