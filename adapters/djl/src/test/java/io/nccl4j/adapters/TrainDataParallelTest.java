package io.nccl4j.adapters;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ai.djl.engine.Engine;
import io.nccl4j.fixtures.Checkout;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** The README's program trains as shown, on one process and on two. */
class TrainDataParallelTest {
  private static List<Double> losses(int ranks) throws Exception {
    String launcher = Checkout.ROOT.resolve("examples/launch/plain.sh").toString();
    List<String> command = new ArrayList<>(List.of(launcher, Integer.toString(ranks)));
    command.addAll(
        FinishedProgram.java(
            "-Dai.djl.offline=true",
            "-DOPT_OUT_TRACKING=true",
            "-DDJL_CACHE_DIR=" + System.getProperty("DJL_CACHE_DIR"),
            TrainDataParallel.class.getName()));
    FinishedProgram ended = FinishedProgram.run(Map.of(), command);
    assertEquals(0, ended.status(), ended.output());
    return ended.out().lines().map(Double::valueOf).toList();
  }

  @Test
  void readmeShowsTheProgram() throws Exception {
    ReadmeProgram.checkShown(TrainDataParallel.class);
  }

  @Test
  @Tag("slow")
  void lossesOfTwoProcessesAreThoseOfOne() throws Exception {
    Engine.getInstance(); // unpacks the native libraries, in one process
    List<Double> one = losses(1);
    List<Double> two = losses(2);
    assertEquals(20, one.size());
    assertTrue(one.getLast() < one.getFirst() / 2, one.toString());
    for (int step = 0; step < 20; step++) {
      // Sums of float32 in another order: a relative error of some 1e-7 in each step.
      assertEquals(one.get(step), two.get(step), 1e-5 * one.get(step), one + "\n" + two);
    }
  }
}
