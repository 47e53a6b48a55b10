package io.nccl4j.tools.evidence;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.tools.cli.BusBandwidth;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * Measures bandwidth with one process per rank on one GPU. Sizes and bandwidths are defined as in
 * nccl-tests.
 */
final class PeerBandwidth {
  private static final long[] SIZES = {8, 64, 512, 4096, 32_768, 262_144, 2_097_152, 16_777_216};
  private static final long[] FEW_SIZES = {8, 4096};
  private static final int WARM_UP = 3;
  private static final int ITERATIONS = 10;
  private static final int FLOAT_BYTES = 4;

  private final Child child;
  private final Communicator comm;
  private final io.nccl4j.Stream stream;
  private int tables;

  private PeerBandwidth(Child child, Communicator comm, io.nccl4j.Stream stream) {
    this.child = child;
    this.comm = comm;
    this.stream = stream;
  }

  /** Enqueues one operation. */
  private interface Enqueue {
    void run(Buffer send, Buffer recv);
  }

  static void run(Child child) throws java.io.IOException {
    CommunicatorConfig config =
        CommunicatorConfig.defaults().withDevice(0).withTimeout(Duration.ofSeconds(30));
    try (Backend backend = Backend.nccl();
        Peers peers = new Peers(child);
        Communicator comm = peers.communicator(backend, config);
        io.nccl4j.Stream stream = comm.newStream()) {
      PeerBandwidth bandwidth = new PeerBandwidth(child, comm, stream);
      int n = child.size;
      bandwidth.table(
          "all_reduce",
          Operation.ALL_REDUCE,
          (send, recv) -> comm.allReduce(send, recv, ReduceOp.SUM, stream));
      bandwidth.table(
          "all_gather",
          Operation.ALL_GATHER,
          (send, recv) -> comm.allGather(send.slice(0, send.count() / n), recv, stream));
      bandwidth.table(
          "broadcast", Operation.BROADCAST, (send, recv) -> comm.broadcast(send, recv, 0, stream));
      bandwidth.table("sendrecv", Operation.SEND, bandwidth::ring);
      child.end(bandwidth.tables, true, bandwidth.tables + " collectives timed");
    }
    child.note(
        "Both processes share one GPU and communicate through loopback sockets: the GPU switches"
            + " between them, so the times include these switches. Times are those of rank 0, for "
            + ITERATIONS
            + " operations enqueued at once; float, out-of-place.");
  }

  private void ring(Buffer send, Buffer recv) {
    int n = comm.size();
    Group.run(
        () -> {
          comm.send(send, (comm.rank() + 1) % n, stream);
          comm.recv(recv, (comm.rank() + n - 1) % n, stream);
        });
  }

  private void table(String name, Operation operation, Enqueue enqueue) throws java.io.IOException {
    double busFactor = BusBandwidth.factor(operation.method(), comm.size());
    List<List<Object>> rows = new ArrayList<>();
    for (long bytes : child.quick ? FEW_SIZES : SIZES) {
      try (Buffer send = comm.newBuffer(DataType.FLOAT32, bytes / FLOAT_BYTES);
          Buffer recv = comm.newBuffer(DataType.FLOAT32, bytes / FLOAT_BYTES)) {
        send.fill((byte) 0, stream);
        time(WARM_UP, send, recv, enqueue);
        double seconds = time(ITERATIONS, send, recv, enqueue);
        double algbw = bytes / seconds / 1e9;
        rows.add(
            List.of(
                bytes,
                Table.rounded(seconds * 1e6, 2),
                Table.rounded(algbw, 3),
                Table.rounded(algbw * busFactor, 3)));
      }
    }
    child.table(
        new Table(
            name + ", bytes, microseconds, GB/s", List.of("size", "time", "algbw", "busbw"), rows));
    tables++;
    child.saveUnfinished("timed up to " + name);
  }

  private double time(int iterations, Buffer send, Buffer recv, Enqueue enqueue) {
    stream.synchronize();
    long start = System.nanoTime();
    for (int i = 0; i < iterations; i++) {
      enqueue.run(send, recv);
    }
    stream.synchronize();
    return (System.nanoTime() - start) / 1e9 / iterations;
  }
}
