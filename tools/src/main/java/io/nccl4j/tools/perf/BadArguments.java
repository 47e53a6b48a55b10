package io.nccl4j.tools.perf;

/** Thrown for invalid arguments, with a message of one line. */
final class BadArguments extends RuntimeException {
  private static final long serialVersionUID = 1;

  BadArguments(String message) {
    super(message);
  }

  /** Checks that a value is at least {@code min}. */
  static void checkAtLeast(int min, int value, String flag) {
    if (value < min) {
      throw new BadArguments(flag + " is " + value + "; it must be " + min + " or more");
    }
  }

  /** Checks that a value is from 0 to {@code max}. */
  static void checkAtMost(int max, int value, String flag) {
    if (value < 0 || value > max) {
      throw new BadArguments(flag + " is " + value + "; it must be from 0 to " + max);
    }
  }
}
