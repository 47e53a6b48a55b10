package io.nccl4j;

import io.nccl4j.internal.flight.OperationLog;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.LeakTracker;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.spi.Awaited;
import io.nccl4j.spi.BackendDriver;
import io.nccl4j.spi.Background;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import io.nccl4j.spi.FailureDetails;
import io.nccl4j.spi.LaunchListener;
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
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * The state of a {@link Communicator}: its rank and driver, its life cycle, and the streams and
 * graphs that have its operations. Other classes of this package refer to this class instead of the
 * public one.
 */
final class CommunicatorCore implements CommunicatorContext, StreamUser {
  /** The life cycle; operations are accepted only in state CONNECTED. */
  private enum State {
    UNCONNECTED,
    CONNECTED,
    SUSPENDED,
    REVOKED,
    CLOSING,
    CLOSED,
    ABORTED;

    /** Returns whether the communicator can be closed. */
    boolean isOpen() {
      return this == CONNECTED || this == SUSPENDED || this == REVOKED;
    }
  }

  // Logs under the name of the public class, which this one does not refer to.
  private static final String LOGGER = "io.nccl4j.Communicator";

  private final BackendDriver backend;
  private final CommunicatorConfig config;
  private final Duration timeout;
  private final DeviceType deviceType;
  private final int device;
  private final int deviceKey;
  private int rank;
  private int size;
  private final CommunicatorDriver driver;
  private final OperationNumbers numbers = new OperationNumbers(this);
  private final LongAdder bytes = new LongAdder();
  private final Supplier<StatisticsMXBean.CommunicatorStatistics> statistics = this::statistics;
  private final GrowId growId = new GrowId(this);
  private final CommunicatorFailures failures = new CommunicatorFailures(this);
  // The records of its operations, once connected; null if they are turned off.
  private volatile OperationLog log;

  // The progress of the streams that have its operations; it holds its stream weakly.
  private final Set<StreamProgress> usedStreams = ConcurrentHashMap.newKeySet();
  // End the open graphs. A library may wait for that before it ends the communicator.
  private final Set<Runnable> graphEnds = ConcurrentHashMap.newKeySet();
  private volatile State state = State.UNCONNECTED;
  private volatile boolean operationsEnded;
  private volatile boolean stranded;
  // The element that barriers reduce, allocated by the first one.
  private volatile Buffer barrierMemory;
  // Sees the launches of its collectives; usually null.
  private volatile LaunchListener listener;

  // The identity in recordings, the same on every rank.
  private CommunicatorLineage lineage;
  private volatile String identity = "";
  private volatile int firstRank = -1;
  private volatile int parentRank = -1;
  private final Map<String, Integer> children = new HashMap<>();

  private final LeakTracker leak = new LeakTracker();
  private Object owner;

  /**
   * Creates the state of an unconnected communicator.
   *
   * @param rank this rank, or -1 if connecting determines it
   * @param size the number of ranks, or -1 if connecting determines it
   * @param lineage how the communicator is created
   * @param driver creates its driver
   */
  CommunicatorCore(
      BackendDriver backend,
      CommunicatorConfig config,
      int device,
      int rank,
      int size,
      CommunicatorLineage lineage,
      Function<CommunicatorContext, CommunicatorDriver> driver) {
    this.backend = backend;
    this.config = config;
    this.timeout = config.timeout().orElseGet(backend::defaultTimeout);
    this.deviceType = backend.deviceType();
    this.device = device;
    this.deviceKey = deviceType.deviceKey(device);
    this.rank = rank;
    this.size = size;
    this.lineage = lineage;
    this.driver = driver.apply(this);
  }

  /**
   * Sets the public object, which is kept reachable until it is connected. After that, a leak is
   * reported if it becomes unreachable without having been closed or aborted.
   */
  void owner(Object publicObject) {
    owner = publicObject;
  }

  BackendDriver backend() {
    return backend;
  }

  CommunicatorDriver driver() {
    return driver;
  }

  @Override
  public CommunicatorConfig config() {
    return config;
  }

  @Override
  public int device() {
    return device;
  }

  @Override
  public int rank() {
    return rank;
  }

  @Override
  public int size() {
    return size;
  }

  @Override
  public void setRank(int newRank, int newSize) {
    rank = newRank;
    size = newSize;
  }

  @Override
  public void useGrowId(UniqueId id) {
    growId.use(id);
  }

  @Override
  public Duration timeout() {
    return timeout;
  }

  /** Returns the sequence numbers of its operations. */
  OperationNumbers numbers() {
    return numbers;
  }

  /** Counts the bytes of an operation that was launched. */
  void launched(long size) {
    bytes.add(size);
  }

  private StatisticsMXBean.CommunicatorStatistics statistics() {
    return new StatisticsMXBean.CommunicatorStatistics(
        identity,
        config.name(),
        rank,
        size,
        deviceType + " device " + device,
        state.name().toLowerCase(Locale.ROOT),
        numbers.operations(),
        bytes.sum());
  }

  /** Returns what sees the launches of its collectives, or null. */
  LaunchListener listener() {
    return listener;
  }

  /**
   * Sets what sees the launches of its collectives; null for nothing.
   *
   * @throws IllegalStateException if there is another listener
   */
  synchronized void listen(LaunchListener newListener) {
    if (newListener != null && listener != null) {
      throw new IllegalStateException(
          "the calls of " + this + " are verified or compared already; close that first");
    }
    listener = newListener;
  }

  /** Returns the state of the id for the next grow. */
  GrowId growId() {
    return growId;
  }

  void checkStream(Stream stream) {
    Objects.requireNonNull(stream, "stream");
    if (!stream.isOpenOn(deviceKey)) {
      stream.checkOpen();
      throw new IllegalArgumentException(
          "stream is "
              + stream
              + "; it must be of this rank's device, "
              + deviceType
              + " device "
              + device);
    }
  }

  @Override
  public void checkUsable(Buffer buffer, String argument) {
    checkConnected();
    checkBuffer(buffer, argument);
  }

  /** Throws unless this rank can use the buffer now. */
  void checkBuffer(Buffer buffer, String argument) {
    Objects.requireNonNull(buffer, argument);
    if (!buffer.isOpenOn(deviceKey)) {
      checkElsewhere(buffer, argument);
    }
  }

  /**
   * Throws if the buffer is closed or belongs to another device; accepts host memory of any device.
   */
  private void checkElsewhere(Buffer buffer, String argument) {
    buffer.checkOpen(argument);
    if (!buffer.usableOn(deviceType, device)) {
      throw new IllegalArgumentException(
          argument
              + " is "
              + buffer
              + "; it must be usable on this rank's device, "
              + deviceType
              + " device "
              + device);
    }
  }

  /** Allocates memory of this rank's device, also after the backend was closed. */
  Buffer newBuffer(DataType type, long count) {
    return Buffer.ofDevice(backend, device, type, count);
  }

  /** Returns the element that barriers reduce; it is freed when this communicator ends. */
  Buffer barrierMemory() {
    if (barrierMemory == null) {
      ThreadScope.checkNotCapturing(
          "the first barrier of a communicator, which allocates its memory,");
      Buffer element = newBuffer(DataType.INT32, 1);
      synchronized (this) {
        if (barrierMemory == null) {
          barrierMemory = element;
        }
      }
      if (barrierMemory != element) {
        element.close(); // another thread was first
      }
      if (isEnded()) {
        // Another thread has ended the communicator, perhaps before it could see the memory.
        freeBarrierMemory();
      }
    }
    return barrierMemory;
  }

  private void freeBarrierMemory() {
    if (barrierMemory != null) {
      barrierMemory.closeWhenUnused();
    }
  }

  /** Returns how this communicator is created, or null if it is already connected. */
  CommunicatorLineage lineage() {
    return lineage;
  }

  /** Returns the identity of this communicator in recordings, the same on every rank. */
  String identity() {
    return identity;
  }

  /** Returns this rank's number in the first ancestor of this communicator. */
  int firstRank() {
    return firstRank < 0 ? rank() : firstRank;
  }

  /** Returns this rank's number in the parent, or -1 if not every rank has one. */
  int parentRank() {
    return parentRank;
  }

  /** Counts a child; returns its number, from 1, among the children of the same kind. */
  int countChild(CommunicatorLineage child) {
    synchronized (children) {
      return children.merge(child.kind(), 1, Integer::sum);
    }
  }

  /** Connects, or throws the reason of the failure. */
  void connect() {
    identity = lineage.identity();
    firstRank = lineage.parent() == null ? -1 : lineage.parent().firstRank();
    parentRank = lineage.parentRank();
    try {
      CommunicatorEvents.step(this, lineage.step(), this::connectOrAbort);
    } finally {
      // Children must not keep their parent reachable.
      lineage = null;
      owner = null;
    }
  }

  private void connectOrAbort() {
    try {
      if (state != State.UNCONNECTED) {
        throw new CommunicatorAbortedException("connect", toString());
      }
      FlightRecorder.checkSettings();
      driver.connect();
      if (size >= 0) {
        // A split without a color for this rank creates nothing to close.
        leak.watch(owner, toString());
        log = FlightRecorder.open(identity, config.name(), rank, size, backend.name(), device);
      }
    } catch (Throwable failure) {
      Statistics.failed(failure);
      abortAfter(failure);
      throw failure;
    }
    synchronized (this) {
      if (state == State.UNCONNECTED) {
        transitionTo(State.CONNECTED);
        return;
      }
    }
    if (log != null) {
      // It has no records, and an abort may have come before it.
      FlightRecorder.closed(log);
    }
    throw new CommunicatorAbortedException("connect", toString());
  }

  private void abortAfter(Throwable failure) {
    CloseAll.after(failure, this::abort);
  }

  /**
   * Connects several communicators concurrently, since each may wait for the others. When one
   * fails, all are aborted, since the others would only wait for it, and its failure is thrown with
   * later failures suppressed in it.
   */
  static void connectTogether(List<CommunicatorCore> communicators) {
    AtomicReference<Throwable> first = new AtomicReference<>();
    AtomicInteger connecting = new AtomicInteger(communicators.size());
    CountDownLatch connectedOrFailed = new CountDownLatch(1);
    for (CommunicatorCore communicator : communicators) {
      Runnable connect =
          () -> {
            try {
              communicator.connect();
            } catch (Throwable failure) {
              if (first.compareAndSet(null, failure)) {
                connectedOrFailed.countDown();
              } else {
                CloseAll.suppress(first.get(), failure);
              }
            }
            if (connecting.decrementAndGet() == 0) {
              connectedOrFailed.countDown();
            }
          };
      try {
        Thread.ofPlatform().daemon().name("nccl4j-connect").start(connect);
      } catch (Throwable failure) {
        // Communicators that have begun to connect are aborted below, as after any other failure.
        first.compareAndSet(null, failure);
        break;
      }
    }
    if (first.get() == null) {
      try {
        connectedOrFailed.await(); // each rank has its own timeout
      } catch (InterruptedException e) {
        first.compareAndSet(null, Interrupts.cancelled("connect"));
      }
    }
    Throwable failure = first.get();
    if (failure != null) {
      communicators.forEach(communicator -> communicator.abortAfter(failure));
      if (failure instanceof Error error) {
        throw error;
      }
      throw (RuntimeException) failure;
    }
    makeSiblings(communicators);
  }

  /** Links the operation numbers of the ranks that one thread created together. */
  private static void makeSiblings(List<CommunicatorCore> createdTogether) {
    for (CommunicatorCore one : createdTogether) {
      if (one.size > 1) {
        one.numbers.setSiblings(
            createdTogether.stream()
                .filter(other -> other != one && other.identity.equals(one.identity))
                .map(CommunicatorCore::numbers)
                .toList());
      }
    }
  }

  @Override
  public void checkConnected() {
    State now = state == State.CLOSING ? State.CLOSED : state;
    if (now != State.CONNECTED) {
      throw now == State.UNCONNECTED
          ? unconnected()
          : new IllegalStateException(now.name().toLowerCase(Locale.ROOT) + ": " + this);
    }
  }

  /** Throws unless rank and size are known. */
  void checkConnectedOnce() {
    if (size < 0) {
      throw unconnected();
    }
  }

  private IllegalStateException unconnected() {
    return new IllegalStateException("not connected yet, its group has not ended: " + this);
  }

  /** Throws unless child communicators can be created from this communicator. */
  void checkCanCreateChild() {
    if (state != State.REVOKED) {
      checkConnected();
    }
  }

  private void transitionTo(State next) {
    state = next;
    if (next == State.ABORTED || next == State.CLOSING) {
      leak.close();
    }
    if (isEnded()) {
      Statistics.ended(statistics);
    } else if (next == State.CONNECTED && size >= 0) {
      Statistics.opened(statistics);
    }
    if (log != null && isEnded()) {
      if (operationsEnded) {
        FlightRecorder.aborted(log);
      } else {
        FlightRecorder.closed(log);
      }
    }
  }

  @Override
  public boolean isOpen() {
    return state.isOpen();
  }

  @Override
  public boolean isEnded() {
    State now = state;
    return now == State.CLOSED || now == State.ABORTED;
  }

  @Override
  public boolean isAborted() {
    return operationsEnded;
  }

  @Override
  public boolean isRevoked() {
    return state == State.REVOKED;
  }

  @Override
  public synchronized void markAborted() {
    operationsEnded = true;
    if (state == State.CLOSING) {
      transitionTo(State.ABORTED);
    }
  }

  @Override
  public synchronized void markRevoked() {
    if (state.isOpen()) {
      operationsEnded = true;
      transitionTo(State.REVOKED);
      CommunicatorEvents.record(this, "revoke", null);
    }
  }

  @Override
  public synchronized void markSuspended(boolean suspended) {
    if (state == (suspended ? State.CONNECTED : State.SUSPENDED)) {
      transitionTo(suspended ? State.SUSPENDED : State.CONNECTED);
      CommunicatorEvents.record(this, suspended ? "suspend" : "resume", null);
    }
  }

  CommunicatorFailures failures() {
    return failures;
  }

  @Override
  public Optional<NcclException> failure() {
    return failures.failure();
  }

  @Override
  public NcclException named(NcclException failure) {
    return failures.named(failure);
  }

  /** Returns the records of its operations, or null if none are kept. */
  OperationLog log() {
    return log;
  }

  /** Removes the record of a rejected call; does nothing for 0. */
  void removeRecord(long record) {
    if (record != 0) {
      log.remove(record);
    }
  }

  /**
   * Records that a call has been completed, unless an abort may have ended it; does nothing for 0.
   */
  void completeRecord(long record, long nanos) {
    if (record != 0 && !operationsEnded) {
      log.complete(record, nanos);
    }
  }

  @Override
  public void dumpAfterTimeout() {
    failures.dumpAfterTimeout();
  }

  /** Returns failure details that name this communicator. */
  FailureDetails details() {
    return FailureDetails.of(toString(), new BitSet(), new BitSet());
  }

  @Override
  public FailureDetails lastEnqueued() {
    return details().in(null, numbers.collectives());
  }

  @Override
  public Optional<Awaited> awaited() {
    return awaited(numbers.oldestPending());
  }

  /**
   * Returns what an operation waits for; empty if that is not known.
   *
   * @param number the number of a collective that the device has not completed; 0 if the operation
   *     is none, or is not known
   */
  Optional<Awaited> awaited(long number) {
    Operation operation = numbers.operation(number);
    return driver.awaited(operation, () -> numbers.calls(number));
  }

  @Override
  public boolean failureReported() {
    return failures.reported();
  }

  @Override
  public void noticeFailure() {
    failures.notice();
  }

  @Override
  public boolean keepsFailing() {
    return failures.keepsFailing();
  }

  @Override
  public NcclException ended(String function) {
    return failures.ended(function);
  }

  /** Records that operations of this communicator are about to be enqueued on a stream. */
  void use(Stream stream) {
    if (!stream.isUsedBy(this)) {
      usedStreams.removeIf(known -> !known.alive());
      usedStreams.add(stream.progress());
      stream.addUser(this);
    }
  }

  private List<Stream> streams() {
    return usedStreams.stream().map(StreamProgress::stream).filter(Objects::nonNull).toList();
  }

  @Override
  public void markStranded() {
    stranded = true;
  }

  @Override
  public void awaitStreams(String function) {
    if (stranded) {
      throw new NcclTimeoutException(
              function, timeout(), "a stream that was closed before its work was done")
          .initDetails(lastEnqueued());
    }
    checkCanWait(function);
    for (Stream stream : streams()) {
      if (stream.alive()) {
        // Failures of other communicators are not reported here.
        stream.drain(timeout());
      }
    }
  }

  /** Throws if a stream with operations of this communicator is being captured. */
  private void checkCanWait(String function) {
    for (Stream stream : streams()) {
      if (stream.alive() && stream.capturesNatively()) {
        stream.checkCanWait(function);
      }
    }
  }

  /**
   * Registers a graph that contains operations of this communicator and must not outlive it.
   *
   * @param end ends the graph; also passed to {@link #forget}
   */
  void captured(Runnable end) {
    graphEnds.add(end);
    State now = state;
    if (now != State.CONNECTED && now != State.SUSPENDED) {
      endGraphs();
    }
  }

  /** Unregisters a graph that has been closed. */
  void forget(Runnable end) {
    graphEnds.remove(end);
  }

  @Override
  public void endGraphs() {
    CloseAll.all(List.copyOf(graphEnds));
  }

  @Override
  public void abort() {
    synchronized (this) {
      if (state == State.CLOSING || isEnded()) {
        return;
      }
      operationsEnded = true;
      transitionTo(State.ABORTED);
    }
    try {
      CommunicatorEvents.step(this, "abort", this::abortNow);
    } finally {
      if (streams().stream().anyMatch(Stream::closedWhileBusy)) {
        // In the background, since an abort does not wait for the device.
        Thread.ofPlatform().daemon().name("nccl4j-streams").start(this::releaseStreams);
      }
    }
  }

  /** Aborts communicators together: one alone might wait for the kernels of another. */
  static void abortAll(List<CommunicatorCore> communicators) {
    Background.runTogether(
        "nccl4j-abort",
        communicators.stream().<Runnable>map(communicator -> communicator::abort).toList());
  }

  private void abortNow() {
    CloseAll.all(List.of(this::endGraphs, driver::abort, this::freeBarrierMemory));
  }

  private void releaseStreams() {
    CloseAll.all(streams().stream().<Runnable>map(stream -> () -> release(stream)).toList());
  }

  private static void release(Stream stream) {
    try {
      stream.releaseIfAbandoned();
    } catch (NcclException | CudaException e) {
      Loggers.of(LOGGER).warn("{} could not be released", stream, e);
    }
  }

  void close() {
    checkCanClose();
    beginClose().run();
  }

  /**
   * Closes as {@link #close} does, but waits in a new thread.
   *
   * @return a stage that only this operation completes; it fails with the exception of {@code
   *     close}
   */
  CompletionStage<Void> closeInBackground() {
    checkCanClose();
    Runnable rest = beginClose();
    return Background.startOrRun("nccl4j-close", rest);
  }

  /**
   * Throws if closing would end a capture. NCCL's close after a failure aborts: it waits for no
   * stream.
   */
  void checkCanClose() {
    String call = "closing a communicator";
    ThreadScope.checkNotCapturing(call);
    if (state.isOpen() && driver.asyncError().isEmpty()) {
      checkCanWait(call);
    }
  }

  /** Ends the use of the communicator; returns the remaining work of closing it. */
  private synchronized Runnable beginClose() {
    if (state == State.UNCONNECTED) {
      return this::abort;
    }
    if (!state.isOpen()) {
      return () -> {};
    }
    transitionTo(State.CLOSING);
    return () -> CommunicatorEvents.step(this, "close", this::closeNow);
  }

  private void closeNow() {
    try {
      CloseAll.all(
          List.of(driver::close, this::markClosed, this::releaseStreams, this::freeBarrierMemory));
    } catch (Throwable failure) {
      Statistics.failed(failure);
      throw failure;
    }
  }

  private synchronized void markClosed() {
    if (state == State.CLOSING) {
      transitionTo(State.CLOSED);
    }
  }

  @Override
  public boolean launching() {
    return driver.launching();
  }

  @Override
  public String toString() {
    String label = config.name().isEmpty() ? "" : config.name() + ": ";
    String where = size < 0 ? "rank unknown yet" : "rank " + rank + " of " + size;
    return "Communicator[" + label + where + ", " + deviceType + " device " + device + "]";
  }
}
