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
  private final Stream stream;
  // Checked on the hot path by one comparison; the list changes rarely.
  private Communicator last;
  private final CopyOnWriteArrayList<Communicator> users = new CopyOnWriteArrayList<>();

  StreamUsers(Stream stream) {
    this.stream = stream;
  }

  /** Remembers a communicator whose operations the stream carries, and lets it know. */
  void add(Communicator communicator) {
    if (last != communicator) {
      last = communicator;
      if (!users.contains(communicator)) {
        users.removeIf(user -> !user.open() && !user.aborted());
        users.addIfAbsent(communicator);
        communicator.life().carriedBy(stream);
      }
    }
  }

  /** Forgets those that were aborted. */
  void removeAborted() {
    users.removeIf(Communicator::aborted);
    last = null;
  }

  /** Returns whose operation was enqueued last, for messages. */
  Communicator last() {
    return last;
  }

  boolean anyOpen() {
    return users.stream().anyMatch(Communicator::open);
  }

  boolean anyAborted() {
    return users.stream().anyMatch(Communicator::aborted);
  }

  /** Returns whether a library may still enqueue what a launch that was given up has left. */
  boolean anyLaunching() {
    return users.stream().anyMatch(user -> user.open() && user.driver().launching());
  }

  @Override
  public long number() {
    return stream.number();
  }

  @Override
  public Duration longestTimeout() {
    return users.stream()
        .map(user -> user.config().timeout())
        .max(Duration::compareTo)
        .orElse(CommunicatorConfig.defaults().timeout());
  }

  @Override
  public void leftStuck() {
    users.forEach(user -> user.life().leftStuck());
  }

  @Override
  public void throwFailure(String function) {
    for (Communicator user : users) {
      if (user.aborted()) {
        throw new CommunicatorAbortedException(function, user.toString());
      }
      if (user.open()) {
        user.life()
            .failure()
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
        users.stream().filter(Communicator::open).map(user -> user.life().lastEnqueued()).toList();
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
