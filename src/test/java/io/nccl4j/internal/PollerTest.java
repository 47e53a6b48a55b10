package io.nccl4j.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

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

/** A watcher goes on, or begins again, whatever fails. */
class PollerTest {
  static {
    // Only the API is a dependency of the module.
    PollerTest.class.getModule().addReads(LogManager.getContext(false).getClass().getModule());
  }

  private static final long SOON = 20;

  private final ConcurrentLinkedQueue<CountDownLatch> waiting = new ConcurrentLinkedQueue<>();
  private final AtomicInteger looks = new AtomicInteger();

  /** Has the next look end the wait. */
  private CountDownLatch wait(Poller watcher) {
    CountDownLatch latch = new CountDownLatch(1);
    waiting.add(latch);
    watcher.watch();
    return latch;
  }

  private void endAll() {
    looks.incrementAndGet();
    for (CountDownLatch latch = waiting.poll(); latch != null; latch = waiting.poll()) {
      latch.countDown();
    }
  }

  private static Thread daemon(Runnable work) {
    return Thread.ofPlatform().daemon().unstarted(work);
  }

  @Test
  void whereTheThreadCannotStartTheCallerIsToldAndTheNextOneTriesAgain() throws Exception {
    AtomicInteger made = new AtomicInteger();
    Poller watcher =
        new Poller(
            work -> made.incrementAndGet() == 1 ? new Unstartable() : daemon(work),
            1,
            this::endAll,
            waiting::isEmpty);
    assertEquals(
        Unstartable.REASON, assertThrows(OutOfMemoryError.class, () -> wait(watcher)).getMessage());
    CountDownLatch second = wait(watcher);
    assertTrue(second.await(SOON, TimeUnit.SECONDS));
    assertTrue(waiting.isEmpty());
    assertEquals(2, made.get());
  }

  /** A thread for which the system has no room. */
  private static final class Unstartable extends Thread {
    static final String REASON = "unable to create native thread";

    @Override
    public void start() {
      throw new OutOfMemoryError(REASON);
    }
  }

  @Test
  void aLookThatFailsIsFollowedByAnother() throws Exception {
    Poller watcher =
        new Poller(
            PollerTest::daemon,
            1,
            () -> {
              if (looks.incrementAndGet() <= 2) {
                throw new OutOfMemoryError("in look " + looks);
              }
              endAll();
            },
            waiting::isEmpty);
    assertTrue(wait(watcher).await(SOON, TimeUnit.SECONDS));
  }

  @Test
  void whoComesWhenNothingIsLeftIsLookedAtToo() throws Exception {
    Poller watcher = new Poller(PollerTest::daemon, 1, this::endAll, waiting::isEmpty);
    for (int i = 0; i < 200; i++) {
      assertTrue(wait(watcher).await(SOON, TimeUnit.SECONDS), "wait " + i);
    }
  }

  @Test
  void questionThatFailsIsAskedAgain() throws Exception {
    AtomicInteger threads = new AtomicInteger();
    AtomicInteger asked = new AtomicInteger();
    Poller watcher =
        new Poller(
            work -> {
              threads.incrementAndGet();
              return daemon(work);
            },
            1,
            () -> {
              if (asked.get() > 0) {
                endAll();
              }
            },
            () -> {
              if (asked.incrementAndGet() == 1) {
                throw new StackOverflowError("once");
              }
              return waiting.isEmpty();
            });
    assertTrue(wait(watcher).await(SOON, TimeUnit.SECONDS), "the thread has ended");
    assertEquals(1, threads.get());
  }

  @Test
  void failureThatCannotBeLoggedEndsNoWatch() throws Exception {
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
    // Adding an appender sets the level anew.
    logger.setLevel(Level.WARN);
    try {
      Poller watcher =
          new Poller(
              PollerTest::daemon,
              1,
              () -> {
                if (looks.incrementAndGet() <= 2) {
                  throw new OutOfMemoryError("in look " + looks);
                }
                endAll();
              },
              waiting::isEmpty);
      assertTrue(wait(watcher).await(SOON, TimeUnit.SECONDS), "the thread has ended");
    } finally {
      logger.removeAppender(full);
      logger.setLevel(before);
      full.stop();
    }
  }
}
