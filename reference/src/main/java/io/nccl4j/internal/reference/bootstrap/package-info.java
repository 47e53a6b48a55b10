/**
 * The bootstrap of the reference backend: how ranks find each other.
 *
 * <p>Other processes see this one as a {@code ProcessEndpoint}, whose {@code EventLoop} accepts
 * connections and reads messages. Ranks that are to form a communicator join a {@code Bootstrap}.
 * It produces a {@code RankMap}, which assigns each rank to a process; each process creates its
 * part of the communicator from it.
 *
 * <p>Connections access the communicators of the process as {@code CommunicatorEndpoint}s. A
 * bootstrap accesses the communicator that its ranks belong to as its {@code Parent}.
 */
package io.nccl4j.internal.reference.bootstrap;
