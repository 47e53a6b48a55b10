package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.Recorded;
import io.nccl4j.training.GradientReducer;
import io.nccl4j.training.Parameter;
import io.nccl4j.training.ReducerConfig;
import io.nccl4j.training.ShardedReducer;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/**
 * Calls that a reducer refuses: with a message that names the argument, before anything is
 * launched, and without blocking any rank indefinitely.
 */
abstract class ReducerArgumentsContract {
  private static final ReducerConfig DEFAULTS = ReducerConfig.defaults();

  /** For calls that are meant to time out. */
  private static final Duration TIMEOUT = Duration.ofSeconds(3);

  abstract BackendUnderTest underTest();

  private static String illegalArgument(Executable call) {
    return assertThrows(IllegalArgumentException.class, call).getMessage();
  }

  private static String illegalState(Executable call) {
    return assertThrows(IllegalStateException.class, call).getMessage();
  }

  private static Parameter parameter(Rank rank, String name, int count) {
    return Parameter.of(name, rank.allocate(DataType.FLOAT32, count));
  }

  private static GradientReducer open(Rank rank, Parameter... parameters) {
    return GradientReducer.open(rank.comm(), List.of(parameters), DEFAULTS, rank.stream());
  }

  /** A test with one rank and a reducer of two parameters, "a" and "b". */
  private interface Body {
    void run(Rank rank, GradientReducer reducer, Parameter a, Parameter b) throws Exception;
  }

  private void onOneRank(Body body) {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      ranks.each(
          rank -> {
            Parameter a = parameter(rank, "a", 4);
            Parameter b = parameter(rank, "b", 2);
            try (GradientReducer reducer = open(rank, a, b)) {
              body.run(rank, reducer, a, b);
            }
          });
    }
  }

  @Test
  void parameterWithoutNameOrFloatingPointTypeIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Buffer floats = rank.allocate(DataType.FLOAT32, 4);
      Buffer ints = rank.allocate(DataType.INT64, 4);
      for (String bad : List.of("", "  ", "a\nb")) {
        assertEquals(
            "name is '" + bad + "'; it must not be blank or have control characters",
            illegalArgument(() -> Parameter.of(bad, floats)));
      }
      assertEquals(
          "parameter 'steps' has type INT64; gradients are averaged, so it must be a"
              + " floating-point type",
          illegalArgument(() -> Parameter.of("steps", ints)));
      assertThrows(NullPointerException.class, () -> Parameter.of("w", null));
      assertThrows(NullPointerException.class, () -> Parameter.of("w", floats, null));
    }
  }

  @Test
  void gradientOfOtherTypeOrCountIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Buffer value = rank.allocate(DataType.FLOAT32, 4);
      Buffer half = rank.allocate(DataType.FLOAT16, 4);
      Buffer longer = rank.allocate(DataType.FLOAT32, 5);
      assertEquals(
          "the gradient of 'w' has type FLOAT16; it must be that of the value, FLOAT32",
          illegalArgument(() -> Parameter.of("w", value, half)));
      assertEquals(
          "the gradient of 'w' has count 5; it must be that of the value, 4",
          illegalArgument(() -> Parameter.of("w", value, longer)));
    }
  }

  @Test
  void nonPositiveBucketSizeIsRefused() {
    assertEquals(
        "bucketBytes is 0; it must be positive",
        illegalArgument(() -> DEFAULTS.withBucketBytes(0)));
    assertEquals(
        "firstBucketBytes is -1; it must be positive",
        illegalArgument(() -> DEFAULTS.withFirstBucketBytes(-1)));
  }

  @Test
  void emptyDuplicateOrOverlappingParametersAreRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      assertEquals(
          "parameters is empty; a reducer needs at least one", illegalArgument(() -> open(rank)));
      Parameter w = parameter(rank, "w", 4);
      assertEquals(
          "there are two parameters 'w'; names must be unique",
          illegalArgument(() -> open(rank, w, parameter(rank, "w", 4))));
      Buffer whole = rank.allocate(DataType.FLOAT32, 8);
      assertEquals(
          "the value of 'front' and the value of 'back' share memory; register shared parameters"
              + " once",
          illegalArgument(
              () ->
                  open(
                      rank,
                      Parameter.of("back", whole.slice(3, 5)),
                      Parameter.of("front", whole.slice(0, 4)))));
      assertEquals(
          "the value of 'w' and the gradient of 'v' share memory; register shared parameters once",
          illegalArgument(
              () ->
                  open(
                      rank,
                      Parameter.of("w", whole.slice(0, 4)),
                      Parameter.of("v", rank.allocate(DataType.FLOAT32, 4), whole.slice(1, 4)))));
    }
  }

  @Test
  void float8GradientIsAveragedIfSupportedElseRefused() {
    try (Ranks ranks = Ranks.of(underTest(), Math.min(2, underTest().maxRanks()))) {
      ranks.each(
          rank -> {
            Parameter w = Parameter.of("w", rank.allocate(DataType.FLOAT8E4M3, 4));
            if (!underTest().reducesFloat8()) {
              assertEquals(
                  "parameter 'w' has type FLOAT8E4M3; the library or a device here cannot reduce"
                      + " float8",
                  illegalArgument(() -> open(rank, w)));
              return;
            }
            try (GradientReducer reducer = open(rank, w)) {
              MemorySegment contents = MemorySegment.ofArray(new byte[4]);
              DataType.FLOAT8E4M3.set(contents, 3, 2 + 4 * rank.rank());
              reducer.gradient(w).copyFromAsync(contents, rank.stream());
              reducer.allReady(rank.stream());
              reducer.finish(rank.stream());
              assertEquals(
                  2 * rank.size(), DataType.FLOAT8E4M3.get(rank.download(reducer.gradient(w)), 3));
            }
          });
    }
  }

  @Test
  void closedBufferIsRefusedByParameterName() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Buffer closed = rank.comm().newBuffer(DataType.FLOAT32, 4);
      closed.close();
      Buffer valid = rank.allocate(DataType.FLOAT32, 4);
      assertEquals(
          "the value of 'w' is closed: " + closed,
          illegalState(() -> open(rank, Parameter.of("w", closed))));
      assertEquals(
          "the gradient of 'w' is closed: " + closed,
          illegalState(() -> open(rank, Parameter.of("w", valid, closed))));
    }
  }

  @Test
  void bufferOrStreamOfAnotherDeviceIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), Math.min(2, underTest().maxRanks()))) {
      int devices = ranks.backend().devices().size();
      assumeTrue(devices > 1, "needs two devices");
      // Allocate before any rank communicates: allocation may wait for the device's work.
      Map<Integer, Buffer> memory = new ConcurrentHashMap<>();
      ranks.each(
          rank -> {
            int next = (rank.comm().device() + 1) % devices;
            memory.put(rank.comm().rank(), ranks.backend().newBuffer(next, DataType.FLOAT32, 4));
          });
      ranks.each(
          rank -> {
            int device = rank.comm().device();
            Parameter w = parameter(rank, "w", 4);
            try (Buffer foreign = memory.get(rank.comm().rank());
                Stream stream = ranks.backend().newStream((device + 1) % devices);
                GradientReducer reducer = open(rank, w)) {
              String rule =
                  "on this rank's device, %s device %d"
                      .formatted(ranks.backend().deviceType(), device);
              assertEquals(
                  "the value of 'v' is " + foreign + "; it must be usable " + rule,
                  illegalArgument(() -> open(rank, Parameter.of("v", foreign))));
              rule = rule.replace("on this", "of this");
              assertEquals(
                  "stream of a reducer is " + stream + "; it must be " + rule,
                  illegalArgument(
                      () -> GradientReducer.open(rank.comm(), List.of(w), DEFAULTS, stream)));
              assertEquals(
                  "stream of markReady is " + stream + "; it must be " + rule,
                  illegalArgument(() -> reducer.markReady(w, stream)));
              assertEquals(
                  "stream of finish is " + stream + "; it must be " + rule,
                  illegalArgument(() -> reducer.finish(stream)));
            }
          });
    }
  }

  @Test
  void closedOrNullStreamIsRefused() {
    onOneRank(
        (rank, reducer, a, b) -> {
          Stream closed = rank.comm().newStream();
          closed.close();
          assertEquals(
              "stream of markReady is closed: " + closed,
              illegalState(() -> reducer.markReady(a, closed)));
          assertEquals(
              "stream of finish is closed: " + closed, illegalState(() -> reducer.finish(closed)));
          assertThrows(NullPointerException.class, () -> reducer.markReady(a, null));
          assertThrows(NullPointerException.class, () -> reducer.markReady(null, rank.stream()));
          reducer.allReady(rank.stream());
          reducer.finish(rank.stream());
        });
  }

  @Test
  void markingParameterTwiceInAStepIsRefused() {
    onOneRank(
        (rank, reducer, a, b) -> {
          reducer.allReady(rank.stream());
          reducer.finish(rank.stream());
          reducer.markReady(a, rank.stream());
          assertEquals(
              "parameter 'a' is marked ready twice in step 2; mark it once between two calls of"
                  + " finish",
              illegalState(() -> reducer.markReady(a, rank.stream())));
          reducer.markReady(b, rank.stream());
          reducer.finish(rank.stream());
        });
  }

  @Test
  void unregisteredParameterIsRefused() {
    onOneRank(
        (rank, reducer, a, b) -> {
          Parameter foreign = parameter(rank, "c", 4);
          String expected =
              "parameter 'c', FLOAT32 x 4 is not one of this reducer's; pass a parameter it was"
                  + " created with: "
                  + reducer;
          assertEquals(expected, illegalArgument(() -> reducer.markReady(foreign, rank.stream())));
          assertEquals(expected, illegalArgument(() -> reducer.gradient(foreign)));
        });
  }

  @Test
  void firstEightUnmarkedParametersAreNamed() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      ranks.each(
          rank -> {
            List<Parameter> many = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
              many.add(parameter(rank, "w" + i, 1));
            }
            try (GradientReducer reducer = open(rank, many.toArray(Parameter[]::new))) {
              reducer.markReady(many.getFirst(), rank.stream());
              assertTrue(
                  illegalState(() -> reducer.finish(rank.stream()))
                      .startsWith(
                          "in step 1 19 of 20 parameters are not marked ready: 'w1', 'w2', 'w3',"
                              + " 'w4', 'w5', 'w6', 'w7', 'w8' and 11 more; "));
            }
          });
    }
  }

  @Test
  void noSyncRefusesFinishAndEarlierMarks() {
    onOneRank(
        (rank, reducer, a, b) -> {
          assertEquals(
              "finish was called within noSync; call it after noSync has returned",
              illegalState(() -> reducer.noSync(() -> reducer.finish(rank.stream()))));
          reducer.markReady(a, rank.stream());
          assertEquals(
              "noSync must precede the marks of a step; in step 1 1 parameters are already marked",
              illegalState(() -> reducer.noSync(() -> {})));
          reducer.markReady(b, rank.stream());
          reducer.finish(rank.stream());
        });
  }

  @Test
  void closedReducerIsRefusedAndCloseIsIdempotent() {
    onOneRank(
        (rank, reducer, a, b) -> {
          reducer.close();
          reducer.close();
          String expected = "reducer is closed: " + reducer;
          assertEquals(expected, illegalState(() -> reducer.markReady(a, rank.stream())));
          assertEquals(expected, illegalState(() -> reducer.allReady(rank.stream())));
          assertEquals(expected, illegalState(() -> reducer.finish(rank.stream())));
          assertEquals(expected, illegalState(() -> reducer.noSync(() -> {})));
          assertThrows(
              IllegalStateException.class,
              () -> reducer.gradient(a).address(),
              "its memory is released");
          assertTrue(rank.comm().isOpen(), "the communicator is the caller's");
        });
  }

  @Test
  void reducerInGroupIsRefused() {
    onOneRank(
        (rank, reducer, a, b) -> {
          String rule = " is not possible within Group.run, which would defer its operations";
          assertEquals(
              "markReady" + rule,
              illegalState(() -> Group.run(() -> reducer.markReady(a, rank.stream()))));
          assertEquals(
              "finish" + rule, illegalState(() -> Group.run(() -> reducer.finish(rank.stream()))));
          assertEquals(
              "creating a reducer" + rule, illegalState(() -> Group.run(() -> open(rank, a))));
        });
  }

  @Test
  void nullReducerArgumentIsRefusedByName() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Communicator comm = rank.comm();
      List<Parameter> one = List.of(parameter(rank, "w", 4));
      List<Parameter> hole = Arrays.asList(one.getFirst(), null);
      Stream stream = rank.stream();
      String element = "parameters has a null element, at index 1";
      assertEquals(
          "communicator", missing(() -> GradientReducer.open(null, one, DEFAULTS, stream)));
      assertEquals("parameters", missing(() -> GradientReducer.open(comm, null, DEFAULTS, stream)));
      assertEquals(element, missing(() -> GradientReducer.open(comm, hole, DEFAULTS, stream)));
      assertEquals("config", missing(() -> GradientReducer.open(comm, one, null, stream)));
      assertEquals("stream", missing(() -> GradientReducer.open(comm, one, DEFAULTS, null)));
      assertEquals("communicator", missing(() -> ShardedReducer.open(null, one, DEFAULTS, stream)));
      assertEquals("parameters", missing(() -> ShardedReducer.open(comm, null, DEFAULTS, stream)));
      assertEquals(element, missing(() -> ShardedReducer.open(comm, hole, DEFAULTS, stream)));
      assertEquals("config", missing(() -> ShardedReducer.open(comm, one, null, stream)));
      assertEquals("stream", missing(() -> ShardedReducer.open(comm, one, DEFAULTS, null)));
    }
  }

  private static String missing(Executable call) {
    return assertThrows(NullPointerException.class, call).getMessage();
  }

  @Test
  void concurrentUseOfReducerIsRefused() {
    onOneRank(
        (rank, reducer, a, b) -> {
          Parameter foreign = parameter(rank, "c", 4);
          AtomicReference<String> message = new AtomicReference<>();
          FutureTask<Void> other =
              new FutureTask<>(
                  () -> markUntilRefused(reducer, foreign, rank.stream(), message), null);
          Thread.ofPlatform().daemon().name("other").start(other);
          markUntilRefused(reducer, foreign, rank.stream(), message);
          other.get(20, TimeUnit.SECONDS);
          assertNotNull(message.get(), "the threads never used the reducer at the same time");
          assertTrue(message.get().startsWith("markReady was called by Thread["), message.get());
          assertTrue(
              message
                  .get()
                  .endsWith("uses the reducer; only one thread at a time may use it: " + reducer),
              message.get());
        });
  }

  /** Calls repeatedly until this or another thread gets the refusal that the reducer is in use. */
  private static void markUntilRefused(
      GradientReducer reducer, Parameter foreign, Stream stream, AtomicReference<String> message) {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
    while (message.get() == null && System.nanoTime() < end) {
      try {
        reducer.markReady(foreign, stream);
      } catch (IllegalArgumentException expected) {
        // No other thread was using the reducer.
      } catch (IllegalStateException refusal) {
        message.set(refusal.getMessage());
      }
    }
  }

  @Test
  void differentParametersAreReportedOnEveryRank() {
    int n = Math.min(3, underTest().maxRanks());
    assumeTrue(n > 2, "needs three ranks");
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            boolean odd = rank.rank() == 1;
            assertEquals(
                "the ranks registered different parameters: rank 1 has parameter 1 'b', FLOAT32 x"
                    + " 5, rank 0 has parameter 1 'b', FLOAT32 x 2",
                illegalArgument(
                    () -> open(rank, parameter(rank, "a", 4), parameter(rank, "b", odd ? 5 : 2))));
            assertEquals(
                "the ranks registered different parameters: rank 1 has no more than 1 parameters,"
                    + " rank 0 has parameter 1 'b', FLOAT32 x 2",
                illegalArgument(
                    () ->
                        open(
                            rank,
                            odd
                                ? new Parameter[] {parameter(rank, "a", 4)}
                                : new Parameter[] {
                                  parameter(rank, "a", 4), parameter(rank, "b", 2)
                                })));
          });
    }
  }

  @Test
  void unpairedSurrogateInNameIsNotADifference() {
    assumeTrue(underTest().maxRanks() >= 2, "needs two ranks");
    String half = "half a character, \uD800";
    try (Ranks ranks = Ranks.of(underTest(), 2)) {
      ranks.each(
          rank ->
              assertEquals(
                  "the ranks registered different parameters: rank 1 has parameter 1 'b', FLOAT32 x"
                      + " 3, rank 0 has parameter 1 'b', FLOAT32 x 2",
                  illegalArgument(
                      () ->
                          open(
                              rank,
                              parameter(rank, half, 4),
                              parameter(rank, "b", 2 + rank.rank())))));
    }
  }

  @Test
  void firstFourDifferencesAreReportedAndOthersCounted() {
    assumeTrue(underTest().maxRanks() >= 11, "needs eleven ranks");
    try (Ranks ranks = Ranks.of(underTest(), 11)) {
      ranks.each(
          rank -> {
            int count = rank.rank() % 2 == 0 ? 2 : 2 + rank.rank();
            assertEquals(
                "the ranks registered different parameters: "
                    + IntStream.of(1, 3, 5, 7)
                        .mapToObj(
                            odd ->
                                "rank %d has parameter 0 'a', FLOAT32 x %d, rank 0 has parameter 0 'a', FLOAT32 x 2; "
                                    .formatted(odd, 2 + odd))
                        .collect(Collectors.joining())
                    + "1 more rank differs",
                illegalArgument(() -> open(rank, parameter(rank, "a", count))));
          });
    }
  }

  @Test
  void reportingDifferenceMovesOneDescriptionOnly() {
    assumeTrue(underTest().maxRanks() >= 4, "needs four ranks");
    String longName = "n".repeat(3000);
    int description = 40 * 3000;
    try (Ranks ranks = Ranks.of(underTest(), 4);
        Recorded recorded = new Recorded()) {
      ranks.each(
          rank -> {
            Parameter[] many = new Parameter[40];
            for (int i = 0; i < many.length; i++) {
              boolean odd = rank.rank() == 2 && i == 30;
              many[i] = parameter(rank, i + longName, odd ? 5 : 2);
            }
            String message = illegalArgument(() -> open(rank, many));
            assertTrue(
                message.startsWith(
                    "the ranks registered different parameters: rank 2 has parameter 30 '30nnn"),
                message);
            assertTrue(message.endsWith("nnn', FLOAT32 x 2") && message.length() < 600, message);
          });
      Map<Integer, Long> moved =
          recorded.events("Collective", 4 * 3).stream()
              .collect(
                  Collectors.groupingBy(
                      event -> event.getInt("rank"),
                      Collectors.summingLong(event -> event.getLong("bytes"))));
      assertEquals(Set.of(0, 1, 2, 3), moved.keySet());
      for (long bytes : moved.values()) {
        assertTrue(description <= bytes && bytes < description + 10_000, moved + " bytes");
      }
    }
  }

  @Test
  void differentReducerConfigsAreReported() {
    int n = underTest().maxRanks();
    assumeTrue(n > 1, "needs two ranks");
    try (Ranks ranks = Ranks.of(underTest(), 2)) {
      ranks.each(
          rank -> {
            ReducerConfig config = DEFAULTS.withBucketBytes(rank.rank() == 0 ? 1000 : 2000);
            List<Parameter> parameters = List.of(parameter(rank, "a", 4));
            String message =
                illegalArgument(
                    () -> GradientReducer.open(rank.comm(), parameters, config, rank.stream()));
            assertEquals(
                "the ranks registered different parameters: rank 1 has a GradientReducer with "
                    + DEFAULTS.withBucketBytes(2000)
                    + ", rank 0 has a GradientReducer with "
                    + DEFAULTS.withBucketBytes(1000),
                message);
          });
    }
  }

  @Test
  void reducerOfAbortedCommunicatorReportsCause() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Parameter a = parameter(rank, "a", 4);
      Parameter b = parameter(rank, "b", 4);
      GradientReducer reducer = open(rank, a, b);
      rank.comm().abort();
      reducer.markReady(b, rank.stream());
      assertEquals(
          "aborted: " + rank.comm(), illegalState(() -> reducer.markReady(a, rank.stream())));
      IllegalStateException thrown =
          assertThrows(IllegalStateException.class, () -> reducer.finish(rank.stream()));
      assertEquals(
          "reducer failed in step 1 and is no longer in step with the other ranks: " + reducer,
          thrown.getMessage());
      assertEquals("aborted: " + rank.comm(), thrown.getCause().getMessage());
      reducer.close();
    }
  }

  @Test
  void reducerCloseTimesOutIfPeerLaunchesNoBucket() {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    Buffer[] values = new Buffer[2];
    GradientReducer[] reducers = new GradientReducer[2];
    try (Ranks ranks =
        Ranks.withTimeout(
            underTest(),
            2,
            TIMEOUT,
            rank -> {
              values[rank.rank()] = rank.comm().newBuffer(DataType.FLOAT32, 4);
              reducers[rank.rank()] = open(rank, Parameter.of("a", values[rank.rank()]));
              reducers[rank.rank()].allReady(rank.stream());
              reducers[rank.rank()].finish(rank.stream());
            })) {
      reducers[0].allReady(ranks.rank(0).stream());
      assertEquals(1, reducers[0].bucketsLaunched());
      assertThrows(NcclException.class, reducers[0]::close);
      reducers[0].close();
      ranks.abort();
      reducers[1].close();
      List.of(values).forEach(Buffer::close);
    }
  }

  @Test
  void reducerOpenTimesOutIfPeerNeverOpens() {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    // The collective connects the ranks, so that enqueuing does not block.
    try (Ranks ranks =
        Ranks.withTimeout(
            underTest(),
            2,
            TIMEOUT,
            rank ->
                rank.comm()
                    .allGather(rank.ints(1), rank.allocate(DataType.INT32, 2), rank.stream()))) {
      Rank rank = ranks.rank(0);
      Parameter a = parameter(rank, "a", 4);
      assertThrows(NcclException.class, () -> open(rank, a));
      ranks.abort();
    }
  }
}
