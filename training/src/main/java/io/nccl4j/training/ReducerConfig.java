package io.nccl4j.training;

import java.util.Objects;
import org.jspecify.annotations.NullMarked;

/**
 * The configuration of a reducer; the same on every rank. Immutable: each {@code with} method
 * returns a changed copy.
 */
@NullMarked
public final class ReducerConfig {
  private static final ReducerConfig DEFAULTS = new ReducerConfig(25L << 20, 1L << 20, false);

  private final long bucketBytes;
  private final long firstBucketBytes;
  private final boolean findUnusedParameters;

  private ReducerConfig(long bucketBytes, long firstBucketBytes, boolean findUnusedParameters) {
    checkPositive(bucketBytes, "bucketBytes");
    checkPositive(firstBucketBytes, "firstBucketBytes");
    this.bucketBytes = bucketBytes;
    this.firstBucketBytes = firstBucketBytes;
    this.findUnusedParameters = findUnusedParameters;
  }

  private static void checkPositive(long bytes, String argument) {
    if (bytes <= 0) {
      throw new IllegalArgumentException(argument + " is " + bytes + "; it must be positive");
    }
  }

  /** {@return buckets of 25 MiB, the first of 1 MiB, and every parameter marked in every step} */
  public static ReducerConfig defaults() {
    return DEFAULTS;
  }

  /**
   * {@return a copy with another bucket size}
   *
   * @param value in bytes; positive
   * @throws IllegalArgumentException if the value is not positive
   */
  public ReducerConfig withBucketBytes(long value) {
    return new ReducerConfig(value, firstBucketBytes, findUnusedParameters);
  }

  /**
   * {@return a copy with another size of the first bucket of each type}
   *
   * @param value in bytes; positive
   * @throws IllegalArgumentException if the value is not positive
   */
  public ReducerConfig withFirstBucketBytes(long value) {
    return new ReducerConfig(bucketBytes, value, findUnusedParameters);
  }

  /**
   * {@return a copy that does or does not allow unmarked parameters}
   *
   * @param value whether a step may leave parameters unmarked
   */
  public ReducerConfig withFindUnusedParameters(boolean value) {
    return new ReducerConfig(bucketBytes, firstBucketBytes, value);
  }

  /** {@return the size at which a bucket is full, in bytes; positive} */
  public long bucketBytes() {
    return bucketBytes;
  }

  /**
   * {@return the size at which the first bucket of each type is full, in bytes; positive} It is
   * usually smaller, so that communication starts early.
   */
  public long firstBucketBytes() {
    return firstBucketBytes;
  }

  /**
   * {@return whether a step may leave parameters unmarked, which then contribute zeros} If not,
   * {@link Reducer#finish} throws an exception that names them.
   */
  public boolean findUnusedParameters() {
    return findUnusedParameters;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof ReducerConfig that
        && bucketBytes == that.bucketBytes
        && firstBucketBytes == that.firstBucketBytes
        && findUnusedParameters == that.findUnusedParameters;
  }

  @Override
  public int hashCode() {
    return Objects.hash(bucketBytes, firstBucketBytes, findUnusedParameters);
  }

  @Override
  public String toString() {
    return "ReducerConfig[bucketBytes=%s, firstBucketBytes=%s, findUnusedParameters=%s]"
        .formatted(bucketBytes, firstBucketBytes, findUnusedParameters);
  }
}
