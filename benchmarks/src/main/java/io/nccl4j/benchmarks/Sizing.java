package io.nccl4j.benchmarks;

/**
 * How often an all-reduce of one size is carried out: the same for whatever is compared.
 *
 * @param bytes the size
 * @param warmUps operations that are not timed
 * @param batches what is timed; the result is their median
 * @param operations all-reduces of a batch, one after the other
 */
record Sizing(long bytes, int warmUps, int batches, int operations) {
  /** Reads what {@code toString} and the C programs write. */
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
