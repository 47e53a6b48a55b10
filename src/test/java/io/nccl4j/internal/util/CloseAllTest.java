package io.nccl4j.internal.util;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class CloseAllTest {
  private static Runnable fail(RuntimeException failure) {
    return () -> {
      throw failure;
    };
  }

  @Test
  void everyStepRunsAndTheFirstFailureIsThrown() {
    IllegalStateException first = new IllegalStateException("first");
    IllegalStateException second = new IllegalStateException("second");
    List<String> done = new ArrayList<>();
    List<Runnable> steps =
        List.of(() -> done.add("a"), fail(first), fail(second), () -> done.add("b"));
    assertSame(first, assertThrows(IllegalStateException.class, () -> CloseAll.all(steps)));
    assertArrayEquals(new Throwable[] {second}, first.getSuppressed());
    assertEquals(List.of("a", "b"), done);
  }

  @Test
  void laterFailureIsSuppressed() {
    IllegalStateException failure = new IllegalStateException("failure");
    IllegalStateException another = new IllegalStateException("another");
    CloseAll.after(failure, fail(another));
    assertArrayEquals(new Throwable[] {another}, failure.getSuppressed());
  }

  /** If memory is exhausted, Java throws the same error each time. */
  @Test
  void sameErrorIsNotSuppressedInItself() {
    OutOfMemoryError shared = new OutOfMemoryError("Java heap space");
    Runnable failing =
        () -> {
          throw shared;
        };
    CloseAll.suppress(shared, shared);
    CloseAll.after(shared, failing);
    assertSame(
        shared,
        assertThrows(OutOfMemoryError.class, () -> CloseAll.all(List.of(failing, failing))));
    assertEquals(0, shared.getSuppressed().length);
  }
}
