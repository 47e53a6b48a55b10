package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
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
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** The all-reduce that accesses every rank's memory gives the same bits as the ring. */
class DirectAllReduceTest {
  private static final long SEED = Long.getLong("test.seed", 20261121);
  private static final List<String> OPERATORS =
      List.of("sum", "prod", "max", "min", "avg", "mulsum");
  // Small chunks and slices, so that small data takes several loops, and chunks several slices.
  private static final Layout SMALL_LAYOUT =
      Layout.defaults().withChunkBytes(2048).withSliceBytes(512);
  private static final ReferenceOptions SMALL =
      ReferenceOptions.defaults().withLayout(SMALL_LAYOUT);

  static Stream<Arguments> typesAndRanks() {
    return Stream.of(DataType.values())
        .flatMap(type -> Stream.of(2, 3, 4, 7).map(ranks -> Arguments.of(type, ranks)));
  }

  /** Every operator, in and out of place, on sizes around slices, chunks and channels. */
  @ParameterizedTest
  @MethodSource("typesAndRanks")
  void bitsEqualThoseOfTheRing(DataType type, int ranks) {
    List<Integer> counts = List.of(1, 5, 129, 2048, 40_001);
    int cases = 2 * counts.size() * OPERATORS.size();
    byte[][] ring = results(type, ranks, counts, Algorithm.RING);
    byte[][] direct = results(type, ranks, counts, Algorithm.DIRECT);
    assertEquals(ranks * cases, ring.length);
    for (int i = 0; i < ring.length; i++) {
      assertSameBits(type, ring[i], direct[i], "case " + i);
    }
  }

  private static byte[][] results(
      DataType type, int ranks, List<Integer> counts, Algorithm algorithm) {
    int cases = 2 * counts.size() * OPERATORS.size();
    byte[][] results = new byte[ranks * cases][];
    Ranks.run(
        ranks,
        SMALL.withAlgorithm(algorithm),
        (comm, stream) -> {
          int at = comm.rank() * cases;
          for (String operator : OPERATORS) {
            try (Operand op = Operand.of(comm, type, operator)) {
              for (int count : counts) {
                results[at++] = reduced(comm, stream, type, op, count, true);
                results[at++] = reduced(comm, stream, type, op, count, false);
              }
            }
          }
        });
    return results;
  }

  /** An operator, with the one that this test has to close, or null. */
  private record Operand(ReduceOp op, ReduceOp.PreMulSum created) implements AutoCloseable {
    static Operand of(Communicator comm, DataType type, String name) {
      if (name.equals("mulsum")) {
        ReduceOp.PreMulSum created = comm.newPreMulSum(type, comm.rank() + 2);
        return new Operand(created, created);
      }
      ReduceOp standard =
          switch (name) {
            case "sum" -> ReduceOp.SUM;
            case "prod" -> ReduceOp.PROD;
            case "max" -> ReduceOp.MAX;
            case "min" -> ReduceOp.MIN;
            default -> ReduceOp.AVG;
          };
      return new Operand(standard, null);
    }

    @Override
    public void close() {
      if (created != null) {
        created.close();
      }
    }
  }

  private static byte[] reduced(
      Communicator comm,
      io.nccl4j.Stream stream,
      DataType type,
      Operand op,
      int count,
      boolean inPlace) {
    try (Buffer send = comm.newBuffer(type, count);
        Buffer recv = comm.newBuffer(type, count)) {
      byte[] own = new byte[count * type.bytes()];
      new Random(SEED * 31 + count * 64L + comm.rank()).nextBytes(own);
      send.copyFromAsync(MemorySegment.ofArray(own), stream);
      Buffer result = inPlace ? send : recv;
      comm.allReduce(send, result, op.op(), stream);
      stream.synchronize();
      if (!inPlace) {
        assertEquals(-1, send.segment().mismatch(MemorySegment.ofArray(own)), "an input changed");
      }
      return result.segment().toArray(ValueLayout.JAVA_BYTE);
    }
  }

  /** Asserts equal bits; NaNs may have any bit pattern. */
  private static void assertSameBits(DataType type, byte[] expected, byte[] actual, String where) {
    MemorySegment left = MemorySegment.ofArray(expected);
    MemorySegment right = MemorySegment.ofArray(actual);
    assertEquals(left.byteSize(), right.byteSize());
    for (long bit = left.mismatch(right); bit >= 0; bit = next(left, right, bit)) {
      long element = bit / type.bytes();
      boolean nans =
          type.floating()
              && Double.isNaN(type.get(left, element))
              && Double.isNaN(type.get(right, element));
      assertTrue(nans, where + ", " + type + ", element " + element + ", seed " + SEED);
      bit = (element + 1) * type.bytes() - 1;
    }
  }

  private static long next(MemorySegment left, MemorySegment right, long before) {
    long from = before + 1;
    long at = left.asSlice(from).mismatch(right.asSlice(from));
    return at < 0 ? -1 : from + at;
  }

  /** Options that determine which rank starts a chunk apply to all loops and channels. */
  @ParameterizedTest
  @MethodSource("layouts")
  void bitsEqualThoseOfTheRingInEveryLayout(ReferenceOptions options) {
    int count = 70_000;
    byte[][] both =
        Stream.of(Algorithm.RING, Algorithm.DIRECT)
            .map(algorithm -> sums(options.withAlgorithm(algorithm), count))
            .toArray(byte[][]::new);
    assertSameBits(DataType.FLOAT32, both[0], both[1], options.toString());
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
          assertTrue(thrown.getMessage().contains("belongs to rank 0"), thrown::toString);
        });
  }
}
