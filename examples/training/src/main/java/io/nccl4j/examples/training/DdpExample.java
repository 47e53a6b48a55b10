package io.nccl4j.examples.training;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.ReduceOp;
import io.nccl4j.pytorch.TensorBuffers;
import io.nccl4j.tools.cli.ByteSize;
import io.nccl4j.tools.cli.OptionValue;
import io.nccl4j.training.ReducerConfig;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.bytedeco.javacpp.PointerScope;
import org.bytedeco.pytorch.SGD;
import org.bytedeco.pytorch.SGDOptions;
import org.bytedeco.pytorch.Tensor;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.TypeConversionException;

/** Trains three linear layers on all ranks, each rank on its part of every batch. */
@Command(
    name = "ddp-example",
    customSynopsis = "scripts/ddp-example [--procs N] [--backend NAME] [more options]",
    sortOptions = false,
    description =
        "Trains three linear layers with stochastic gradient descent, each rank on its rows of the"
            + " batch, and prints the loss of the whole batch per step: the same for any number of"
            + " ranks, except for rounding.")
public final class DdpExample extends Ranks {
  /** The largest number whose square is an int. */
  private static final int MAX_SIZE = 46_340;

  /** The settings of the training, the same on all ranks. */
  record Settings(
      int size, int steps, int batch, long bucketBytes, double learningRate, long seed) {
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

  @Option(
      names = "--size",
      paramLabel = "N",
      description = "inputs and outputs of a layer (default: ${DEFAULT-VALUE})")
  int size = 4000;

  @Option(names = "--steps", paramLabel = "N", description = "default: ${DEFAULT-VALUE}")
  int steps = 10;

  @Option(
      names = "--batch",
      paramLabel = "ROWS",
      description = "rows of all ranks together (default: ${DEFAULT-VALUE})")
  int batch = 64;

  @Option(
      names = "--bucket",
      paramLabel = "SIZE",
      description = "size of a gradient bucket, such as 25M (default: ${DEFAULT-VALUE})")
  String bucket = "25M";

  @Option(
      names = "--rate",
      paramLabel = "R",
      description = "learning rate (default: ${DEFAULT-VALUE})")
  double rate = 0.1;

  @Option(
      names = "--seed",
      paramLabel = "N",
      description = "seed of rank 0's parameters, which all ranks get (default: ${DEFAULT-VALUE})")
  long seed = 1;

  @Option(
      names = "--trace",
      paramLabel = "FOLDER",
      description =
          "record each rank with JDK Flight Recorder into FOLDER/rank0.jfr and so on: the phases of"
              + " the steps and every collective")
  Path trace;

  private DdpExample() {}

  /**
   * Runs the command.
   *
   * @param args the command line; {@code --help} explains it
   */
  public static void main(String[] args) {
    main(new DdpExample(), args);
  }

  @Override
  void check(int ranks) {
    checkPositive(size, "--size");
    if (size > MAX_SIZE) {
      throw badArgument(
          "--size is %d; it must be %d or less, since an array must hold its square of weights"
              .formatted(size, MAX_SIZE));
    }
    checkPositive(steps, "--steps");
    checkPositive(batch, "--batch");
    if (batch % ranks != 0) {
      throw badArgument(
          "--batch is %d; it must be a multiple of the number of ranks, %d"
              .formatted(batch, ranks));
    }
    if ((long) batch / ranks * size > Integer.MAX_VALUE) {
      throw badArgument(
          "--batch is %d and --size is %d; a rank's rows, %d, times --size must be %d or less"
              .formatted(batch, size, batch / ranks, Integer.MAX_VALUE));
    }
    if (!(rate > 0 && rate < Double.POSITIVE_INFINITY)) {
      throw badArgument("--rate is " + rate + "; it must be positive");
    }
    if (trace != null && !Files.isDirectory(trace)) {
      throw badArgument("--trace is " + trace + "; it must be an existing folder");
    }
    for (int rank = 0; trace != null && rank < ranks; rank++) {
      checkWritable(recordingOf(rank));
    }
    settings();
  }

  private Path recordingOf(int rank) {
    return trace.resolve("rank" + rank + ".jfr");
  }

  private void checkWritable(Path recording) {
    try {
      OptionValue.output(recording.toString());
    } catch (TypeConversionException e) {
      throw badArgument("--trace: " + e.getMessage());
    }
  }

  private void checkPositive(int value, String option) {
    if (value < 1) {
      throw badArgument(option + " is " + value + "; it must be 1 or more");
    }
  }

  private Settings settings() {
    try {
      long bytes = ByteSize.parse(bucket);
      if (bytes < 1) {
        throw new IllegalArgumentException("'" + bucket + "' is too small; the minimum is 1 byte");
      }
      return new Settings(size, steps, batch, bytes, rate, seed);
    } catch (IllegalArgumentException e) {
      throw badArgument("--bucket: " + e.getMessage());
    }
  }

  @Override
  int run(Communicator comm) {
    Settings settings = settings();
    boolean prints = comm.rank() == 0;
    if (prints) {
      System.out.printf(
          "# backend %s, ranks: %d, 3 layers of %d x %d, %d of %d rows per rank%n",
          comm.backend().name(), comm.size(), size, size, settings.rowsOf(comm), batch);
      System.out.printf("#  step        loss        ms%n");
    }
    // Ranks start with different parameters; the reducer copies rank 0's to all.
    Net net = new Net(comm, size, seed + comm.rank());
    try (FlightRecording recording = trace == null ? null : FlightRecording.start()) {
      train(
          comm,
          net,
          settings,
          (step, loss, nanos) -> {
            if (prints) {
              System.out.printf("%7d  %10.6f  %8.1f%n", step, loss, nanos / 1e6);
            }
          });
      if (recording != null) {
        recording.write(recordingOf(comm.rank()));
      }
    }
    return 0;
  }

  /** Receives the result of each step. */
  interface EpochReport {
    /**
     * Called after each step.
     *
     * @param step the step, from 0
     * @param loss the loss of the whole batch, before the step
     * @param nanos the duration of the step
     */
    void step(int step, double loss, long nanos);
  }

  /**
   * {@return the losses of the whole batch before each step}
   *
   * @param net this rank's model; its parameters are overwritten with rank 0's and then trained
   */
  static List<Double> train(Communicator comm, Net net, Settings settings, EpochReport progress) {
    List<Double> losses = new ArrayList<>();
    try (DataParallel parallel = new DataParallel(comm, net.parameters(), settings.reducer())) {
      SGD optimizer = new SGD(net.parameterVector(), new SGDOptions(settings.learningRate()));
      for (int step = 0; step < settings.steps(); step++) {
        long start = System.nanoTime();
        losses.add(step(comm, net, settings, parallel, optimizer, step));
        progress.step(step, losses.getLast(), System.nanoTime() - start);
      }
    }
    return losses;
  }

  // The scope frees the tensors of a step at its end, not at some later garbage collection.
  @SuppressWarnings("try")
  private static double step(
      Communicator comm,
      Net net,
      Settings settings,
      DataParallel parallel,
      SGD optimizer,
      int step) {
    int rows = settings.rowsOf(comm);
    Batch batch = new Batch(step, comm.rank() * rows, rows);
    try (PointerScope scope = new PointerScope()) {
      parallel.zeroGradients();
      Tensor loss = Phase.get("forward", comm, step, () -> net.loss(batch));
      Phase.run("backward", comm, step, loss::backward);
      parallel.finish();
      Phase.run("optimizer", comm, step, optimizer::step);
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
