package io.nccl4j.schedule;

/** The checks of what a schedule is for. */
final class Arguments {
  private Arguments() {}

  static void check(int ranks, long count, int elementBytes) {
    if (ranks < 1) {
      throw new IllegalArgumentException("ranks is " + ranks + "; it must be 1 or more");
    }
    if (count < 0) {
      throw new IllegalArgumentException("count is " + count + "; it must not be negative");
    }
    if (elementBytes < 1 || elementBytes > 8 || Integer.bitCount(elementBytes) != 1) {
      throw new IllegalArgumentException(
          "elementBytes is " + elementBytes + "; it must be 1, 2, 4 or 8");
    }
  }
}
