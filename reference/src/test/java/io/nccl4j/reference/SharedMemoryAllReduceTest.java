package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.fixtures.Seed;
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.rank.CommunicatorState;
import io.nccl4j.internal.reference.transport.ProtocolViolationException;
import io.nccl4j.internal.reference.transport.SharedMemorySync;
import io.nccl4j.spi.Contract;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The all-reduce through shared memory of one host gives the same bits as the ring. */
class SharedMemoryAllReduceTest {
  private static final List<ReduceOp> OPERATORS =
      List.of(ReduceOp.SUM, ReduceOp.PROD, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.AVG);

  /** Around one round, several rounds, and the limit below which every rank folds all data. */
  private static final List<Integer> COUNTS = List.of(1, 5, 300, 4096, 5000, 40_001, 300_000);

  private static Backend openProcesses(int ranks, int processes, Algorithm algorithm) {
    return ReferenceBackend.openAsProcesses(
        ranks, processes, ReferenceOptions.defaults().withAlgorithm(algorithm));
  }

  /** Runs every operator on every count, out of place and in place, one after the other. */
  private static byte[][][] results(Backend backend, int ranks, DataType type) {
    byte[][][] results = new byte[ranks][][];
    Ranks.run(
        ranks,
        backend,
        CommunicatorConfig.defaults(),
        (comm, stream) -> {
          List<byte[]> own = new ArrayList<>();
          for (ReduceOp op : OPERATORS) {
            for (int count : COUNTS) {
              own.add(reduced(comm, stream, type, op, count, false));
              own.add(reduced(comm, stream, type, op, count, true));
            }
          }
          try (ReduceOp.PreMulSum op = comm.newPreMulSum(type, comm.rank() + 2)) {
            own.add(reduced(comm, stream, type, op, 5000, false));
          }
          results[comm.rank()] = own.toArray(byte[][]::new);
        });
    return results;
  }

  private static byte[] reduced(
      Communicator comm,
      io.nccl4j.Stream stream,
      DataType type,
      ReduceOp op,
      int count,
      boolean inPlace) {
    try (Buffer send = comm.newBuffer(type, count);
        Buffer recv = comm.newBuffer(type, count)) {
      SplittableRandom random = Seed.random("shared " + comm.rank() + " " + count);
      for (long i = 0; i < count; i++) {
        double value = type.floating() ? random.nextDouble(0.5, 2) : random.nextInt(2, 8);
        type.set(send.segment(), i, value);
      }
      Buffer result = inPlace ? send : recv;
      comm.allReduce(send, result, op, stream);
      stream.synchronize();
      return result.segment().toArray(ValueLayout.JAVA_BYTE);
    }
  }

  @ParameterizedTest
  @CsvSource({
    "2, 2, FLOAT32", "3, 3, FLOAT32", "4, 4, FLOAT32", "4, 2, FLOAT32", "7, 3, FLOAT32",
    "2, 2, FLOAT16", "3, 3, BFLOAT16", "4, 4, INT32", "3, 2, FLOAT64", "4, 4, FLOAT8E4M3",
    "2, 2, UINT8"
  })
  void bitsEqualThoseOfTheRing(int ranks, int processes, DataType type) {
    byte[][][] ring =
        results(
            ReferenceBackend.open(ranks, ReferenceOptions.defaults().withAlgorithm(Algorithm.RING)),
            ranks,
            type);
    byte[][][] shared = results(openProcesses(ranks, processes, Algorithm.DIRECT), ranks, type);
    for (int rank = 0; rank < ranks; rank++) {
      assertEquals(ring[rank].length, shared[rank].length);
      for (int i = 0; i < ring[rank].length; i++) {
        assertArrayEquals(
            ring[rank][i], shared[rank][i], "rank " + rank + ", case " + i + Seed.hint());
      }
    }
  }

  @Test
  void filesAreUnlinkedWhileTheRanksContinue() throws IOException {
    List<Long> self = List.of(ProcessHandle.current().pid());
    Ranks.run(
        3,
        openProcesses(3, 3, Algorithm.AUTO),
        CommunicatorConfig.defaults(),
        (comm, stream) -> {
          reduced(comm, stream, DataType.INT32, ReduceOp.SUM, 10, false);
          assertEquals(Set.of(), SharedNames.thatStay(self));
        });
  }

  @Test
  void differentCountsAreReported() {
    CommunicatorConfig soon = CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(20));
    NcclException failure =
        assertThrows(
            NcclException.class,
            () ->
                Ranks.run(
                    2,
                    openProcesses(2, 2, Algorithm.AUTO),
                    soon,
                    (comm, stream) ->
                        reduced(
                            comm, stream, DataType.INT32, ReduceOp.SUM, 10 + comm.rank(), false)));
    assertTrue(
        failure.getMessage().contains("rank 0 called allReduce(count 10"), failure::toString);
    assertTrue(
        failure.getMessage().contains("rank 1 called allReduce(count 11"), failure::toString);
  }

  @Test
  void syncIsCompleteOnceAllProcessesHaveOpenedIt() {
    try (Arena arena = Arena.ofShared()) {
      SharedMemorySync made = SharedMemorySync.create(2, 2, arena);
      assertFalse(made.complete(2));
      SharedMemorySync opened = SharedMemorySync.open(made.path(), 2, 2, 0, arena);
      assertTrue(made.complete(2));
      assertTrue(opened.complete(2));
      made.discard();
      assertFalse(Files.exists(made.path()));
      made.memory().set(ValueLayout.JAVA_INT, made.input(0, 1, 1), 42);
      made.put(0, 7);
      assertEquals(7, opened.put(0));
      assertEquals(42, opened.memory().get(ValueLayout.JAVA_INT, opened.input(0, 1, 1)));
    }
  }

  @Test
  void syncOfAnotherSizeIsRefused() {
    try (Arena arena = Arena.ofShared()) {
      SharedMemorySync made = SharedMemorySync.create(3, 2, arena);
      ProtocolViolationException failure =
          assertThrows(
              ProtocolViolationException.class,
              () -> SharedMemorySync.open(made.path(), 4, 2, 0, arena));
      assertTrue(failure.getMessage().contains("rank 0 violated the protocol"), failure::toString);
      made.discard();
    }
  }

  @Test
  void rankWithAnImpossibleCountIsNamed() {
    NcclException failure =
        assertThrows(
            NcclException.class,
            () ->
                Ranks.run(
                    2,
                    openProcesses(2, 2, Algorithm.AUTO),
                    CommunicatorConfig.defaults(),
                    (comm, stream) -> {
                      reduced(comm, stream, DataType.INT32, ReduceOp.SUM, 10, false);
                      if (comm.rank() == 1) {
                        CommunicatorState communicator =
                            ((ReferenceCommunicator) Contract.get().driver(comm))
                                .hostedRank()
                                .communicator();
                        communicator.links().sharedMemory().sync().put(1, 1000);
                        stream.synchronize();
                        Thread.sleep(1000);
                      } else {
                        Thread.sleep(300);
                        reduced(comm, stream, DataType.INT32, ReduceOp.SUM, 10, false);
                      }
                    }));
    assertTrue(
        failure.getMessage().contains("violated the protocol: it reports 1000 rounds"),
        failure::toString);
  }
}
