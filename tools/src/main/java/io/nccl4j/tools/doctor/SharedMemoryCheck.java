package io.nccl4j.tools.doctor;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.FileStore;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** Shared memory: whether {@code /dev/shm} is there, can be written, and is large enough. */
final class SharedMemoryCheck implements Check {
  private static final String FOLDER = "/dev/shm";
  private static final String USE =
      "ranks of one host share memory through it; where it fails, so does their initialisation";
  private static final String REMEDY =
      "in a container, start it with --shm-size=1g or --ipc=host; else mount -o"
          + " remount,size=50% "
          + FOLDER;

  private final long wanted;

  /** Makes the check with what NVIDIA asks for in containers. */
  SharedMemoryCheck() {
    this(Bytes.GIB);
  }

  /**
   * Makes the check.
   *
   * @param wanted how many bytes should be free
   */
  SharedMemoryCheck(long wanted) {
    this.wanted = wanted;
  }

  @Override
  public String name() {
    return "shared memory";
  }

  @Override
  public List<Finding> findings(MachineState evidence) {
    Path folder = evidence.machine().path(FOLDER);
    if (!Files.isDirectory(folder)) {
      return List.of(
          Finding.error(
              FOLDER + " is not there",
              "NCCL looks at it in every initialisation, which fails",
              "mount it: mount -t tmpfs tmpfs " + FOLDER));
    }
    try {
      write(folder);
    } catch (IOException e) {
      return List.of(
          Finding.error(
              FOLDER + " cannot be written: " + e,
              USE,
              "give this user the right to write there (mode 1777), or free space"));
    }
    return size(folder);
  }

  private static void write(Path folder) throws IOException {
    Path file = Files.createTempFile(folder, "nccl4j-doctor-", "");
    try {
      Files.write(file, new byte[4096]);
    } finally {
      Files.delete(file);
    }
  }

  private List<Finding> size(Path folder) {
    try {
      FileStore store = Files.getFileStore(folder);
      if (store.getUsableSpace() >= wanted) {
        return List.of();
      }
      return List.of(
          Finding.warning(
              "%s has %s free of %s; %s or more is advised"
                  .formatted(
                      FOLDER,
                      Bytes.text(store.getUsableSpace()),
                      Bytes.text(store.getTotalSpace()),
                      Bytes.text(wanted)),
              USE + ", with several MiB for each pair of ranks",
              REMEDY));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
