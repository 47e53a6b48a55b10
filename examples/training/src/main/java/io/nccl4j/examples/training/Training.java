package io.nccl4j.examples.training;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.Recovery;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.pytorch.TensorBuffers;
import io.nccl4j.training.ReducerConfig;
import java.io.IOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.zip.CRC32C;
import java.util.zip.CheckedOutputStream;
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

  /** Receives the results. */
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

    /**
     * Called when all ranks have been found to have the same parameters: before the first step,
     * after each recovery, and at the end.
     *
     * @param comm the remaining ranks
     * @param step the next step
     * @param checksum the CRC-32C of all parameters
     */
    default void compared(Communicator comm, int step, int checksum) {}
  }

  private static final int UNKNOWN = -1;

  private final Net net;
  private final Settings settings;
  private final Checkpoint checkpoint;
  private final Report report;
  private final List<Double> losses = new ArrayList<>();
  // The step that this rank's parameters are for, or UNKNOWN while rank 0's replace them.
  private int next;

  /**
   * Creates a training.
   *
   * @param net this rank's model; its parameters are overwritten with rank 0's and then trained
   * @param checkpoint where the training is saved, and from which it continues if it exists; or
   *     null
   */
  Training(Net net, Settings settings, Checkpoint checkpoint, Report report) {
    this.net = net;
    this.settings = settings;
    this.checkpoint = checkpoint;
    this.report = report;
  }

  /**
   * {@return the losses of the whole batch before each step} If ranks are lost, the others continue
   * with the parameters and the step of the lowest remaining rank, or from the checkpoint if that
   * rank was receiving parameters; the loss of a step in which ranks were lost, or that precedes
   * the checkpoint, may be NaN.
   *
   * @param all all ranks; aborted if ranks were lost
   * @throws NcclException if this rank cannot continue
   * @throws IllegalStateException if all ranks with complete parameters were lost while another one
   *     was receiving them, and there is no checkpoint; or if the ranks' parameters differ
   * @throws IOException if the checkpoint cannot be read or written
   */
  List<Double> run(Communicator all) throws IOException {
    losses.addAll(Collections.nCopies(settings.steps(), Double.NaN));
    recovering(all);
    return losses;
  }

  private void recovering(Communicator comm) throws IOException {
    try {
      train(comm);
    } catch (NcclException failure) {
      // Closed, not aborted: a rank that rejects the parameters must not end the exchange in which
      // the others learn that they reject them too.
      try (Communicator rest = Recovery.defaults().recover(comm, failure)) {
        comm.abort();
        recovering(rest);
      }
    }
  }

  private void train(Communicator comm) throws IOException {
    int own = next;
    if (comm.rank() != 0) {
      next = UNKNOWN;
    } else if (own <= 0 && checkpoint != null && checkpoint.exists()) {
      own = checkpoint.load(net, settings.steps());
    }
    try (DataParallel parallel = new DataParallel(comm, net.parameters(), settings.reducer())) {
      next = firstStep(comm, parallel, own);
      compare(comm, parallel.compute());
      SGD optimizer = new SGD(net.parameterVector(), new SGDOptions(settings.learningRate()));
      for (int step = next; step < settings.steps(); step++) {
        long start = System.nanoTime();
        double loss = step(comm, parallel, optimizer, step);
        losses.set(step, loss);
        report.step(comm.rank(), step, loss, System.nanoTime() - start);
        save(comm);
      }
      compare(comm, parallel.compute());
    }
  }

  private void save(Communicator comm) throws IOException {
    boolean due =
        checkpoint != null && (next % checkpoint.every() == 0 || next == settings.steps());
    if (due && comm.rank() == 0) {
      checkpoint.save(net, next);
    }
  }

  /**
   * Compares the parameters of all ranks.
   *
   * @throws IllegalStateException on all ranks if they differ
   */
  private void compare(Communicator comm, Stream stream) throws IOException {
    CRC32C own = new CRC32C();
    net.write(new CheckedOutputStream(OutputStream.nullOutputStream(), own));
    int[] checksum = {(int) own.getValue()};
    int[] checksums = new int[comm.size()];
    try (Buffer send = comm.newBuffer(DataType.INT32, 1);
        Buffer all = comm.newBuffer(DataType.INT32, comm.size())) {
      send.copyFromAsync(checksum, stream);
      comm.allGather(send, all, stream);
      all.copyTo(checksums, stream);
    }
    if (Arrays.stream(checksums).distinct().count() > 1) {
      throw new IllegalStateException(
          "the ranks have different parameters before step %d; their checksums in rank order are %s"
              .formatted(next, Arrays.stream(checksums).mapToObj("%08x"::formatted).toList()));
    }
    report.compared(comm, next, checksum[0]);
  }

  /**
   * Returns rank 0's next step: ranks may lose another one in different steps.
   *
   * @throws IllegalStateException if rank 0 was lost before this rank 0 had all of its parameters,
   *     and there is no checkpoint
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
          "the parameters of rank 0 may be mixed: it was receiving them when ranks were lost,"
              + " and there is no checkpoint");
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
