/**
 * The NCCL backend: implements the API of {@code io.nccl4j} with {@code libnccl}, and adds
 * NCCL-specific features. {@link io.nccl4j.nccl.NcclBackend}, {@link
 * io.nccl4j.nccl.NcclCommunicator} and {@link io.nccl4j.nccl.NcclConfig} provide those; the {@code
 * of} methods create views of objects of this backend.
 *
 * <p>Native calls that can block indefinitely (creating, splitting and closing a communicator) run
 * on a separate thread, with a deadline. Collectives run on the caller's thread; one that blocks
 * for longer than the timeout is ended.
 */
package io.nccl4j.nccl;
