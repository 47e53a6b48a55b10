package io.nccl4j;

import io.nccl4j.internal.util.Loggers;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * How far a stream has come, as far as anybody has looked: so that memory which work still uses is
 * not given back beneath it.
 *
 * <p>Whatever uses a buffer takes a ticket when it has been enqueued: the number of the span that
 * the stream is in. Whoever is about to look how far the stream is begins a new span; if it then
 * finds the stream at its end, all tickets of the spans before are passed. So work that is enqueued
 * between two looks shares a ticket, and taking it again changes nothing. Only where no wait tells
 * is the stream itself asked.
 */
final class StreamFence {
  /** A mark that this stream waits for: reached once this stream has passed a ticket of its own. */
  private record Following(long value, long ownValue) {}

  /** What is to happen once a ticket has been passed. */
  private record Deferred(long value, Runnable action) {}

  // Buffers and communicators know how far a stream is, which is not to keep one that was forgotten
  // before it was closed. While something may be pending, it is kept.
  private final WeakReference<Stream> stream;

  @SuppressWarnings("UnusedVariable") // Its only use is to keep the stream.
  private Stream busy;

  private long lastTicket;
  // Read plainly, after the work has been enqueued: whoever began a new span since may have missed
  // that work, and whoever began it before finds it.
  private long value = 1;
  private long lastCollective;
  private volatile long passed;
  private final Map<StreamFence, Following> following = new HashMap<>();
  private final List<Deferred> deferred = new ArrayList<>();

  StreamFence(Stream stream) {
    this.stream = new WeakReference<>(stream);
  }

  /** Returns the stream; null if it was forgotten, which has come to its end. */
  Stream stream() {
    return stream.get();
  }

  /** Returns whether the stream has neither been released nor forgotten. */
  boolean alive() {
    Stream there = stream();
    return there != null && there.alive();
  }

  /** Returns whether operations of the stream are captured rather than run. */
  boolean captured() {
    Stream there = stream();
    return there != null && there.captured();
  }

  /** Waits for copies, which end by themselves. */
  void drainCopies() {
    Stream there = stream();
    if (there != null) {
      there.drainCopies();
    }
  }

  /** Returns a ticket for what has been enqueued. */
  long fenceValue() {
    long now = value;
    if (lastTicket < now) {
      keepStream(now);
    }
    return now;
  }

  /** Keeps the stream, which is closed, for the communicators that are to give it back. */
  void keepStream() {
    keepStream(Long.MAX_VALUE);
  }

  private synchronized void keepStream(long ticket) {
    // Another thread may have brought a later one.
    lastTicket = Math.max(lastTicket, ticket);
    if (passed < lastTicket) {
      busy = stream();
    }
  }

  /** Says that a ticket is a collective's. */
  void collective(long ticket) {
    if (lastCollective < ticket) {
      synchronized (this) {
        // Another thread may have brought a later one.
        lastCollective = Math.max(lastCollective, ticket);
      }
    }
  }

  /** Begins a new span, and returns the last ticket of those before: all that are out. */
  synchronized long enqueued() {
    return value++;
  }

  /** Notes that the stream waits for another one's mark from here on; null is no mark. */
  void follows(Event.Recording marked) {
    if (marked != null && marked.fence() != this) {
      synchronized (this) {
        following.put(marked.fence(), new Following(fenceValue(), marked.value()));
      }
    }
  }

  /** Notes that everything up to a ticket is done. */
  void passed(long ticket) {
    if (ticket <= passed) {
      return;
    }
    List<Runnable> due = new ArrayList<>();
    synchronized (this) {
      passed = Math.max(passed, ticket);
      if (passed >= lastTicket) {
        busy = null;
      }
      following.forEach(
          (source, at) -> {
            if (at.value() <= ticket) {
              due.add(() -> source.passed(at.ownValue()));
            }
          });
      following.values().removeIf(at -> at.value() <= ticket);
      deferred.forEach(
          later -> {
            if (later.value() <= ticket) {
              due.add(later.action());
            }
          });
      deferred.removeIf(later -> later.value() <= ticket);
    }
    due.forEach(this::run);
  }

  private void run(Runnable action) {
    try {
      action.run();
    } catch (RuntimeException | Error e) {
      // Whoever waits for the stream has not asked for this; whoever closed the buffer was told.
      // Callers' code is among it, and what fails there must not keep other memory.
      Loggers.of(StreamFence.class)
          .warn("{}: what was closed too early could not be released", this, e);
    }
  }

  /** Returns whether everything up to a ticket is done; asks the stream if nobody knows. */
  boolean hasPassed(long ticket) {
    if (ticket <= passed) {
      return true;
    }
    Stream there = stream();
    long before = enqueued();
    if (there != null && !there.endReached()) {
      return false;
    }
    passed(before);
    return true;
  }

  /** Returns whether all collectives are done. */
  boolean passedCollectives() {
    return hasPassed(lastCollective);
  }

  /** Returns whether work waits for a collective, on this stream or on one that it follows. */
  boolean awaitsCollective() {
    List<StreamFence> followed;
    synchronized (this) {
      followed = List.copyOf(following.keySet());
    }
    return !passedCollectives() || followed.stream().anyMatch(p -> !p.passedCollectives());
  }

  /** Does something once a ticket has been passed; at once if it has. */
  void whenPassed(long ticket, Runnable action) {
    synchronized (this) {
      if (ticket > passed) {
        deferred.add(new Deferred(ticket, action));
        return;
      }
    }
    action.run();
  }

  @Override
  public String toString() {
    Stream there = stream();
    return there == null ? "a stream that was never closed" : there.toString();
  }
}
