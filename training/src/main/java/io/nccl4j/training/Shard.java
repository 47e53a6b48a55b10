package io.nccl4j.training;

import io.nccl4j.Buffer;
import org.jspecify.annotations.NullMarked;

/**
 * This rank's part of one bucket, which its optimiser updates. The elements of values and gradients
 * correspond one to one. Parameter boundaries are not visible, so the optimiser must work element
 * by element. Elements in the gaps between parameters are zero in both.
 *
 * @param bucket the bucket
 * @param offset the offset of the part in the bucket, in elements
 * @param values the parameters' values: this rank updates them, and {@link
 *     ShardedReducer#gatherParameters} distributes them to all ranks
 * @param gradients after {@link Reducer#finish}, the average of all ranks' gradients
 */
@NullMarked
public record Shard(Bucket bucket, long offset, Buffer values, Buffer gradients) {
  /** {@return the number of elements of the part, the same on every rank} */
  public long count() {
    return values.count();
  }

  /** {@return a one-line description: element range and bucket} */
  @Override
  public String toString() {
    return "elements %d to %d of %s".formatted(offset, offset + count() - 1, bucket);
  }
}
