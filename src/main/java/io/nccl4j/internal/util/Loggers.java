package io.nccl4j.internal.util;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * Finds loggers. The first look-up in a process initializes log4j; an interrupt during that would
 * leave its classes unusable for good, so it happens in a thread that nobody interrupts.
 */
public final class Loggers {
  private static volatile boolean initialized;

  private Loggers() {}

  /** Returns the logger that is named after a class. */
  public static Logger of(Class<?> type) {
    return of(type.getName());
  }

  /** Returns the logger with a name. */
  public static Logger of(String name) {
    if (initialized) {
      return LogManager.getLogger(name);
    }
    FutureTask<Logger> first = new FutureTask<>(() -> LogManager.getLogger(name));
    Thread.ofPlatform().daemon().name("nccl4j-logging").start(first);
    try {
      Logger logger = Interrupts.getUninterruptibly(first::get);
      initialized = true;
      return logger;
    } catch (ExecutionException e) {
      throw new IllegalStateException("log4j cannot be initialized", e.getCause());
    }
  }
}
