/**
 * The contract that both backends keep: a program written against this package alone runs on NVIDIA
 * GPUs through NCCL and, where there is no GPU, on the pure-Java reference.
 *
 * <p>Here belongs what every backend has: {@link io.nccl4j.Backend}, {@link
 * io.nccl4j.Communicator}, {@link io.nccl4j.Buffer}, {@link io.nccl4j.Stream}, {@link
 * io.nccl4j.Event}, {@link io.nccl4j.Group}, the values they take and the exceptions they throw.
 * Arguments are checked here, once, before a backend sees them. What only NCCL has is in {@code
 * io.nccl4j.nccl}; what only the CUDA runtime has is in {@code io.nccl4j.cuda}.
 *
 * <p>Counts are elements of the buffer's {@link io.nccl4j.DataType}, never bytes, unless a name
 * says bytes.
 */
package io.nccl4j;
