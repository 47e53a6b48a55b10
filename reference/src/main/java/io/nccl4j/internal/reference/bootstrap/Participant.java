package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.RankSets;
import java.util.BitSet;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;

/**
 * A rank that takes part in a bootstrap, until it has joined a new communicator or has failed.
 *
 * @param rank its rank in the bootstrap
 * @param communicator the communicator that failures name: its parent, or else the new one
 * @param aborted returns the exception to throw if the rank was aborted, in its parent or its new
 *     communicator; else null
 */
public record Participant(
    Bootstrap bootstrap,
    int rank,
    String communicator,
    Deadline deadline,
    Supplier<CommunicatorAbortedException> aborted) {

  /** Waits until another process of the new communicator has connected to this one. */
  public void awaitConnection(RankMap rankMap, int process, BooleanSupplier connected) {
    BitSet ranks = ranksOf(rankMap, process);
    String text = describe(rankMap, process) + " did not connect to this process";
    bootstrap.awaitOthers(this, connected, () -> new Bootstrap.MissingRanks(text, ranks));
  }

  /** Describes a process of the new communicator and its ranks, numbered as in the bootstrap. */
  public String describe(RankMap rankMap, int process) {
    return RankSets.describe(ranksOf(rankMap, process))
        + " ("
        + rankMap.processes().get(process)
        + ")";
  }

  /** Returns the ranks of a process of the new communicator, numbered as in the bootstrap. */
  public BitSet ranksOf(RankMap rankMap, int process) {
    return bootstrap.ranksIn(rankMap, process);
  }
}
