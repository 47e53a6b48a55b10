package io.nccl4j.internal.auth;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class PendingConnectionsTest {
  @Test
  void fullSetWaitsForTheGraceOfTheOldest() {
    Duration grace = Duration.ofHours(1);
    PendingConnections<String> pending = new PendingConnections<>(2, grace);
    pending.add("a");
    assertEquals(0, pending.nanosUntilRoom());
    pending.add("b");
    assertTrue(pending.full());
    long wait = pending.nanosUntilRoom();
    assertTrue(wait > 0 && wait <= grace.toNanos(), () -> "" + wait);
  }

  @Test
  void fullSetAcceptsAfterTheGraceOfTheOldest() throws Exception {
    Duration grace = Duration.ofMillis(200);
    PendingConnections<String> pending = new PendingConnections<>(2, grace);
    pending.add("a");
    pending.add("b");
    Thread.sleep(grace);
    assertEquals(0, pending.nanosUntilRoom());
    assertEquals("a", pending.removeOldest());
    assertEquals(List.of("b"), pending.all());
  }

  @Test
  void authenticatedConnectionFreesItsPlace() {
    PendingConnections<String> pending = new PendingConnections<>(1, Duration.ofHours(1));
    pending.add("a");
    assertTrue(pending.nanosUntilRoom() > 0);
    pending.remove("a");
    assertEquals(0, pending.nanosUntilRoom());
    assertFalse(pending.full());
    assertNull(pending.removeOldest());
  }

  @ParameterizedTest
  @ValueSource(strings = {"0", "-1", "65537", "many"})
  void limitOutOfRangeIsRefused(String value) {
    String text =
        limit(value, () -> assertThrows(IllegalArgumentException.class, PendingConnections::limit))
            .getMessage();
    assertEquals("io.nccl4j.pendingConnections is " + value + "; it must be from 1 to 65536", text);
  }

  @Test
  void limitIsReadFromTheProperty() {
    int limit = limit("5", PendingConnections::limit);
    assertEquals(5, limit);
  }

  @Test
  void blankPropertySetsTheDefaultLimit() {
    int limit = limit("", PendingConnections::limit);
    assertEquals(64, limit);
  }

  private static <T> T limit(String value, java.util.function.Supplier<T> action) {
    System.setProperty(PendingConnections.PROPERTY, value);
    try {
      return action.get();
    } finally {
      System.clearProperty(PendingConnections.PROPERTY);
    }
  }
}
