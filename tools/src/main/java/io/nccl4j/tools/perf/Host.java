package io.nccl4j.tools.perf;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** This process's host. */
final class Host {
  private Host() {}

  /** Returns the host's name up to the first dot, without a network lookup. */
  static String name() {
    String name;
    try {
      name = Files.readString(Path.of("/proc/sys/kernel/hostname")).strip();
    } catch (IOException e) {
      name = System.getenv().getOrDefault("HOSTNAME", "localhost");
    }
    int dot = name.indexOf('.');
    return dot < 0 ? name : name.substring(0, dot);
  }
}
