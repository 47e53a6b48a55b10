package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.RankSets;
import java.util.BitSet;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;

/**
 * A rank that has come to a meeting, until it is a member of a new world or has failed.
 *
 * @param rank its number in the meeting
 * @param communicator the communicator that failures concern: the one it comes from, or else its
 *     new one
 * @param aborted returns what to throw if the rank has been aborted, in its old communicator or its
 *     new one; else null
 */
public record Participant(
    Bootstrap bootstrap,
    int rank,
    String communicator,
    Deadline deadline,
    Supplier<CommunicatorAbortedException> aborted) {

  /** Waits until another process of the new world has connected to this one. */
  public void awaitConnection(RankMap plan, int process, BooleanSupplier connected) {
    BitSet ranks = ranksOf(plan, process);
    String text = describe(plan, process) + " did not connect to this process";
    bootstrap.await(this, connected, () -> new Bootstrap.MissingRanks(text, ranks));
  }

  /** Names a process of the new world, and its ranks by their numbers in the meeting. */
  public String describe(RankMap plan, int process) {
    return RankSets.describe(ranksOf(plan, process)) + " (" + plan.processes().get(process) + ")";
  }

  /** Returns the ranks of a process of the new world, by their numbers in the meeting. */
  public BitSet ranksOf(RankMap plan, int process) {
    return bootstrap.ranksIn(plan, process);
  }
}
