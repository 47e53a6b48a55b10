package io.nccl4j.internal.util;

import java.util.List;

/** Does several steps although some fail, and keeps what failed. */
public final class CloseAll {
  private CloseAll() {}

  /**
   * Does all steps; then throws the first failure, if any, with the later ones suppressed in it.
   */
  public static void all(List<Runnable> steps) {
    Throwable first = null;
    for (Runnable step : steps) {
      try {
        step.run();
      } catch (RuntimeException | Error failure) {
        if (first == null) {
          first = failure;
        } else {
          suppress(first, failure);
        }
      }
    }
    if (first instanceof Error error) {
      throw error;
    }
    if (first != null) {
      throw (RuntimeException) first;
    }
  }

  /** Does a step after a failure; what it throws is suppressed in that failure. */
  public static void after(Throwable failure, Runnable step) {
    try {
      step.run();
    } catch (RuntimeException | Error another) {
      suppress(failure, another);
    }
  }

  /**
   * Adds a failure to an earlier one. They can be the same: where there is no memory for another
   * OutOfMemoryError, Java throws one that it has kept for that.
   */
  public static void suppress(Throwable failure, Throwable another) {
    if (another != failure) {
      failure.addSuppressed(another);
    }
  }
}
