/**
 * How ranks of the reference backend find each other.
 *
 * <p>A process is a {@code ProcessEndpoint} to the others, whose {@code EventLoop} accepts
 * connections and reads messages. Ranks that are to form a communicator come to a {@code
 * Bootstrap}, which ends with a {@code RankMap} of which rank is where; each process makes its part
 * of the communicator from it.
 *
 * <p>Connections know the communicators of the process as {@code CommunicatorEndpoint}s, and a
 * meeting the communicator that its ranks come from as its {@code Parent}.
 */
package io.nccl4j.internal.reference.bootstrap;
