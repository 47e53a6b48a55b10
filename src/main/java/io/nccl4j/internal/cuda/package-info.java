/**
 * The drivers for events, streams, graphs and memory of the CUDA runtime, used by {@code
 * io.nccl4j.cuda} and {@code io.nccl4j.nccl}. Not exported.
 */
package io.nccl4j.internal.cuda;
