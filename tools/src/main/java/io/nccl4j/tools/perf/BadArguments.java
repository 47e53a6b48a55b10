package io.nccl4j.tools.perf;

/** Thrown for invalid arguments, with a message of one line. */
final class BadArguments extends RuntimeException {
  private static final long serialVersionUID = 1;

  BadArguments(String message) {
    super(message);
  }
}
