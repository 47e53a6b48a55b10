/**
 * The ranks of a communicator of the reference backend. Each process has a {@code
 * CommunicatorState} for each communicator, with a {@code HostedRank} for each of its own ranks, a
 * {@code RankState} for every rank, and a {@code RemoteProcess} for each other process. A {@code
 * RankFailure} describes what has ended the communicator.
 *
 * <p>A {@code RankExecution} runs one operation of a rank, or those of a group. It consists of
 * transfers, which one thread advances in turn; none of them blocks. When no transfer of a thread
 * can advance, its {@code IdleStrategy} decides how to wait, and {@code RankExecution} checks for
 * conditions that could make it wait indefinitely: an abort, a rank that failed, left or called
 * another operation, a timeout.
 */
package io.nccl4j.internal.reference.rank;
