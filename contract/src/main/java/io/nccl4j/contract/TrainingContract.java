package io.nccl4j.contract;

import static io.nccl4j.DataType.BFLOAT16;
import static io.nccl4j.DataType.FLOAT32;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.DataType;
import io.nccl4j.fixtures.Seed;
import java.util.Collections;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Training on parts of a batch gives the same result as training one rank on the whole batch. The
 * loss after each step is compared with that of a plain loop without a reducer.
 */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class TrainingContract {
  private static final int STEPS = 30;
  private static final List<DataType> FLOATS = Collections.nCopies(TinyModel.parameters(), FLOAT32);
  private static final List<DataType> MIXED =
      List.of(FLOAT32, BFLOAT16, BFLOAT16, FLOAT32, FLOAT32);

  abstract BackendUnderTest underTest();

  Stream<Arguments> runs() {
    return underTest().rankCounts(1, 2, 3, 4).stream()
        .flatMap(n -> Stream.of(false, true).map(sharded -> Arguments.of(n, sharded)));
  }

  @ParameterizedTest(name = "{0} ranks, sharded {1}")
  @MethodSource("runs")
  void lossMatchesOneRankWithWholeBatch(int n, boolean sharded) {
    check(n, new TrainingRank.TrainingPlan(sharded, FLOATS, 1, false));
  }

  @ParameterizedTest(name = "{0} ranks, sharded {1}")
  @MethodSource("runs")
  void lossMatchesWithGradientAccumulation(int n, boolean sharded) {
    check(n, new TrainingRank.TrainingPlan(sharded, FLOATS, 3, false));
  }

  @ParameterizedTest(name = "{0} ranks, sharded {1}")
  @MethodSource("runs")
  void lossMatchesWithUnusedParameters(int n, boolean sharded) {
    check(n, new TrainingRank.TrainingPlan(sharded, FLOATS, 1, true));
  }

  @ParameterizedTest(name = "{0} ranks, sharded {1}")
  @MethodSource("runs")
  void lossMatchesWithAccumulationAndUnusedParameters(int n, boolean sharded) {
    check(n, new TrainingRank.TrainingPlan(sharded, FLOATS, 3, true));
  }

  @ParameterizedTest(name = "{0} ranks, sharded {1}")
  @MethodSource("runs")
  void lossMatchesWithMixedTypes(int n, boolean sharded) {
    check(n, new TrainingRank.TrainingPlan(sharded, MIXED, 1, false));
  }

  private void check(int n, TrainingRank.TrainingPlan plan) {
    List<TinyModel.Sample> batch = TinyModel.batch("training");
    double[] expected = TinyModel.random("rank 0", plan.types()).train(batch, STEPS);
    assertTrue(expected[STEPS - 1] < 0.9 * expected[0], "the loss does not fall" + Seed.hint());
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            try (TrainingRank trainingRank = new TrainingRank(rank, plan)) {
              double[] losses = trainingRank.train(batch, STEPS);
              for (int step = 0; step < STEPS; step++) {
                double tolerance = tolerance(plan) * expected[step];
                assertEquals(expected[step], losses[step], tolerance, "step " + step + Seed.hint());
              }
            }
          });
    }
  }

  /**
   * Returns the largest allowed relative error of a loss. The sums of gradients are rounded at
   * different points, with a relative error of 2^-24 in float32 and 2^-8 in bfloat16, where a
   * parameter may then be rounded to a different neighbor, another 2^-8 away. Twelve seeds gave at
   * most 1.3e-7 and 0.0043.
   */
  private static double tolerance(TrainingRank.TrainingPlan plan) {
    return plan.types().contains(BFLOAT16) ? 0.02 : 1e-5;
  }
}
