package io.nccl4j;

import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.Steps;
import io.nccl4j.spi.Background;
import io.nccl4j.spi.CommunicatorContext;
import java.time.Duration;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.logging.log4j.LogManager;

/**
 * The life of a communicator: how it is connected, which states it goes through, which streams and
 * graphs have its operations, and how it ends.
 */
final class CommunicatorLifecycle implements CommunicatorContext {
  /** Only a connected communicator carries operations. */
  private enum State {
    UNCONNECTED,
    CONNECTED,
    SUSPENDED,
    REVOKED,
    ABORTED,
    CLOSED;

    /** Whether there is something to close. */
    boolean open() {
      return this == CONNECTED || this == SUSPENDED || this == REVOKED;
    }
  }

  private final Communicator communicator;
  // Those of the streams that carry its operations. They do not keep a stream that was forgotten.
  private final Set<Progress> carriers = ConcurrentHashMap.newKeySet();
  // Those that are open. A library may wait for their end before it ends the communicator.
  private final Set<Graph> graphs = ConcurrentHashMap.newKeySet();
  private volatile State state = State.UNCONNECTED;
  private volatile boolean aborted;
  private volatile boolean stuck;
  // Whether an Error has kept a close or an abort from ending the connection; another abort goes
  // on.
  private volatile boolean unended;
  private boolean failureReported;

  // What recordings know it by: the same on every rank.
  private Origin origin;
  private volatile String identity = "";
  private volatile int firstRank = -1;
  private final Map<String, Integer> children = new HashMap<>();

  private final LeakTracker leak = new LeakTracker();

  CommunicatorLifecycle(Communicator communicator, Origin origin) {
    this.communicator = communicator;
    this.origin = origin;
  }

  @Override
  public CommunicatorConfig config() {
    return communicator.config();
  }

  @Override
  public int device() {
    return communicator.device();
  }

  @Override
  public int rank() {
    return communicator.rankIfKnown();
  }

  @Override
  public int size() {
    return communicator.sizeIfKnown();
  }

  @Override
  public void place(int rank, int size) {
    communicator.place(rank, size);
  }

  @Override
  public void checkUsable(Buffer buffer, String argument) {
    communicator.check(buffer, argument);
  }

  @Override
  public void useGrowId(UniqueId id) {
    communicator.children().useGrowId(id);
  }

  private Duration timeout() {
    return communicator.config().timeout();
  }

  /** Returns how this communicator comes to be, or null if it is connected already. */
  Origin origin() {
    return origin;
  }

  /** Returns the name that this communicator has in recordings, the same on every rank. */
  String identity() {
    return identity;
  }

  /** Returns this rank's number in the communicator from which this one descends. */
  int firstRank() {
    return firstRank < 0 ? rank() : firstRank;
  }

  /** Returns the number, from 1, of what is made of this communicator in some way. */
  int countChild(Origin child) {
    synchronized (children) {
      return children.merge(child.kind(), 1, Integer::sum);
    }
  }

  /** Connects, or throws why there is no connection. */
  void connect() {
    identity = origin.identity();
    firstRank = origin.parent() == null ? -1 : origin.parent().life().firstRank();
    try {
      Tracing.step(communicator, origin.step(), this::connectOrAbort);
    } finally {
      // A parent need not live as long as its children.
      origin = null;
    }
  }

  private void connectOrAbort() {
    try {
      if (state != State.UNCONNECTED) {
        throw new CommunicatorAbortedException("connect", toString());
      }
      communicator.driver().connect();
      if (size() >= 0) {
        // A split that leaves this rank out makes nothing to close.
        leak.watch(communicator, toString());
      }
    } catch (Throwable failure) {
      abortAfter(failure);
      throw failure;
    }
    synchronized (this) {
      if (state == State.UNCONNECTED) {
        become(State.CONNECTED);
        return;
      }
    }
    throw new CommunicatorAbortedException("connect", toString());
  }

  private void abortAfter(Throwable failure) {
    Steps.after(failure, this::abort);
  }

  /**
   * Connects in a thread of its own.
   *
   * @return a stage that nothing else can complete, and that fails with why there is no connection
   * @throws IllegalStateException if this thread has a group open
   */
  CompletionStage<Communicator> connectInBackground() {
    if (Group.running()) {
      throw new IllegalStateException(
          "a communicator that connects in the background belongs to no group; end the group first");
    }
    return inBackground("nccl4j-connect", this::connect).thenApply(nothing -> communicator);
  }

  private static CompletionStage<Void> inBackground(String thread, Runnable work) {
    return Background.start(
        thread,
        () -> {
          work.run();
          return null;
        });
  }

  /**
   * Connects several at the same time, since each may wait for the others. When one fails, all are
   * aborted at once and its failure comes out: the others would only wait for it. What they say
   * later is suppressed in it.
   */
  static void connectTogether(List<Communicator> communicators) {
    AtomicReference<Throwable> first = new AtomicReference<>();
    AtomicInteger connecting = new AtomicInteger(communicators.size());
    CountDownLatch connectedOrFailed = new CountDownLatch(1);
    for (Communicator communicator : communicators) {
      Runnable connect =
          () -> {
            try {
              communicator.life().connect();
            } catch (Throwable failure) {
              if (first.compareAndSet(null, failure)) {
                connectedOrFailed.countDown();
              } else {
                Steps.suppress(first.get(), failure);
              }
            }
            if (connecting.decrementAndGet() == 0) {
              connectedOrFailed.countDown();
            }
          };
      try {
        Thread.ofPlatform().daemon().name("nccl4j-connect").start(connect);
      } catch (Throwable failure) {
        // Those that have begun to connect are aborted below, like after any other failure.
        first.compareAndSet(null, failure);
        break;
      }
    }
    if (first.get() == null) {
      // Each rank has its own deadline, so an interrupt is kept and the wait goes on.
      Interrupts.awaitUninterruptibly(connectedOrFailed::await);
    }
    Throwable failure = first.get();
    if (failure != null) {
      communicators.forEach(communicator -> communicator.life().abortAfter(failure));
      if (failure instanceof Error error) {
        throw error;
      }
      throw (RuntimeException) failure;
    }
    CallSequence.makeSiblings(communicators);
  }

  @Override
  public void checkConnected() {
    State now = state;
    if (now != State.CONNECTED) {
      throw now == State.UNCONNECTED
          ? unconnected()
          : new IllegalStateException(now.name().toLowerCase(Locale.ROOT) + ": " + this);
    }
  }

  IllegalStateException unconnected() {
    return new IllegalStateException("not connected yet, its group has not ended: " + this);
  }

  /** Throws unless others can be made of this communicator. */
  void checkDivisible() {
    if (state != State.REVOKED) {
      checkConnected();
    }
  }

  private void become(State next) {
    state = next;
    if (next == State.ABORTED || next == State.CLOSED) {
      leak.close();
    }
  }

  @Override
  public boolean open() {
    return state.open();
  }

  @Override
  public boolean aborted() {
    return aborted;
  }

  @Override
  public boolean revoked() {
    return state == State.REVOKED;
  }

  @Override
  public void markAborted() {
    aborted = true;
  }

  @Override
  public synchronized void markRevoked() {
    if (state.open()) {
      aborted = true;
      become(State.REVOKED);
      Tracing.tell(communicator, "revoke", null);
    }
  }

  @Override
  public synchronized void markSuspended(boolean suspended) {
    if (state == (suspended ? State.CONNECTED : State.SUSPENDED)) {
      become(suspended ? State.SUSPENDED : State.CONNECTED);
      Tracing.tell(communicator, suspended ? "suspend" : "resume", null);
    }
  }

  /** Returns what has failed, and reports the first failure to a running recording. */
  Optional<NcclException> failure() {
    Optional<NcclException> found = communicator.driver().asyncError();
    if (found.isPresent()) {
      found.get().initDetails(details());
    }
    if (found.isPresent() && !failureReported) {
      failureReported = true;
      Tracing.tell(communicator, "failure", found.get());
    }
    return found;
  }

  /** Returns the details of a failure that concerns this communicator. */
  FailureDetails details() {
    return FailureDetails.of(toString(), new BitSet(), new BitSet());
  }

  @Override
  public FailureDetails lastEnqueued() {
    return details().in(null, communicator.calls().collectives());
  }

  /** Remembers a stream that carries operations of this communicator. */
  void carriedBy(Stream stream) {
    carriers.removeIf(known -> !known.alive());
    carriers.add(stream.progress());
  }

  private List<Stream> streams() {
    return carriers.stream().map(Progress::stream).filter(Objects::nonNull).toList();
  }

  /** Notes that a stream was given up with operations of this communicator still on it. */
  void leftStuck() {
    stuck = true;
  }

  @Override
  public void awaitStreams(String function) {
    if (stuck) {
      throw new NcclTimeoutException(
              function, timeout(), "a stream that was closed before its work was done")
          .initDetails(lastEnqueued());
    }
    for (Stream stream : streams()) {
      if (stream.alive()) {
        // An abort or a failure of another communicator is that one's to report.
        stream.drain(timeout());
      }
    }
  }

  /** Registers a graph of this communicator's operations, which must not outlive it. */
  void capturedBy(Graph graph) {
    graphs.add(graph);
    State now = state;
    if (now != State.CONNECTED && now != State.SUSPENDED) {
      endGraphs();
    }
  }

  /** Forgets a graph that has been closed. */
  void forget(Graph graph) {
    graphs.remove(graph);
  }

  @Override
  public void endGraphs() {
    Steps.all(graphs.stream().<Runnable>map(graph -> graph::end).toList());
  }

  @Override
  public void abort() {
    synchronized (this) {
      if ((state == State.CLOSED || state == State.ABORTED) && !unended) {
        return;
      }
      unended = false;
      aborted = true;
      ending(() -> become(State.ABORTED));
    }
    try {
      ending(() -> Tracing.step(communicator, "abort", this::abortNow));
    } finally {
      if (streams().stream().anyMatch(Stream::abandoned)) {
        // An abort does not wait for the device.
        Thread.ofPlatform().daemon().name("nccl4j-streams").start(this::releaseStreams);
      }
    }
  }

  /** Takes a step to the end; after an Error, what is left is for another {@link #abort} to do. */
  private void ending(Runnable step) {
    try {
      step.run();
    } catch (Error failure) {
      unended = true;
      throw failure;
    }
  }

  private void abortNow() {
    try {
      endGraphs();
    } finally {
      communicator.driver().abort();
    }
  }

  private void releaseStreams() {
    Steps.all(streams().stream().<Runnable>map(stream -> () -> release(stream)).toList());
  }

  private static void release(Stream stream) {
    try {
      stream.releaseIfAbandoned();
    } catch (NcclException | CudaException e) {
      LogManager.getLogger(Communicator.class).warn("{} is stuck", stream, e);
    }
  }

  void close() {
    Graph.checkNotCapturing("closing a communicator");
    beginClose().run();
  }

  /**
   * Closes as {@link #close} does, the waiting in a thread of its own.
   *
   * @return a stage that nothing else can complete; it fails with what {@code close} would throw
   */
  CompletionStage<Void> closeInBackground() {
    Graph.checkNotCapturing("closing a communicator");
    Runnable rest = beginClose();
    try {
      return inBackground("nccl4j-close", rest);
    } catch (Error noThread) {
      unended = true;
      throw noThread;
    }
  }

  /** Ends every use of the communicator; returns what is left to do. */
  private synchronized Runnable beginClose() {
    State before = state;
    ending(() -> become(State.CLOSED));
    if (before == State.UNCONNECTED) {
      // A thread may be connecting it, which does not come back here.
      aborted = true;
      return () -> ending(() -> Tracing.step(communicator, "abort", communicator.driver()::abort));
    }
    return before.open() ? () -> Tracing.step(communicator, "close", this::closeNow) : () -> {};
  }

  private void closeNow() {
    try {
      ending(communicator.driver()::close);
    } finally {
      releaseStreams();
    }
  }

  @Override
  public String toString() {
    return communicator.toString();
  }
}
