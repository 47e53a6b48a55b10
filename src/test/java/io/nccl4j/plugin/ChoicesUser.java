package io.nccl4j.plugin;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.Recorded;
import java.util.Map;
import java.util.stream.Collectors;
import jdk.jfr.consumer.RecordedEvent;

/** The program of {@link ChoicesTest}: prints what is recorded of the operations of rank 0. */
public final class ChoicesUser {
  private static final int LARGE = 1 << 18;

  private ChoicesUser() {}

  /** Takes the number of events of kernels to wait for. */
  public static void main(String[] arguments) {
    try (Recorded recorded = new Recorded();
        Backend backend = Backend.nccl()) {
      backend.runRanks(2, ChoicesUser::communicate);
      Map<String, Long> kernels =
          recorded.events("Kernel", ChoicesUser::ofRank0, Integer.parseInt(arguments[0])).stream()
              .collect(
                  Collectors.toMap(
                      ChoicesUser::name, event -> event.getDuration("nanos").toNanos()));
      for (RecordedEvent event : recorded.events("Collective", ChoicesUser::ofRank0, 6)) {
        Long kernel = kernels.get(name(event));
        System.out.printf(
            "> %s %s %s %d, %s%n",
            name(event),
            event.getString("algorithm"),
            event.getString("protocol"),
            event.getInt("channels"),
            kernel == null
                ? "no kernel"
                : kernel >= 20_000_000 && kernel <= event.getDuration().toNanos()
                    ? "kernel"
                    : "kernel of " + kernel + " ns");
      }
    }
  }

  private static boolean ofRank0(RecordedEvent event) {
    return event.getInt("rank") == 0;
  }

  private static String name(RecordedEvent event) {
    return event.getString("operation") + " " + event.getLong("sequence");
  }

  private static void communicate(Communicator comm) {
    try (Stream stream = comm.newStream();
        Buffer small = comm.newBuffer(DataType.FLOAT32, 4);
        Buffer large = comm.newBuffer(DataType.FLOAT32, LARGE)) {
      comm.allReduce(small, small, ReduceOp.SUM, stream);
      Group.run(
          () -> {
            comm.reduce(large, large, ReduceOp.SUM, 0, stream);
            comm.allReduce(small, small, ReduceOp.SUM, stream);
          });
      Runnable sum = () -> comm.allReduce(large, large, ReduceOp.SUM, stream);
      try (Graph graph = Graph.capture(stream, sum)) {
        // Counts a collective, of which NCCL reports nothing.
        graph.launch(stream);
        stream.synchronize();
      }
      comm.allReduce(large, large, ReduceOp.SUM, stream);
      if (comm.rank() == 0) {
        comm.send(small, 1, stream);
      } else {
        comm.recv(small, 0, stream);
      }
      // NCCL makes it of sends and receives.
      comm.allToAll(small.slice(0, 2), small.slice(2, 2), stream);
      stream.synchronize();
    }
  }
}
