/**
 * What one rank of the reference backend does in an operation.
 *
 * <p>An operation consists of {@code Transfer}s, which the rank's thread advances in turn: the ring
 * (reduce-scatter, all-gather, all-reduce), the chain along the ring (broadcast, reduce), two trees
 * (all-reduce), and the exchange of single messages (all the rest). {@code DirectAllReduce}
 * (all-reduce) reads and writes every rank's memory, after the ranks have met on the {@code
 * DirectSync}; {@code SharedMemoryAllReduce} (all-reduce in several processes of one host) does so
 * through memory that all have mapped. The others reach other ranks only over links.
 *
 * <p>Transfers know their communicator as a {@code RankContext}.
 */
package io.nccl4j.internal.reference.collective;
