package io.nccl4j.rendezvous;

import io.nccl4j.internal.rendezvous.JobRank;
import io.nccl4j.internal.util.Arguments;
import java.time.Duration;
import java.util.Objects;
import java.util.OptionalInt;
import org.jspecify.annotations.NullMarked;

/**
 * One participant of a rendezvous: its rank, the number of ranks, and the run they belong to.
 * Immutable: each {@code with} method returns a changed copy.
 */
@NullMarked
public final class RankInfo {
  /** The timeout set by {@link #of}: two minutes, for hosts that start one after the other. */
  public static final Duration DEFAULT_TIMEOUT = Duration.ofMinutes(2);

  private final int rank;
  private final int size;
  private final String jobId;
  private final Duration timeout;
  private final OptionalInt localRank;

  RankInfo(int rank, int size, String jobId, Duration timeout, OptionalInt localRank) {
    Objects.requireNonNull(jobId, "jobId");
    Objects.requireNonNull(localRank, "localRank");
    Arguments.atLeast(size, "size", 1);
    Arguments.inRange(rank, "rank", 0, size - 1);
    Arguments.positive(timeout, "timeout");
    localRank.ifPresent(local -> Arguments.inRange(local, "localRank", 0, size - 1));
    this.rank = rank;
    this.size = size;
    this.jobId = jobId;
    this.timeout = timeout;
    this.localRank = localRank;
  }

  /**
   * {@return a rank without a job id, with {@link #DEFAULT_TIMEOUT}}
   *
   * @param rank this rank, from 0 to {@code size - 1}
   * @param size the number of ranks, at least 1
   * @throws IllegalArgumentException if a value is out of its range
   */
  public static RankInfo of(int rank, int size) {
    return new RankInfo(rank, size, "", DEFAULT_TIMEOUT, OptionalInt.empty());
  }

  /**
   * {@return a copy with another job id}
   *
   * @param value identifies the run among others, the same on every rank; may be empty
   */
  public RankInfo withJobId(String value) {
    return new RankInfo(rank, size, value, timeout, localRank);
  }

  /**
   * {@return a copy with another timeout}
   *
   * @param value the timeout of one exchange; positive
   * @throws IllegalArgumentException if the value is not positive
   */
  public RankInfo withTimeout(Duration value) {
    return new RankInfo(rank, size, jobId, value, localRank);
  }

  /**
   * {@return a copy with a local rank}
   *
   * @param value the rank within its host, from 0
   * @throws IllegalArgumentException if the value is out of its range
   */
  public RankInfo withLocalRank(int value) {
    return new RankInfo(rank, size, jobId, timeout, OptionalInt.of(value));
  }

  /** Returns the part that the protocols use. */
  JobRank jobRank() {
    return new JobRank(rank, size, jobId);
  }

  /** {@return this rank, from 0 to {@code size - 1}} */
  public int rank() {
    return rank;
  }

  /** {@return the number of ranks, at least 1} */
  public int size() {
    return size;
  }

  /**
   * {@return the text that identifies this run among all that use the same directory, port or
   * store; the same on every rank} If empty, no other run may use them while this one exchanges
   * ids.
   */
  public String jobId() {
    return jobId;
  }

  /** {@return the timeout of one exchange; positive} */
  public Duration timeout() {
    return timeout;
  }

  /** {@return the rank within its host, from 0, if known: see {@link Rendezvous#localRank}} */
  public OptionalInt localRank() {
    return localRank;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof RankInfo that
        && rank == that.rank
        && size == that.size
        && jobId.equals(that.jobId)
        && timeout.equals(that.timeout)
        && localRank.equals(that.localRank);
  }

  @Override
  public int hashCode() {
    return Objects.hash(rank, size, jobId, timeout, localRank);
  }

  @Override
  public String toString() {
    return "RankInfo[rank=%s, size=%s, jobId=%s, timeout=%s, localRank=%s]"
        .formatted(rank, size, jobId, timeout, localRank);
  }
}
