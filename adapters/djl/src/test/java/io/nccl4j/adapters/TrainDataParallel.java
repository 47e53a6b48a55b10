package io.nccl4j.adapters;

import ai.djl.Model;
import ai.djl.engine.Engine;
import ai.djl.ndarray.NDArray;
import ai.djl.ndarray.NDList;
import ai.djl.ndarray.NDManager;
import ai.djl.ndarray.types.Shape;
import ai.djl.nn.Activation;
import ai.djl.nn.SequentialBlock;
import ai.djl.nn.core.Linear;
import ai.djl.training.DefaultTrainingConfig;
import ai.djl.training.GradientCollector;
import ai.djl.training.Trainer;
import ai.djl.training.loss.Loss;
import ai.djl.training.optimizer.Optimizer;
import ai.djl.training.tracker.Tracker;
import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.djl.DataParallelTrainer;
import io.nccl4j.djl.NDArrayBuffers;
import io.nccl4j.rendezvous.LaunchEnvironment;

/** Fits a small network to 64 points; each rank has its part of them. */
final class TrainDataParallel {
  public static void main(String[] args) {
    try (Backend backend = Backend.reference(1)) {
      LaunchEnvironment.current().runRanks(backend, TrainDataParallel::train);
    }
  }

  private static void train(Communicator comm) {
    Engine.getInstance().setRandomSeed(comm.rank()); // all start with the values of rank 0
    Tracker learningRate = Tracker.fixed(0.05f);
    DefaultTrainingConfig config =
        new DefaultTrainingConfig(Loss.l2Loss())
            .optOptimizer(Optimizer.adam().optLearningRateTracker(learningRate).build());
    try (Model model = Model.newInstance("network");
        NDManager manager = model.getNDManager().newSubManager();
        Stream stream = comm.newStream()) {
      model.setBlock(
          new SequentialBlock()
              .add(Linear.builder().setUnits(16).build())
              .add(Activation::tanh)
              .add(Linear.builder().setUnits(1).build()));
      int rows = 64 / comm.size();
      NDArray x = manager.linspace(-2, 2, 64).reshape(64, 1).split(comm.size()).get(comm.rank());
      NDArray y = x.mul(x);
      try (Trainer trainer = new DataParallelTrainer(model, config, comm)) {
        trainer.initialize(new Shape(rows, 1));
        for (int step = 0; step < 20; step++) {
          NDArray loss;
          try (GradientCollector collector = trainer.newGradientCollector()) {
            loss = trainer.getLoss().evaluate(new NDList(y), trainer.forward(new NDList(x)));
            collector.backward(loss);
          }
          trainer.step();
          try (Buffer buffer = NDArrayBuffers.of(loss, "loss", comm)) { // of all points
            comm.allReduce(buffer, buffer, ReduceOp.AVG, stream);
            stream.synchronize();
          }
          if (comm.rank() == 0) {
            IO.println(loss.getFloat());
          }
        }
      }
    }
  }

  private TrainDataParallel() {}
}
