/**
 * Data-parallel training on a {@link io.nccl4j.Communicator}: every rank runs the same model on its
 * own part of the batch, and a reducer makes one gradient of all ranks' gradients while backward
 * still runs.
 *
 * <p>{@link io.nccl4j.training.GradientReducer} gives every rank the whole averaged gradient, as
 * PyTorch's {@code DistributedDataParallel} does. {@link io.nccl4j.training.ShardedReducer} gives
 * each rank its part of it, lets the rank step on that part alone, and gathers the parameters.
 * Neither knows a framework: a {@link io.nccl4j.training.Parameter} is a pair of buffers, and "the
 * gradient is ready" is a call with the stream that computes it.
 *
 * <p>Here belongs what a training loop does with collectives, and no arithmetic of models. The
 * package depends on {@code io.nccl4j} alone and calls no native code.
 */
package io.nccl4j.training;
