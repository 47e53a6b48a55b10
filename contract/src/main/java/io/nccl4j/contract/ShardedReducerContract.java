package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.training.Bucket;
import io.nccl4j.training.GradientReducer;
import io.nccl4j.training.Parameter;
import io.nccl4j.training.Reducer;
import io.nccl4j.training.ReducerConfig;
import io.nccl4j.training.Shard;
import io.nccl4j.training.ShardedReducer;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Data-parallel training in which each rank updates its own shard of the parameters. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class ShardedReducerContract {
  private static final ReducerConfig DEFAULTS = ReducerConfig.defaults();

  abstract BackendUnderTest underTest();

  List<Integer> rankCounts() {
    return underTest().rankCounts(1, 2, 3, 4);
  }

  private int fewRanks() {
    return Math.min(3, underTest().maxRanks());
  }

  private static Buffer floats(Rank rank, float... values) {
    return rank.upload(DataType.FLOAT32, MemorySegment.ofArray(values));
  }

  private static float[] download(Rank rank, Buffer buffer) {
    float[] values = new float[Math.toIntExact(buffer.count())];
    buffer.copyTo(MemorySegment.ofArray(values), rank.stream());
    return values;
  }

  private static void set(Rank rank, Buffer buffer, float value) {
    float[] values = new float[Math.toIntExact(buffer.count())];
    Arrays.fill(values, value);
    buffer.copyFromAsync(MemorySegment.ofArray(values), rank.stream());
  }

  /**
   * A test with one rank and a reducer of two parameters: "a" has its own gradient buffer, the
   * gradient of "b" is in a bucket.
   */
  private interface Body {
    void run(Rank rank, ShardedReducer reducer, Parameter a, Parameter b) throws Exception;
  }

  private void onEach(int n, Body body) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            float mine = rank.rank() * 100;
            Parameter a =
                Parameter.of(
                    "a",
                    floats(rank, mine + 1, mine + 2, mine + 3),
                    rank.allocate(DataType.FLOAT32, 3));
            Parameter b = Parameter.of("b", floats(rank, mine + 4, mine + 5));
            try (ShardedReducer reducer =
                ShardedReducer.open(rank.comm(), List.of(a, b), DEFAULTS, rank.stream())) {
              body.run(rank, reducer, a, b);
            }
          });
    }
  }

  /** Returns the contents of a bucket with "b" and "a", each at a multiple of four elements. */
  private static float[] inBucket(Reducer reducer, float[] b, float[] a) {
    float[] all = new float[Math.toIntExact(reducer.buckets().getFirst().count())];
    System.arraycopy(b, 0, all, 0, b.length);
    System.arraycopy(a, 0, all, 4, a.length);
    return all;
  }

  private static float[] part(float[] all, Shard shard) {
    int from = Math.toIntExact(shard.offset());
    return Arrays.copyOfRange(all, from, from + Math.toIntExact(shard.count()));
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void shardsAreEqualPartsOfParametersOfRank0(int n) {
    onEach(
        n,
        (rank, reducer, a, b) -> {
          Bucket bucket = reducer.buckets().getFirst();
          assertEquals(0, bucket.count() % n);
          assertEquals(1, reducer.shards().size());
          Shard shard = reducer.shards().getFirst();
          assertEquals(bucket, shard.bucket());
          assertEquals(bucket.count() / n, shard.count());
          assertEquals(rank.rank() * shard.count(), shard.offset());
          float[] all = inBucket(reducer, new float[] {4, 5}, new float[] {1, 2, 3});
          assertArrayEquals(part(all, shard), download(rank, shard.values()));
          assertArrayEquals(
              new float[(int) shard.count()], download(rank, shard.gradients()), "zero at first");
          assertArrayEquals(new float[] {1, 2, 3}, download(rank, a.value()));
        });
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void ranksAverageTheirShardsAndGatherAllParameters(int n) {
    onEach(
        n,
        (rank, reducer, a, b) -> {
          for (int step = 1; step <= 3; step++) {
            set(rank, reducer.gradient(a), n * (2 * rank.rank() + step));
            set(rank, reducer.gradient(b), n * (2 * rank.rank() + step + 1));
            reducer.allReady(rank.stream());
            reducer.finish(rank.stream());
            float sumA = n * (n - 1 + step);
            float sumB = sumA + n;
            float[] all =
                inBucket(reducer, new float[] {sumB, sumB}, new float[] {sumA, sumA, sumA});
            Shard shard = reducer.shards().getFirst();
            assertArrayEquals(part(all, shard), download(rank, shard.gradients()));

            set(rank, shard.values(), 10 * rank.rank() + step);
            reducer.gatherParameters(rank.stream());
            float[] stepped = new float[all.length];
            for (int i = 0; i < all.length; i++) {
              stepped[i] = 10 * (i / shard.count()) + step;
            }
            assertArrayEquals(Arrays.copyOfRange(stepped, 0, 2), download(rank, b.value()));
            assertArrayEquals(Arrays.copyOfRange(stepped, 4, 7), download(rank, a.value()));
          }
        });
  }

  @Test
  void gatherZeroesBucketGradientsAndKeepsCopiedOnes() {
    onEach(
        fewRanks(),
        (rank, reducer, a, b) -> {
          set(rank, reducer.gradient(a), rank.rank() + 7);
          set(rank, reducer.gradient(b), rank.rank() + 7);
          reducer.allReady(rank.stream());
          reducer.finish(rank.stream());
          reducer.gatherParameters(rank.stream());
          float mine = rank.rank() + 7;
          assertArrayEquals(new float[] {mine, mine, mine}, download(rank, reducer.gradient(a)));
          assertArrayEquals(new float[2], download(rank, reducer.gradient(b)));
          Shard shard = reducer.shards().getFirst();
          assertArrayEquals(new float[(int) shard.count()], download(rank, shard.gradients()));
        });
  }

  private static String refused(Executable call) {
    return assertThrows(IllegalStateException.class, call).getMessage();
  }

  @Test
  void stepCallsOutOfOrderAreRefused() {
    onEach(
        fewRanks(),
        (rank, reducer, a, b) -> {
          String notFinished =
              "gatherParameters must follow finish, once in each step; there are no new parameters"
                  + " to gather";
          String notGathered =
              "the parameters of the last step are not gathered; call gatherParameters after the"
                  + " optimiser's step, before the next backward";
          assertEquals(notFinished, refused(() -> reducer.gatherParameters(rank.stream())));
          reducer.allReady(rank.stream());
          reducer.finish(rank.stream());
          assertEquals(notGathered, refused(() -> reducer.markReady(a, rank.stream())));
          assertEquals(notGathered, refused(() -> reducer.finish(rank.stream())));
          assertEquals(notGathered, refused(() -> reducer.noSync(() -> {})));
          reducer.gatherParameters(rank.stream());
          assertEquals(notFinished, refused(() -> reducer.gatherParameters(rank.stream())));
          reducer.markReady(a, rank.stream());
          assertEquals(
              "in step 2 1 of 2 parameters are not marked ready: 'b'; mark each, or allow unused"
                  + " ones with ReducerConfig.withFindUnusedParameters(true)",
              refused(() -> reducer.finish(rank.stream())));
          reducer.markReady(b, rank.stream());
          reducer.finish(rank.stream());
          reducer.gatherParameters(rank.stream());
          reducer.close();
          assertEquals(
              "reducer is closed: " + reducer,
              refused(() -> reducer.gatherParameters(rank.stream())));
        });
  }

  @Test
  void differentReducerKindsAreReported() {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    try (Ranks ranks = Ranks.of(underTest(), 2)) {
      ranks.each(
          rank -> {
            List<Parameter> parameters = List.of(Parameter.of("w", floats(rank, 1, 2)));
            Executable open =
                rank.rank() == 0
                    ? () -> GradientReducer.open(rank.comm(), parameters, DEFAULTS, rank.stream())
                    : () -> ShardedReducer.open(rank.comm(), parameters, DEFAULTS, rank.stream());
            String message = assertThrows(IllegalArgumentException.class, open).getMessage();
            assertTrue(
                message.startsWith(
                    "the ranks registered different parameters: rank 1 has a ShardedReducer with "),
                message);
            assertTrue(message.contains(", rank 0 has a GradientReducer with "), message);
          });
    }
  }
}
