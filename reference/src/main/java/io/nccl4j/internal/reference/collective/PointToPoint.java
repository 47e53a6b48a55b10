package io.nccl4j.internal.reference.collective;

import io.nccl4j.DataType;
import io.nccl4j.internal.reference.transport.ReceiveLink;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.SendLink;
import io.nccl4j.spi.Awaited;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Any number of point-to-point messages, which progress concurrently. Messages between the same two
 * ranks stay in order.
 */
public final class PointToPoint implements Transfer {
  /** This rank's end of a message, which is a {@link SendLink} or a {@link ReceiveLink}. */
  private static final class Message<L> {
    final int peer;
    final L link;
    final MemorySegment memory;
    final long offset;
    final long bytes;
    final long signature;
    // The preceding message over the same end of the same link, or null.
    final Message<L> previous;
    long moved;
    boolean done;

    Message(
        int peer,
        L link,
        MemorySegment memory,
        long offset,
        long bytes,
        long signature,
        Message<L> previous) {
      this.peer = peer;
      this.link = link;
      this.memory = memory;
      this.offset = offset;
      this.bytes = bytes;
      this.signature = signature;
      this.previous = previous;
    }

    boolean mayStart() {
      return previous == null || previous.done;
    }
  }

  private final RankContext context;
  private final Route route;
  private final List<Message<SendLink>> sends = new ArrayList<>();
  private final List<Message<ReceiveLink>> receives = new ArrayList<>();
  // The last message of each peer.
  private final Map<Integer, Message<SendLink>> lastTo = new HashMap<>();
  private final Map<Integer, Message<ReceiveLink>> lastFrom = new HashMap<>();
  // The pending peers that were ahead in a collective at the last check.
  private final BitSet ahead = new BitSet();
  private String function = "";
  // The time at which a slice of another operation was first seen, or 0.
  private long mismatchSince;

  public PointToPoint(RankContext context, Route route) {
    this.context = context;
    this.route = route;
  }

  /** Encodes the type and count, on which both ends of a message must agree. */
  public static long signature(DataType type, long count) {
    return count << 8 | type.code();
  }

  /** Sets the name of the operation in failures. */
  public void reportAs(String name) {
    function = name;
  }

  public String function() {
    return function;
  }

  public void send(int peer, MemorySegment memory, long offset, long bytes, long signature) {
    SendLink link = context.sendLink(route, 0, peer);
    sends.add(new Message<>(peer, link, memory, offset, bytes, signature, lastTo.get(peer)));
    lastTo.put(peer, sends.getLast());
  }

  public void receive(int peer, MemorySegment memory, long offset, long bytes, long signature) {
    ReceiveLink link = context.receiveLink(route, 0, peer);
    receives.add(new Message<>(peer, link, memory, offset, bytes, signature, lastFrom.get(peer)));
    lastFrom.put(peer, receives.getLast());
  }

  public boolean isEmpty() {
    return sends.isEmpty() && receives.isEmpty();
  }

  @Override
  public boolean advance() {
    boolean moved = false;
    for (Message<SendLink> message : sends) {
      while (!message.done && message.mayStart() && advanceSend(message)) {
        moved = true;
      }
    }
    for (Message<ReceiveLink> message : receives) {
      while (!message.done && message.mayStart() && advanceReceive(message)) {
        moved = true;
      }
    }
    if (moved) {
      ahead.clear();
    }
    return moved;
  }

  private boolean advanceSend(Message<SendLink> message) {
    SendLink link = message.link;
    // If the peer is gone, the checks of this rank's wait find that.
    boolean gone = context.failureSignalled() && context.presence(message.peer).gone();
    if (gone || !link.hasRoom()) {
      return false;
    }
    long slice = Math.min(context.layout().sliceBytes(), message.bytes - message.moved);
    // An empty message is sent as an empty slice, so that its type and count are checked too.
    link.send(message.memory, message.offset + message.moved, slice, message.signature);
    message.moved += slice;
    message.done = message.moved == message.bytes;
    return true;
  }

  private boolean advanceReceive(Message<ReceiveLink> message) {
    ReceiveLink link = message.link;
    if (!link.ready()) {
      return false;
    }
    long slice = link.bytes();
    if (link.signature() != message.signature || slice > message.bytes - message.moved) {
      checkMismatch(message, link.signature());
      return false;
    }
    MemorySegment.copy(
        link.memory(), link.offset(), message.memory, message.offset + message.moved, slice);
    VarHandle.loadLoadFence();
    if (context.failureSignalled()) {
      context.checkSource(message.peer, function);
    }
    link.release();
    message.moved += slice;
    message.done = message.moved == message.bytes;
    return true;
  }

  private void checkMismatch(Message<?> message, long sent) {
    if (route == Route.EXCHANGE) {
      if (context.mayExplain(function, message.peer, mismatchSince)) {
        mismatchSince = mismatchSince == 0 ? System.nanoTime() : mismatchSince;
        return;
      }
      throw context.mismatch(
          function,
          "the collectives of ranks %d and %d differ: rank %d is in %s, rank %d called that or an earlier one differently"
              .formatted(context.rank(), message.peer, context.rank(), function, message.peer));
    }
    context.checkFault(function);
    throw context.mismatch(
        function,
        "send and recv differ: rank %d sends %s, rank %d receives %s"
            .formatted(message.peer, describe(sent), context.rank(), describe(message.signature)));
  }

  private static String describe(long signature) {
    return (signature >>> 8) + " x " + Call.typeOf((int) signature & 0xFF);
  }

  @Override
  public boolean done() {
    return receives.stream().allMatch(message -> message.done)
        && sends.stream().noneMatch(PointToPoint::isPending);
  }

  private static boolean isPending(Message<SendLink> sent) {
    return !sent.done || !sent.link.drained();
  }

  /** Throws if a message can no longer be received or sent because its peer is gone. */
  public void checkPeers() {
    for (Message<ReceiveLink> message : receives) {
      if (!message.done && context.presence(message.peer).gone() && message.link.exhausted()) {
        throw context.departed(function, message.peer);
      }
    }
    for (Message<SendLink> message : sends) {
      if (context.presence(message.peer).gone() && isPending(message)) {
        throw context.departed(function, message.peer);
      }
    }
  }

  /**
   * Throws if a peer waits in a collective, where it can neither send nor receive, at two
   * consecutive checks with no progress in between. One check is not enough: the peer's part may
   * have arrived after this rank polled for it, and before the peer entered the collective.
   */
  public void checkAgreement() {
    BitSet stillAhead = (BitSet) ahead.clone();
    ahead.clear();
    pendingPeers().stream()
        .filter(rank -> rank != context.rank())
        .filter(context::isAheadInCollective)
        .forEach(ahead::set);
    stillAhead.and(ahead);
    if (stillAhead.isEmpty()) {
      return;
    }
    int rank = stillAhead.nextSetBit(0);
    throw context.mismatch(
        function,
        "ranks %d and %d wait for each other: rank %d is in %s, rank %d in %s with rank %d"
            .formatted(
                context.rank(),
                rank,
                rank,
                context.describeCollective(rank),
                context.rank(),
                function,
                rank));
  }

  /** Returns what the pending messages wait for, or null if no peer is pending. */
  public Awaited awaited() {
    BitSet pending = pendingPeers();
    return pending.isEmpty()
        ? null
        : new Awaited(
            "waited for " + context.describe(pending) + " to receive or send its part", pending);
  }

  private BitSet pendingPeers() {
    BitSet peers = new BitSet();
    for (Message<ReceiveLink> message : receives) {
      if (!message.done) {
        peers.set(message.peer);
      }
    }
    for (Message<SendLink> message : sends) {
      if (isPending(message)) {
        peers.set(message.peer);
      }
    }
    return peers;
  }
}
