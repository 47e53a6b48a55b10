package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Optional;
import java.util.OptionalInt;
import org.junit.jupiter.api.Test;

class CommunicatorConfigTest {
  private final CommunicatorConfig defaults = CommunicatorConfig.defaults();

  @Test
  void defaultsAreAsDocumented() {
    assertTrue(defaults.blocking());
    assertEquals(Optional.empty(), defaults.timeout());
    assertEquals(OptionalInt.empty(), defaults.device());
    assertEquals("", defaults.name());
  }

  @Test
  void withersReturnChangedCopies() {
    CommunicatorConfig changed =
        defaults
            .withBlocking(false)
            .withTimeout(Duration.ofMillis(5))
            .withDevice(3)
            .withName("ring");
    assertFalse(changed.blocking());
    assertEquals(Optional.of(Duration.ofMillis(5)), changed.timeout());
    assertEquals(OptionalInt.of(3), changed.device());
    assertEquals("ring", changed.name());
    assertEquals(
        "CommunicatorConfig[blocking=false, timeout=PT0.005S, timeoutAction=ABORT, device=OptionalInt[3], name=ring]",
        changed.toString());
    assertNotEquals(defaults, changed);
    assertTrue(defaults.blocking(), "the original is unchanged");
    assertEquals(defaults, defaults.withBlocking(false).withBlocking(true));
  }

  @Test
  void timeoutMustBePositive() {
    for (Duration bad : new Duration[] {Duration.ZERO, Duration.ofNanos(-1)}) {
      Throwable thrown =
          assertThrows(IllegalArgumentException.class, () -> defaults.withTimeout(bad));
      assertEquals("timeout is " + bad + "; it must be positive", thrown.getMessage());
    }
  }

  @Test
  void timeoutIsAtMost36500Days() {
    assertEquals(
        Optional.of(Duration.ofDays(36_500)),
        defaults.withTimeout(Duration.ofDays(36_500)).timeout());
    Duration bad = Duration.ofSeconds(Long.MAX_VALUE);
    Throwable thrown =
        assertThrows(IllegalArgumentException.class, () -> defaults.withTimeout(bad));
    assertEquals("timeout is " + bad + "; it must be at most 36500 days", thrown.getMessage());
  }

  @Test
  void negativeDeviceIsRefused() {
    Throwable thrown = assertThrows(IllegalArgumentException.class, () -> defaults.withDevice(-1));
    assertEquals("device is -1; devices are numbered from 0", thrown.getMessage());
  }

  @Test
  void nameWithNulCharacterIsRefused() {
    Throwable thrown =
        assertThrows(IllegalArgumentException.class, () -> defaults.withName("a\0b"));
    assertEquals("name contains a NUL character, which is not allowed", thrown.getMessage());
    assertFalse(defaults.withName("ähnlich").name().isEmpty());
  }

  @Test
  void nullIsRefused() {
    assertThrows(NullPointerException.class, () -> defaults.withName(null));
    assertThrows(NullPointerException.class, () -> defaults.withTimeout(null));
  }
}
