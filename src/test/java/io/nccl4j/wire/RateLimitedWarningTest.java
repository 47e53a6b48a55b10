package io.nccl4j.wire;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class RateLimitedWarningTest {
  private final AtomicLong now = new AtomicLong(Long.MAX_VALUE - 5);
  private final RateLimitedWarning warning = new RateLimitedWarning(now::get);
  private final List<Long> logged = new ArrayList<>();

  private void event(long secondsLater) {
    now.addAndGet(TimeUnit.SECONDS.toNanos(secondsLater));
    warning.log(logged::add);
  }

  @Test
  void eventsOfOneMinuteAreLoggedOnceWithTheirNumber() {
    event(0);
    event(1);
    event(58);
    assertEquals(List.of(1L), logged);
    event(1);
    event(59);
    event(1);
    assertEquals(List.of(1L, 3L, 2L), logged);
  }

  @Test
  void failedLoggerIsTriedAgainWithTheNextEvent() {
    warning.log(
        count -> {
          throw new OutOfMemoryError("thrown by a test");
        });
    event(1);
    assertEquals(List.of(2L), logged);
  }
}
