package io.nccl4j.nccl;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/** The check of lists that only calls of this backend take. */
final class Arguments {
  private Arguments() {}

  /** Returns an immutable copy; throws if the list is null or has null in it. */
  static <T> List<T> copyOf(List<T> list, String argument) {
    // Immutable lists refuse to look for null.
    List<T> copy = new ArrayList<>(Objects.requireNonNull(list, argument));
    int index = copy.indexOf(null);
    if (index >= 0) {
      throw new NullPointerException(argument + " has a null element, at index " + index);
    }
    return List.copyOf(copy);
  }
}
