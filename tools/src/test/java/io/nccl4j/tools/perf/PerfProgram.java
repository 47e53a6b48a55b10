package io.nccl4j.tools.perf;

import io.nccl4j.fixtures.programs.FinishedProgram;
import java.util.List;

/** The command as a process of its own. */
public final class PerfProgram {
  private PerfProgram() {}

  /** Returns what starts the command, but for its arguments. */
  public static List<String> command() {
    return FinishedProgram.java(Perf.class.getName());
  }
}
