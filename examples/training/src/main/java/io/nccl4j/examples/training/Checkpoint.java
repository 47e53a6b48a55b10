package io.nccl4j.examples.training;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/**
 * A file from which a training continues: the next step in 4 bytes, then all parameters. Rank 0
 * writes and reads it. After the loss of ranks that may be another process, so hosts share the
 * file.
 *
 * @param file the file, which need not exist
 * @param every the number of steps after which it is replaced
 */
record Checkpoint(Path file, int every) {
  /** {@return the length of the file in bytes for models of a size} */
  static long bytes(int size) {
    return Integer.BYTES + Net.bytes(size);
  }

  boolean exists() {
    return Files.exists(file);
  }

  /** Replaces the file. It survives killed processes, not the loss of power. */
  void save(Net net, int step) throws IOException {
    Path partial = file.resolveSibling(file.getFileName() + ".partial");
    try (DataOutputStream out = new DataOutputStream(Files.newOutputStream(partial))) {
      out.writeInt(step);
      net.write(out);
    } catch (IOException e) {
      throw new IOException("the checkpoint cannot be written to " + partial + ": " + e, e);
    }
    // A process that is killed before this leaves the previous checkpoint.
    Files.move(partial, file, StandardCopyOption.ATOMIC_MOVE);
  }

  /**
   * Overwrites the parameters with those of the file, and returns the next step.
   *
   * @param steps the steps of the training, which the next step may not exceed
   */
  int load(Net net, int steps) throws IOException {
    try (DataInputStream in =
        new DataInputStream(new BufferedInputStream(Files.newInputStream(file)))) {
      int step = in.readInt();
      if (step < 0 || step > steps) {
        throw new IOException(
            "%s is no checkpoint of a training of %d steps: its next step is %d"
                .formatted(file, steps, step));
      }
      net.read(in);
      return step;
    }
  }
}
