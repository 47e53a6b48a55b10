/**
 * Links between ranks of the reference backend. {@code SendLink} and {@code ReceiveLink} are the
 * two ends of a queue of slices with a fixed number of slots. A link uses the memory of the
 * process, memory that processes of one host share, or TCP.
 *
 * <p>Links access their communicator through {@code LinkContext}.
 */
package io.nccl4j.internal.reference.transport;
