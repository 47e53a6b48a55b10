package io.nccl4j;

import io.nccl4j.internal.jmx.ManagementBean;
import io.nccl4j.internal.util.Arguments;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.WeakHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Supplier;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/** The counters of this process, which JMX shows. */
@NullMarked
final class Statistics implements StatisticsMXBean {
  /** The streams that have not been released. */
  static final AtomicInteger STREAMS = new AtomicInteger();

  /** The graphs that have not been released. */
  static final AtomicInteger GRAPHS = new AtomicInteger();

  private static final AtomicInteger BUFFERS = new AtomicInteger();
  private static final LongAdder BUFFER_BYTES = new LongAdder();
  private static final LongAdder WAITS = new LongAdder();
  private static final LongAdder WAIT_NANOS = new LongAdder();
  private static final LongAdder TIMEOUTS = new LongAdder();
  private static final LongAdder FAILURES = new LongAdder();

  // A run-time image may lack the module.
  private static final boolean MANAGED =
      ModuleLayer.boot().findModule("java.management").isPresent();

  // The open communicators. Weak, so that a leak can be detected and reported. Guarded by itself,
  // like the totals of those that have ended.
  private static final Set<Supplier<CommunicatorStatistics>> COMMUNICATORS =
      Collections.newSetFromMap(new WeakHashMap<>());
  private static long endedOperations;
  private static long endedBytes;

  private static int openBackends;

  private Statistics() {}

  static synchronized void backendOpened() {
    openBackends++;
    if (openBackends == 1 && MANAGED) {
      ManagementBean.add(new Statistics());
    }
  }

  /** Removes the bean after the last backend, so that these classes can be unloaded. */
  static synchronized void backendClosed() {
    openBackends--;
    if (openBackends == 0 && MANAGED) {
      ManagementBean.remove();
    }
  }

  static void opened(Supplier<CommunicatorStatistics> communicator) {
    synchronized (COMMUNICATORS) {
      COMMUNICATORS.add(communicator);
    }
  }

  static void ended(Supplier<CommunicatorStatistics> communicator) {
    synchronized (COMMUNICATORS) {
      if (COMMUNICATORS.remove(communicator)) {
        CommunicatorStatistics last = communicator.get();
        endedOperations += last.operations();
        endedBytes += last.bytes();
      }
    }
  }

  /** Counts a buffer until its memory has been released; returns the action to release it. */
  static Runnable allocated(long bytes, Runnable release) {
    BUFFERS.incrementAndGet();
    BUFFER_BYTES.add(bytes);
    return () -> {
      release.run();
      BUFFERS.decrementAndGet();
      BUFFER_BYTES.add(-bytes);
    };
  }

  /** Counts a wait, its time and its failure. */
  static void waiting(Runnable wait) {
    long begun = System.nanoTime();
    try {
      wait.run();
    } catch (NcclException | CudaException failure) {
      failed(failure);
      throw failure;
    } finally {
      WAITS.increment();
      WAIT_NANOS.add(System.nanoTime() - begun);
    }
  }

  /** Counts a failure of a library or of the reference; does nothing for others, or for null. */
  static void failed(@Nullable Throwable failure) {
    if (failure instanceof NcclTimeoutException) {
      TIMEOUTS.increment();
    } else if (failure instanceof NcclException || failure instanceof CudaException) {
      FAILURES.increment();
    }
  }

  @Override
  public Map<String, CommunicatorStatistics> getCommunicators() {
    Map<String, CommunicatorStatistics> open = new TreeMap<>();
    synchronized (COMMUNICATORS) {
      for (Supplier<CommunicatorStatistics> each : COMMUNICATORS) {
        CommunicatorStatistics now = each.get();
        open.put(now.communicator() + " rank " + now.rank(), now);
      }
    }
    return open;
  }

  @Override
  public int getOpenCommunicators() {
    return getCommunicators().size();
  }

  @Override
  public int getOpenStreams() {
    return STREAMS.get();
  }

  @Override
  public int getOpenGraphs() {
    return GRAPHS.get();
  }

  @Override
  public int getOpenBuffers() {
    return BUFFERS.get();
  }

  @Override
  public long getOpenBufferBytes() {
    return BUFFER_BYTES.sum();
  }

  @Override
  public long getOperations() {
    synchronized (COMMUNICATORS) {
      return endedOperations
          + COMMUNICATORS.stream().mapToLong(open -> open.get().operations()).sum();
    }
  }

  @Override
  public long getBytes() {
    synchronized (COMMUNICATORS) {
      return endedBytes + COMMUNICATORS.stream().mapToLong(open -> open.get().bytes()).sum();
    }
  }

  @Override
  public long getWaits() {
    return WAITS.sum();
  }

  @Override
  public long getWaitMillis() {
    return TimeUnit.NANOSECONDS.toMillis(WAIT_NANOS.sum());
  }

  @Override
  public long getTimeouts() {
    return TIMEOUTS.sum();
  }

  @Override
  public long getFailures() {
    return FAILURES.sum();
  }

  @Override
  public List<String> dumpOperations(String folder) throws IOException {
    Path path = Arguments.path(folder, "folder");
    if (!path.isAbsolute()) {
      throw new IllegalArgumentException("folder is '" + folder + "'; it must be an absolute path");
    }
    return FlightRecorder.dump(path).stream().map(Path::toString).toList();
  }
}
