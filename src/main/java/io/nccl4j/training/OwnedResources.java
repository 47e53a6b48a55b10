package io.nccl4j.training;

import io.nccl4j.internal.util.CloseAll;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.function.Consumer;

/** What a reducer has made, given back in reverse order, whatever fails on the way. */
final class OwnedResources {
  private final Deque<Runnable> closings = new ArrayDeque<>();

  /** Takes something over; {@code close} is how to give it back. */
  <T> T add(T resource, Consumer<T> close) {
    closings.push(() -> close.accept(resource));
    return resource;
  }

  /** Gives back everything; the first failure comes out, the later ones suppressed in it. */
  void close() {
    CloseAll.all(takeAll());
  }

  /** Gives back everything after a failure, and adds to it what fails on the way. */
  void closeAfter(Throwable failure) {
    takeAll().forEach(close -> CloseAll.after(failure, close));
  }

  private List<Runnable> takeAll() {
    List<Runnable> all = List.copyOf(closings);
    closings.clear();
    return all;
  }
}
