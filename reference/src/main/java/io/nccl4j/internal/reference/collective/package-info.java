/**
 * One rank's part of an operation of the reference backend.
 *
 * <p>An operation consists of {@code Transfer}s, which the rank's thread advances in turn: the ring
 * (reduce-scatter, all-gather, all-reduce), the chain along the ring (broadcast, reduce), two trees
 * (all-reduce), and point-to-point messages (all other operations). {@code DirectAllReduce}
 * (all-reduce in one process) reads and writes every rank's memory after the ranks have
 * synchronized with {@code DirectSync}. The other transfers reach other ranks only over links.
 *
 * <p>Transfers access their communicator through {@code RankContext}.
 */
package io.nccl4j.internal.reference.collective;
