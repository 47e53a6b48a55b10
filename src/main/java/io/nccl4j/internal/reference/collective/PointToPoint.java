package io.nccl4j.internal.reference.collective;

import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.internal.reference.transport.ReceiveLink;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.SendLink;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;

/**
 * Any number of messages from and to single peers, which all progress together. Messages between
 * the same two ranks keep their order.
 */
public final class PointToPoint implements Transfer {
  /** A message, or the half of it that is this rank's. */
  private static final class Message {
    int peer;
    MemorySegment memory;
    long offset;
    long bytes;
    long signature;
    long moved;
    boolean done;
    // The message that uses the same end of the same link before this one, or null.
    Message before;

    boolean mayStart() {
      return before == null || before.done;
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
  private final List<Message> spare = new ArrayList<>();
  // The peers that were waited for, and ahead in a collective, at the last look.
  private final BitSet ahead = new BitSet();
  private String function = "";
  // Since when a slice has lain here that is of another operation, or 0.
  private long foreignSince;

  public PointToPoint(RankContext context, Route route) {
    this.context = context;
    this.route = route;
    this.toPeers = new SendLink[context.size()];
    this.fromPeers = new ReceiveLink[context.size()];
    this.lastTo = new Message[context.size()];
    this.lastFrom = new Message[context.size()];
  }

  /** Forgets all messages. */
  public void clear() {
    foreignSince = 0;
    recycle(sends, lastTo);
    recycle(receives, lastFrom);
    ahead.clear();
  }

  private void recycle(List<Message> messages, Message[] last) {
    for (int i = 0; i < messages.size(); i++) {
      Message message = messages.get(i);
      message.memory = null;
      message.before = null;
      last[message.peer] = null;
      spare.add(message);
    }
    messages.clear();
  }

  /** Returns what both ends of a single message must agree on. */
  public static long signature(DataType type, long count) {
    return count << 8 | type.code();
  }

  /** Names the operation that failures are reported for. */
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
    Message message = spare.isEmpty() ? new Message() : spare.removeLast();
    message.peer = peer;
    message.memory = memory;
    message.offset = offset;
    message.bytes = bytes;
    message.signature = signature;
    message.moved = 0;
    message.done = false;
    message.before = last[peer];
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
    if (!link.hasRoom()) {
      return false;
    }
    long most = Math.min(context.layout().sliceBytes(), link.mostBytes());
    long slice = Math.min(most, message.bytes - message.moved);
    // An empty message is one empty slice, so that its type and count are checked too.
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
      checkDisagreement(message, link.signature());
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

  private void checkDisagreement(Message message, long sent) {
    if (route == Route.EXCHANGE) {
      if (context.mayExplain(function, message.peer, foreignSince)) {
        foreignSince = foreignSince == 0 ? System.nanoTime() : foreignSince;
        return;
      }
      throw context.mismatch(function, "rank " + message.peer + " sent data of another operation");
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
    return allDone(receives) && allDone(sends) && drained();
  }

  private static boolean allDone(List<Message> messages) {
    for (int i = 0; i < messages.size(); i++) {
      if (!messages.get(i).done) {
        return false;
      }
    }
    return true;
  }

  private boolean drained() {
    for (int i = 0; i < sends.size(); i++) {
      if (!toPeers[sends.get(i).peer].drained()) {
        return false;
      }
    }
    return true;
  }

  /** Throws if a message can no longer come or be taken, for its peer has gone. */
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
      int peer = sends.get(i).peer;
      if (context.presence(peer).gone() && !toPeers[peer].drained()) {
        throw context.departed(function, peer);
      }
    }
  }

  /**
   * Throws if a peer waits in a collective, where it can neither send nor receive. Once is not
   * enough: its part may have come after this rank had looked for it, and before the peer went
   * ahead. If nothing has moved until the next look, it has not.
   */
  public void checkAgreement() {
    BitSet before = (BitSet) ahead.clone();
    ahead.clear();
    pendingPeers().stream()
        .filter(rank -> rank != context.rank())
        .filter(context::isAheadInCollective)
        .forEach(ahead::set);
    before.and(ahead);
    if (before.isEmpty()) {
      return;
    }
    int rank = before.nextSetBit(0);
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

  /** Returns the time-out of these, or null if no peer is waited for, and so nothing is late. */
  public NcclException timeout() {
    BitSet waitedFor = pendingPeers();
    return waitedFor.isEmpty()
        ? null
        : context.timeout(
            function,
            "waited for " + context.describe(waitedFor) + " to receive or send its part",
            waitedFor);
  }

  private BitSet pendingPeers() {
    BitSet peers = new BitSet();
    for (Message message : receives) {
      if (!message.done) {
        peers.set(message.peer);
      }
    }
    for (Message message : sends) {
      if (!toPeers[message.peer].drained()) {
        peers.set(message.peer);
      }
    }
    return peers;
  }
}
