package io.nccl4j.internal.auth;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class PendingConnectionsTest {
  @Test
  void connectionBeyondTheLimitReplacesTheOldest() {
    PendingConnections<String> pending = new PendingConnections<>(2);
    assertNull(pending.add("a"));
    assertNull(pending.add("b"));
    assertEquals("a", pending.add("c"));
    assertEquals(List.of("b", "c"), pending.all());
  }

  @Test
  void authenticatedConnectionFreesItsPlace() {
    PendingConnections<String> pending = new PendingConnections<>(1);
    assertNull(pending.add("a"));
    assertTrue(pending.remove("a"));
    assertFalse(pending.remove("a"));
    assertNull(pending.add("b"));
    assertEquals("b", pending.removeOldest());
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
    assertEquals(1024, limit);
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
