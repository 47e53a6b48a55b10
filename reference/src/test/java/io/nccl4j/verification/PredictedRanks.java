package io.nccl4j.verification;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.Seed;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.NcclCommunicator;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.random.RandomGenerator;

/**
 * The program of {@link PredictedOrderTest}: verifies four ranks of the stand-in, with its profiler
 * and with lines that NCCL would have logged. The stand-in adds in rank order. So does the tree in
 * these lines, a chain to the last rank, but not the ring, which begins at another rank for each
 * chunk: it has whole numbers, whose sums and products do not depend on the order, but for the last
 * call.
 */
public final class PredictedRanks {
  private static final int RANKS = 4;
  private static final int SMALL = 4096;
  private static final int LARGE = 1 << 20;

  private PredictedRanks() {}

  /** Prints what has been counted and found. */
  public static void main(String[] arguments) {
    Verification.install();
    List<Long> addresses = new ArrayList<>();
    CyclicBarrier barrier = new CyclicBarrier(RANKS);
    try (Backend backend = Backend.nccl()) {
      backend.runRanks(
          RANKS,
          comm -> {
            NcclCommunicator.of(comm)
                .callNative(
                    "ncclComm_t",
                    handle -> {
                      synchronized (addresses) {
                        addresses.add(handle.address());
                      }
                      return 0;
                    });
            meet(barrier);
            if (comm.rank() == 0) {
              writeLog(addresses);
            }
            meet(barrier);
            run(comm, barrier);
          });
    }
  }

  /** Writes the log of all ranks, each with all trees: they may have been added in any order. */
  private static void writeLog(List<Long> addresses) {
    String file = System.getenv("NCCL_DEBUG_FILE");
    if (file == null) {
      return;
    }
    List<String> lines = new ArrayList<>();
    for (int i = 0; i < RANKS; i++) {
      String prefix = "host:1:" + i + " [" + i + "] NCCL INFO ";
      String name = "ncclCommInitRankConfig comm 0x" + Long.toHexString(addresses.get(i));
      lines.add(prefix + name + " rank 0 nranks 4 - Init START");
      lines.add(prefix + "Channel 00/02 : 0 1 2 3");
      lines.add(prefix + "Channel 01/02 : 0 1 2 3");
      for (int rank = 0; rank < RANKS; rank++) {
        String node =
            "%d/-1/-1->%d->%d".formatted(rank - 1, rank, rank == RANKS - 1 ? -1 : rank + 1);
        lines.add(prefix + "Trees [0] " + node + " [1] " + node);
      }
      lines.add(prefix + name + " rank 0 nranks 4 - Init COMPLETE");
    }
    String pid = Long.toString(ProcessHandle.current().pid());
    try {
      Files.write(Path.of(file.replace("%p", pid).replace("%h", "host")), lines);
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  private static void run(Communicator comm, CyclicBarrier barrier) {
    RandomGenerator random = Seed.random("rank " + comm.rank());
    try (Stream stream = comm.newStream();
        Verification verification =
            Verification.sampling(comm, 1, found -> System.out.println("> " + found));
        Buffer whole = comm.newBuffer(DataType.FLOAT32, LARGE);
        Buffer fractions = comm.newBuffer(DataType.FLOAT32, LARGE);
        Buffer result = comm.newBuffer(DataType.FLOAT32, LARGE)) {
      float[] values = new float[LARGE];
      for (int i = 0; i < LARGE; i++) {
        values[i] = random.nextInt(1, 9);
      }
      whole.copyFromAsync(values, stream);
      for (int i = 0; i < LARGE; i++) {
        values[i] = (float) random.nextGaussian();
      }
      fractions.copyFromAsync(values, stream);
      Buffer small = result.slice(0, SMALL);
      List<Runnable> calls =
          List.of(
              () -> comm.allReduce(fractions.slice(0, SMALL), small, ReduceOp.SUM, stream),
              () -> comm.allReduce(whole, result, ReduceOp.AVG, stream),
              () ->
                  comm.reduceScatter(
                      whole.slice(0, (long) SMALL * RANKS), small, ReduceOp.PROD, stream),
              () -> {
                flip(comm, barrier);
                comm.allReduce(whole, result, ReduceOp.SUM, stream);
              },
              () -> comm.allReduce(fractions, result, ReduceOp.SUM, stream));
      for (Runnable call : calls) {
        call.run();
        stream.synchronize();
        while (!verification.idle()) {
          Thread.onSpinWait();
        }
        meet(barrier);
      }
      System.out.println("> rank " + comm.rank() + ": " + verification.counts());
    }
  }

  /** Flips the sign of an element, in the second chunk of the second channel. */
  private static void flip(Communicator comm, CyclicBarrier barrier) {
    if (comm.rank() == 0) {
      StandIn.flip(1, 900_000L * Float.BYTES + 3, 7);
    }
    meet(barrier);
  }

  private static void meet(CyclicBarrier barrier) {
    try {
      barrier.await(60, TimeUnit.SECONDS);
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }
}
