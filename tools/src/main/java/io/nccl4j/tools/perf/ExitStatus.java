package io.nccl4j.tools.perf;

/** The exit statuses of the command. */
final class ExitStatus {
  /** Everything ran, and all checked data was right. */
  static final int OK = 0;

  /** NCCL, CUDA, the reference backend or the machine failed. */
  static final int FAILED = 1;

  /** The arguments are invalid. */
  static final int BAD_ARGUMENTS = 2;

  /** Everything ran, and some data was wrong. */
  static final int WRONG_DATA = 3;

  /** The run timed out. */
  static final int TIMED_OUT = 4;

  private ExitStatus() {}
}
