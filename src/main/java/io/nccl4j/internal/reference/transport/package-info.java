/**
 * How data gets from one rank of the reference backend to another: {@code SendLink} and {@code
 * ReceiveLink}, the ends of a queue of slices with a fixed number of slots. It lies in the memory
 * of the process, in memory that processes of a host share, or goes over TCP.
 *
 * <p>Links know their communicator as a {@code LinkContext}.
 */
package io.nccl4j.internal.reference.transport;
