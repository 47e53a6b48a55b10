package io.nccl4j.internal.util;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class BackoffTest {
  /** The duration of a poll and its pause without a sleep. */
  private static final long POLL_NANOS = 500;

  /** How much longer than requested a sleep takes on Linux, rounded up. */
  private static final long OVERSLEEP_NANOS = 80_000;

  private static final Deadline LATER = Deadline.after(Duration.ofHours(1));

  private long longestSleep;
  private int polls;

  /**
   * Simulates a wait of a given duration, in a time that only polls and sleeps advance. Returns the
   * delay until its end is detected.
   */
  private long overshoot(Backoff backoff, Duration duration) {
    long waited = 0;
    while (waited < duration.toNanos()) {
      polls++;
      waited += POLL_NANOS;
      long sleep = backoff.sleepNanos(waited);
      if (sleep > 0) {
        waited += sleep + OVERSLEEP_NANOS;
        longestSleep = Math.max(longestSleep, sleep + OVERSLEEP_NANOS);
      }
    }
    return waited - duration.toNanos();
  }

  @ParameterizedTest
  @ValueSource(longs = {40, 100, 130, 400, 800, 1000, 2000, 6400, 13_000, 51_000, 400_000})
  void endIsDetectedWithinTwoPercent(long micros) {
    long nanos = micros * 1000;
    long overshoot = overshoot(Backoff.betweenQueries(LATER), Duration.ofNanos(nanos));
    assertTrue(
        overshoot <= nanos / 50 + POLL_NANOS,
        () -> "noticed %.1f us after %d us".formatted(overshoot / 1e3, micros));
  }

  @Test
  void longWaitMostlySleeps() {
    overshoot(Backoff.betweenQueries(LATER), Duration.ofSeconds(20));
    assertTrue(polls < 40_000, () -> polls + " polls");
    assertTrue(longestSleep <= 1_000_000 + OVERSLEEP_NANOS, () -> longestSleep + " ns");
  }

  @Test
  void pausesGrowFromShortestToLongest() {
    Backoff backoff = Backoff.betweenAttempts(LATER);
    assertEquals(9_900_000, backoff.sleepNanos(0));
    assertEquals(39_900_000, backoff.sleepNanos(40_000_000));
    assertEquals(249_900_000, backoff.sleepNanos(60_000_000_000L));
  }

  @Test
  void pauseEndsWithTheDeadline() throws InterruptedException {
    Deadline soon = Deadline.after(Duration.ofMillis(30));
    Backoff backoff = Backoff.betweenAttempts(soon);
    while (backoff.pause()) {
      assertTrue(++polls <= 3, "the first pauses are of 10 ms");
    }
    assertTrue(soon.passed());
  }

  @Test
  void interruptedThreadStopsWaitingOnceItSleeps() {
    Backoff backoff = Backoff.betweenQueries(LATER);
    Thread.currentThread().interrupt();
    assertThrows(
        InterruptedException.class,
        () -> {
          while (backoff.pause()) {}
        });
    assertFalse(Thread.interrupted());
  }
}
