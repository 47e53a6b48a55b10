package io.nccl4j.internal.rendezvous.tcp;

import io.nccl4j.internal.util.Deadline;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;

/**
 * Length-prefixed messages on one connection: a two-byte length, then that many bytes. One deadline
 * covers all reads, so that a peer cannot extend it by sending a byte now and then.
 */
public final class FramedConnection implements Closeable {
  private static final int LENGTH_BYTES = 2;
  private static final int MAX_DRAINED_BYTES = 1 << 16;

  private final SocketChannel channel;
  private final Socket socket;
  private final Deadline deadline;

  public FramedConnection(SocketChannel channel, Deadline deadline) throws IOException {
    this.channel = channel;
    this.socket = channel.socket();
    this.deadline = deadline;
    socket.setTcpNoDelay(true);
  }

  /**
   * Reads one message.
   *
   * @throws RejectedException if it is longer than the limit
   * @throws SocketTimeoutException if the deadline has passed
   * @throws EOFException if the peer closed before the end
   */
  public byte[] read(int limit) throws IOException {
    byte[] header = readFully(LENGTH_BYTES);
    int length = Short.toUnsignedInt(ByteBuffer.wrap(header).getShort());
    if (length > limit) {
      throw new RejectedException(
          RejectReason.OVERSIZED,
          "a message of " + length + " bytes; at most " + limit + " are accepted");
    }
    return readFully(length);
  }

  private byte[] readFully(int length) throws IOException {
    byte[] bytes = new byte[length];
    for (int filled = 0; filled < length; ) {
      int count = readSome(bytes, filled);
      if (count < 0) {
        throw new EOFException("the peer closed the connection");
      }
      filled += count;
    }
    return bytes;
  }

  private int readSome(byte[] bytes, int from) throws IOException {
    if (deadline.passed()) {
      throw new SocketTimeoutException("the message did not arrive in time");
    }
    socket.setSoTimeout(deadline.remainingMillis());
    InputStream in = socket.getInputStream();
    return in.read(bytes, from, bytes.length - from);
  }

  /** Writes one message; messages are short enough to always fit into the socket's buffer. */
  public void write(byte[] message) throws IOException {
    byte[] framed =
        ByteBuffer.allocate(LENGTH_BYTES + message.length)
            .putShort((short) message.length)
            .put(message)
            .array();
    OutputStream out = socket.getOutputStream();
    out.write(framed);
    out.flush();
  }

  /**
   * Writes a last message and drains what the peer is still sending, within bounds: closing with
   * unread bytes would reset the connection and lose the message.
   */
  public void writeLast(byte[] message) throws IOException {
    write(message);
    socket.shutdownOutput();
    byte[] dropped = new byte[512];
    for (int total = 0; total < MAX_DRAINED_BYTES && !deadline.passed(); ) {
      int count = readSome(dropped, 0);
      if (count < 0) {
        return;
      }
      total += count;
    }
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }
}
