/**
 * The pure-Java backend: the same contract with no GPU and no native code, each rank a thread of
 * this or another process. It is there to prove numbers and to run GPU programs where there is no
 * GPU.
 *
 * <p>A {@code ReferenceStream} is a queue with one thread. What the thread finds there is the work
 * of one {@code Member}, a rank in its {@code World}, or of several that a group put together. Work
 * consists of transfers, which one thread advances in turn, none ever waiting on its own. Where all
 * transfers of a thread wait, its {@code Patience} decides how, and {@code Work} looks for what
 * could keep them waiting indefinitely: an abort, a rank that failed, left or calls something else,
 * a deadline.
 *
 * <p>Each process has a {@code World} for each communicator, with a {@code Member} for each of its
 * own ranks, a {@code Peer} for every rank, and a {@code Remote} for each other process. The parts
 * that these are built on have packages of their own, which are not exported: the bootstrap, the
 * collectives, the links between ranks, and the arithmetic. {@code docs/architecture.md} describes
 * them.
 *
 * <p>Steady state allocates nothing on the heap outside groups: queue entries, transfers, messages
 * and arrays are reused.
 */
package io.nccl4j.reference;
