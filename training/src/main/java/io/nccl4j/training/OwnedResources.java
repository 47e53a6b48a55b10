package io.nccl4j.training;

import io.nccl4j.internal.util.CloseAll;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.function.Consumer;

/** The resources owned by a reducer; all are closed in reverse order, even if some fail. */
final class OwnedResources {
  private final Deque<Runnable> closings = new ArrayDeque<>();

  /** Takes ownership of a resource, which {@code close} releases. */
  <T> T add(T resource, Consumer<T> close) {
    closings.push(() -> close.accept(resource));
    return resource;
  }

  /** Closes everything; throws the first failure, with the later ones suppressed. */
  void close() {
    CloseAll.all(takeAll());
  }

  /** Closes everything after a failure, adding further failures to it as suppressed. */
  void closeAfter(Throwable failure) {
    takeAll().forEach(close -> CloseAll.after(failure, close));
  }

  private List<Runnable> takeAll() {
    List<Runnable> all = List.copyOf(closings);
    closings.clear();
    return all;
  }
}
