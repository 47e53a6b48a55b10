package io.nccl4j.tools.doctor;

import io.nccl4j.tools.cli.ByteSize;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.FileStore;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** Checks that {@code /dev/shm} exists, is writable, and has enough free space. */
final class SharedMemoryCheck {
  private static final String FOLDER = "/dev/shm";
  private static final String USE =
      "ranks on one host share memory through it; without it, creating a communicator fails";
  private static final String REMEDY =
      "in a container, start it with --shm-size=1g or --ipc=host; otherwise mount -o"
          + " remount,size=50% "
          + FOLDER;

  /** The size that NVIDIA recommends for containers. */
  private static final long RECOMMENDED = 1L << 30;

  private SharedMemoryCheck() {}

  static List<Finding> findings(MachineState state) {
    return findings(state, RECOMMENDED);
  }

  /**
   * Checks the folder.
   *
   * @param recommended the number of bytes that should be free
   */
  static List<Finding> findings(MachineState state, long recommended) {
    Path folder = state.machine().path(FOLDER);
    if (!Files.isDirectory(folder)) {
      return List.of(
          Finding.error(
              FOLDER + " does not exist",
              "NCCL checks it whenever it creates a communicator, which fails",
              "mount it: mount -t tmpfs tmpfs " + FOLDER));
    }
    try {
      write(folder);
    } catch (IOException e) {
      return List.of(
          Finding.error(
              FOLDER + " is not writable: " + e,
              USE,
              "allow this user to write there (mode 1777), or free space"));
    }
    return size(folder, recommended);
  }

  private static void write(Path folder) throws IOException {
    Path file = Files.createTempFile(folder, "nccl4j-doctor-", "");
    try {
      Files.write(file, new byte[4096]);
    } finally {
      Files.delete(file);
    }
  }

  private static List<Finding> size(Path folder, long recommended) {
    try {
      FileStore store = Files.getFileStore(folder);
      if (store.getUsableSpace() >= recommended) {
        return List.of();
      }
      return List.of(
          Finding.warning(
              "%s has %s free of %s; at least %s is recommended"
                  .formatted(
                      FOLDER,
                      ByteSize.text(store.getUsableSpace()),
                      ByteSize.text(store.getTotalSpace()),
                      ByteSize.text(recommended)),
              USE + "; each pair of ranks needs several MiB",
              REMEDY));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
