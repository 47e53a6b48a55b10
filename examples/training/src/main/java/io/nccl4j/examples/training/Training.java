package io.nccl4j.examples.training;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.Recovery;
import io.nccl4j.ReduceOp;
import io.nccl4j.pytorch.TensorBuffers;
import io.nccl4j.training.ReducerConfig;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.bytedeco.javacpp.PointerScope;
import org.bytedeco.pytorch.SGD;
import org.bytedeco.pytorch.SGDOptions;
import org.bytedeco.pytorch.Tensor;

/** One rank's training of a model, which continues without ranks that are lost. */
final class Training {
  /** The settings of the training, the same on all ranks. */
  record Settings(
      int size, int steps, int batch, long bucketBytes, double learningRate, long seed) {
    /** {@return the rows of each rank} Rows that remain are left out, after the loss of a rank. */
    int rowsOf(Communicator comm) {
      return batch / comm.size();
    }

    ReducerConfig reducer() {
      ReducerConfig defaults = ReducerConfig.defaults();
      return defaults
          .withBucketBytes(bucketBytes)
          .withFirstBucketBytes(Math.min(bucketBytes, defaults.firstBucketBytes()));
    }
  }

  /** Receives the result of each step. */
  interface Report {
    /**
     * Called after each step.
     *
     * @param rank this rank
     * @param step the step, from 0
     * @param loss the loss of the whole batch, before the step
     * @param nanos the duration of the step
     */
    void step(int rank, int step, double loss, long nanos);
  }

  private static final int UNKNOWN = -1;

  private final Net net;
  private final Settings settings;
  private final Report report;
  private final List<Double> losses = new ArrayList<>();
  // The step that this rank's parameters are for, or UNKNOWN while rank 0's replace them.
  private int next;

  /**
   * Creates a training.
   *
   * @param net this rank's model; its parameters are overwritten with rank 0's and then trained
   */
  Training(Net net, Settings settings, Report report) {
    this.net = net;
    this.settings = settings;
    this.report = report;
  }

  /**
   * {@return the losses of the whole batch before each step} If ranks are lost, the others continue
   * with the parameters and the step of the lowest remaining rank; the loss of a step in which
   * ranks were lost may be NaN.
   *
   * @param all all ranks; aborted if ranks were lost
   * @throws NcclException if this rank cannot continue
   * @throws IllegalStateException if all ranks with complete parameters were lost while another one
   *     was receiving them
   */
  List<Double> run(Communicator all) {
    losses.addAll(Collections.nCopies(settings.steps(), Double.NaN));
    Communicator comm = all;
    boolean finished = false;
    try {
      while (true) {
        try {
          train(comm);
          break;
        } catch (NcclException failure) {
          Communicator broken = comm;
          comm = Recovery.defaults().recover(broken, failure); // throws if it cannot continue
          broken.abort();
        }
      }
      finished = true;
    } finally {
      if (comm != all) {
        // Closing after a failure would throw it again, in the place of what is thrown now.
        end(comm, finished);
      }
    }
    return losses;
  }

  private static void end(Communicator comm, boolean finished) {
    if (finished) {
      comm.close();
    } else {
      comm.abort();
    }
  }

  private void train(Communicator comm) {
    int own = next;
    if (comm.rank() != 0) {
      next = UNKNOWN;
    }
    try (DataParallel parallel = new DataParallel(comm, net.parameters(), settings.reducer())) {
      next = firstStep(comm, parallel, own);
      SGD optimizer = new SGD(net.parameterVector(), new SGDOptions(settings.learningRate()));
      for (int step = next; step < settings.steps(); step++) {
        long start = System.nanoTime();
        double loss = step(comm, parallel, optimizer, step);
        losses.set(step, loss);
        report.step(comm.rank(), step, loss, System.nanoTime() - start);
      }
    }
  }

  /**
   * Returns rank 0's next step: ranks may lose another one in different steps.
   *
   * @throws IllegalStateException if rank 0 was lost before this rank 0 had all of its parameters
   */
  private static int firstStep(Communicator comm, DataParallel parallel, int own) {
    int[] step = {own};
    try (Buffer buffer = comm.newBuffer(DataType.INT32, 1)) {
      buffer.copyFromAsync(step, parallel.compute());
      comm.broadcast(buffer, 0, parallel.compute());
      buffer.copyTo(step, parallel.compute());
    }
    if (step[0] == UNKNOWN) {
      throw new IllegalStateException(
          "the parameters of rank 0 may be mixed: it was receiving them when ranks were lost");
    }
    return step[0];
  }

  // The scope frees the tensors of a step at its end, not at some later garbage collection.
  @SuppressWarnings("try")
  private double step(Communicator comm, DataParallel parallel, SGD optimizer, int step) {
    int rows = settings.rowsOf(comm);
    Batch batch = new Batch(step, comm.rank() * rows, rows);
    try (PointerScope scope = new PointerScope()) {
      parallel.zeroGradients();
      Tensor loss = Phase.get("forward", comm, step, () -> net.loss(batch));
      Phase.run("backward", comm, step, loss::backward);
      parallel.finish();
      Phase.run("optimizer", comm, step, optimizer::step);
      // Now, since the parameters have changed, even if the loss cannot be averaged any more.
      next = step + 1;
      return average(comm, parallel, loss.detach());
    }
  }

  private static double average(Communicator comm, DataParallel parallel, Tensor loss) {
    try (Buffer buffer = TensorBuffers.of(loss, "loss", comm)) {
      comm.allReduce(buffer, buffer, ReduceOp.AVG, parallel.compute());
      parallel.compute().synchronize();
    }
    return loss.item_float();
  }
}
