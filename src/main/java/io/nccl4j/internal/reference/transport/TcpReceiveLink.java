package io.nccl4j.internal.reference.transport;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SocketChannel;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * The receiving end of a link from another process. Slices lie in memory of the link until they are
 * released. Nothing that comes is trusted: a header that cannot be fails every rank, and names the
 * sender.
 *
 * <p>Nothing here waits. The receiver's thread alone uses it, but for what the thread of the site
 * says: that the sender has connected, or how much it had sent when it closed.
 */
public final class TcpReceiveLink implements ReceiveLink {
  /** How many slices of the largest size may lie here. */
  private static final int SLOTS = 4;

  private final LinkContext context;
  private final LinkKey key;
  private final TcpFailure trouble;
  private final AtomicBoolean offered = new AtomicBoolean();
  private final int mostBytes;
  // Made when the first slice comes, since many links are never used.
  private ByteBuffer arrived;
  private MemorySegment memory;
  private volatile SocketChannel channel;
  private volatile boolean closed;
  private volatile long expected = Long.MAX_VALUE;
  // What has come and is not released lies from begin to end.
  private int begin;
  private int end;
  private long received;
  private boolean here;

  TcpReceiveLink(LinkContext context, LinkKey key) {
    this.context = context;
    this.key = key;
    this.trouble = new TcpFailure(context, key.from());
    this.mostBytes = context.sliceBytes();
  }

  /** Returns whether the sender may connect; it may once. */
  public boolean offer() {
    return offered.compareAndSet(false, true);
  }

  public void connected(SocketChannel from) {
    channel = from;
    if (closed) {
      TcpFailure.close(from);
    }
  }

  /** Says how many slices the sender had sent when it closed. */
  void expect(long slices) {
    expected = slices;
  }

  @Override
  public int source() {
    return key.from();
  }

  @Override
  public boolean ready() {
    return here || parse() || (fill() && parse());
  }

  @Override
  public boolean exhausted() {
    if (ready()) {
      return false;
    }
    Presence presence = context.presence(key.from());
    if (presence != Presence.CLOSED) {
      return presence.gone();
    }
    // What the sender said as it closed may have overtaken what it sent before.
    return expected == Long.MAX_VALUE ? !offered.get() : received >= expected;
  }

  private boolean fill() {
    SocketChannel from = channel;
    if (from == null || trouble.broken()) {
      return false;
    }
    if (arrived == null) {
      arrived = ByteBuffer.allocateDirect(SLOTS * TcpFrame.size(mostBytes));
      arrived.order(ByteOrder.nativeOrder());
      memory = MemorySegment.ofBuffer(arrived);
    }
    makeRoom();
    try {
      arrived.limit(arrived.capacity()).position(end);
      int count = from.read(arrived);
      arrived.clear();
      if (count < 0) {
        trouble.begin("it was closed");
        return false;
      }
      end += count;
      return count > 0;
    } catch (IOException e) {
      trouble.begin(e.getMessage());
      return false;
    }
  }

  private void makeRoom() {
    if (begin == end) {
      begin = 0;
      end = 0;
    } else if (arrived.capacity() - begin < TcpFrame.size(mostBytes)) {
      arrived.limit(end).position(begin);
      arrived.compact();
      end -= begin;
      begin = 0;
    }
  }

  private boolean parse() {
    if (end - begin < TcpFrame.HEADER_BYTES) {
      return false;
    }
    String nonsense = TcpFrame.check(arrived, begin, received, mostBytes);
    if (nonsense != null) {
      throw trouble.protocolViolation(nonsense);
    }
    here = end - begin >= TcpFrame.size(TcpFrame.bytes(arrived, begin));
    return here;
  }

  @Override
  public MemorySegment memory() {
    return memory;
  }

  @Override
  public long offset() {
    return (long) begin + TcpFrame.HEADER_BYTES;
  }

  @Override
  public long bytes() {
    return TcpFrame.bytes(arrived, begin);
  }

  @Override
  public long signature() {
    return TcpFrame.signature(arrived, begin);
  }

  @Override
  public void release() {
    begin += TcpFrame.size(TcpFrame.bytes(arrived, begin));
    received++;
    here = false;
  }

  /** Ends the connection, from any thread. */
  public void close() {
    closed = true;
    TcpFailure.close(channel);
  }
}
