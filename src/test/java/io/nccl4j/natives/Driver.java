package io.nccl4j.natives;

import java.nio.file.Files;
import java.nio.file.Path;

/** Whether there is an NVIDIA driver, found out without nccl4j. */
public final class Driver {
  private Driver() {}

  /** Looks for the driver's devices. */
  public static boolean present() {
    return Files.exists(Path.of("/dev/nvidiactl")) || Files.exists(Path.of("/dev/dxg"));
  }
}
