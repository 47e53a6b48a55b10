package io.nccl4j.internal.util;

import java.util.List;

/** Runs every step even if some fail; keeps all failures. */
public final class CloseAll {
  private CloseAll() {}

  /** Runs all steps, then throws the first failure, if any, with the others suppressed. */
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

  /** Runs a step after a failure, and adds its exception to that failure as suppressed. */
  public static void after(Throwable failure, Runnable step) {
    try {
      step.run();
    } catch (RuntimeException | Error another) {
      suppress(failure, another);
    }
  }

  /**
   * Adds a failure to an earlier one as suppressed. They can be the same object: if memory is
   * exhausted, Java throws a preallocated OutOfMemoryError.
   */
  public static void suppress(Throwable failure, Throwable another) {
    if (another != failure) {
      failure.addSuppressed(another);
    }
  }
}
