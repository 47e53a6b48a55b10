package io.nccl4j.internal.reference.transport;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SocketChannel;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * The receiving end of a TCP link from another process. Slices stay in the link's memory until they
 * are released. Received data is not trusted: an invalid header fails every rank with an exception
 * that names the sender.
 *
 * <p>No method blocks. Only the receiver's thread uses this object, except that the event loop
 * reports that the sender has connected, and how many slices it had sent when it closed.
 */
public final class TcpReceiveLink implements ReceiveLink {
  /** The capacity of the buffer in slices of the maximum size. */
  private static final int SLOTS = 4;

  private final LinkContext context;
  private final LinkKey key;
  private final TcpFailure failure;
  private final AtomicBoolean offered = new AtomicBoolean();
  private final int maxBytes;
  // Allocated by the first read, since many links are never used.
  private ByteBuffer arrived;
  private MemorySegment memory;
  private volatile SocketChannel channel;
  private volatile boolean closed;
  private volatile long expected = Long.MAX_VALUE;
  // Data that has arrived and is not released is from begin to end.
  private int begin;
  private int end;
  private long received;
  private boolean available;

  TcpReceiveLink(LinkContext context, LinkKey key) {
    this.context = context;
    this.key = key;
    this.failure = new TcpFailure(context, key.from());
    this.maxBytes = context.sliceBytes();
  }

  /** Returns whether the sender may connect: true for the first call only. */
  public boolean offer() {
    return offered.compareAndSet(false, true);
  }

  public void connected(SocketChannel from) {
    channel = from;
    if (closed) {
      TcpFailure.close(from);
    }
  }

  /** Sets the number of slices that the sender had sent when it closed. */
  void expect(long slices) {
    expected = slices;
  }

  @Override
  public int source() {
    return key.from();
  }

  @Override
  public boolean ready() {
    return available || parse() || (fill() && parse());
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
    // The sender's report of its close may arrive before its last slices.
    return expected == Long.MAX_VALUE ? !offered.get() : received >= expected;
  }

  private boolean fill() {
    SocketChannel from = channel;
    if (from == null || failure.broken()) {
      return false;
    }
    if (arrived == null) {
      arrived = ByteBuffer.allocateDirect(SLOTS * TcpFrame.size(maxBytes));
      arrived.order(ByteOrder.nativeOrder());
      memory = MemorySegment.ofBuffer(arrived);
    }
    compact();
    try {
      arrived.limit(arrived.capacity()).position(end);
      int count = from.read(arrived);
      arrived.clear();
      if (count < 0) {
        failure.begin("it was closed");
        return false;
      }
      end += count;
      return count > 0;
    } catch (IOException e) {
      failure.begin(e.getMessage());
      return false;
    }
  }

  private void compact() {
    if (begin == end) {
      begin = 0;
      end = 0;
    } else if (arrived.capacity() - begin < TcpFrame.size(maxBytes)) {
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
    String error = TcpFrame.check(arrived, begin, received, maxBytes);
    if (error != null) {
      throw new ProtocolViolationException(key.from(), error);
    }
    available = end - begin >= TcpFrame.size(TcpFrame.bytes(arrived, begin));
    return available;
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
    available = false;
  }

  /** Closes the connection; may be called by any thread. */
  public void close() {
    closed = true;
    TcpFailure.close(channel);
  }
}
