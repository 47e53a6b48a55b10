package io.nccl4j.ffm;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.Appender;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Property;

/** Collects a logger's messages of level {@code WARN} and above until it is closed. */
public final class LogLines implements AutoCloseable {
  static {
    // The module depends on the API of Log4j only.
    LogLines.class.getModule().addReads(LogManager.getContext(false).getClass().getModule());
  }

  private final List<String> lines = new CopyOnWriteArrayList<>();
  private final List<Throwable> thrown = new CopyOnWriteArrayList<>();
  private final Logger logger;
  private final Level before;
  private final Appender appender =
      new AbstractAppender("lines", null, null, true, Property.EMPTY_ARRAY) {
        @Override
        public void append(LogEvent event) {
          if (event.getThrown() != null) {
            thrown.add(event.getThrown());
          }
          lines.add(event.getMessage().getFormattedMessage());
        }
      };

  /** Attaches to the logger of a class. */
  public LogLines(Class<?> type) {
    this(type.getName());
  }

  /** Attaches to a logger. */
  public LogLines(String name) {
    logger = (Logger) LogManager.getLogger(name);
    before = logger.getLevel();
    appender.start();
    logger.addAppender(appender);
    // After the appender: adding one changes the level.
    logger.setLevel(Level.WARN);
  }

  /** Returns the messages logged so far. */
  public List<String> lines() {
    return List.copyOf(lines);
  }

  /** Returns the exceptions logged so far. */
  public List<Throwable> thrown() {
    return List.copyOf(thrown);
  }

  @Override
  public void close() {
    logger.removeAppender(appender);
    logger.setLevel(before);
    appender.stop();
  }
}
