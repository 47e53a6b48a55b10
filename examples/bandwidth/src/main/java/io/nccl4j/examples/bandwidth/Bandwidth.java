package io.nccl4j.examples.bandwidth;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.rendezvous.LaunchEnvironment;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Locale;

/** Measures the bandwidth of an all-reduce of float32 on all ranks, and checks its result. */
public final class Bandwidth {
  private static final int WARM_UP = 5;
  private static final int REPEATS = 20;

  private Bandwidth() {}

  /**
   * Runs the rank set by a launcher, else one rank for each device of the best backend.
   *
   * @param args the largest buffer in bytes (default: 32 MiB)
   */
  public static void main(String[] args) {
    long maxBytes = args.length == 0 ? 32L << 20 : Long.parseLong(args[0]);
    try (Backend backend = Backend.auto()) {
      LaunchEnvironment.current().runRanks(backend, comm -> measure(comm, maxBytes));
    }
  }

  private static void measure(Communicator comm, long maxBytes) {
    print(comm, "# %s, %d ranks%n", comm.backend().name(), comm.size());
    print(comm, "#    bytes   time (us)  algbw (GB/s)  busbw (GB/s)%n");
    for (long bytes = 8; bytes <= maxBytes; bytes *= 2) {
      double seconds = seconds(comm, bytes / Float.BYTES);
      double algorithm = bytes / seconds / 1e9;
      // Each byte crosses a link of the ring 2(n-1)/n times.
      double bus = algorithm * 2 * (comm.size() - 1) / comm.size();
      print(comm, "%10d  %10.1f  %12.2f  %12.2f%n", bytes, seconds * 1e6, algorithm, bus);
    }
  }

  /** Returns the time of one all-reduce. */
  private static double seconds(Communicator comm, long count) {
    try (Arena arena = Arena.ofConfined();
        Stream stream = comm.newStream();
        Event begin = comm.newEvent();
        Event end = comm.newEvent();
        Buffer send = comm.newBuffer(DataType.FLOAT32, count);
        Buffer recv = comm.newBuffer(DataType.FLOAT32, count)) {
      MemorySegment host = arena.allocate(ValueLayout.JAVA_FLOAT, count);
      for (long i = 0; i < count; i++) {
        host.setAtIndex(ValueLayout.JAVA_FLOAT, i, (float) (comm.rank() + i % 100));
      }
      send.copyFromAsync(host, stream);
      for (int i = 0; i < WARM_UP; i++) {
        comm.allReduce(send, recv, ReduceOp.SUM, stream);
      }
      stream.record(begin);
      for (int i = 0; i < REPEATS; i++) {
        comm.allReduce(send, recv, ReduceOp.SUM, stream);
      }
      stream.record(end);
      recv.copyTo(host, stream); // waits for all of it
      check(comm, host, count);
      return end.elapsedSince(begin).toNanos() / 1e9 / REPEATS;
    }
  }

  private static void check(Communicator comm, MemorySegment host, long count) {
    float ranks = comm.size() * (comm.size() - 1) / 2f;
    for (long i = 0; i < count; i++) {
      float sum = host.getAtIndex(ValueLayout.JAVA_FLOAT, i);
      if (sum != ranks + comm.size() * (i % 100)) {
        throw new AssertionError("rank " + comm.rank() + ": element " + i + " is " + sum);
      }
    }
  }

  private static void print(Communicator comm, String format, Object... values) {
    if (comm.rank() == 0) {
      System.out.printf(Locale.ROOT, format, values);
    }
  }
}
