/**
 * The pure-Java backend: the same contract with no GPU and no native code, each rank a thread of
 * this or another process. It is there to prove numbers and to run GPU programs where there is no
 * GPU.
 *
 * <p>A {@code ReferenceStream} is a queue with one thread. What the thread finds there is the work
 * of one {@code Member}, a rank in its {@code World}, or of several that a group put together. Work
 * consists of {@code Transfer}s, which one thread takes further in turn, none ever waiting on its
 * own: the ring (reduce-scatter, all-gather, all-reduce), the chain along the ring (broadcast,
 * reduce), two trees (all-reduce), and the exchange of single messages (all the rest). {@code
 * DirectTransfer} (all-reduce) reads and writes every rank's memory, having met the others on the
 * {@code Board}; {@code SharedTransfer} (all-reduce in several processes of one host) does so
 * through a {@code SharedBoard}, memory that all have mapped; the rest reach other ranks only over
 * {@code SendLink} and {@code ReceiveLink}, queues of slices with a fixed number of slots. Where
 * all transfers of a thread wait, its {@code Patience} decides how, and {@code Work} looks for what
 * could keep them waiting for ever: an abort, a rank that failed, left or calls something else, a
 * deadline.
 *
 * <p>A process is a {@code Site} to the others, whose {@code EventLoop} hears them. Ranks that are
 * to be together come to a {@code Meeting}, which ends with a {@code Plan} of who is where; each
 * process makes its {@code World} of it, with a {@code Member} for each of its own ranks, a {@code
 * Peer} for every rank, and a {@code Remote} for each other process. {@code docs/architecture.md}
 * says how they talk.
 *
 * <p>{@code Arithmetic} and the {@code Kernel} of each type do what reductions do to elements,
 * rounding to the type at every step as NCCL does.
 *
 * <p>Steady state allocates nothing on the heap outside groups: queue entries, transfers, messages
 * and arrays are reused.
 */
package io.nccl4j.reference;
