package io.nccl4j.examples.training;

import io.nccl4j.Communicator;
import java.util.function.Supplier;
import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;

/**
 * Flight recorder event of a phase of a training step. With nccl4j's own events it shows which
 * collectives run while PyTorch computes.
 */
@Name("io.nccl4j.examples.training.Phase")
@Label("Training phase")
@Description("Phase of one rank in a training step")
@Category({"nccl4j", "training"})
@StackTrace(false)
final class Phase extends Event {
  @Label("Phase")
  @Description("forward, backward or optimizer")
  final String phase;

  @Label("Rank")
  final int rank;

  @Label("Step")
  final int step;

  private Phase(String phase, int rank, int step) {
    this.phase = phase;
    this.rank = rank;
    this.step = step;
  }

  static void run(String phase, Communicator comm, int step, Runnable work) {
    get(
        phase,
        comm,
        step,
        () -> {
          work.run();
          return null;
        });
  }

  static <T> T get(String phase, Communicator comm, int step, Supplier<T> work) {
    Phase event = new Phase(phase, comm.rank(), step);
    event.begin();
    try {
      return work.get();
    } finally {
      event.commit();
    }
  }
}
