package io.nccl4j.training;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Stream;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

/** A rank that does not come is named to those that wait for it. */
class AbsentRankTest {
  private static final CommunicatorConfig IMPATIENT =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(1));

  /** What one rank does while rank 1 of two does nothing. */
  private interface Body {
    void run(Communicator comm, List<Parameter> parameters, Stream stream);
  }

  private static void whileRankOneIsAway(Body body) {
    try (Backend backend = Backend.reference(2)) {
      List<Communicator> ranks = backend.newCommunicators(new int[] {0, 1}, IMPATIENT);
      try (Stream stream = backend.newStream(0);
          Buffer value = backend.newBuffer(0, DataType.FLOAT32, 4)) {
        String told =
            assertThrows(
                    NcclTimeoutException.class,
                    () -> body.run(ranks.getFirst(), List.of(Parameter.of("w", value)), stream))
                .getMessage();
        assertTrue(told.contains("rank 1 did not call allGather"), told);
      } finally {
        ranks.forEach(Communicator::abort);
      }
    }
  }

  @Test
  void whoMakesAGradientReducerIsToldWhichRankDoesNot() {
    whileRankOneIsAway(
        (comm, parameters, stream) ->
            GradientReducer.open(comm, parameters, ReducerConfig.defaults(), stream));
  }

  @Test
  void whoMakesAShardedReducerIsToldWhichRankDoesNot() {
    whileRankOneIsAway(
        (comm, parameters, stream) ->
            ShardedReducer.open(comm, parameters, ReducerConfig.defaults(), stream));
  }
}
