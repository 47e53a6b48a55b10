package io.nccl4j.tools.perf;

import io.nccl4j.fixtures.programs.FinishedProgram;
import java.util.List;

/** Starts the command in a separate process. */
public final class PerfProgram {
  private PerfProgram() {}

  /** Returns the command line, without arguments. */
  public static List<String> command() {
    return FinishedProgram.java(Perf.class.getName());
  }
}
