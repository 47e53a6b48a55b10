package io.nccl4j;

import io.nccl4j.spi.StreamContext;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;

/**
 * The communicators whose operations a stream carries, and whose failures a wait for the stream
 * must throw.
 */
final class StreamUsers implements StreamContext {
  private final long number;

  // Pending work keeps the stream's driver, the driver keeps this object, and this the stream.
  @SuppressWarnings("UnusedVariable")
  private final Object stream;

  // Checked on the hot path by one comparison; the list changes rarely.
  private StreamUser last;
  private final CopyOnWriteArrayList<StreamUser> users = new CopyOnWriteArrayList<>();

  /**
   * Makes one without users.
   *
   * @param stream the stream, which is kept
   * @param number the stream's number in its process
   */
  StreamUsers(Object stream, long number) {
    this.stream = stream;
    this.number = number;
  }

  /** Returns whether the stream is known to carry operations of a communicator. */
  boolean has(StreamUser communicator) {
    if (last == communicator) {
      return true;
    }
    if (!users.contains(communicator)) {
      return false;
    }
    last = communicator;
    return true;
  }

  /** Remembers a communicator whose operations the stream carries. */
  void add(StreamUser communicator) {
    users.removeIf(user -> !user.isOpen() && !user.isAborted());
    users.addIfAbsent(communicator);
    // Only now: after an Error before, it is not known yet.
    last = communicator;
  }

  /** Forgets those that were aborted. */
  void removeAborted() {
    users.removeIf(StreamUser::isAborted);
    last = null;
  }

  /** Returns whose operation was enqueued last, for messages. */
  StreamUser last() {
    return last;
  }

  boolean anyOpen() {
    return users.stream().anyMatch(StreamUser::isOpen);
  }

  boolean anyAborted() {
    return users.stream().anyMatch(StreamUser::isAborted);
  }

  /** Returns whether a library may still enqueue what a launch that was given up has left. */
  boolean anyLaunching() {
    return users.stream().anyMatch(user -> user.isOpen() && user.launching());
  }

  @Override
  public long number() {
    return number;
  }

  @Override
  public Duration longestTimeout() {
    return users.stream()
        .map(StreamUser::timeout)
        .max(Duration::compareTo)
        .orElse(CommunicatorConfig.defaults().timeout());
  }

  @Override
  public void markStranded() {
    users.forEach(StreamUser::markStranded);
  }

  @Override
  public void throwFailure(String function) {
    for (StreamUser user : users) {
      if (user.isAborted()) {
        throw new CommunicatorAbortedException(function, user.toString());
      }
      if (user.isOpen()) {
        user.failure()
            .ifPresent(
                failure -> {
                  throw failure;
                });
      }
    }
  }

  /** Names the communicators on the stream, and of each the collective that was enqueued last. */
  @Override
  public NcclException timedOut(String function, Duration timeout, String waitedFor) {
    List<FailureDetails> lastOfEach =
        users.stream().filter(StreamUser::isOpen).map(StreamUser::lastEnqueued).toList();
    String where =
        lastOfEach.isEmpty()
            ? ""
            : lastOfEach.stream()
                .map(FailureDetails::where)
                .collect(Collectors.joining(", ", ", last used by ", ""));
    NcclException late = new NcclTimeoutException(function, timeout, waitedFor + where);
    return lastOfEach.size() == 1 ? late.initDetails(lastOfEach.getFirst()) : late;
  }
}
