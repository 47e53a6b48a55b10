/**
 * The CUDA runtime as far as the collectives need it: devices, memory, streams and events, and how
 * those of other libraries come in. Works with {@code libcudart} 12 and 13.
 *
 * <p>The current device, which CUDA keeps per thread, is set where a call depends on it and put
 * back afterwards, so that a framework that shares the thread sees no change.
 */
package io.nccl4j.cuda;
