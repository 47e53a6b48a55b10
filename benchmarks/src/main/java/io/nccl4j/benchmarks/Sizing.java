package io.nccl4j.benchmarks;

/**
 * The number of all-reduces of one size; the same for everything that is compared.
 *
 * @param bytes the size
 * @param warmUps the number of operations that are not timed
 * @param batches the number of timed batches; the result is their median
 * @param operations the number of consecutive all-reduces in a batch
 */
record Sizing(long bytes, int warmUps, int batches, int operations) {
  /** Parses the format of {@link #toString} and of the C programs. */
  static Sizing parse(String text) {
    String[] parts = text.split(":", -1);
    if (parts.length != 4) {
      throw new IllegalArgumentException(
          "size is '" + text + "'; it must be BYTES:WARM_UPS:BATCHES:OPERATIONS");
    }
    return new Sizing(
        Long.parseLong(parts[0]),
        Integer.parseInt(parts[1]),
        Integer.parseInt(parts[2]),
        Integer.parseInt(parts[3]));
  }

  @Override
  public String toString() {
    return bytes + ":" + warmUps + ":" + batches + ":" + operations;
  }
}
