/**
 * The public API that both backends implement: a program that uses only this package runs on NVIDIA
 * GPUs through NCCL and, without a GPU, on the pure-Java reference backend.
 *
 * <p>The main types are {@link io.nccl4j.Backend}, {@link io.nccl4j.Communicator}, {@link
 * io.nccl4j.Buffer}, {@link io.nccl4j.Stream}, {@link io.nccl4j.Event}, {@link io.nccl4j.Graph} and
 * {@link io.nccl4j.Group}. They validate all arguments before the backend is called. Features that
 * only NCCL has are in {@code io.nccl4j.nccl}; features of the CUDA runtime alone are in {@code
 * io.nccl4j.cuda}.
 *
 * <p>Counts are in elements of the buffer's {@link io.nccl4j.DataType}, unless a name says bytes.
 */
package io.nccl4j;
