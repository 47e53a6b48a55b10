package io.nccl4j.internal.reference.transport;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SocketChannel;

/**
 * The sending end of a TCP link to another process. Each link has its own connection, which is
 * opened for the first slice and begins with a handshake. A slice is behind its header in the
 * link's memory; bytes that the socket does not accept are written by later calls.
 *
 * <p>No method blocks. Only the sender's thread uses this object, except for {@link #close} and
 * {@link #sent}.
 */
public final class TcpSendLink implements SendLink {
  /** The capacity of the buffer in slices of the maximum size. */
  private static final int SLOTS = 4;

  private final LinkContext context;
  private final LinkKey key;
  private final TcpFailure failure;
  private final int maxBytes;
  private final ByteBuffer waiting;
  private final MemorySegment memory;
  private volatile SocketChannel channel;
  private final ByteBuffer greeting;
  private boolean connected;
  private volatile boolean closed;
  // Data that waits for the socket is from flushed to end.
  private int flushed;
  private int end;
  private volatile long sent;

  TcpSendLink(LinkContext context, LinkKey key) {
    this.context = context;
    this.key = key;
    this.failure = new TcpFailure(context, key.to());
    this.maxBytes = context.sliceBytes();
    // The 512 bytes are for the claim, the first message, which identifies the link.
    this.waiting = ByteBuffer.allocateDirect(512 + SLOTS * TcpFrame.size(maxBytes));
    this.waiting.order(ByteOrder.nativeOrder());
    this.memory = MemorySegment.ofBuffer(waiting);
    this.greeting = ByteBuffer.allocate(context.greetingBytes());
  }

  public LinkKey key() {
    return key;
  }

  @Override
  public long sent() {
    return sent;
  }

  @Override
  public boolean hasRoom() {
    if (end != 0 || !connected) {
      flush();
    }
    int frame = TcpFrame.size(maxBytes);
    if (waiting.capacity() - end < frame && flushed > 0) {
      waiting.limit(end).position(flushed);
      waiting.compact();
      end -= flushed;
      flushed = 0;
    }
    return connected && waiting.capacity() - end >= frame;
  }

  @Override
  public MemorySegment claim() {
    return memory;
  }

  @Override
  public long claimed() {
    return (long) end + TcpFrame.HEADER_BYTES;
  }

  @Override
  @SuppressWarnings("NonAtomicVolatileUpdate") // Only the sender writes it.
  public void send(MemorySegment slice, long offset, long size, long signature) {
    int bytes = (int) size;
    TcpFrame.write(waiting, end, bytes, sent, signature);
    if (slice != memory) {
      MemorySegment.copy(slice, offset, memory, claimed(), size);
    }
    end += TcpFrame.size(bytes);
    sent = sent + 1;
    flush();
  }

  @Override
  public boolean drained() {
    if (end != 0) {
      flush();
    }
    return end == 0;
  }

  private void flush() {
    if (failure.broken()) {
      return;
    }
    try {
      if (!connected && !connect()) {
        return;
      }
      waiting.limit(end).position(flushed);
      channel.write(waiting);
      flushed = waiting.position();
      if (flushed == end) {
        flushed = 0;
        end = 0;
      }
    } catch (IOException e) {
      failure.begin(e.getMessage());
    } finally {
      // Also after a failure: until it is reported, the rank appends slices at the end.
      waiting.clear();
    }
  }

  private boolean connect() throws IOException {
    if (channel == null) {
      channel = SocketChannel.open();
      channel.configureBlocking(false);
      channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
      channel.connect(context.address(key.to()));
      if (closed) {
        channel.close();
      }
      return false;
    }
    if (!channel.finishConnect()) {
      return false;
    }
    if (greeting.hasRemaining() && channel.read(greeting) < 0) {
      throw new IOException("it was closed before the greeting arrived");
    }
    if (greeting.hasRemaining()) {
      return false;
    }
    ByteBuffer claim = context.claim(key, greeting.array());
    connected = true;
    end = claim.limit();
    waiting.put(0, claim, 0, end);
    return true;
  }

  /** Returns the connection, or null before the first slice; for tests. */
  public SocketChannel channel() {
    return channel;
  }

  /** Closes the connection; may be called by any thread. */
  void close() {
    closed = true;
    TcpFailure.close(channel);
  }
}
