package io.nccl4j.internal.reference.collective;

import io.nccl4j.FailureDetails;
import io.nccl4j.NcclException;
import io.nccl4j.internal.reference.transport.Presence;
import io.nccl4j.internal.reference.transport.ReceiveLink;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.SendLink;
import io.nccl4j.internal.reference.transport.SharedMemorySync;
import io.nccl4j.schedule.Layout;
import java.util.BitSet;

/** What a rank's operations need of its communicator. */
public interface RankContext {
  int rank();

  /** Returns the number of ranks. */
  int size();

  /** Returns how an all-reduce is carried out; null to choose by its size. */
  AllReduceAlgorithm algorithm();

  Layout layout();

  /** Returns whether all ranks are of this process. */
  boolean inOneProcess();

  /** Returns whether all ranks may share memory. */
  boolean allShareMemory();

  /** Returns the link by which this rank sends to another one. */
  SendLink sendLink(Route route, int channel, int to);

  /** Returns the link by which this rank receives from another one. */
  ReceiveLink receiveLink(Route route, int channel, int from);

  /** Returns where the ranks of one process meet for direct transfers. */
  DirectSync directSync();

  /** Returns the board that ranks of several processes share; null while there is none. */
  SharedMemorySync sharedMemorySync();

  /** Returns whether anything has happened that a waiting rank should look at. */
  boolean failureSignalled();

  /** Ends the sleep of another rank of this process. */
  void wake(int peer);

  /** Returns the number of the collective that this rank has entered last. */
  long entered();

  Presence presence(int peer);

  /** Returns whether a peer waits in a collective that this rank has not entered. */
  boolean isAheadInCollective(int peer);

  /** Names the collective that a peer has entered last. */
  String describeCollective(int peer);

  /** Names ranks, and the processes of those that are of others. */
  String describe(BitSet ranks);

  /**
   * Throws if what was read from another rank's memory may not be what that rank sent: it was
   * released from the operation since.
   */
  void checkSource(int source, String function);

  /** Throws if something has failed on any rank. */
  void checkFault(String function);

  /**
   * Returns whether a rank from which something has arrived of another operation may yet say which
   * one that is, and asks it to.
   *
   * @param since when it was asked first, or 0
   * @throws NcclException if something has failed, or a rank has said that it differs
   */
  boolean mayExplain(String function, int source, long since);

  /** Reports to all ranks that calls differ, and returns what to throw here. */
  NcclException mismatch(String function, String text);

  /** Returns what to throw because a rank has gone that was needed. */
  NcclException departed(String function, int peer);

  /** Reports to all ranks that others were waited for in vain, and returns what to throw here. */
  NcclException timeout(String function, String text, BitSet missing);

  /**
   * Returns what a failure of a function of this rank concerns, as far as this rank knows now.
   *
   * @param failed ranks that have failed; those that have left are added
   * @param missing ranks that were waited for in vain
   */
  FailureDetails details(String function, BitSet failed, BitSet missing);
}
