/**
 * The part of the CUDA runtime that collectives need: devices, streams, events and graphs,
 * including streams of other libraries. Works with {@code libcudart} 12 and 13.
 *
 * <p>CUDA keeps the current device per thread. A call that depends on it sets the device and
 * restores the previous one, so that it does not disturb other code on the same thread. It does not
 * restore a device that this process has not used yet, because that would create a context of
 * hundreds of megabytes there.
 */
package io.nccl4j.cuda;
