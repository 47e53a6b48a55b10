/**
 * The ranks of a communicator of the reference backend. Each process has a {@code World} for each
 * communicator, with a {@code Member} for each of its own ranks, a {@code Peer} for every rank, and
 * a {@code Remote} for each other process. A {@code Fault} says what has ended it.
 *
 * <p>{@code Work} is one operation, or several that a group put together, of a member: transfers,
 * which one thread advances in turn, none ever waiting on its own. Where all transfers of a thread
 * wait, its {@code Patience} decides how, and {@code Work} looks for what could keep them waiting
 * indefinitely: an abort, a rank that failed, left or calls something else, a deadline.
 */
package io.nccl4j.internal.reference.rank;
