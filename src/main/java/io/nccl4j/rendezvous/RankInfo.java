package io.nccl4j.rendezvous;

import io.nccl4j.internal.rendezvous.JobRank;
import io.nccl4j.internal.util.Arguments;
import java.time.Duration;
import java.util.Objects;
import java.util.OptionalInt;

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
 * @param localRank this rank's number among those of its host, from 0 on, if it is known: see
 *     {@link Rendezvous#localRank}
 */
public record RankInfo(int rank, int size, String jobId, Duration timeout, OptionalInt localRank) {
  /** The timeout that {@link #of} gives: two minutes, for hosts that start one after the other. */
  public static final Duration DEFAULT_TIMEOUT = Duration.ofMinutes(2);

  /**
   * Checks the values.
   *
   * @throws IllegalArgumentException if a value is out of its range
   */
  public RankInfo {
    Objects.requireNonNull(jobId, "run");
    Objects.requireNonNull(localRank, "localRank");
    Arguments.atLeast(size, "size", 1);
    Arguments.inRange(rank, "rank", 0, size - 1);
    Arguments.positive(timeout, "timeout");
    localRank.ifPresent(local -> Arguments.inRange(local, "localRank", 0, size - 1));
  }

  /**
   * {@return a rank of a run that needs no name, with {@link #DEFAULT_TIMEOUT}}
   *
   * @param rank this rank, from 0 to {@code size - 1}
   * @param size how many ranks meet; 1 or more
   * @throws IllegalArgumentException if a value is out of its range
   */
  public static RankInfo of(int rank, int size) {
    return new RankInfo(rank, size, "", DEFAULT_TIMEOUT, OptionalInt.empty());
  }

  /**
   * {@return a copy of a named run}
   *
   * @param value what tells the run from others, the same on every rank; empty if there is nothing
   */
  public RankInfo withJobId(String value) {
    return new RankInfo(rank, size, value, timeout, localRank);
  }

  /**
   * {@return a copy with another timeout}
   *
   * @param value the longest that one exchange may take; positive
   * @throws IllegalArgumentException if the value is not positive
   */
  public RankInfo withTimeout(Duration value) {
    return new RankInfo(rank, size, jobId, value, localRank);
  }

  /**
   * {@return a copy whose number on its host is known}
   *
   * @param value this rank's number among those of its host, from 0 on
   * @throws IllegalArgumentException if the value is out of its range
   */
  public RankInfo withLocalRank(int value) {
    return new RankInfo(rank, size, jobId, timeout, OptionalInt.of(value));
  }

  /** Returns what protocols know of it. */
  JobRank jobRank() {
    return new JobRank(rank, size, jobId);
  }
}
