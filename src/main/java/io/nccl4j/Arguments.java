package io.nccl4j;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/**
 * The checks that more than one class of the contract makes of its arguments. Messages name
 * argument, value and rule.
 */
final class Arguments {
  private Arguments() {}

  static int notNegative(int value, String argument) {
    if (value < 0) {
      throw new IllegalArgumentException(argument + " is " + value + "; it must be 0 or more");
    }
    return value;
  }

  static void rankWithin(int value, int size, String argument) {
    if (value < 0 || value >= size) {
      throw new IllegalArgumentException(
          argument + " is " + value + "; it must be from 0 to " + (size - 1));
    }
  }

  static void noNulls(List<?> list, String argument) {
    // Immutable lists refuse to look for null; a copy of them does not.
    int index = new ArrayList<>(Objects.requireNonNull(list, argument)).indexOf(null);
    if (index >= 0) {
      throw new NullPointerException(argument + " has a null element, at index " + index);
    }
  }

  static void sameType(Buffer buffer, String argument, Buffer other, String otherArgument) {
    if (buffer.type() != other.type()) {
      throw new IllegalArgumentException(
          argument + " has type " + buffer.type() + "; " + otherArgument + " has " + other.type());
    }
  }
}
