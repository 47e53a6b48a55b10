package io.nccl4j.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.CancellationException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Waits in a time that only looks and sleeps advance. */
class BackoffTest {
  /** What a look and its pause take without a sleep. */
  private static final long LOOK_NANOS = 500;

  /** How much longer than asked a sleep takes on Linux, or a little more. */
  private static final long OVERSLEEP_NANOS = 80_000;

  private long now = 7_000_000_000L;
  private long longestSleep;
  private int looks;

  private void sleep(long nanos) {
    assertTrue(nanos > 0, "a sleep of " + nanos + " ns");
    now += nanos + OVERSLEEP_NANOS;
    longestSleep = Math.max(longestSleep, nanos + OVERSLEEP_NANOS);
  }

  private Backoff backoff(Duration timeout) {
    return new Backoff("f", timeout, () -> now, this::sleep);
  }

  /** Waits for what takes so long; returns how much later its end is noticed. */
  private long overshoot(Duration duration) {
    Backoff backoff = backoff(Duration.ofHours(1));
    long end = now + duration.toNanos();
    while (now < end) {
      looks++;
      now += LOOK_NANOS;
      assertTrue(backoff.pause());
    }
    return now - end;
  }

  @ParameterizedTest
  @ValueSource(longs = {40, 100, 130, 400, 800, 1000, 2000, 6400, 13_000, 51_000, 400_000})
  void endIsNoticedWithinTwoPercent(long micros) {
    long nanos = micros * 1000;
    long overshoot = overshoot(Duration.ofNanos(nanos));
    assertTrue(
        overshoot <= nanos / 50 + LOOK_NANOS,
        () -> "noticed %.1f us after %d us".formatted(overshoot / 1e3, micros));
  }

  @Test
  void longWaitMostlySleeps() {
    overshoot(Duration.ofSeconds(20));
    assertTrue(looks < 40_000, () -> looks + " looks");
    assertTrue(longestSleep <= 1_000_000 + OVERSLEEP_NANOS, () -> longestSleep + " ns");
  }

  @Test
  void pauseAfterTheTimeoutSaysSo() {
    Backoff backoff = backoff(Duration.ofMillis(3));
    long start = now;
    do {
      now += LOOK_NANOS;
    } while (backoff.pause());
    assertEquals(3.0, (now - start) / 1e6, 0.1);
  }

  @Test
  void interruptedThreadIsCancelled() {
    Backoff backoff = backoff(Duration.ofHours(1));
    Thread.currentThread().interrupt();
    try {
      assertThrows(
          CancellationException.class,
          () -> {
            while (backoff.pause()) {
              now += LOOK_NANOS;
            }
          });
    } finally {
      assertTrue(Thread.interrupted());
    }
  }
}
