package io.nccl4j.training;

import io.nccl4j.Buffer;

/**
 * This rank's part of one bucket: what its optimiser steps on. The elements of value and gradient
 * correspond one to one; where one parameter ends and the next begins does not matter to optimisers
 * that work element by element. Elements in the gaps between parameters are zero in both.
 *
 * @param bucket the bucket
 * @param offset the first element of the part, counted from the bucket's first
 * @param values the parameters' values: this rank changes them, and {@link
 *     ShardedReducer#gatherParameters} gives them to all
 * @param gradients after {@link Reducer#finish}, the average of all ranks' gradients
 */
public record Shard(Bucket bucket, long offset, Buffer values, Buffer gradients) {
  /** {@return how many elements the part has, the same on every rank} */
  public long count() {
    return values.count();
  }

  /** {@return what people read, on one line} */
  @Override
  public String toString() {
    return "elements %d to %d of %s".formatted(offset, offset + count() - 1, bucket);
  }
}
