package io.nccl4j.reference;

import java.util.concurrent.CountDownLatch;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.Appender;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Property;

/** Blocks the threads that log with the logger of a class while this is open. */
final class BlockedLogger implements AutoCloseable {
  static {
    // The module depends on the API of Log4j only.
    BlockedLogger.class.getModule().addReads(LogManager.getContext(false).getClass().getModule());
  }

  private final CountDownLatch reached = new CountDownLatch(1);
  private final CountDownLatch closed = new CountDownLatch(1);
  private final Logger logger;
  private final Level before;
  private final Appender appender =
      new AbstractAppender("blocked", null, null, true, Property.EMPTY_ARRAY) {
        @Override
        public void append(LogEvent event) {
          reached.countDown();
          try {
            closed.await();
          } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
          }
        }
      };

  BlockedLogger(Class<?> type) throws InterruptedException {
    logger = (Logger) LogManager.getLogger(type);
    while (!logger.getContext().isStarted()) {
      // Another thread starts it, which would remove the appender.
      Thread.sleep(5);
    }
    before = logger.getLevel();
    appender.start();
    logger.addAppender(appender);
    // Adding an appender resets the level.
    logger.setLevel(Level.WARN);
  }

  /** Returns a latch that is released when a thread is blocked. */
  CountDownLatch reached() {
    return reached;
  }

  @Override
  public void close() {
    closed.countDown();
    logger.removeAppender(appender);
    logger.setLevel(before);
    appender.stop();
  }
}
