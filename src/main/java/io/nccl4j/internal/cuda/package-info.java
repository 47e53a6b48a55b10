/**
 * Events, streams, graphs and memory of the CUDA runtime: the drivers that {@code io.nccl4j.cuda}
 * and {@code io.nccl4j.nccl} put behind the contract's classes.
 */
package io.nccl4j.internal.cuda;
