package io.nccl4j.internal.util;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.Test;

class DeadlineTest {
  @Test
  void passedDeadlineHasOneMillisecondForMonitors() {
    Deadline deadline = Deadline.after(Duration.ZERO);
    assertTrue(deadline.passed());
    assertTrue(deadline.remainingNanos() <= 0);
    assertEquals(1, deadline.remainingMillis());
  }

  @Test
  void longestDurationDoesNotOverflow() {
    Duration longest = Duration.ofSeconds(Long.MAX_VALUE);
    Deadline deadline = Deadline.after(longest);
    assertFalse(deadline.passed());
    assertEquals(longest, deadline.timeout());
    assertEquals(Integer.MAX_VALUE, deadline.remainingMillis());
  }

  @Test
  void earlierDeadlineApplies() {
    Deadline hour = Deadline.after(Duration.ofHours(1));
    assertEquals(Duration.ofMinutes(1), hour.orAfter(Duration.ofMinutes(1)).timeout());
    assertTrue(hour.orAfter(Duration.ofHours(2)).timeout().compareTo(Duration.ofHours(1)) <= 0);
  }
}
