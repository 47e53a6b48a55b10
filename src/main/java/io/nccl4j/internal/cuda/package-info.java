/**
 * The drivers for events, streams, graphs and memory of the CUDA runtime, used by {@code
 * io.nccl4j.cuda} and {@code io.nccl4j.nccl}, with the conversion of result codes to exceptions and
 * the memory that is kept for reuse while freeing it could wait. Not exported.
 */
package io.nccl4j.internal.cuda;
