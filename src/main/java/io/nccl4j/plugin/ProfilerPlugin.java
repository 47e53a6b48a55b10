package io.nccl4j.plugin;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.nccl4j.internal.jfr.CollectiveEvent;
import io.nccl4j.internal.jfr.LaunchedEvents;
import io.nccl4j.internal.util.Deadline;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.SequencedMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * NCCL's profiler interface, version 6.
 *
 * <p>NCCL's threads append events to a queue without a lock; one reader thread passes them on. A
 * full queue drops events. The reader polls, since waking it would cost NCCL's threads a system
 * call per event. A handle of NCCL is the id of the event, and a context the key of a rank.
 */
final class ProfilerPlugin {
  static final ProfilerPlugin INSTANCE = new ProfilerPlugin();

  /** The longest queue. */
  static final int CAPACITY = 1 << 15;

  private static final long POLL_NANOS = TimeUnit.MILLISECONDS.toNanos(5);

  private static final int COLLECTIVE = 1 << 1;
  private static final int POINT_TO_POINT = 1 << 2;
  private static final int KERNEL_CHANNEL = 1 << 6;
  private static final int COLLECTIVE_CALL = 1 << 9;
  private static final int POINT_TO_POINT_CALL = 1 << 10;
  private static final int KERNEL_STOP_STATE = 22;

  static final int DESCRIPTOR_BYTES = 112;

  record Rank(long communicator, int rank) {}

  private final List<Profiler> listeners = new CopyOnWriteArrayList<>();
  private final Map<Long, Rank> ranks = new ConcurrentHashMap<>();
  private final AtomicLong ids = new AtomicLong();
  private final Queue<ProfilerEvent> queue = new ConcurrentLinkedQueue<>();
  // Those that were queued, and those that all listeners have received.
  private final AtomicLong queued = new AtomicLong();
  private final AtomicLong delivered = new AtomicLong();
  private final LongAdder dropped = new LongAdder();
  private final KernelTimes kernels = new KernelTimes();
  private volatile boolean kernelTimes;
  private boolean installed;
  private volatile @Nullable Thread reader;
  // NCCL's variable of the events that it reports, one for all communicators.
  private @Nullable MemorySegment mask;

  synchronized void add(Profiler listener) {
    if (!installed) {
      PluginFile.install("a Profiler", "NCCL_PROFILER_PLUGIN", 22902, this::tables);
      installed = true;
      Thread.ofPlatform().daemon().name("nccl4j-profiler").start(this::read);
    }
    listen(listener);
  }

  void listen(Profiler listener) {
    listeners.add(listener);
    selectEvents();
  }

  void remove(Profiler listener) {
    listeners.remove(listener);
    selectEvents();
  }

  /** Has NCCL report what the listeners need: nothing without one. */
  private synchronized void selectEvents() {
    if (mask != null) {
      kernelTimes = listeners.stream().anyMatch(Profiler::kernelTimes);
      int events =
          COLLECTIVE
              | POINT_TO_POINT
              | COLLECTIVE_CALL
              | POINT_TO_POINT_CALL
              | (kernelTimes ? KERNEL_CHANNEL : 0);
      mask.set(JAVA_INT, 0, listeners.isEmpty() ? 0 : events);
    }
  }

  private synchronized void mask(MemorySegment variable) {
    mask = variable;
    selectEvents();
  }

  long dropped() {
    return dropped.sum();
  }

  private SequencedMap<String, List<MemorySegment>> tables() {
    MethodHandles.Lookup lookup = MethodHandles.lookup();
    FunctionDescriptor init =
        FunctionDescriptor.of(
            JAVA_INT,
            Upcalls.POINTER_TO_POINTER,
            JAVA_LONG,
            Upcalls.pointerTo(Integer.BYTES),
            Upcalls.TEXT,
            JAVA_INT,
            JAVA_INT,
            JAVA_INT,
            ADDRESS);
    FunctionDescriptor start =
        FunctionDescriptor.of(
            JAVA_INT, ADDRESS, Upcalls.POINTER_TO_POINTER, Upcalls.pointerTo(DESCRIPTOR_BYTES));
    FunctionDescriptor record =
        FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, Upcalls.pointerTo(Long.BYTES));
    FunctionDescriptor end = FunctionDescriptor.of(JAVA_INT, ADDRESS);
    SequencedMap<String, List<MemorySegment>> tables = new LinkedHashMap<>();
    tables.put(
        "ncclProfiler_v6",
        List.of(
            Arena.global().allocateFrom("nccl4j"),
            Upcalls.stub(lookup, this, "init", init),
            Upcalls.stub(lookup, this, "startEvent", start),
            Upcalls.stub(lookup, this, "stopEvent", end),
            Upcalls.stub(lookup, this, "recordEventState", record),
            Upcalls.stub(lookup, this, "end", end)));
    return tables;
  }

  int init(
      MemorySegment context,
      long communicator,
      MemorySegment mask,
      MemorySegment name,
      int nodes,
      int size,
      int rank,
      MemorySegment logger) {
    long key = ids.incrementAndGet();
    ranks.put(key, new Rank(communicator, rank));
    context.set(ADDRESS, 0, MemorySegment.ofAddress(key));
    mask(mask);
    offer(
        new ProfilerEvent.CommunicatorCreated(communicator, rank, Upcalls.text(name), size, nodes));
    return Upcalls.SUCCESS;
  }

  int startEvent(MemorySegment context, MemorySegment handle, MemorySegment descriptor) {
    // NCCL reports the end only of events that have a handle.
    handle.set(ADDRESS, 0, MemorySegment.NULL);
    Rank rank = ranks.get(context.address());
    if (rank != null) {
      long id = ids.incrementAndGet();
      ProfilerEvent event = event(id, System.nanoTime(), rank, descriptor);
      if (event != null) {
        handle.set(ADDRESS, 0, MemorySegment.ofAddress(id));
        record(event);
        offer(event);
      }
    }
    return Upcalls.SUCCESS;
  }

  /** Adds what NCCL chose to the JFR event of the operation that this thread launches, if any. */
  private void record(ProfilerEvent event) {
    switch (event) {
      case ProfilerEvent.Called e ->
          LaunchedEvents.called(e.id(), e.function(), e.rank(), e.count());
      case ProfilerEvent.Collective e ->
          record(e.id(), e.call(), e.function(), e.algorithm(), e.protocol(), e.channels());
      case ProfilerEvent.PointToPoint e ->
          record(e.id(), e.call(), e.function(), null, null, e.channels());
      default -> {}
    }
  }

  private void record(
      long id, long call, String function, String algorithm, String protocol, int channels) {
    CollectiveEvent operation = LaunchedEvents.of(call);
    // NCCL makes some collectives of sends and receives.
    if (operation != null && operation.operation.equalsIgnoreCase(function)) {
      operation.algorithm = algorithm;
      operation.protocol = protocol;
      operation.channels = channels;
      if (kernelTimes) {
        kernels.launched(id, operation, channels);
      }
    }
  }

  /** Reads a descriptor; returns null for a kind of event that is not passed on. */
  static ProfilerEvent event(long id, long nanos, Rank rank, MemorySegment d) {
    long parent = d.get(JAVA_LONG, 8);
    return switch ((int) d.get(JAVA_LONG, 0)) {
      case COLLECTIVE ->
          new ProfilerEvent.Collective(
              id,
              nanos,
              parent,
              rank.communicator,
              rank.rank,
              d.get(JAVA_LONG, 24),
              text(d, 32),
              d.get(JAVA_LONG, 40),
              d.get(JAVA_LONG, 48),
              d.get(JAVA_LONG, 56),
              text(d, 72),
              d.get(JAVA_INT, 64),
              text(d, 88),
              text(d, 96),
              Byte.toUnsignedInt(d.get(JAVA_BYTE, 80)),
              Byte.toUnsignedInt(d.get(JAVA_BYTE, 81)));
      case POINT_TO_POINT ->
          new ProfilerEvent.PointToPoint(
              id,
              nanos,
              parent,
              rank.communicator,
              rank.rank,
              text(d, 24),
              d.get(JAVA_LONG, 32),
              d.get(JAVA_LONG, 48),
              text(d, 40),
              d.get(JAVA_INT, 56),
              Byte.toUnsignedInt(d.get(JAVA_BYTE, 60)));
      case KERNEL_CHANNEL ->
          new ProfilerEvent.KernelStarted(
              id, nanos, parent, Byte.toUnsignedInt(d.get(JAVA_BYTE, 24)), d.get(JAVA_LONG, 32));
      case COLLECTIVE_CALL -> called(id, nanos, rank, d, d.get(JAVA_INT, 48), 56);
      case POINT_TO_POINT_CALL -> called(id, nanos, rank, d, -1, 48);
      default -> null;
    };
  }

  private static ProfilerEvent called(
      long id, long nanos, Rank rank, MemorySegment d, int root, int stream) {
    return new ProfilerEvent.Called(
        id,
        nanos,
        rank.communicator,
        rank.rank,
        text(d, 24),
        d.get(JAVA_LONG, 32),
        text(d, 40),
        root,
        d.get(JAVA_LONG, stream),
        d.get(JAVA_BYTE, stream + 8) != 0);
  }

  private static String text(MemorySegment descriptor, int offset) {
    return Upcalls.text(descriptor.get(Upcalls.TEXT, offset));
  }

  int stopEvent(MemorySegment handle) {
    offer(new ProfilerEvent.Stopped(handle.address(), System.nanoTime()));
    return Upcalls.SUCCESS;
  }

  int recordEventState(MemorySegment handle, int state, MemorySegment arguments) {
    if (state == KERNEL_STOP_STATE) {
      long timer = arguments.get(JAVA_LONG, 0);
      offer(new ProfilerEvent.KernelStopped(handle.address(), System.nanoTime(), timer));
    }
    return Upcalls.SUCCESS;
  }

  int end(MemorySegment context) {
    Rank rank = ranks.remove(context.address());
    if (rank != null) {
      offer(new ProfilerEvent.CommunicatorDestroyed(rank.communicator, rank.rank));
    }
    return Upcalls.SUCCESS;
  }

  /** Appends an event, or drops it. */
  void offer(ProfilerEvent event) {
    if (queued.incrementAndGet() - delivered.get() > CAPACITY) {
      queued.decrementAndGet();
      dropped.increment();
    } else {
      queue.add(event);
    }
  }

  private void read() {
    while (true) {
      deliver();
      LockSupport.parkNanos(POLL_NANOS);
    }
  }

  /** Passes on what is in the queue. */
  void deliver() {
    reader = Thread.currentThread();
    for (ProfilerEvent event = queue.poll(); event != null; event = queue.poll()) {
      kernels.accept(event);
      for (Profiler listener : listeners) {
        try {
          listener.accept(event);
        } catch (Throwable failure) {
          Upcalls.report(listener.getClass().getName(), failure);
        }
      }
      delivered.incrementAndGet();
    }
  }

  /**
   * Waits until the events that are in the queue now are delivered; returns false if time is up.
   */
  boolean await(Duration timeout) throws InterruptedException {
    if (Thread.currentThread() == reader) {
      throw new IllegalStateException("a profiler cannot wait for the events that it receives");
    }
    Deadline deadline = Deadline.after(timeout);
    long last = queued.get();
    // Less is queued than it seemed if an event was being dropped.
    while (delivered.get() < Math.min(last, queued.get())) {
      if (deadline.passed()) {
        return false;
      }
      TimeUnit.NANOSECONDS.sleep(POLL_NANOS);
    }
    return true;
  }
}
