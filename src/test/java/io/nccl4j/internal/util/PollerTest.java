package io.nccl4j.internal.util;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.LogLines;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.Appender;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Property;
import org.junit.jupiter.api.Test;

/** A {@link Poller} continues or restarts after any failure. */
class PollerTest {
  static {
    // Only the API is a dependency of the module.
    PollerTest.class.getModule().addReads(LogManager.getContext(false).getClass().getModule());
  }

  private static final long SOON = 20;

  private final ConcurrentLinkedQueue<CountDownLatch> waiting = new ConcurrentLinkedQueue<>();
  private final AtomicInteger polls = new AtomicInteger();

  /** Starts a wait that the next poll ends. */
  private CountDownLatch wait(Poller poller) {
    CountDownLatch latch = new CountDownLatch(1);
    waiting.add(latch);
    poller.watch();
    return latch;
  }

  private void endAll() {
    polls.incrementAndGet();
    for (CountDownLatch latch = waiting.poll(); latch != null; latch = waiting.poll()) {
      latch.countDown();
    }
  }

  private static Thread daemon(Runnable work) {
    return Thread.ofPlatform().daemon().unstarted(work);
  }

  @Test
  void failedStartIsThrownAndRetriedByTheNextCall() throws Exception {
    AtomicInteger threads = new AtomicInteger();
    Poller poller =
        new Poller(
            work -> threads.incrementAndGet() == 1 ? new Unstartable() : daemon(work),
            1,
            this::endAll,
            waiting::isEmpty);
    assertEquals(
        Unstartable.REASON, assertThrows(OutOfMemoryError.class, () -> wait(poller)).getMessage());
    CountDownLatch second = wait(poller);
    assertTrue(second.await(SOON, TimeUnit.SECONDS));
    assertTrue(waiting.isEmpty());
    assertEquals(2, threads.get());
  }

  /** A thread that the system cannot create. */
  private static final class Unstartable extends Thread {
    static final String REASON = "unable to create native thread";

    @Override
    public void start() {
      throw new OutOfMemoryError(REASON);
    }
  }

  @Test
  void failedPollIsRepeated() throws Exception {
    Poller poller =
        new Poller(
            PollerTest::daemon,
            1,
            () -> {
              if (polls.incrementAndGet() <= 2) {
                throw new OutOfMemoryError("in poll " + polls);
              }
              endAll();
            },
            waiting::isEmpty);
    assertTrue(wait(poller).await(SOON, TimeUnit.SECONDS));
  }

  @Test
  void pollsThatKeepFailingAreLoggedOnce() throws Exception {
    try (LogLines log = new LogLines(Poller.class)) {
      Poller poller =
          new Poller(
              PollerTest::daemon,
              1,
              () -> {
                if (polls.incrementAndGet() <= 20) {
                  throw new IllegalStateException("in poll " + polls);
                }
                endAll();
              },
              waiting::isEmpty);
      assertTrue(wait(poller).await(SOON, TimeUnit.SECONDS));
      assertEquals(List.of("polling failed; the next poll is in 1 ms"), log.lines());
      assertEquals("in poll 1", log.thrown().getFirst().getMessage());
    }
  }

  @Test
  void waitAddedToAnIdlePollerIsPolled() throws Exception {
    Poller poller = new Poller(PollerTest::daemon, 1, this::endAll, waiting::isEmpty);
    for (int i = 0; i < 200; i++) {
      assertTrue(wait(poller).await(SOON, TimeUnit.SECONDS), "wait " + i);
    }
  }

  @Test
  void failedIdleCheckIsRepeated() throws Exception {
    AtomicInteger threads = new AtomicInteger();
    AtomicInteger checks = new AtomicInteger();
    Poller poller =
        new Poller(
            work -> {
              threads.incrementAndGet();
              return daemon(work);
            },
            1,
            () -> {
              if (checks.get() > 0) {
                endAll();
              }
            },
            () -> {
              if (checks.incrementAndGet() == 1) {
                throw new StackOverflowError("once");
              }
              return waiting.isEmpty();
            });
    assertTrue(wait(poller).await(SOON, TimeUnit.SECONDS), "the thread has ended");
    assertEquals(1, threads.get());
  }

  @Test
  void failureToLogDoesNotEndPolling() throws Exception {
    Logger logger = (Logger) LogManager.getLogger(Poller.class);
    Appender full =
        new AbstractAppender("full", null, null, false, Property.EMPTY_ARRAY) {
          @Override
          public void append(LogEvent event) {
            throw new OutOfMemoryError("in the log");
          }
        };
    Level before = logger.getLevel();
    full.start();
    logger.addAppender(full);
    // Adding an appender resets the level.
    logger.setLevel(Level.WARN);
    try {
      Poller poller =
          new Poller(
              PollerTest::daemon,
              1,
              () -> {
                if (polls.incrementAndGet() <= 2) {
                  throw new OutOfMemoryError("in poll " + polls);
                }
                endAll();
              },
              waiting::isEmpty);
      assertTrue(wait(poller).await(SOON, TimeUnit.SECONDS), "the thread has ended");
    } finally {
      logger.removeAppender(full);
      logger.setLevel(before);
      full.stop();
    }
  }
}
