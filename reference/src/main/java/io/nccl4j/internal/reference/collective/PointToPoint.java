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
import java.util.List;

/**
 * Any number of point-to-point messages, which progress concurrently. Messages between the same two
 * ranks stay in order.
 */
public final class PointToPoint implements Transfer {
  /** This rank's end of a message. */
  private static final class Message {
    int peer;
    MemorySegment memory;
    long offset;
    long bytes;
    long signature;
    long moved;
    boolean done;
    // The preceding message over the same end of the same link, or null.
    Message previous;

    boolean mayStart() {
      return previous == null || previous.done;
    }
  }

  private final RankContext context;
  private final Route route;
  private final SendLink[] toPeers;
  private final ReceiveLink[] fromPeers;
  private final Message[] lastTo;
  private final Message[] lastFrom;
  private final List<Message> sends = new ArrayList<>();
  private final List<Message> receives = new ArrayList<>();
  private final List<Message> pool = new ArrayList<>();
  // The pending peers that were ahead in a collective at the last check.
  private final BitSet ahead = new BitSet();
  private String function = "";
  // The time at which a slice of another operation was first seen, or 0.
  private long mismatchSince;

  public PointToPoint(RankContext context, Route route) {
    this.context = context;
    this.route = route;
    this.toPeers = new SendLink[context.size()];
    this.fromPeers = new ReceiveLink[context.size()];
    this.lastTo = new Message[context.size()];
    this.lastFrom = new Message[context.size()];
  }

  /** Removes all messages. */
  public void clear() {
    mismatchSince = 0;
    recycle(sends, lastTo);
    recycle(receives, lastFrom);
    ahead.clear();
  }

  private void recycle(List<Message> messages, Message[] last) {
    for (int i = 0; i < messages.size(); i++) {
      Message message = messages.get(i);
      message.memory = null;
      message.previous = null;
      last[message.peer] = null;
      pool.add(message);
    }
    messages.clear();
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
    if (toPeers[peer] == null) {
      toPeers[peer] = context.sendLink(route, 0, peer);
    }
    add(sends, lastTo, peer, memory, offset, bytes, signature);
  }

  public void receive(int peer, MemorySegment memory, long offset, long bytes, long signature) {
    if (fromPeers[peer] == null) {
      fromPeers[peer] = context.receiveLink(route, 0, peer);
    }
    add(receives, lastFrom, peer, memory, offset, bytes, signature);
  }

  private void add(
      List<Message> messages,
      Message[] last,
      int peer,
      MemorySegment memory,
      long offset,
      long bytes,
      long signature) {
    Message message = pool.isEmpty() ? new Message() : pool.removeLast();
    message.peer = peer;
    message.memory = memory;
    message.offset = offset;
    message.bytes = bytes;
    message.signature = signature;
    message.moved = 0;
    message.done = false;
    message.previous = last[peer];
    last[peer] = message;
    messages.add(message);
  }

  public boolean isEmpty() {
    return sends.isEmpty() && receives.isEmpty();
  }

  @Override
  public boolean advance() {
    boolean moved = false;
    for (int i = 0; i < sends.size(); i++) {
      Message message = sends.get(i);
      while (!message.done && message.mayStart() && advanceSend(message)) {
        moved = true;
      }
    }
    for (int i = 0; i < receives.size(); i++) {
      Message message = receives.get(i);
      while (!message.done && message.mayStart() && advanceReceive(message)) {
        moved = true;
      }
    }
    if (moved) {
      ahead.clear();
    }
    return moved;
  }

  private boolean advanceSend(Message message) {
    SendLink link = toPeers[message.peer];
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

  private boolean advanceReceive(Message message) {
    ReceiveLink link = fromPeers[message.peer];
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

  private void checkMismatch(Message message, long sent) {
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
    return allDone(receives) && allSent();
  }

  private static boolean allDone(List<Message> messages) {
    for (int i = 0; i < messages.size(); i++) {
      if (!messages.get(i).done) {
        return false;
      }
    }
    return true;
  }

  private boolean allSent() {
    for (int i = 0; i < sends.size(); i++) {
      if (isPending(sends.get(i))) {
        return false;
      }
    }
    return true;
  }

  private boolean isPending(Message sent) {
    return !sent.done || !toPeers[sent.peer].drained();
  }

  /** Throws if a message can no longer be received or sent because its peer is gone. */
  public void checkPeers() {
    for (int i = 0; i < receives.size(); i++) {
      Message message = receives.get(i);
      if (!message.done
          && context.presence(message.peer).gone()
          && fromPeers[message.peer].exhausted()) {
        throw context.departed(function, message.peer);
      }
    }
    for (int i = 0; i < sends.size(); i++) {
      Message message = sends.get(i);
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
    for (Message message : receives) {
      if (!message.done) {
        peers.set(message.peer);
      }
    }
    for (Message message : sends) {
      if (isPending(message)) {
        peers.set(message.peer);
      }
    }
    return peers;
  }
}
