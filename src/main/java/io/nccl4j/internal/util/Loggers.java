package io.nccl4j.internal.util;

import java.util.ServiceLoader;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.apache.logging.log4j.simple.SimpleLoggerContextFactory;
import org.apache.logging.log4j.spi.LoggerContext;
import org.apache.logging.log4j.spi.Provider;

/**
 * Finds loggers. The first look-up in a process initializes log4j; an interrupt during that would
 * leave its classes unusable for good, so it happens in a thread that nobody interrupts.
 *
 * <p>If the program has no log4j implementation, errors go to stderr: log4j's own fall-back does
 * that too, but it begins with an error about the missing implementation.
 */
public final class Loggers {
  private static volatile LoggerContext context;

  private Loggers() {}

  /** Returns the logger that is named after a class. */
  public static Logger of(Class<?> type) {
    // By the class, not its name: for a name, log4j would look for its caller on the stack.
    return context().getLogger(type);
  }

  /** Returns the logger with a name. */
  public static Logger of(String name) {
    return context().getLogger(name);
  }

  private static LoggerContext context() {
    LoggerContext known = context;
    if (known != null) {
      return known;
    }
    FutureTask<LoggerContext> first = new FutureTask<>(Loggers::newContext);
    Thread.ofPlatform().daemon().name("nccl4j-logging").start(first);
    try {
      known = Interrupts.getUninterruptibly(first::get);
    } catch (ExecutionException e) {
      throw new IllegalStateException("log4j cannot be initialized", e.getCause());
    }
    context = known;
    return known;
  }

  private static LoggerContext newContext() {
    ClassLoader own = Loggers.class.getClassLoader();
    boolean implemented =
        ServiceLoader.load(Provider.class).stream().findAny().isPresent()
            || ServiceLoader.load(Provider.class, own).stream().findAny().isPresent()
            || System.getProperty("log4j.provider") != null;
    return implemented
        ? LogManager.getContext(own, false)
        : SimpleLoggerContextFactory.INSTANCE.getContext(Loggers.class.getName(), own, null, false);
  }
}
