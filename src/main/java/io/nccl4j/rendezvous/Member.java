package io.nccl4j.rendezvous;

import java.time.Duration;
import java.util.Objects;

/**
 * Who takes part in a rendezvous: one rank of a run. Immutable: each {@code with} method returns a
 * changed copy.
 *
 * @param rank this rank, from 0 to {@code size - 1}
 * @param size how many ranks meet; 1 or more
 * @param run what tells this run from all others that may meet in the same place, such as a job id;
 *     the same on every rank. Empty if there is nothing: then the place must be this run's own for
 *     as long as it exchanges ids
 * @param timeout the longest that one exchange may take; positive
 */
public record Member(int rank, int size, String run, Duration timeout) {
  /** The timeout that {@link #of} gives: two minutes, for hosts that start one after the other. */
  public static final Duration DEFAULT_TIMEOUT = Duration.ofMinutes(2);

  /** Checks the values. */
  public Member {
    Objects.requireNonNull(run, "run");
    Objects.requireNonNull(timeout, "timeout");
    if (size < 1) {
      throw new IllegalArgumentException("size is " + size + "; it must be 1 or more");
    }
    if (rank < 0 || rank >= size) {
      throw new IllegalArgumentException(
          "rank is " + rank + "; it must be from 0 to " + (size - 1));
    }
    if (timeout.isNegative() || timeout.isZero()) {
      throw new IllegalArgumentException("timeout is " + timeout + "; it must be positive");
    }
  }

  /** Returns a rank of a run that needs no name, with {@link #DEFAULT_TIMEOUT}. */
  public static Member of(int rank, int size) {
    return new Member(rank, size, "", DEFAULT_TIMEOUT);
  }

  /** Returns a copy of a named run. */
  public Member withRun(String value) {
    return new Member(rank, size, value, timeout);
  }

  /** Returns a copy with another timeout, which must be positive. */
  public Member withTimeout(Duration value) {
    return new Member(rank, size, run, value);
  }
}
