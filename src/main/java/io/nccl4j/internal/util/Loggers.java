package io.nccl4j.internal.util;

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
    if (!initialized) {
      Thread initializing =
          Thread.ofPlatform()
              .daemon()
              .name("nccl4j-logging")
              .start(() -> LogManager.getLogger(name));
      Interrupts.awaitUninterruptibly(initializing::join);
      initialized = true;
    }
    return LogManager.getLogger(name);
  }
}
