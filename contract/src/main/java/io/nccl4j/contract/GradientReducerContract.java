package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.Stream;
import io.nccl4j.training.Bucket;
import io.nccl4j.training.GradientReducer;
import io.nccl4j.training.Parameter;
import io.nccl4j.training.ReducerConfig;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.stream.DoubleStream;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Data-parallel training in which every rank gets all averaged gradients. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class GradientReducerContract {
  private static final ReducerConfig DEFAULTS = ReducerConfig.defaults();

  /** One gradient per bucket. */
  private static final ReducerConfig ONE_PER_BUCKET =
      DEFAULTS.withBucketBytes(1).withFirstBucketBytes(1);

  abstract BackendUnderTest underTest();

  List<Integer> rankCounts() {
    return underTest().rankCounts(1, 2, 3, 4);
  }

  private int fewRanks() {
    return Math.min(3, underTest().maxRanks());
  }

  /** Returns a buffer of 32-bit floats, all of one value. */
  private static Buffer floats(Rank rank, int count, double value) {
    float[] values = new float[count];
    Arrays.fill(values, (float) value);
    return rank.upload(DataType.FLOAT32, MemorySegment.ofArray(values));
  }

  /** Sets a gradient to a multiple of the number of ranks, so that averages are exact. */
  private static void set(Rank rank, Buffer buffer, double times, Stream stream) {
    double value = times * rank.size();
    MemorySegment values = MemorySegment.ofArray(new byte[Math.toIntExact(buffer.byteSize())]);
    for (long i = 0; i < buffer.count(); i++) {
      buffer.type().set(values, i, value);
    }
    buffer.copyFromAsync(values, stream);
  }

  private static double[] download(Rank rank, Buffer buffer) {
    MemorySegment contents = rank.download(buffer);
    return IntStream.range(0, Math.toIntExact(buffer.count()))
        .mapToDouble(i -> buffer.type().get(contents, i))
        .toArray();
  }

  /** Asserts that every element of a gradient is {@code times} the number of ranks. */
  private static void assertGradient(double times, Rank rank, Buffer buffer) {
    assertAll(times * rank.size(), rank, buffer);
  }

  private static void assertAll(double value, Rank rank, Buffer buffer) {
    double[] expected = DoubleStream.generate(() -> value).limit(buffer.count()).toArray();
    assertArrayEquals(expected, download(rank, buffer));
  }

  /** Returns parameters "p0", "p1" and so on; every other one has its own gradient buffer. */
  private static List<Parameter> parameters(Rank rank, int count) {
    List<Parameter> parameters = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      Buffer value = floats(rank, 3 + i, rank.rank() + i);
      parameters.add(
          i % 2 == 0
              ? Parameter.of("p" + i, value, rank.allocate(DataType.FLOAT32, 3 + i))
              : Parameter.of("p" + i, value));
    }
    return parameters;
  }

  private static GradientReducer open(Rank rank, List<Parameter> parameters, ReducerConfig config) {
    return GradientReducer.open(rank.comm(), parameters, config, rank.stream());
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void parametersOfRank0AreBroadcast(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            List<Parameter> parameters = parameters(rank, 4);
            try (GradientReducer reducer = open(rank, parameters, DEFAULTS)) {
              for (int i = 0; i < 4; i++) {
                assertAll(i, rank, parameters.get(i).value());
              }
              assertEquals(parameters, reducer.parameters());
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void gradientsAreAveragedOverRanksInEveryStep(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            List<Parameter> parameters = parameters(rank, 5);
            try (GradientReducer reducer = open(rank, parameters, DEFAULTS)) {
              for (int step = 1; step <= 3; step++) {
                for (int i = 4; i >= 0; i--) {
                  Parameter parameter = parameters.get(i);
                  double mine = (2 * rank.rank() + 1 + i) * step;
                  set(rank, reducer.gradient(parameter), mine, rank.stream());
                  reducer.markReady(parameter, rank.stream());
                }
                reducer.finish(rank.stream());
                for (int i = 0; i < 5; i++) {
                  assertGradient((n + i) * step, rank, reducer.gradient(parameters.get(i)));
                }
              }
            }
          });
    }
  }

  @Test
  void gradientWithoutBufferIsInBucketAndInitiallyZero() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            List<Parameter> parameters = parameters(rank, 2);
            try (GradientReducer reducer = open(rank, parameters, DEFAULTS)) {
              assertEquals(
                  parameters.get(0).gradient().orElseThrow(), reducer.gradient(parameters.get(0)));
              Buffer inBucket = reducer.gradient(parameters.get(1));
              assertEquals(4, inBucket.count());
              assertEquals(DataType.FLOAT32, inBucket.type());
              assertGradient(0, rank, inBucket);
            }
          });
    }
  }

  @Test
  void gradientsOfDifferentTypesUseSeparateBuckets() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Parameter wide = Parameter.of("wide", floats(rank, 3, 0));
            Parameter narrow = Parameter.of("narrow", rank.allocate(DataType.BFLOAT16, 7));
            try (GradientReducer reducer = open(rank, List.of(wide, narrow), DEFAULTS)) {
              assertEquals(
                  List.of(DataType.BFLOAT16, DataType.FLOAT32),
                  reducer.buckets().stream().map(Bucket::type).toList());
              set(rank, reducer.gradient(narrow), 2 * rank.rank() + 1, rank.stream());
              set(rank, reducer.gradient(wide), 2 * rank.rank() + 3, rank.stream());
              reducer.allReady(rank.stream());
              reducer.finish(rank.stream());
              assertGradient(n, rank, reducer.gradient(narrow));
              assertGradient(n + 2, rank, reducer.gradient(wide));
            }
          });
    }
  }

  @Test
  void firstBucketIsReducedBeforeLastGradientIsMarked() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            List<Parameter> parameters = parameters(rank, 3);
            try (GradientReducer reducer = open(rank, parameters, ONE_PER_BUCKET)) {
              Parameter last = parameters.get(2);
              set(rank, reducer.gradient(last), 2 * rank.rank() + 1, rank.stream());
              reducer.markReady(last, rank.stream());
              assertEquals(1, reducer.bucketsLaunched());
              reducer.stream().synchronize();
              assertGradient(n, rank, reducer.gradient(last));
              for (Parameter parameter : List.of(parameters.get(1), parameters.get(0))) {
                set(rank, reducer.gradient(parameter), 2 * rank.rank() + 5, rank.stream());
                reducer.markReady(parameter, rank.stream());
              }
              assertEquals(3, reducer.bucketsLaunched());
              reducer.finish(rank.stream());
              assertEquals(0, reducer.bucketsLaunched());
              assertGradient(n, rank, reducer.gradient(last));
              assertGradient(n + 4, rank, reducer.gradient(parameters.get(0)));
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void bucketsLaunchInSameOrderOnAllRanks(int n) {
    int count = 6;
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            List<Parameter> parameters = parameters(rank, count);
            try (GradientReducer reducer = open(rank, parameters, ONE_PER_BUCKET)) {
              for (int step = 0; step < 4; step++) {
                List<Integer> order = new ArrayList<>(IntStream.range(0, count).boxed().toList());
                Collections.rotate(order, rank.rank() + step);
                boolean[] marked = new boolean[count];
                for (int i : order) {
                  double mine = 2 * rank.rank() + i;
                  set(rank, reducer.gradient(parameters.get(i)), mine, rank.stream());
                  reducer.markReady(parameters.get(i), rank.stream());
                  marked[i] = true;
                  assertEquals(markedFromTheEnd(marked), reducer.bucketsLaunched());
                }
                reducer.finish(rank.stream());
                for (int i = 0; i < count; i++) {
                  assertGradient(n - 1 + i, rank, reducer.gradient(parameters.get(i)));
                }
              }
            }
          });
    }
  }

  private static int markedFromTheEnd(boolean[] marked) {
    int run = 0;
    while (run < marked.length && marked[marked.length - 1 - run]) {
      run++;
    }
    return run;
  }

  @Test
  void gradientsMayBeMarkedOnSeveralStreams() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            List<Parameter> parameters = parameters(rank, 4);
            try (Stream second = rank.comm().newStream();
                Stream third = rank.comm().newStream();
                GradientReducer reducer = open(rank, parameters, DEFAULTS)) {
              List<Stream> sources = List.of(rank.stream(), second, third, second);
              for (int step = 1; step <= 3; step++) {
                for (int i = 0; i < 4; i++) {
                  Buffer gradient = reducer.gradient(parameters.get(i));
                  set(rank, gradient, step * (2 * rank.rank() + 1 + i), sources.get(i));
                  reducer.markReady(parameters.get(i), sources.get(i));
                }
                reducer.finish(rank.stream());
                for (int i = 0; i < 4; i++) {
                  assertGradient(step * (n + i), rank, reducer.gradient(parameters.get(i)));
                }
              }
            }
          });
    }
  }

  @Test
  void gradientsMayBeMarkedByAnotherThread() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            List<Parameter> parameters = parameters(rank, 3);
            try (GradientReducer reducer = open(rank, parameters, ONE_PER_BUCKET)) {
              for (Parameter parameter : parameters) {
                set(rank, reducer.gradient(parameter), 2 * rank.rank() + 1, rank.stream());
              }
              Thread autograd = Thread.ofPlatform().start(() -> reducer.allReady(rank.stream()));
              autograd.join();
              reducer.finish(rank.stream());
              assertGradient(n, rank, reducer.gradient(parameters.get(0)));
            }
          });
    }
  }

  @Test
  void noSyncReducesNothingUntilNextBackward() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            List<Parameter> parameters = parameters(rank, 2);
            try (GradientReducer reducer = open(rank, parameters, ONE_PER_BUCKET)) {
              Runnable backward =
                  () -> {
                    for (Parameter parameter : parameters) {
                      set(rank, reducer.gradient(parameter), 2 * rank.rank(), rank.stream());
                      reducer.markReady(parameter, rank.stream());
                    }
                  };
              reducer.noSync(backward);
              reducer.noSync(
                  () -> {
                    reducer.noSync(backward);
                    backward.run();
                  });
              assertEquals(0, reducer.bucketsLaunched());
              assertGradient(2 * rank.rank(), rank, reducer.gradient(parameters.get(0)));
              assertGradient(2 * rank.rank(), rank, reducer.gradient(parameters.get(1)));
              backward.run();
              reducer.finish(rank.stream());
              assertGradient(n - 1, rank, reducer.gradient(parameters.get(0)));
              assertGradient(n - 1, rank, reducer.gradient(parameters.get(1)));
            }
          });
    }
  }

  @Test
  void failedBackwardInNoSyncLeavesReducerUsable() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            List<Parameter> parameters = parameters(rank, 2);
            try (GradientReducer reducer = open(rank, parameters, ONE_PER_BUCKET)) {
              IllegalStateException failure = new IllegalStateException("out of memory");
              assertEquals(
                  failure,
                  assertThrows(
                      IllegalStateException.class,
                      () ->
                          reducer.noSync(
                              () -> {
                                throw failure;
                              })));
              reducer.markReady(parameters.get(1), rank.stream());
              assertEquals(1, reducer.bucketsLaunched());
              reducer.markReady(parameters.get(0), rank.stream());
              reducer.finish(rank.stream());
            }
          });
    }
  }

  @Test
  void unusedParametersContributeZerosIfAllowed() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            List<Parameter> parameters = parameters(rank, 4);
            try (GradientReducer reducer =
                open(rank, parameters, DEFAULTS.withFindUnusedParameters(true))) {
              for (Parameter parameter : parameters) {
                set(rank, reducer.gradient(parameter), 4 * n, rank.stream());
              }
              // The last two are marked on rank 0 only, the first two on no rank.
              if (rank.rank() == 0) {
                reducer.markReady(parameters.get(2), rank.stream());
                reducer.markReady(parameters.get(3), rank.stream());
              }
              reducer.finish(rank.stream());
              assertGradient(0, rank, reducer.gradient(parameters.get(0)));
              assertGradient(0, rank, reducer.gradient(parameters.get(1)));
              assertGradient(4, rank, reducer.gradient(parameters.get(2)));
              assertGradient(4, rank, reducer.gradient(parameters.get(3)));
            }
          });
    }
  }

  @Test
  void accumulatedGradientOfParameterUnusedLastIsReduced() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            List<Parameter> parameters = parameters(rank, 2);
            try (GradientReducer reducer =
                open(rank, parameters, DEFAULTS.withFindUnusedParameters(true))) {
              set(rank, reducer.gradient(parameters.get(0)), 2 * rank.rank() + 1, rank.stream());
              set(rank, reducer.gradient(parameters.get(1)), 2 * rank.rank() + 3, rank.stream());
              reducer.noSync(
                  () -> parameters.forEach(each -> reducer.markReady(each, rank.stream())));
              reducer.finish(rank.stream());
              assertGradient(n, rank, reducer.gradient(parameters.get(0)));
              assertGradient(n + 2, rank, reducer.gradient(parameters.get(1)));
              reducer.finish(rank.stream());
              assertGradient(0, rank, reducer.gradient(parameters.get(0)));
              assertGradient(0, rank, reducer.gradient(parameters.get(1)));
            }
          });
    }
  }

  @Test
  void finishSucceedsOnceMissingParametersAreMarked() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            List<Parameter> parameters = parameters(rank, 3);
            try (GradientReducer reducer = open(rank, parameters, ONE_PER_BUCKET)) {
              set(rank, reducer.gradient(parameters.get(0)), 2 * rank.rank() + 1, rank.stream());
              reducer.markReady(parameters.get(2), rank.stream());
              assertEquals(
                  "in step 1 2 of 3 parameters are not marked ready: 'p0', 'p1'; mark each, or allow"
                      + " unused ones with ReducerConfig.withFindUnusedParameters(true)",
                  refused(() -> reducer.finish(rank.stream())));
              reducer.markReady(parameters.get(0), rank.stream());
              reducer.markReady(parameters.get(1), rank.stream());
              reducer.finish(rank.stream());
              assertGradient(n, rank, reducer.gradient(parameters.get(0)));
            }
          });
    }
  }

  private static String refused(Runnable call) {
    return assertThrows(IllegalStateException.class, call::run).getMessage();
  }

  @Test
  void bucketToStringListsItsParameters() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      List<Parameter> parameters = parameters(rank, 3);
      try (GradientReducer reducer =
          open(rank, parameters, DEFAULTS.withFirstBucketBytes(1).withBucketBytes(1000))) {
        assertEquals(
            List.of("bucket 0, FLOAT32 x 8: p2", "bucket 1, FLOAT32 x 8: p1, p0"),
            reducer.buckets().stream().map(Bucket::toString).toList());
        assertTrue(reducer.toString().startsWith("GradientReducer[3 parameters in 2 buckets, "));
      }
    }
  }
}
