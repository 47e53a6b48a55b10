/**
 * The CUDA runtime as far as the collectives need it: devices, memory, streams and events, and how
 * those of other libraries come in. Works with {@code libcudart} 12 and 13.
 *
 * <p>The current device, which CUDA keeps per thread, is set where a call depends on it and put
 * back afterwards, for a framework that shares the thread; but not to a device that nothing in this
 * process has used yet, where that alone would take hundreds of megabytes.
 */
package io.nccl4j.cuda;
