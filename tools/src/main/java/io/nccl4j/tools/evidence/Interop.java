package io.nccl4j.tools.evidence;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * The Java rank of a communicator whose other rank is a Python process, {@value #SCRIPT}. It makes
 * the same calls with the same inputs and checks its own results.
 */
final class Interop {
  /** The Python program, a resource of this package. */
  static final String SCRIPT = "all_reduce.py";

  private static final int PERIOD = 1000;

  private Interop() {}

  /** One all-reduce; the Python program has the same list of them. */
  private record Sum(DataType type, int count) {}

  private static final List<Sum> SUMS =
      List.of(
          new Sum(DataType.INT32, 1),
          new Sum(DataType.INT32, 1001),
          new Sum(DataType.FLOAT32, 1001),
          new Sum(DataType.FLOAT64, 1001),
          new Sum(DataType.FLOAT32, 1_000_003));

  static void run(Child child) throws IOException {
    CommunicatorConfig config =
        CommunicatorConfig.defaults().withDevice(0).withTimeout(child.left());
    List<List<Object>> rows = new ArrayList<>();
    int wrong = 0;
    try (Backend backend = Backend.nccl()) {
      UniqueId id = backend.newUniqueId();
      publish(id, child.meet);
      try (Communicator comm = backend.newCommunicator(id, child.size, 0, config);
          Stream stream = comm.newStream()) {
        for (Sum sum : SUMS) {
          long differences = differences(sum, comm, stream);
          wrong += differences == 0 ? 0 : 1;
          String type = sum.type().name().toLowerCase(Locale.ROOT);
          rows.add(List.of("sum of " + sum.count() + " " + type, differences));
        }
      }
    }
    child.table(
        new Table(
            "all-reduces of both processes, results of the Java rank",
            List.of("", "wrong elements"),
            rows));
    child.end(
        rows.size(), wrong == 0, SUMS.size() + " all-reduces, " + wrong + " with wrong elements");
  }

  /** Writes the id atomically: a reader of the file sees all of it. */
  private static void publish(UniqueId id, Path file) throws IOException {
    Path temporary = file.resolveSibling(file.getFileName() + ".tmp");
    Files.write(temporary, id.toBytes());
    Files.move(temporary, file, StandardCopyOption.ATOMIC_MOVE);
  }

  /**
   * Rank r contributes (r + 1) * (i mod 1000) at index i, whose sum is exact in every type used.
   */
  private static long differences(Sum sum, Communicator comm, Stream stream) {
    DataType type = sum.type();
    MemorySegment data = MemorySegment.ofArray(new byte[sum.count() * type.bytes()]);
    for (int i = 0; i < sum.count(); i++) {
      type.set(data, i, (comm.rank() + 1.0) * (i % PERIOD));
    }
    try (Buffer buffer = comm.newBuffer(type, sum.count())) {
      buffer.copyFromAsync(data, stream);
      comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
      buffer.copyTo(data, stream);
    }
    int ranks = comm.size();
    long wrong = 0;
    for (int i = 0; i < sum.count(); i++) {
      wrong += type.get(data, i) == ranks * (ranks + 1) / 2.0 * (i % PERIOD) ? 0 : 1;
    }
    return wrong;
  }
}
