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

/** What a class logs as a warning or worse while this is open. */
public final class LogLines implements AutoCloseable {
  static {
    // Only the API is a dependency of the module.
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

  /** Begins to listen to what a class logs. */
  public LogLines(Class<?> type) {
    this(type.getName());
  }

  /** Begins to listen to a logger. */
  public LogLines(String name) {
    logger = (Logger) LogManager.getLogger(name);
    before = logger.getLevel();
    appender.start();
    logger.addAppender(appender);
    // Adding an appender sets the level anew.
    logger.setLevel(Level.WARN);
  }

  /** Returns the messages so far. */
  public List<String> lines() {
    return List.copyOf(lines);
  }

  /** Returns the exceptions that came with messages so far. */
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
