/**
 * The NCCL backend: the contract of {@code io.nccl4j} carried out by {@code libnccl}, and what only
 * NCCL has.
 *
 * <p>Native calls that can block for ever (making, splitting and ending a communicator) run in a
 * thread of their own with a deadline. Collectives are called straight from the caller's thread.
 */
package io.nccl4j.nccl;
