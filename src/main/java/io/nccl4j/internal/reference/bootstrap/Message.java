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
 * What processes say to each other beside the data: a magic number, a kind, the number of bytes
 * that follow, and those.
 */
public final class Message {
  /** What a message is for. */
  public enum Kind {
    /** A rank comes to where the ranks of an id meet; {@link Handshake} says what comes before. */
    JOIN(1),
    /** The connection over which two processes of a world talk. */
    CONTROL(2),
    /** The connection of one link; data follows. */
    LINK(3),
    /** A rank has been revoked, closed or aborted. */
    PRESENCE(4),
    /** Something went wrong that all ranks are told. */
    FAULT(5),
    /** Wants to know how far the ranks are. */
    ASK(6),
    /** How far the ranks are. */
    STATUS(7),
    /** A rank comes to a meeting that this process convenes. */
    MEET(8),
    /** How a meeting stands. */
    MEETING(9),
    /** A rank cannot take part in a meeting. */
    REFUSED(10),
    /** A rank does not wait for a meeting any longer. */
    GIVE_UP(11),
    /** Names the shared memory that a link goes through. */
    MEMORY(12),
    /** Names the board of all ranks. */
    BOARD(13),
    /** A rank has connected with the other ranks of the world that a meeting makes. */
    CONNECTED(14);

    private final int code;

    Kind(int code) {
      this.code = code;
    }

    /** Returns whether a connection may begin with it. */
    boolean opens() {
      return this == JOIN || this == CONTROL || this == LINK;
    }

    private static Kind of(int code) throws ProtocolException {
      for (Kind kind : values()) {
        if (kind.code == code) {
          return kind;
        }
      }
      throw new ProtocolException("a message has kind " + code + ", which there is not");
    }
  }

  /** Writes what a message says. */
  public interface Body {
    void write(DataOutput out) throws IOException;
  }

  public static final int MAGIC = 0x4E43_344A;
  public static final int VERSION = 2;
  public static final int HEADER_BYTES = 12;

  /** More than the plan of 32768 ranks in as many processes needs. */
  public static final int MOST_BYTES = 16 << 20;

  /** More than a communicator has ranks, or a rank links to one process. */
  private static final int MOST_COUNT = 1 << 17;

  /** So many characters fit into a text, whatever they are. */
  private static final int MOST_REASON_CHARS = 0xFFFF / 3;

  private final Kind kind;
  private final byte[] content;
  private final ByteBuffer body;

  private Message(Kind kind, byte[] content) {
    this.kind = kind;
    this.content = content;
    this.body = ByteBuffer.wrap(content);
  }

  /** Returns a message as it goes over a connection. */
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

  /** Returns the header of a message whose body has another size on the wire. */
  public static byte[] headerOf(byte[] message, int size) {
    return ByteBuffer.allocate(HEADER_BYTES)
        .put(message, 0, HEADER_BYTES - Integer.BYTES)
        .putInt(size)
        .array();
  }

  /**
   * Begins to read a message whose header has come.
   *
   * @param most how large its body may be
   */
  public static Message begin(ByteBuffer header, int most) throws ProtocolException {
    int magic = header.getInt(0);
    if (magic != MAGIC) {
      throw new ProtocolException(
          "a message has magic 0x%08x; it must be 0x%08x".formatted(magic, MAGIC));
    }
    Kind kind = Kind.of(header.getInt(4));
    int size = header.getInt(8);
    if (size < 0 || size > most) {
      throw new ProtocolException(
          "a " + kind + " message has size " + size + "; it must be from 0 to " + most);
    }
    return new Message(kind, new byte[size]);
  }

  public Kind kind() {
    return kind;
  }

  /** Returns a message of the same kind that says something else. */
  Message with(byte[] plain) {
    return new Message(kind, plain);
  }

  /** Returns what follows the header. */
  public byte[] bytes() {
    return content;
  }

  /** Returns where what follows the header belongs. */
  ByteBuffer body() {
    return body;
  }

  public DataInput content() {
    return new DataInputStream(new ByteArrayInputStream(content));
  }

  public static void writeBits(DataOutput out, BitSet bits) throws IOException {
    out.writeBoolean(bits != null);
    if (bits != null) {
      byte[] bytes = bits.toByteArray();
      out.writeInt(bytes.length);
      out.write(bytes);
    }
  }

  public static BitSet readBits(DataInput in) throws IOException {
    if (!in.readBoolean()) {
      return null;
    }
    byte[] bytes = new byte[count(in)];
    in.readFully(bytes);
    return BitSet.valueOf(bytes);
  }

  /** Reads how many of something follow. */
  public static int count(DataInput in) throws IOException {
    int count = in.readInt();
    if (count < 0 || count > MOST_COUNT) {
      throw new ProtocolException(
          "a message has a count of " + count + "; it must be from 0 to " + MOST_COUNT);
    }
    return count;
  }

  public static void writeText(DataOutput out, String text) throws IOException {
    out.writeBoolean(text != null);
    if (text != null) {
      writeReason(out, text);
    }
  }

  /** Writes why something happened; what does not fit is cut off. */
  public static void writeReason(DataOutput out, String text) throws IOException {
    out.writeUTF(text.substring(0, Math.min(text.length(), MOST_REASON_CHARS)));
  }

  static String readText(DataInput in) throws IOException {
    return in.readBoolean() ? in.readUTF() : null;
  }
}
