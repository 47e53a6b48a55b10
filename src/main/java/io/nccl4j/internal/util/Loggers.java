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
    initialize();
    // By the class, not its name: for a name, log4j would look for its caller on the stack.
    return LogManager.getLogger(type);
  }

  /** Returns the logger with a name. */
  public static Logger of(String name) {
    initialize();
    return LogManager.getLogger(name);
  }

  private static void initialize() {
    if (initialized) {
      return;
    }
    FutureTask<Logger> first = new FutureTask<>(LogManager::getRootLogger);
    Thread.ofPlatform().daemon().name("nccl4j-logging").start(first);
    try {
      Interrupts.awaitUninterruptibly(first::get);
      initialized = true;
    } catch (ExecutionException e) {
      throw new IllegalStateException("log4j cannot be initialized", e.getCause());
    }
  }
}
