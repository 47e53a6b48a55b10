package io.nccl4j.tools.cli;

/** Formats a number with a noun: {@code 1 rank}, {@code 4 ranks}. */
public final class Count {
  private Count() {}

  /**
   * {@return the number and the noun}
   *
   * @param number the number
   * @param noun the singular; the plural gets an s
   */
  public static String of(long number, String noun) {
    return number + " " + noun + (number == 1 ? "" : "s");
  }
}
