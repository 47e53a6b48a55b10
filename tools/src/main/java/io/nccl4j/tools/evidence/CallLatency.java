package io.nccl4j.tools.evidence;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.cuda.CudaStream;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * Measures the time to enqueue an all-reduce of one element, alternately through nccl4j's API with
 * all its checks and through the generated bindings only.
 */
final class CallLatency {
  private static final String TITLE = "ncclAllReduce of 1 float, 1 rank, nanoseconds per call";
  private static final List<String> COLUMNS =
      List.of("", "nccl4j", "min", "max", "bindings only", "min", "max", "ratio", "rounds");
  private static final int ROUNDS = 15;
  private static final int CALLS = 20_000;

  /** A stream holds about a thousand operations; enqueuing more waits for the GPU. */
  private static final int ENQUEUED_AT_ONCE = 200;

  private static final int WARM_UP_ROUNDS = 5;

  /** The fewest rounds that show how much the times vary. */
  private static final int MIN_ROUNDS = 3;

  private static final Duration END_MARGIN = Duration.ofSeconds(3);

  private final Child child;
  private final int calls;
  private final Stream stream;
  private final List<List<Object>> rows = new ArrayList<>();

  /** One way to make the calls. */
  private interface Way {
    void enqueue(int times);
  }

  private CallLatency(Child child, Stream stream) {
    this.child = child;
    this.calls = child.quick ? 200 : CALLS;
    this.stream = stream;
  }

  static void run(Child child) throws IOException {
    try (Backend backend = Backend.nccl();
        Communicator comm =
            backend.newCommunicator(
                backend.newUniqueId(), 1, 0, CommunicatorConfig.defaults().withDevice(0));
        Stream stream = comm.newStream();
        Buffer send = comm.newBuffer(DataType.FLOAT32, 1);
        Buffer recv = comm.newBuffer(DataType.FLOAT32, 1);
        RawCommunicator raw = new RawCommunicator()) {
      send.fill((byte) 0, stream);
      CallLatency latency = new CallLatency(child, stream);
      MemorySegment from = MemorySegment.ofAddress(send.address());
      MemorySegment into = MemorySegment.ofAddress(recv.address());
      MemorySegment on = CudaStream.of(stream).pointer();
      latency.compare(
          "in-place",
          child.left().dividedBy(2),
          times -> contract(comm, send, send, stream, times),
          times -> raw.allReduce(from, from, on, times));
      latency.compare(
          "out-of-place",
          child.left().minus(END_MARGIN),
          times -> contract(comm, send, recv, stream, times),
          times -> raw.allReduce(from, into, on, times));
      child.note(
          ("Medians of rounds of %d calls each, alternating; after every %d calls the stream is"
                  + " synchronized, which is not timed.")
              .formatted(latency.calls, ENQUEUED_AT_ONCE));
      child.end(latency.rows.size(), true, latency.summary());
    }
  }

  private String summary() {
    return "%s ns per nccl4j call in-place, %s ns with the bindings only"
        .formatted(rows.getFirst().get(1), rows.getFirst().get(4));
  }

  private static void contract(
      Communicator comm, Buffer send, Buffer recv, Stream stream, int times) {
    for (int i = 0; i < times; i++) {
      comm.allReduce(send, recv, ReduceOp.SUM, stream);
    }
  }

  private void compare(String name, Duration limit, Way contract, Way raw) throws IOException {
    long end = System.nanoTime() + limit.toNanos();
    for (int i = 0; i < WARM_UP_ROUNDS && System.nanoTime() < end; i++) {
      time(contract);
      time(raw);
    }
    List<Double> ours = new ArrayList<>();
    List<Double> theirs = new ArrayList<>();
    int most = child.quick ? MIN_ROUNDS : ROUNDS;
    while (ours.size() < MIN_ROUNDS || (ours.size() < most && System.nanoTime() < end)) {
      ours.add(time(contract));
      theirs.add(time(raw));
    }
    double median = median(ours);
    double rawMedian = median(theirs);
    List<Object> row = new ArrayList<>(List.of(name));
    row.addAll(List.of(round(median), round(least(ours)), round(most(ours))));
    row.addAll(List.of(round(rawMedian), round(least(theirs)), round(most(theirs))));
    row.addAll(List.of(Table.rounded(median / rawMedian, 3), (long) ours.size()));
    rows.add(row);
    child.table(new Table(TITLE, COLUMNS, List.copyOf(rows)));
    child.saveUnfinished(summary());
  }

  private double time(Way way) {
    long enqueuing = 0;
    for (int done = 0; done < calls; done += ENQUEUED_AT_ONCE) {
      long start = System.nanoTime();
      way.enqueue(ENQUEUED_AT_ONCE);
      enqueuing += System.nanoTime() - start;
      stream.synchronize();
    }
    return enqueuing / (double) calls;
  }

  private static double median(List<Double> values) {
    return NcclTests.median(values.stream().mapToDouble(Double::doubleValue).toArray());
  }

  private static double least(List<Double> values) {
    return Collections.min(values);
  }

  private static double most(List<Double> values) {
    return Collections.max(values);
  }

  private static double round(double nanoseconds) {
    return Table.rounded(nanoseconds, 1);
  }

  /** A communicator of one rank that uses only the generated bindings. */
  private static final class RawCommunicator implements AutoCloseable {
    private final MemorySegment comm;

    RawCommunicator() {
      CudaDevices.use(0);
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment id = ncclUniqueId.allocate(arena);
        MemorySegment cell = arena.allocate(ValueLayout.ADDRESS);
        check(nccl_h.ncclGetUniqueId(id), "ncclGetUniqueId");
        check(nccl_h.ncclCommInitRank(cell, 1, id, 0), "ncclCommInitRank");
        comm = cell.get(ValueLayout.ADDRESS, 0);
      }
    }

    void allReduce(MemorySegment send, MemorySegment recv, MemorySegment stream, int times) {
      int type = DataType.FLOAT32.code();
      for (int i = 0; i < times; i++) {
        check(nccl_h.ncclAllReduce(send, recv, 1, type, 0, comm, stream), "ncclAllReduce");
      }
    }

    private static void check(int result, String function) {
      if (result != 0) {
        throw new IllegalStateException(function + " returned " + result);
      }
    }

    @Override
    public void close() {
      check(nccl_h.ncclCommDestroy(comm), "ncclCommDestroy");
    }
  }
}
