package io.nccl4j.tools.perf;

/** What the command answers to whoever started it. */
final class ExitStatus {
  /** Everything ran, and all data that was checked was right. */
  static final int OK = 0;

  /** NCCL, CUDA, the reference backend or the machine failed. */
  static final int FAILED = 1;

  /** The command line asks for what cannot be. */
  static final int BAD_ARGUMENTS = 2;

  /** Everything ran, and some data was wrong. */
  static final int WRONG_DATA = 3;

  /** A time-out ended the run. */
  static final int TIMED_OUT = 4;

  private ExitStatus() {}
}
