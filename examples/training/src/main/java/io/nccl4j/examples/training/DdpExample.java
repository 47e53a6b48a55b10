package io.nccl4j.examples.training;

import io.nccl4j.Communicator;
import io.nccl4j.tools.cli.ByteSize;
import io.nccl4j.tools.cli.OptionValue;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.TypeConversionException;

/** Trains three linear layers on all ranks, each rank on its part of every batch. */
@Command(
    name = "ddp-example",
    customSynopsis = "examples/training/run [--procs N] [--backend NAME] [more options]",
    sortOptions = false,
    description =
        "Trains three linear layers with stochastic gradient descent, each rank on its rows of the"
            + " batch, and prints the loss of the whole batch per step: the same for any number of"
            + " ranks, except for rounding.")
public final class DdpExample extends Ranks {
  /** The largest number whose square is an int. */
  private static final int MAX_SIZE = 46_340;

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
      names = "--checkpoint",
      paramLabel = "FILE",
      converter = OptionValue.Output.class,
      description = {
        "continue from FILE if it exists, and write the parameters and the step to it, also after"
            + " the last step; on several hosts a file that all of them share"
      })
  Path checkpoint;

  @Option(
      names = "--every",
      paramLabel = "N",
      description = "steps between two checkpoints (default: ${DEFAULT-VALUE})")
  int every = 10;

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
    checkPositive(every, "--every");
    if (checkpoint != null && Files.exists(checkpoint)) {
      checkLength(checkpoint.toFile().length());
    }
    if (trace != null && !Files.isDirectory(trace)) {
      throw badArgument("--trace is " + trace + "; it must be an existing folder");
    }
    for (int rank = 0; trace != null && rank < ranks; rank++) {
      checkWritable(recordingOf(rank));
    }
    settings();
  }

  private void checkLength(long bytes) {
    if (bytes != Checkpoint.bytes(size)) {
      throw badArgument(
          "--checkpoint is %s, which has %d bytes; for --size %d it must have %d"
              .formatted(checkpoint, bytes, size, Checkpoint.bytes(size)));
    }
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

  private Training.Settings settings() {
    try {
      long bytes = ByteSize.parse(bucket);
      if (bytes < 1) {
        throw new IllegalArgumentException("'" + bucket + "' is too small; the minimum is 1 byte");
      }
      return new Training.Settings(size, steps, batch, bytes, rate, seed);
    } catch (IllegalArgumentException e) {
      throw badArgument("--bucket: " + e.getMessage());
    }
  }

  @Override
  int run(Communicator comm) throws IOException {
    Training.Settings settings = settings();
    if (comm.rank() == 0) {
      System.out.printf(
          "# backend %s, ranks: %d, 3 layers of %d x %d, %d of %d rows per rank%n",
          comm.backend().name(), comm.size(), size, size, settings.rowsOf(comm), batch);
      System.out.printf("#  step        loss        ms%n");
    }
    // Ranks start with different parameters; the reducer copies rank 0's to all.
    Net net = new Net(comm, size, seed + comm.rank());
    try (FlightRecording recording = trace == null ? null : FlightRecording.start()) {
      new Training(
              net,
              settings,
              checkpoint == null ? null : new Checkpoint(checkpoint, every),
              new Printed())
          .run(comm);
      if (recording != null) {
        recording.write(recordingOf(comm.rank()));
      }
    }
    return 0;
  }

  /** Prints the loss on rank 0, and the checksum of the parameters on each rank. */
  private static final class Printed implements Training.Report {
    @Override
    public void step(int rank, int step, double loss, long nanos) {
      if (rank == 0) {
        System.out.printf("%7d  %10.6f  %8.1f%n", step, loss, nanos / 1e6);
      }
    }

    @Override
    public void compared(Communicator comm, int step, int checksum) {
      // One write, since ranks may share the output; a printf is several.
      System.out.println(
          "# rank %d of %d, process %d: before step %d, parameters %08x on all ranks"
              .formatted(comm.rank(), comm.size(), ProcessHandle.current().pid(), step, checksum));
    }
  }
}
