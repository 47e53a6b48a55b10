package io.nccl4j.internal.reference.collective;

import io.nccl4j.NcclException;
import io.nccl4j.internal.reference.transport.Presence;
import io.nccl4j.internal.reference.transport.ReceiveLink;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.SendLink;
import io.nccl4j.schedule.Layout;
import io.nccl4j.spi.FailureDetails;
import java.util.BitSet;

/** The communicator as a rank's operations see it. */
public interface RankContext {
  int rank();

  /** Returns the number of ranks. */
  int size();

  /** Returns the all-reduce algorithm, or null to choose it for each call. */
  AllReduceAlgorithm algorithm();

  Layout layout();

  /** Returns whether all ranks are in this process. */
  boolean inOneProcess();

  /** Returns the link over which this rank sends to another one. */
  SendLink sendLink(Route route, int channel, int to);

  /** Returns the link over which this rank receives from another one. */
  ReceiveLink receiveLink(Route route, int channel, int from);

  /** Returns the sync object for direct transfers among the ranks of one process. */
  DirectSync directSync();

  /** Returns whether an event that may affect a waiting rank has been signalled. */
  boolean failureSignalled();

  /** Wakes another rank of this process. */
  void wake(int peer);

  Presence presence(int peer);

  /** Returns whether a peer waits in a collective that this rank has not entered. */
  boolean isAheadInCollective(int peer);

  /** Returns a description of the collective that a peer has entered last. */
  String describeCollective(int peer);

  /** Returns a description of ranks, including the processes of those in other processes. */
  String describe(BitSet ranks);

  /**
   * Throws if data read from another rank's memory may be invalid because the rank's operation was
   * cut off in the meantime.
   */
  void checkSource(int source, String function);

  /** Throws if something has failed on any rank. */
  void checkFault(String function);

  /**
   * Asks a rank that has sent data of another operation which operation that is; returns whether to
   * wait for its answer.
   *
   * @param since the time of the first request, or 0
   * @throws NcclException if something has failed, or a rank has reported a mismatch
   */
  boolean mayExplain(String function, int source, long since);

  /** Reports to all ranks that calls differ; returns the exception to throw. */
  NcclException mismatch(String function, String text);

  /** Returns the exception to throw because a required rank is gone. */
  NcclException departed(String function, int peer);

  /**
   * Returns the details of a failure, as currently known to this rank.
   *
   * @param function the function of this rank that failed
   * @param failed ranks that have failed; those that have left are added
   * @param missing ranks that this rank waited for until the time-out
   */
  FailureDetails details(String function, BitSet failed, BitSet missing);
}
