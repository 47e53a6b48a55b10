package io.nccl4j.tools.cli;

/** How many there are of something, in words: {@code 1 rank}, {@code 4 ranks}. */
public final class Count {
  private Count() {}

  /**
   * {@return the number and the noun}
   *
   * @param number how many there are
   * @param noun what one of them is called; several get an s
   */
  public static String of(long number, String noun) {
    return number + " " + noun + (number == 1 ? "" : "s");
  }
}
