package io.nccl4j.internal.util;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/**
 * The checks of arguments that more than one class makes. Messages name argument, value and rule.
 */
public final class Arguments {
  private Arguments() {}

  /** Returns the value; throws if it is less than the least allowed. */
  public static int atLeast(int value, String argument, int least) {
    return (int) atLeast((long) value, argument, least);
  }

  /** Returns the value; throws if it is less than the least allowed. */
  public static long atLeast(long value, String argument, long least) {
    if (value < least) {
      throw new IllegalArgumentException(
          argument + " is " + value + "; it must be " + least + " or more");
    }
    return value;
  }

  /** Returns the value; throws if it is not between two others or one of them. */
  public static int inRange(int value, String argument, int least, int most) {
    if (value < least || value > most) {
      throw new IllegalArgumentException(
          argument + " is " + value + "; it must be from " + least + " to " + most);
    }
    return value;
  }

  /** Throws if the duration is null, zero or negative. */
  public static void positive(Duration value, String argument) {
    Objects.requireNonNull(value, argument);
    if (value.isNegative() || value.isZero()) {
      throw new IllegalArgumentException(argument + " is " + value + "; it must be positive");
    }
  }

  /** Throws if the list is null or has null in it. */
  public static void noNulls(List<?> list, String argument) {
    copyOf(list, argument);
  }

  /** Returns an immutable copy; throws if the list is null or has null in it. */
  public static <T> List<T> copyOf(List<T> list, String argument) {
    // Immutable lists refuse to look for null; a copy of them does not.
    List<T> copy = new ArrayList<>(Objects.requireNonNull(list, argument));
    int index = copy.indexOf(null);
    if (index >= 0) {
      throw new NullPointerException(argument + " has a null element, at index " + index);
    }
    return List.copyOf(copy);
  }
}
