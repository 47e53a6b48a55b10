package io.nccl4j.internal.util;

import java.io.IOException;
import java.util.concurrent.CancellationException;

/** Handles interrupts of threads that wait in the library. */
public final class Interrupts {
  private Interrupts() {}

  /** A wait that an interrupt ends. */
  @FunctionalInterface
  public interface Wait<X extends Exception> {
    /** Waits until the awaited condition is met; can be repeated after an interrupt. */
    void await() throws InterruptedException, X;
  }

  /** A wait with a result. */
  @FunctionalInterface
  public interface Outcome<T, X extends Exception> {
    /** Waits for the result; can be repeated after an interrupt. */
    T get() throws InterruptedException, X;
  }

  /** Waits uninterruptibly. An interrupt is restored afterwards. */
  public static <X extends Exception> void awaitUninterruptibly(Wait<X> wait) throws X {
    getUninterruptibly(
        () -> {
          wait.await();
          return null;
        });
  }

  /** Waits for a result uninterruptibly. An interrupt is restored afterwards. */
  public static <T, X extends Exception> T getUninterruptibly(Outcome<T, X> wait) throws X {
    boolean interrupted = false;
    try {
      while (true) {
        try {
          return wait.get();
        } catch (InterruptedException e) {
          interrupted = true;
        }
      }
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** Returns the exception for an interrupted wait, and restores the interrupt status. */
  public static CancellationException cancelled(String function) {
    Thread.currentThread().interrupt();
    return new CancellationException("interrupted while waiting for " + function);
  }

  /**
   * Returns the exception for an interrupt that has ended an access to a file or a connection.
   * Clears the interrupt status, as every method that throws it does.
   */
  public static InterruptedException during(String access, IOException cause) {
    Thread.interrupted();
    InterruptedException interrupt = new InterruptedException("interrupted " + access);
    interrupt.initCause(cause);
    return interrupt;
  }

  /** Runs work that an interrupt would make fail, such as input and output; then restores it. */
  public static void defer(Runnable work) {
    boolean interrupted = Thread.interrupted();
    try {
      work.run();
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }
}
