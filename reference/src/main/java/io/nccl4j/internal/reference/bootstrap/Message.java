package io.nccl4j.internal.reference.bootstrap;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInput;
import java.io.DataInputStream;
import java.io.DataOutput;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.ProtocolException;
import java.nio.ByteBuffer;
import java.util.BitSet;

/**
 * A control message between processes: a magic number, a kind, the size of the content in bytes,
 * and the content.
 */
public final class Message {
  /** The purpose of a message. */
  public enum Kind {
    /** A rank joins the bootstrap of an id; opens a connection, see {@link Handshake}. */
    JOIN(1),
    /** Opens the control connection between two processes of a communicator. */
    CONTROL(2),
    /** Opens the connection of a link; data follows. */
    LINK(3),
    /** A rank has been revoked, closed or aborted, or is in another state of a shrink. */
    PRESENCE(4),
    /** A failure that concerns all ranks. */
    FAILURE(5),
    /** Asks for the progress of the ranks. */
    STATUS_REQUEST(6),
    /** The progress of the ranks. */
    STATUS(7),
    /** A rank joins a bootstrap that the receiver coordinates. */
    MEMBERSHIP_REQUEST(8),
    /** The state of a bootstrap. */
    BOOTSTRAP_STATE(9),
    /** A rank is rejected by a bootstrap. */
    REJECTED(10),
    /** A rank has stopped waiting in a bootstrap, or has failed. */
    GIVE_UP(11),
    /** The path of the shared memory of a link. */
    MEMORY(12),
    /** A rank has connected with the other ranks of its new communicator. */
    CONNECTED(13),
    /** Asks for the state of a bootstrap. */
    BOOTSTRAP_QUERY(14),
    /** The receiver of a link cannot open its shared memory. */
    MEMORY_REFUSED(15);

    private final int code;

    Kind(int code) {
      this.code = code;
    }

    /** Returns whether a connection may begin with this kind. */
    boolean opens() {
      return this == JOIN || this == CONTROL || this == LINK;
    }

    private static Kind of(int code) throws ProtocolException {
      for (Kind kind : values()) {
        if (kind.code == code) {
          return kind;
        }
      }
      throw new ProtocolException("a message has the unknown kind " + code);
    }
  }

  /** Writes the content of a message. */
  public interface Body {
    void write(DataOutput out) throws IOException;
  }

  public static final int MAGIC = 0x4E43_344A;
  public static final int VERSION = 6;
  public static final int HEADER_BYTES = 12;

  /** More than the rank map of 32768 ranks in as many processes needs. */
  public static final int MAX_BYTES = 16 << 20;

  /** More than the ranks of a communicator, or the links of a rank to one process. */
  private static final int MAX_COUNT = 1 << 17;

  /** The number of characters that always fit into a text, whatever they are. */
  private static final int MAX_REASON_CHARS = 0xFFFF / 3;

  private final Kind kind;
  private final byte[] content;
  private final ByteBuffer body;

  private Message(Kind kind, byte[] content) {
    this.kind = kind;
    this.content = content;
    this.body = ByteBuffer.wrap(content);
  }

  /** Returns an encoded message. */
  public static ByteBuffer of(Kind kind, Body body) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(bytes);
    try {
      out.writeInt(MAGIC);
      out.writeInt(kind.code);
      out.writeInt(0);
      body.write(out);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    ByteBuffer message = ByteBuffer.wrap(bytes.toByteArray());
    message.putInt(8, message.limit() - HEADER_BYTES);
    return message;
  }

  /** Returns the header of a message, with another size of the content. */
  public static byte[] headerOf(byte[] message, int size) {
    return ByteBuffer.allocate(HEADER_BYTES)
        .put(message, 0, HEADER_BYTES - Integer.BYTES)
        .putInt(size)
        .array();
  }

  /**
   * Starts to read a message whose header has been received.
   *
   * @param maxBytes the largest size of its content
   */
  public static Message begin(ByteBuffer header, int maxBytes) throws ProtocolException {
    int magic = header.getInt(0);
    if (magic != MAGIC) {
      throw new ProtocolException(
          "a message has magic 0x%08x; it must be 0x%08x".formatted(magic, MAGIC));
    }
    Kind kind = Kind.of(header.getInt(4));
    int size = header.getInt(8);
    if (size < 0 || size > maxBytes) {
      throw new ProtocolException(
          "a " + kind + " message has size " + size + "; it must be from 0 to " + maxBytes);
    }
    return new Message(kind, new byte[size]);
  }

  public Kind kind() {
    return kind;
  }

  /** Returns a message of the same kind with other content. */
  Message with(byte[] plain) {
    return new Message(kind, plain);
  }

  /** Returns the content. */
  public byte[] bytes() {
    return content;
  }

  /** Returns the buffer into which the content is read. */
  ByteBuffer body() {
    return body;
  }

  public DataInput content() {
    return new DataInputStream(new ByteArrayInputStream(content));
  }

  public static void writeBits(DataOutput out, BitSet bits) throws IOException {
    byte[] bytes = bits.toByteArray();
    out.writeInt(bytes.length);
    out.write(bytes);
  }

  public static BitSet readBits(DataInput in) throws IOException {
    byte[] bytes = new byte[count(in)];
    in.readFully(bytes);
    return BitSet.valueOf(bytes);
  }

  /** Reads a count of elements. */
  public static int count(DataInput in) throws IOException {
    int count = in.readInt();
    if (count < 0 || count > MAX_COUNT) {
      throw new ProtocolException(
          "a message has a count of " + count + "; it must be from 0 to " + MAX_COUNT);
    }
    return count;
  }

  /** Writes a reason, truncated if it is too long. */
  public static void writeReason(DataOutput out, String text) throws IOException {
    out.writeUTF(text.substring(0, Math.min(text.length(), MAX_REASON_CHARS)));
  }
}
