package io.nccl4j.djl;

import ai.djl.Model;
import ai.djl.ndarray.NDArray;
import ai.djl.ndarray.types.Shape;
import ai.djl.nn.Parameter;
import ai.djl.training.Trainer;
import ai.djl.training.TrainingConfig;
import io.nccl4j.Communicator;
import java.util.Collection;
import java.util.LinkedHashSet;

/**
 * A trainer whose parameters are held by an {@link AllReduceParameterServer}. DJL's own offers no
 * place for a server. Otherwise it works as in DJL: {@code EasyTrain}, listeners, evaluators, which
 * see this rank's part of the data; but {@link #step} does not check that gradients are not zero.
 * Each rank needs a process of its own, since DJL lets one gradient collector work at a time. Not
 * thread-safe.
 */
public final class DataParallelTrainer extends Trainer {
  private final AllReduceParameterServer server;

  /**
   * Creates the trainer of a rank, as {@code model.newTrainer(config)} does. But the parameters of
   * a model that was loaded stay frozen, unless the program unfreezes them.
   *
   * @param model the model, which has a block; the ranks' blocks are equal but for their values
   * @param config the configuration, whose optimizer updates the parameters
   * @param comm the rank's communicator, which must stay open as long as this trainer
   */
  public DataParallelTrainer(Model model, TrainingConfig config, Communicator comm) {
    super(model, config);
    config
        .getInitializers()
        .forEach(it -> model.getBlock().setInitializer(it.getKey(), it.getValue()));
    try {
      server = new AllReduceParameterServer(comm, config.getOptimizer());
    } catch (RuntimeException e) {
      super.close();
      throw e;
    }
  }

  /**
   * Initializes the model with the values of rank 0.
   *
   * @param shapes the shapes of the inputs
   */
  @Override
  public void initialize(Shape... shapes) {
    super.initialize(shapes);
    for (Parameter parameter : parameters()) {
      server.init(parameter.getId(), new NDArray[] {parameter.getArray()});
    }
  }

  /** Returns each parameter once, although blocks may share it. */
  private Collection<Parameter> parameters() {
    return new LinkedHashSet<>(getModel().getBlock().getParameters().values());
  }

  /** Averages the gradients of all ranks and updates the parameters. */
  @Override
  public void step() {
    long begin = System.nanoTime();
    for (Parameter parameter : parameters()) {
      if (parameter.requiresGradient()) {
        server.update(parameter.getId(), new NDArray[] {parameter.getArray()});
      }
    }
    addMetric("step", begin);
  }

  @Override
  public void close() {
    try {
      super.close();
    } finally {
      server.close();
    }
  }
}
