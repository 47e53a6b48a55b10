package io.nccl4j.training;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** All resources are closed, even if some fail to close. */
class ResourcesTest {
  private final List<String> closed = new ArrayList<>();
  private final OwnedResources resources = new OwnedResources();

  private void add(String name, Throwable failure) {
    resources.add(
        name,
        resource -> {
          closed.add(resource);
          if (failure instanceof Error error) {
            throw error;
          }
          if (failure instanceof RuntimeException exception) {
            throw exception;
          }
        });
  }

  @Test
  void resourcesAreClosedOnceInReverseOrder() {
    add("stream", null);
    add("event", null);
    add("buffer", null);
    resources.close();
    resources.close();
    assertEquals(List.of("buffer", "event", "stream"), closed);
  }

  @Test
  void firstFailureIsThrownWithLaterOnesSuppressed() {
    RuntimeException last = new IllegalStateException("stream");
    Error first = new OutOfMemoryError("buffer");
    add("stream", last);
    add("event", null);
    add("buffer", first);
    assertSame(first, assertThrows(OutOfMemoryError.class, resources::close));
    assertArrayEquals(new Throwable[] {last}, first.getSuppressed());
    assertEquals(List.of("buffer", "event", "stream"), closed);
  }

  @Test
  void sameFailureOfSeveralResourcesIsThrownOnce() {
    RuntimeException gone = new IllegalStateException("device is gone");
    add("stream", gone);
    add("event", gone);
    add("buffer", gone);
    assertSame(gone, assertThrows(IllegalStateException.class, resources::close));
    assertEquals(List.of("buffer", "event", "stream"), closed);
    assertEquals(0, gone.getSuppressed().length);
  }

  @Test
  void remainingResourcesAreClosedAfterManyFailures() {
    int many = 50_000;
    for (int i = 0; i < many; i++) {
      add("event", new IllegalStateException("event " + i));
    }
    String first = assertThrows(IllegalStateException.class, resources::close).getMessage();
    assertEquals("event " + (many - 1), first);
    assertEquals(many, closed.size());
  }

  @Test
  void closeAfterSuppressesFailuresInTheCause() {
    RuntimeException failure = new IllegalStateException("pending");
    Error cause = new StackOverflowError();
    add("stream", null);
    add("buffer", failure);
    resources.closeAfter(cause);
    assertArrayEquals(new Throwable[] {failure}, cause.getSuppressed());
    assertEquals(List.of("buffer", "stream"), closed);
  }
}
