package io.nccl4j.tools.perf;

/** Says what arguments cannot be, in one line. */
final class BadArguments extends RuntimeException {
  private static final long serialVersionUID = 1;

  BadArguments(String message) {
    super(message);
  }

  /** Checks a number that has a least value. */
  static void checkAtLeast(int least, int value, String flag) {
    if (value < least) {
      throw new BadArguments(flag + " is " + value + "; it must be " + least + " or more");
    }
  }

  /** Checks a number that is at least 0 and at most another. */
  static void checkAtMost(int most, int value, String flag) {
    if (value < 0 || value > most) {
      throw new BadArguments(flag + " is " + value + "; it must be from 0 to " + most);
    }
  }
}
