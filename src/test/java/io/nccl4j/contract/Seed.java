package io.nccl4j.contract;

import java.util.SplittableRandom;

/**
 * The seed of all random data of this run: {@code -Dtest.seed=} if given, else a new one; printed
 * either way.
 */
public final class Seed {
  // The build always sets the property, empty where nobody has chosen a seed.
  private static final long VALUE = Long.getLong("test.seed", System.nanoTime() & 0xFFFF_FFFFL);

  static {
    System.out.println("random data: -Dtest.seed=" + VALUE);
  }

  private Seed() {}

  /** Returns a source of numbers that differs by name but is the same in every run of one seed. */
  public static SplittableRandom random(String name) {
    return new SplittableRandom(VALUE * 0x9E3779B97F4A7C15L + name.hashCode());
  }

  /** Returns what to add to a failure's message, so that it can be had again. */
  public static String hint() {
    return " (-Dtest.seed=" + VALUE + ")";
  }
}
