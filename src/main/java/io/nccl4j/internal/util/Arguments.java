package io.nccl4j.internal.util;

import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Objects;

/** Argument checks. Messages name the argument, its value and the rule. */
public final class Arguments {
  private Arguments() {}

  /** Returns the value, or throws if it is less than a minimum. */
  public static int atLeast(int value, String argument, int min) {
    return (int) atLeast((long) value, argument, min);
  }

  /** Returns the value, or throws if it is less than a minimum. */
  public static long atLeast(long value, String argument, long min) {
    if (value < min) {
      throw new IllegalArgumentException(
          argument + " is " + value + "; it must be " + min + " or more");
    }
    return value;
  }

  /** Returns the value, or throws if it is outside a range; both bounds are inclusive. */
  public static int inRange(int value, String argument, int min, int max) {
    if (value < min || value > max) {
      throw new IllegalArgumentException(
          argument + " is " + value + "; it must be from " + min + " to " + max);
    }
    return value;
  }

  /**
   * Returns the path with a name, or throws if there can be none. Java supports only file names in
   * the locale's charset, which is ASCII for the C locale.
   */
  public static Path path(String value, String argument) {
    try {
      return Path.of(value);
    } catch (InvalidPathException e) {
      throw new IllegalArgumentException(
          argument
              + " is '"
              + value
              + "', which cannot be named in this locale; set LC_ALL=C.UTF-8",
          e);
    }
  }

  /** Throws if the duration is null, zero or negative. */
  public static void positive(Duration value, String argument) {
    Objects.requireNonNull(value, argument);
    if (value.isNegative() || value.isZero()) {
      throw new IllegalArgumentException(argument + " is " + value + "; it must be positive");
    }
  }

  /** Throws unless a list contains every rank from 0 once. */
  public static void everyRankOnce(List<Integer> order, String argument) {
    List<Integer> ranks = copyOf(order, argument);
    if (ranks.isEmpty()) {
      throw new IllegalArgumentException(argument + " is empty; it must contain every rank once");
    }
    BitSet seen = new BitSet();
    for (int rank : ranks) {
      if (rank < 0 || rank >= ranks.size() || seen.get(rank)) {
        throw new IllegalArgumentException(
            "%s is %s; it must contain every rank from 0 to %d once"
                .formatted(argument, ranks, ranks.size() - 1));
      }
      seen.set(rank);
    }
  }

  /** Throws if the list is null or has a null element. */
  public static void noNulls(List<?> list, String argument) {
    copyOf(list, argument);
  }

  /** Returns an immutable copy, or throws if the list is null or has a null element. */
  public static <T> List<T> copyOf(List<T> list, String argument) {
    // Immutable lists throw on indexOf(null); a copy does not.
    List<T> copy = new ArrayList<>(Objects.requireNonNull(list, argument));
    int index = copy.indexOf(null);
    if (index >= 0) {
      throw new NullPointerException(argument + " has a null element, at index " + index);
    }
    return List.copyOf(copy);
  }
}
