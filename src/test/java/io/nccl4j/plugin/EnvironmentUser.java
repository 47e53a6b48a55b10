package io.nccl4j.plugin;

import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.ffm.NativeLibrary;
import java.lang.foreign.Arena;

/** The program of {@link RealEnvironmentTest}: makes an id with an installed environment. */
public final class EnvironmentUser {
  private EnvironmentUser() {}

  /** Sets the variables NAME=VALUE, and prints what NCCL asked for; {@code late}: after loading. */
  public static void main(String[] arguments) {
    NcclEnvironment environment = new NcclEnvironment();
    try {
      for (String argument : arguments) {
        String[] parts = argument.split("=", 2);
        if (argument.equals("late")) {
          NativeLibrary.NCCL.load();
        } else {
          environment.set(parts[0], parts[1]);
        }
      }
      environment.install();
    } catch (IllegalStateException e) {
      System.out.println("refused: " + e.getMessage());
      return;
    }
    NativeLibrary.NCCL.load();
    System.out.println("before " + environment.ncclVersion() + " " + environment.asked());
    try (Arena arena = Arena.ofConfined()) {
      System.out.println("result " + nccl_h.ncclGetUniqueId(ncclUniqueId.allocate(arena)));
    }
    System.out.println("version " + environment.ncclVersion().orElseThrow());
    environment.asked().forEach(name -> System.out.println("asked " + name));
  }
}
