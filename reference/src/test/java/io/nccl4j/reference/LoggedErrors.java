package io.nccl4j.reference;

import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.Appender;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Property;

/** Collects the errors that are logged while this is open: unexpected exceptions. */
final class LoggedErrors implements AutoCloseable {
  static {
    // The module depends on the API of Log4j only.
    LoggedErrors.class.getModule().addReads(LogManager.getContext(false).getClass().getModule());
  }

  private final ConcurrentLinkedQueue<AssertionError> errors = new ConcurrentLinkedQueue<>();
  private final Logger logger = (Logger) LogManager.getLogger("io.nccl4j");
  private final Level before = logger.getLevel();
  private final Appender appender =
      new AbstractAppender("errors", null, null, true, Property.EMPTY_ARRAY) {
        @Override
        public void append(LogEvent event) {
          String message = event.getMessage().getFormattedMessage();
          AssertionError logged = new AssertionError("logged: " + message, event.getThrown());
          if (event.getThrown() != null) {
            logged.setStackTrace(event.getThrown().getStackTrace());
          }
          errors.add(logged);
        }
      };

  LoggedErrors() {
    appender.start();
    logger.addAppender(appender);
    // Adding an appender resets the level.
    logger.setLevel(Level.ERROR);
    logger.setAdditive(false);
  }

  /** Throws the first error since the last check, if there is one. */
  void check() {
    AssertionError first = errors.poll();
    errors.clear();
    if (first != null) {
      throw first;
    }
  }

  @Override
  public void close() {
    logger.removeAppender(appender);
    logger.setAdditive(true);
    logger.setLevel(before);
    appender.stop();
  }
}
