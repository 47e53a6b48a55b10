package io.nccl4j.plugin;

import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.internal.ffm.NativeEnvironment;
import io.nccl4j.internal.ffm.NativeLibrary;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.util.List;

/** The program of {@link RealEnvironmentTest}: makes an id with an installed environment. */
public final class EnvironmentUser {
  private EnvironmentUser() {}

  /**
   * Sets the variables NAME=VALUE, and prints what NCCL asked for; {@code late}: after loading;
   * {@code child}: without an installation; {@code parent}: then starts a child.
   */
  public static void main(String[] arguments) throws IOException, InterruptedException {
    NcclEnvironment environment = new NcclEnvironment();
    try {
      for (String argument : arguments) {
        String[] parts = argument.split("=", 2);
        if (argument.equals("late")) {
          NativeLibrary.NCCL.load();
        } else if (argument.equals("child")) {
          NativeLibrary.NCCL.load();
          System.out.println("inherited " + NativeEnvironment.get("NCCL_ENV_PLUGIN").isPresent());
          System.out.println("result " + makeId());
          return;
        } else if (!argument.equals("parent")) {
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
    System.out.println("result " + makeId());
    System.out.println("version " + environment.ncclVersion().orElseThrow());
    environment.asked().forEach(name -> System.out.println("asked " + name));
    if (List.of(arguments).contains("parent")) {
      // Without a look at its environment, this child inherits that of C.
      List<String> command =
          FinishedProgram.java(
              "-Dio.nccl4j.nccl.library=" + Requirement.library("nccl"),
              EnvironmentUser.class.getName(),
              "child");
      System.out.println("child " + new ProcessBuilder(command).inheritIO().start().waitFor());
    }
  }

  private static int makeId() {
    try (Arena arena = Arena.ofConfined()) {
      return nccl_h.ncclGetUniqueId(ncclUniqueId.allocate(arena));
    }
  }
}
