/**
 * Data-parallel training on a {@link io.nccl4j.Communicator}: every rank runs the same model on its
 * own part of the batch, and a reducer averages the gradients of all ranks while backward still
 * runs.
 *
 * <p>{@link io.nccl4j.training.GradientReducer} provides the whole averaged gradient on every rank,
 * like PyTorch's {@code DistributedDataParallel}. {@link io.nccl4j.training.ShardedReducer}
 * provides each rank's part of it, lets the rank update that part alone, and gathers the
 * parameters. Both are independent of frameworks: a {@link io.nccl4j.training.Parameter} is a pair
 * of buffers, and a gradient is marked ready by a call with the stream that computes it.
 *
 * <p>The package contains the collectives of a training loop, but no model arithmetic. It depends
 * on {@code io.nccl4j} alone and calls no native code.
 */
package io.nccl4j.training;
