/**
 * The ranks of a communicator of the reference backend. Each process has a {@code
 * CommunicatorState} for each communicator, with a {@code HostedRank} for each of its own ranks, a
 * {@code RankState} for every rank, and a {@code RemoteProcess} for each other process. A {@code
 * RankFailure} says what has ended it.
 *
 * <p>{@code RankExecution} is one operation, or several that a group put together, of a member:
 * transfers, which one thread advances in turn, none ever waiting on its own. Where all transfers
 * of a thread wait, its {@code IdleStrategy} decides how, and {@code RankExecution} looks for what
 * could keep them waiting indefinitely: an abort, a rank that failed, left or calls something else,
 * a deadline.
 */
package io.nccl4j.internal.reference.rank;
