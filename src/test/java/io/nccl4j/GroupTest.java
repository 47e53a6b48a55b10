package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** Tests when a group is open; the contract suite tests what a group launches. */
class GroupTest {
  @Test
  void groupIsOpenWhileItsBodyRuns() {
    assertNull(Group.current());
    Group.run(
        () -> {
          Group outer = Group.current();
          assertNotNull(outer);
          assertTrue(Group.running());
          Group.run(() -> assertSame(outer, Group.current(), "nested groups are one"));
          assertSame(outer, Group.current());
        });
    assertNull(Group.current());
    assertFalse(Group.running());
  }

  @Test
  void groupIsClosedWhenItsBodyThrows() {
    Error error = new AssertionError("thrown");
    assertSame(
        error,
        assertThrows(
            AssertionError.class,
            () ->
                Group.run(
                    () -> {
                      throw error;
                    })));
    assertNull(Group.current());
  }

  @Test
  void groupBelongsToItsThread() {
    Group.run(
        () -> {
          CompletableFuture<Group> seenElsewhere = new CompletableFuture<>();
          Thread.ofPlatform().start(() -> seenElsewhere.complete(Group.current()));
          assertNull(seenElsewhere.join());
        });
  }

  @Test
  void nullBodyIsRefused() {
    assertThrows(NullPointerException.class, () -> Group.run(null));
    assertNull(Group.current());
  }
}
