package io.nccl4j;

import io.nccl4j.internal.util.Loggers;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Tracks the completed work of a stream, so that memory is not freed while pending work uses it.
 *
 * <p>Work that uses a buffer takes the stream's current progress value after it has been enqueued.
 * A query of the stream's completion first increments the progress value; if the stream is then
 * found idle, all earlier values have been passed. So all work enqueued between two queries shares
 * a progress value, and taking the value again has no effect. The stream itself is queried only if
 * no wait has reported that a value was passed.
 */
final class StreamProgress {
  /**
   * An event recording that this stream waits for; it is complete once this stream passes {@code
   * value}.
   *
   * @param value the progress value of this stream after the wait
   * @param recordedValue the progress value of the recording stream
   */
  private record Dependency(long value, long recordedValue) {}

  /**
   * A collective of another stream that this stream waits for, directly or through others, until it
   * passes {@code value}.
   *
   * @param value the progress value of this stream after the last such wait
   * @param collective the progress value of the other stream's last such collective
   */
  private record AwaitedCollective(long value, long collective) {
    AwaitedCollective and(AwaitedCollective later) {
      return new AwaitedCollective(later.value, Math.max(collective, later.collective));
    }
  }

  /** An action to run once a progress value has been passed. */
  private record DeferredAction(long value, Runnable action) {}

  // Weak, because buffers and communicators hold this object, which must not keep an unclosed
  // stream
  // reachable. While work may be pending, the field below does.
  private final WeakReference<Stream> stream;

  @SuppressWarnings("UnusedVariable") // Keeps the stream reachable.
  private Stream keptStream;

  private long lastValue;
  // Read without a lock, and only after the work has been enqueued: a query that increments it
  // after that read finds the work on the stream.
  private long currentValue = 1;
  private long lastCollective;
  private volatile long passed;
  private final Map<StreamProgress, Dependency> dependencies = new HashMap<>();
  private final Map<StreamProgress, AwaitedCollective> awaited = new HashMap<>();
  private final List<DeferredAction> deferred = new ArrayList<>();

  StreamProgress(Stream stream) {
    this.stream = new WeakReference<>(stream);
  }

  /** Returns the stream; null if it was garbage-collected, and then all its work is done. */
  Stream stream() {
    return stream.get();
  }

  /** Returns whether the stream has neither been released nor garbage-collected. */
  boolean alive() {
    Stream referent = stream();
    return referent != null && referent.alive();
  }

  /** Returns whether the stream is being captured, by nccl4j or by other code. */
  boolean captured() {
    Stream referent = stream();
    return referent != null && referent.capturedByAnyone();
  }

  /** Returns whether the stream was released before its work had ended. */
  boolean stuck() {
    Stream referent = stream();
    return referent != null && referent.stuck();
  }

  /** Waits for copies, which depend on no other rank. */
  void drainCopies() {
    Stream referent = stream();
    if (referent != null) {
      referent.drainCopies();
    }
  }

  /** Returns the progress value of the work just enqueued. */
  long take() {
    long now = currentValue;
    if (lastValue < now) {
      keepStream(now);
    }
    return now;
  }

  /** Keeps the closed stream reachable for the communicators that release it. */
  void keepStream() {
    keepStream(Long.MAX_VALUE);
  }

  private synchronized void keepStream(long value) {
    // Another thread may have set a later value.
    lastValue = Math.max(lastValue, value);
    if (passed < lastValue) {
      keptStream = stream();
    }
  }

  /** Records that a progress value belongs to a collective. */
  void markCollective(long value) {
    if (lastCollective < value) {
      synchronized (this) {
        // Another thread may have set a later value.
        lastCollective = Math.max(lastCollective, value);
      }
    }
  }

  /**
   * Increments the progress value; returns the previous one, the last value that work has taken.
   */
  synchronized long advance() {
    return currentValue++;
  }

  /** Records that later work of the stream waits for a recording; null for none. */
  void follows(Event.Recording recording) {
    if (recording != null && recording.progress() != this) {
      synchronized (this) {
        long value = take();
        dependencies.put(recording.progress(), new Dependency(value, recording.value()));
        recording
            .collectives()
            .forEach(
                (other, collective) ->
                    awaited.merge(
                        other, new AwaitedCollective(value, collective), AwaitedCollective::and));
      }
    }
  }

  /** Records that all work up to a progress value is done. */
  void markPassed(long value) {
    if (value <= passed) {
      return;
    }
    List<Runnable> due = new ArrayList<>();
    synchronized (this) {
      passed = Math.max(passed, value);
      if (passed >= lastValue) {
        keptStream = null;
      }
      awaited.values().removeIf(each -> each.value() <= value);
      dependencies.forEach(
          (source, at) -> {
            if (at.value() <= value) {
              due.add(() -> source.markPassed(at.recordedValue()));
            }
          });
      dependencies.values().removeIf(at -> at.value() <= value);
      deferred.forEach(
          later -> {
            if (later.value() <= value) {
              due.add(later.action());
            }
          });
      deferred.removeIf(later -> later.value() <= value);
    }
    due.forEach(this::run);
  }

  private void run(Runnable action) {
    try {
      action.run();
    } catch (RuntimeException | Error e) {
      // Logged, because the waiting thread is not concerned, and close() has already thrown. The
      // action may be the caller's code; its failure must not prevent other memory from being
      // freed.
      Loggers.of(StreamProgress.class)
          .warn("{}: an object that was closed while in use could not be released", this, e);
    }
  }

  /**
   * Returns whether all work up to a progress value is done; queries the stream if that is unknown.
   */
  boolean hasPassed(long value) {
    if (value <= passed) {
      return true;
    }
    Stream referent = stream();
    long before = advance();
    if (referent != null && !referent.endReached()) {
      return false;
    }
    markPassed(before);
    return true;
  }

  /** Returns whether all collectives are done. */
  boolean passedCollectives() {
    return hasPassed(lastCollective);
  }

  /**
   * Returns the progress value of the last collective of this stream and of each stream that it
   * waits for, directly or through others, without those that are known to be done.
   */
  synchronized Map<StreamProgress, Long> collectives() {
    awaited.entrySet().removeIf(each -> each.getValue().collective() <= each.getKey().passed);
    Map<StreamProgress, Long> all = new HashMap<>();
    awaited.forEach((other, each) -> all.put(other, each.collective()));
    if (lastCollective > passed) {
      all.put(this, lastCollective);
    }
    return all;
  }

  /** Returns whether a collective is pending on this stream or on a stream that it waits for. */
  boolean awaitsCollective() {
    return collectives().entrySet().stream()
        .anyMatch(each -> !each.getKey().hasPassed(each.getValue()));
  }

  /** Runs an action once a progress value has been passed; at once if it already has. */
  void whenPassed(long value, Runnable action) {
    synchronized (this) {
      if (value > passed) {
        deferred.add(new DeferredAction(value, action));
        return;
      }
    }
    action.run();
  }

  @Override
  public String toString() {
    Stream referent = stream();
    return referent == null ? "a stream that was never closed" : referent.toString();
  }
}
