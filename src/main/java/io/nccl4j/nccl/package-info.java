/**
 * The NCCL backend: the contract of {@code io.nccl4j} carried out by {@code libnccl}, and what only
 * NCCL has: all that {@link io.nccl4j.nccl.NcclConfig} can say, and the methods of {@link
 * io.nccl4j.nccl.NcclCommunicator}, which {@link io.nccl4j.nccl.NcclCommunicator#of} gives for any
 * communicator of this backend.
 *
 * <p>Native calls that can block indefinitely (making, splitting and ending a communicator) run in
 * a thread of their own with a deadline. Collectives are called straight from the caller's thread.
 */
package io.nccl4j.nccl;
