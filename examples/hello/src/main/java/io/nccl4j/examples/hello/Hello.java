package io.nccl4j.examples.hello;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Sums one gradient per device, on GPUs where there are any and without them otherwise. */
public final class Hello {
  private static final int COUNT = 1_000;

  private Hello() {}

  /** Runs one rank per device of the best backend, each in a thread of its own. */
  public static void main(String[] args) throws InterruptedException, ExecutionException {
    try (Backend backend = Backend.auto()) {
      UniqueId id = backend.newUniqueId();
      int worldSize = backend.devices().size();
      List<Callable<String>> ranks = new ArrayList<>();
      for (int r = 0; r < worldSize; r++) {
        int rank = r;
        ranks.add(() -> allReduce(backend, id, worldSize, rank));
      }
      try (ExecutorService threads = Executors.newFixedThreadPool(worldSize)) {
        for (Future<String> line : threads.invokeAll(ranks)) {
          System.out.println(line.get());
        }
      }
    }
    if (System.out.checkError()) {
      throw new IllegalStateException("the results cannot be written to stdout");
    }
  }

  private static String allReduce(Backend backend, UniqueId id, int worldSize, int rank) {
    MemorySegment host = Arena.ofAuto().allocate(ValueLayout.JAVA_FLOAT, COUNT);
    for (int i = 0; i < COUNT; i++) {
      host.setAtIndex(ValueLayout.JAVA_FLOAT, i, rank + i);
    }
    try (Communicator comm =
            backend.communicator(id, worldSize, rank, CommunicatorConfig.defaults());
        Stream stream = comm.newStream();
        Buffer grads = comm.allocate(DataType.FLOAT32, COUNT)) {
      grads.copyFrom(host, stream);
      comm.allReduce(grads, grads, ReduceOp.SUM, stream);
      grads.copyTo(host, stream);
    }
    float ofAllRanks = worldSize * (worldSize - 1) / 2f;
    for (int i = 0; i < COUNT; i++) {
      float sum = host.getAtIndex(ValueLayout.JAVA_FLOAT, i);
      if (sum != ofAllRanks + worldSize * (float) i) {
        throw new AssertionError("rank " + rank + ": element " + i + " is " + sum);
      }
    }
    return "%s: rank %d of %d has the sum of %d elements, all right"
        .formatted(backend.name(), rank, worldSize, COUNT);
  }
}
