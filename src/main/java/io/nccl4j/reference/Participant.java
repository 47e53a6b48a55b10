package io.nccl4j.reference;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.NcclException;
import io.nccl4j.internal.util.Deadline;
import java.util.BitSet;
import java.util.function.BooleanSupplier;

/**
 * A rank that has come to a meeting, until it is a member of a new world or has failed.
 *
 * @param rank its number in the meeting
 * @param parent the member of the world that it comes from; null for a new rank
 * @param aborted whether its new communicator has been aborted
 * @param name names its new communicator
 */
record Participant(
    Meeting meeting,
    int rank,
    Member parent,
    Deadline deadline,
    BooleanSupplier aborted,
    String name) {

  /**
   * Takes part until all ranks have connected; returns the member of the new world, or null for a
   * rank without a color.
   *
   * @throws NcclException if this rank is refused, or the meeting has failed for all ranks
   */
  Member join(Site site, ReferenceOptions options) {
    Meeting.Seat seat = meeting.awaitSeat(this);
    World world = null;
    try {
      if (seat != null) {
        world = seat.plan().form(site, options, this);
      }
      meeting.confirm(rank);
      meeting.awaitDone(this);
      return world == null ? null : world.member(seat.rank());
    } catch (RuntimeException | Error e) {
      String why = e instanceof NcclException failure ? failure.text() : e.toString();
      meeting.giveUp("rank " + rank + " failed to connect: " + why, null);
      if (world != null) {
        world.abandon("rank " + seat.rank() + " gave up connecting: " + why);
      }
      throw e;
    }
  }

  /** Returns the communicator that failures concern: the one it comes from, or else its new one. */
  String communicator() {
    return parent == null ? name : parent.toString();
  }

  /** Returns what to throw if the rank has been aborted, in its old communicator or its new one. */
  CommunicatorAbortedException abort() {
    if (aborted.getAsBoolean()) {
      return new CommunicatorAbortedException(meeting.function(), name);
    }
    return parent != null && parent.self().presence() == Peer.Presence.ABORTED
        ? new CommunicatorAbortedException(meeting.function(), parent.toString())
        : null;
  }

  /** Waits until another process of the new world has connected to this one. */
  void awaitConnection(Remote remote) {
    BitSet ranks = ranksOf(remote);
    String text = describe(remote) + " did not connect to this process";
    meeting.await(this, remote::connected, () -> new Meeting.Shortfall(text, ranks));
  }

  /** Names another process of the new world, and its ranks by their numbers in the meeting. */
  String describe(Remote remote) {
    return Member.ranks(ranksOf(remote)) + " (" + remote.location() + ")";
  }

  /** Returns the ranks of another process of the new world, by their numbers in the meeting. */
  BitSet ranksOf(Remote remote) {
    return meeting.ranksIn(remote.plan(), remote.process());
  }
}
