package io.nccl4j;

import io.nccl4j.spi.Awaited;
import io.nccl4j.spi.FailureDetails;
import io.nccl4j.spi.StreamContext;
import io.nccl4j.spi.StreamDriver;
import java.time.Duration;
import java.util.BitSet;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;

/**
 * The communicators whose operations are on a stream, and whose failures a wait for the stream
 * throws.
 */
final class StreamUsers implements StreamContext {
  private final long number;

  // Keeps the stream reachable while pending work refers to its driver, which refers to this.
  @SuppressWarnings("UnusedVariable")
  private final Object stream;

  // Makes the check on the hot path one comparison; the list changes rarely.
  private StreamUser last;
  private final CopyOnWriteArrayList<StreamUser> users = new CopyOnWriteArrayList<>();

  /**
   * Creates an object without users.
   *
   * @param stream the stream, which is kept reachable
   * @param number the stream's number in its process
   */
  StreamUsers(Object stream, long number) {
    this.stream = stream;
    this.number = number;
  }

  /** Returns whether a communicator is recorded as a user of the stream. */
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

  /** Records a communicator as a user of the stream. */
  void add(StreamUser communicator) {
    users.removeIf(user -> !user.isOpen() && !user.isAborted());
    users.addIfAbsent(communicator);
    last = communicator;
  }

  /** Removes the aborted communicators, except those whose failure every wait throws. */
  void removeAborted() {
    users.removeIf(user -> user.isAborted() && !user.keepsFailing());
    last = null;
  }

  /** Returns the communicator whose operation was enqueued last, for messages. */
  StreamUser last() {
    return last;
  }

  boolean anyOpen() {
    return users.stream().anyMatch(StreamUser::isOpen);
  }

  boolean anyAborted() {
    return users.stream().anyMatch(StreamUser::isAborted);
  }

  /**
   * Returns whether a library may still enqueue work of a launch that nccl4j stopped waiting for.
   */
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
        .orElse(StreamDriver.DEFAULT_TIMEOUT);
  }

  @Override
  public void markStranded() {
    users.forEach(StreamUser::markStranded);
  }

  @Override
  public void throwFailure(String function) {
    for (StreamUser user : users) {
      if (user.isAborted()) {
        throw user.ended(function);
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

  /**
   * Returns a failure of a wait; if only one communicator uses the stream, with the ranks that are
   * lost.
   */
  NcclException named(NcclException failure) {
    List<StreamUser> open = users.stream().filter(StreamUser::isOpen).toList();
    return open.size() == 1 ? open.getFirst().named(failure) : failure;
  }

  /**
   * Names the communicators on the stream, the last enqueued collective of each and, if only one
   * uses the stream, the ranks that it waits for.
   */
  @Override
  public NcclException timedOut(String function, Duration timeout, String waitedFor) {
    List<StreamUser> open = users.stream().filter(StreamUser::isOpen).toList();
    open.forEach(StreamUser::dumpAfterTimeout);
    String where =
        open.isEmpty()
            ? ""
            : open.stream()
                .map(user -> user.lastEnqueued().where())
                .collect(Collectors.joining(", ", ", last used by ", ""));
    Optional<Awaited> awaited = open.size() == 1 ? open.getFirst().awaited() : Optional.empty();
    String who = awaited.map(known -> "; " + known.text()).orElse("");
    NcclException late = new NcclTimeoutException(function, timeout, waitedFor + where + who);
    if (open.size() != 1) {
      return late;
    }
    FailureDetails last = open.getFirst().lastEnqueued();
    BitSet failed = awaited.map(Awaited::failed).orElseGet(BitSet::new);
    BitSet missing = awaited.map(Awaited::ranks).orElseGet(BitSet::new);
    return late.initDetails(
        FailureDetails.of(last.communicator(), failed, missing)
            .in(last.operation(), last.sequenceNumber()));
  }
}
