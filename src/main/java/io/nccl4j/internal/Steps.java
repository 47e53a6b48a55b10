package io.nccl4j.internal;

import java.util.List;

/** What is to be done in order, whatever fails on the way: the rest is done all the same. */
public final class Steps {
  private Steps() {}

  /** Does everything; then throws the first failure, if any, the later ones suppressed in it. */
  public static void all(List<Runnable> steps) {
    Throwable first = null;
    for (Runnable step : steps) {
      try {
        step.run();
      } catch (RuntimeException | Error failure) {
        if (first == null) {
          first = failure;
        } else if (first != failure) {
          first.addSuppressed(failure);
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

  /** Does something after a failure; what fails in it too is suppressed in that. */
  public static void after(Throwable failure, Runnable step) {
    try {
      step.run();
    } catch (RuntimeException | Error another) {
      if (another != failure) {
        failure.addSuppressed(another);
      }
    }
  }
}
