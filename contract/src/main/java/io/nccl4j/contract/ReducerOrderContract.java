package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Stream;
import io.nccl4j.training.GradientReducer;
import io.nccl4j.training.Parameter;
import io.nccl4j.training.ReducerConfig;
import io.nccl4j.training.ShardedReducer;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

/**
 * The order of a reducer's work on the device. The tests block streams until they open a gate, so
 * that work that does not wait as it should runs visibly too early.
 */
abstract class ReducerOrderContract {
  private static final ReducerConfig DEFAULTS = ReducerConfig.defaults();
  private static final Duration SHORT_WAIT = Duration.ofMillis(50);

  abstract BackendUnderTest underTest();

  /** A test with a communicator of one rank, and a blocked collective of other ranks as a gate. */
  private interface Body {
    void run(Rank rank, StuckCollective gate) throws Exception;
  }

  private void withGate(Body body) {
    try (StuckCollective gate = StuckCollective.prepare(underTest());
        Ranks ranks = Ranks.of(underTest(), 1)) {
      ranks.each(rank -> body.run(rank, gate));
    }
  }

  /** Blocks a stream until the gate is opened. */
  private static void block(Stream stream, StuckCollective gate) {
    gate.begin();
    try (Event opened = gate.comm().newEvent()) {
      gate.stream().record(opened);
      stream.waitFor(opened);
    }
  }

  private static Buffer floats(Rank rank, float... values) {
    return rank.upload(DataType.FLOAT32, MemorySegment.ofArray(values));
  }

  private static float[] download(Buffer buffer, Stream stream) {
    float[] values = new float[Math.toIntExact(buffer.count())];
    buffer.copyTo(MemorySegment.ofArray(values), stream);
    return values;
  }

  private static void assertBlocked(Stream stream) {
    assertThrows(NcclTimeoutException.class, () -> stream.synchronize(SHORT_WAIT));
  }

  @Test
  void bucketWaitsForGradientsAndOptimizerForBucket() {
    withGate(
        (rank, gate) -> {
          Buffer copied = floats(rank, 1, 1);
          Parameter early = Parameter.of("early", floats(rank, 0, 0), copied);
          Parameter late = Parameter.of("late", floats(rank, 0, 0, 0));
          Buffer seven = floats(rank, 7, 7);
          Buffer copy = rank.allocate(DataType.FLOAT32, 2);
          try (Stream blocked = rank.comm().newStream();
              GradientReducer reducer =
                  GradientReducer.open(
                      rank.comm(), List.of(late, early), DEFAULTS, rank.stream())) {
            block(blocked, gate);
            copied.copyFromAsync(seven, blocked);
            reducer.markReady(early, blocked);
            reducer.markReady(late, rank.stream());
            assertEquals(1, reducer.bucketsLaunched());
            reducer.finish(rank.stream());
            copy.copyFromAsync(copied, rank.stream());
            assertBlocked(reducer.stream());
            assertBlocked(rank.stream());
            gate.join();
            assertArrayEquals(new float[] {7, 7}, download(copy, rank.stream()));
          }
        });
  }

  @Test
  void bucketIsReducedWhileLaterGradientsAreComputed() {
    withGate(
        (rank, gate) -> {
          Parameter first = Parameter.of("first", floats(rank, 0, 0));
          Parameter last = Parameter.of("last", floats(rank, 0, 0), floats(rank, 5, 5));
          try (Stream blocked = rank.comm().newStream();
              Stream reader = rank.comm().newStream();
              GradientReducer reducer =
                  GradientReducer.open(
                      rank.comm(),
                      List.of(first, last),
                      DEFAULTS.withFirstBucketBytes(1),
                      rank.stream())) {
            Buffer gradient = reducer.gradient(last);
            gradient.copyFromAsync(MemorySegment.ofArray(new float[] {9, 9}), blocked);
            reducer.markReady(last, blocked);
            block(blocked, gate);
            reducer.stream().synchronize();
            assertEquals(1, reducer.bucketsLaunched());
            assertArrayEquals(new float[] {9, 9}, download(gradient, reader));
            assertBlocked(blocked);
            reducer.markReady(first, blocked);
            reducer.finish(reader);
            assertBlocked(reader);
            gate.join();
            reader.synchronize();
          }
        });
  }

  @Test
  void accumulatedGradientIsWaitedForOnItsStream() {
    withGate(
        (rank, gate) -> {
          Buffer gradient = floats(rank, 1, 1);
          Parameter parameter = Parameter.of("w", floats(rank, 0, 0), gradient);
          Buffer seven = floats(rank, 7, 7);
          Buffer copy = rank.allocate(DataType.FLOAT32, 2);
          try (Stream blocked = rank.comm().newStream();
              GradientReducer reducer =
                  GradientReducer.open(
                      rank.comm(),
                      List.of(parameter),
                      DEFAULTS.withFindUnusedParameters(true),
                      rank.stream())) {
            block(blocked, gate);
            gradient.copyFromAsync(seven, blocked);
            reducer.noSync(() -> reducer.markReady(parameter, blocked));
            reducer.finish(rank.stream());
            copy.copyFromAsync(gradient, rank.stream());
            assertBlocked(rank.stream());
            gate.join();
            assertArrayEquals(new float[] {7, 7}, download(copy, rank.stream()));
          }
        });
  }

  @Test
  void gatherWaitsForOptimizerStep() {
    withGate(
        (rank, gate) -> {
          Parameter parameter = Parameter.of("w", floats(rank, 1, 2, 3, 4));
          Buffer stepped = floats(rank, 5, 6, 7, 8);
          Buffer copy = rank.allocate(DataType.FLOAT32, 4);
          try (Stream blocked = rank.comm().newStream();
              ShardedReducer reducer =
                  ShardedReducer.open(rank.comm(), List.of(parameter), DEFAULTS, rank.stream())) {
            reducer.allReady(blocked);
            reducer.finish(blocked);
            blocked.synchronize();
            block(blocked, gate);
            reducer.shards().getFirst().values().copyFromAsync(stepped, blocked);
            reducer.gatherParameters(blocked);
            copy.copyFromAsync(parameter.value(), blocked);
            assertBlocked(reducer.stream());
            gate.join();
            assertArrayEquals(new float[] {5, 6, 7, 8}, download(copy, blocked));
          }
        });
  }
}
