package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.schedule.Layout;
import java.time.Duration;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.IntToLongFunction;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** All operations of a communicator, with every number of ranks from 1 to 64. */
@Tag("slow")
class AnyRankCountTest {
  private static final long SEED = Long.getLong("test.seed", 20261121);
  private static final int COUNT = 5;
  private static final ReferenceOptions RING =
      ReferenceOptions.defaults()
          .withAlgorithm(Algorithm.RING)
          .withLayout(Layout.defaults().withChunkBytes(512));
  private static final ReferenceOptions TREE = RING.withAlgorithm(Algorithm.TREE);

  private volatile Throwable joiningFailed;

  static IntStream rankCounts() {
    return IntStream.rangeClosed(1, 64);
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void everyCollectiveIsCorrect(int ranks) {
    Ranks.run(
        ranks,
        RING,
        (comm, stream) -> {
          try (Numbers numbers = new Numbers(comm, stream)) {
            numbers.reduce();
            numbers.move();
            numbers.exchange();
          }
        });
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void ringAndTreeSumsAreWithinTheErrorBound(int ranks) {
    int count = 300;
    float[][] values = new float[ranks][count];
    Random random = new Random(SEED + ranks);
    for (float[] ofRank : values) {
      for (int i = 0; i < count; i++) {
        ofRank[i] = random.nextFloat() - 0.5f;
      }
    }
    for (ReferenceOptions options : new ReferenceOptions[] {RING, TREE}) {
      Ranks.run(
          ranks,
          options,
          (comm, stream) -> {
            assertSum(values, comm, stream);
            try (Numbers numbers = new Numbers(comm, stream)) {
              numbers.allReduce();
            }
          });
    }
  }

  private static void assertSum(float[][] values, Communicator comm, Stream stream) {
    int count = values[0].length;
    try (Buffer data = comm.newBuffer(DataType.FLOAT32, count)) {
      for (int i = 0; i < count; i++) {
        DataType.FLOAT32.set(data.segment(), i, values[comm.rank()][i]);
      }
      comm.allReduce(data, data, ReduceOp.SUM, stream);
      stream.synchronize();
      for (int i = 0; i < count; i++) {
        double sum = 0;
        double magnitude = 0;
        for (float[] ofRank : values) {
          sum += ofRank[i];
          magnitude += Math.abs(ofRank[i]);
        }
        // n - 1 roundings, each by half a unit in the last place at most.
        double bound = (Math.pow(1 + 0x1p-24, values.length - 1) - 1) * magnitude;
        double error = Math.abs(DataType.FLOAT32.get(data.segment(), i) - sum);
        assertTrue(error <= bound, "element " + i + ", seed " + SEED + ": error " + error);
      }
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void splitShrinkAndGrowWork(int ranks) {
    CompletableFuture<UniqueId> id = new CompletableFuture<>();
    Thread joining = join(id, ranks + 1);
    Ranks.run(
        ranks,
        RING,
        (comm, stream) -> {
          assertSumOfRanks(comm, stream);
          try (Communicator half = comm.split(comm.rank() % 2, -comm.rank())) {
            int inHalf = (ranks + 1 - comm.rank() % 2) / 2;
            assertEquals(inHalf, half.size());
            assertEquals(inHalf - 1 - comm.rank() / 2, half.rank());
            assertSumOfRanks(half, stream);
          }
          if (ranks > 1 && comm.rank() != ranks / 2) {
            try (Communicator rest =
                comm.shrink(Set.of(ranks / 2), ShrinkMode.FINISH_FIRST, comm.config())) {
              assertEquals(ranks - 1, rest.size());
              assertSumOfRanks(rest, stream);
            }
          }
          try (Communicator grown = grow(comm, id)) {
            assertEquals(ranks + 1, grown.size());
            assertSumOfRanks(grown, stream);
          }
        });
    assertEnds(joining);
  }

  private static Communicator grow(Communicator comm, CompletableFuture<UniqueId> id) {
    CommunicatorConfig config = comm.config();
    if (comm.rank() > 0) {
      return comm.grow(comm.size() + 1, config);
    }
    UniqueId own = comm.newGrowId();
    id.complete(own);
    return comm.grow(comm.size() + 1, own, config);
  }

  /** Starts the new rank of a grow. */
  private Thread join(CompletableFuture<UniqueId> id, int size) {
    return Thread.ofPlatform()
        .daemon()
        .uncaughtExceptionHandler((thread, failure) -> joiningFailed = failure)
        .start(
            () -> {
              Backend backend = ReferenceBackend.open(size, RING);
              CommunicatorConfig config = CommunicatorConfig.defaults();
              try (Communicator comm =
                      backend.join(
                          id.orTimeout(60, TimeUnit.SECONDS).join(), size, size - 1, config);
                  Stream stream = comm.newStream()) {
                assertSumOfRanks(comm, stream);
              }
            });
  }

  private void assertEnds(Thread thread) {
    try {
      assertTrue(thread.join(Duration.ofSeconds(60)), "the new rank did not end");
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @AfterEach
  void assertNewRankHasNotFailed() {
    assertEquals(null, joiningFailed);
  }

  private static void assertSumOfRanks(Communicator comm, Stream stream) {
    try (Buffer one = comm.newBuffer(DataType.INT64, 1)) {
      DataType.INT64.setLong(one.segment(), 0, comm.rank() + 1L);
      comm.allReduce(one, one, ReduceOp.SUM, stream);
      stream.synchronize();
      long n = comm.size();
      assertEquals(n * (n + 1) / 2, DataType.INT64.getLong(one.segment(), 0));
    }
  }

  /** The buffers of one rank, with checks of every operation on them. */
  private static final class Numbers implements AutoCloseable {
    private final Communicator comm;
    private final Stream stream;
    private final int ranks;
    private final int rank;
    private final int root;
    private final Buffer part;
    private final Buffer whole;
    private final Buffer result;

    Numbers(Communicator comm, Stream stream) {
      this.comm = comm;
      this.stream = stream;
      this.ranks = comm.size();
      this.rank = comm.rank();
      this.root = ranks / 3;
      this.part = comm.newBuffer(DataType.INT64, COUNT);
      this.whole = comm.newBuffer(DataType.INT64, (long) ranks * COUNT);
      this.result = comm.newBuffer(DataType.INT64, (long) ranks * COUNT);
      for (int i = 0; i < whole.count(); i++) {
        DataType.INT64.setLong(whole.segment(), i, value(rank, i));
      }
      part.copyFromAsync(whole.slice(0, COUNT), stream);
      stream.synchronize();
    }

    private static long value(int rank, int i) {
      return rank * 1009L + i * 7L;
    }

    private long sum(int i) {
      return LongStream.range(0, ranks).map(r -> value((int) r, i)).sum();
    }

    void allReduce() {
      comm.allReduce(whole, result, ReduceOp.SUM, stream);
      assertResult("all-reduce", ranks * COUNT, this::sum);
    }

    void reduce() {
      allReduce();
      comm.allReduce(whole, result, ReduceOp.MAX, stream);
      assertResult("maximum", ranks * COUNT, i -> value(ranks - 1, i));
      comm.allReduce(whole, result, ReduceOp.AVG, stream);
      assertResult("average", ranks * COUNT, i -> sum(i) / ranks);
      try (ReduceOp.PreMulSum scaled = comm.newPreMulSum(DataType.INT64, rank + 1)) {
        comm.allReduce(whole, result, scaled, stream);
      }
      assertResult(
          "scaled sum",
          ranks * COUNT,
          i -> LongStream.range(0, ranks).map(r -> (r + 1) * value((int) r, i)).sum());
      comm.reduce(whole, rank == root ? result : null, ReduceOp.SUM, root, stream);
      assertResult("reduce", rank == root ? ranks * COUNT : 0, this::sum);
      comm.reduceScatter(whole, result.slice(0, COUNT), ReduceOp.SUM, stream);
      assertResult("reduce-scatter", COUNT, i -> sum(rank * COUNT + i));
    }

    void move() {
      comm.broadcast(rank == root ? whole : null, result, root, stream);
      assertResult("broadcast", ranks * COUNT, i -> value(root, i));
      comm.allGather(part, result, stream);
      assertResult("all-gather", ranks * COUNT, i -> value(i / COUNT, i % COUNT));
      comm.allToAll(whole, result, stream);
      assertResult("all-to-all", ranks * COUNT, i -> value(i / COUNT, rank * COUNT + i % COUNT));
      comm.gather(part, rank == root ? result : null, root, stream);
      assertResult("gather", rank == root ? ranks * COUNT : 0, i -> value(i / COUNT, i % COUNT));
      comm.scatter(rank == root ? whole : null, result.slice(0, COUNT), root, stream);
      assertResult("scatter", COUNT, i -> value(root, rank * COUNT + i));
    }

    /** Sends two ranks ahead, receives from two ranks behind, and reduces, in one group. */
    void exchange() {
      int to = (rank + 2) % ranks;
      int from = Math.floorMod(rank - 2, ranks);
      Buffer received = result.slice(0, COUNT);
      Group.run(
          () -> {
            comm.send(part, to, stream);
            comm.recv(received, from, stream);
            comm.allReduce(whole, whole, ReduceOp.MIN, stream);
          });
      assertResult("message", COUNT, i -> value(from, i));
      for (int i = 0; i < whole.count(); i++) {
        assertEquals(value(0, i), DataType.INT64.getLong(whole.segment(), i), "grouped minimum");
      }
    }

    private void assertResult(String what, int count, IntToLongFunction expected) {
      stream.synchronize();
      for (int i = 0; i < count; i++) {
        long found = DataType.INT64.getLong(result.segment(), i);
        assertEquals(expected.applyAsLong(i), found, what + ", element " + i);
      }
    }

    @Override
    public void close() {
      part.close();
      whole.close();
      result.close();
    }
  }
}
