package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** The all-reduce that accesses every rank's memory; PredictionTest has its bits. */
class DirectAllReduceTest {
  private static final long SEED = Long.getLong("test.seed", 20261121);
  // Small chunks and slices, so that small data takes several loops, and chunks several slices.
  private static final Layout SMALL_LAYOUT =
      Layout.defaults().withChunkBytes(2048).withSliceBytes(512);
  private static final ReferenceOptions SMALL =
      ReferenceOptions.defaults().withLayout(SMALL_LAYOUT);

  /** Options that determine which rank starts a chunk apply to all loops and channels. */
  @ParameterizedTest
  @MethodSource("layouts")
  void bitsEqualThoseOfTheRingInEveryLayout(ReferenceOptions options) {
    int count = 70_000;
    byte[][] both =
        Stream.of(Algorithm.RING, Algorithm.DIRECT)
            .map(algorithm -> sums(options.withAlgorithm(algorithm), count))
            .toArray(byte[][]::new);
    assertArrayEquals(both[0], both[1], options + ", seed " + SEED);
  }

  static Stream<ReferenceOptions> layouts() {
    List<List<Integer>> orders = List.of(List.of(0, 2, 4, 1, 3), List.of(3, 1, 0, 4, 2));
    return Stream.concat(
            Stream.of(1, 2, 5)
                .flatMap(
                    channels ->
                        Stream.of(512, 4096, 2 << 20)
                            .map(
                                chunk ->
                                    SMALL_LAYOUT.withChannels(channels).withChunkBytes(chunk))),
            Stream.of(
                SMALL_LAYOUT.withRingOrders(orders),
                SMALL_LAYOUT.withChannels(4).withProtocol(Protocol.LL),
                SMALL_LAYOUT.withProtocol(Protocol.LL128)))
        .map(SMALL::withLayout);
  }

  private static byte[] sums(ReferenceOptions options, int count) {
    byte[][] result = new byte[1][];
    Ranks.run(
        5,
        options,
        (comm, stream) -> {
          try (Buffer data = comm.newBuffer(DataType.FLOAT32, count)) {
            Random random = new Random(SEED + comm.rank());
            for (int i = 0; i < count; i++) {
              DataType.FLOAT32.set(data.segment(), i, random.nextGaussian());
            }
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            stream.synchronize();
            if (comm.rank() == 3) {
              result[0] = data.segment().toArray(ValueLayout.JAVA_BYTE);
            }
          }
        });
    return result[0];
  }

  @Test
  void eachOperationSeesTheResultOfTheOneBefore() {
    int ranks = 5;
    Ranks.run(
        ranks,
        SMALL.withAlgorithm(Algorithm.DIRECT),
        (comm, stream) -> {
          try (Buffer one = comm.newBuffer(DataType.UINT64, 300);
              Buffer two = comm.newBuffer(DataType.UINT64, 300)) {
            for (int i = 0; i < 300; i++) {
              DataType.UINT64.setLong(one.segment(), i, comm.rank() + i);
            }
            for (int turn = 0; turn < 2000; turn++) {
              comm.allReduce(one, two, ReduceOp.SUM, stream);
              comm.allReduce(two, one, ReduceOp.MAX, stream);
            }
            stream.synchronize();
            for (int i = 0; i < 300; i++) {
              // The ranks' values are summed once; after that all ranks have the same values.
              long expected = IntStream.range(0, ranks).sum() + (long) ranks * i;
              for (int turn = 1; turn < 2000; turn++) {
                expected *= ranks;
              }
              assertEquals(expected, DataType.UINT64.getLong(one.segment(), i), "element " + i);
            }
          }
        });
  }

  /** A rank may reuse its memory after its operation has ended; no other rank writes to it. */
  @RepeatedTest(20)
  void abortedRanksMemoryIsNotWritten() {
    int count = 1 << 20;
    Ranks.run(
        3,
        ReferenceOptions.defaults()
            .withAlgorithm(Algorithm.DIRECT)
            .withLayout(Layout.defaults().withSliceBytes(4096)),
        CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(30)),
        (comm, stream) -> {
          try (Arena arena = Arena.ofShared()) {
            MemorySegment memory = arena.allocate(4L * count, 64);
            Buffer data =
                Buffer.ofHostSegment(memory, DataType.FLOAT32, count, comm.device(), () -> {});
            memory.fill((byte) 1);
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            if (comm.rank() == 1) {
              Thread.sleep(0, new Random().nextInt(500_000));
              comm.abort();
              try {
                stream.synchronize();
              } catch (CommunicatorAbortedException aborted) {
                memory.fill((byte) 7);
                Thread.sleep(5);
                assertEquals(-1, memory.mismatch(arena.allocate(4L * count, 64).fill((byte) 7)));
              }
            } else {
              try {
                stream.synchronize();
              } catch (NcclException thrown) {
                assertTrue(
                    thrown.getMessage().contains("aborted its communicator"), thrown::toString);
              }
            }
          }
        });
  }

  @Test
  void closedBufferIsReportedWithItsRank() {
    CountDownLatch closed = new CountDownLatch(1);
    Ranks.run(
        2,
        ReferenceOptions.defaults().withAlgorithm(Algorithm.DIRECT),
        (comm, stream) -> {
          @SuppressWarnings("MustBeClosedChecker") // Closed by one rank.
          Arena arena = Arena.ofShared();
          Buffer data =
              Buffer.ofHostSegment(
                  arena.allocate(4000, 4), DataType.FLOAT32, 1000, comm.device(), () -> {});
          if (comm.rank() == 0) {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            arena.close();
            closed.countDown();
          } else {
            closed.await();
            comm.allReduce(data, data, ReduceOp.SUM, stream);
          }
          NcclException thrown = assertThrows(NcclException.class, stream::synchronize);
          assertTrue(
              thrown.getMessage().contains("a buffer was closed while the operation used it"),
              thrown::toString);
          assertTrue(thrown.getMessage().contains("belongs to rank 0"), thrown::toString);
        });
  }
}
