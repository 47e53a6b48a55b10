package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.internal.auth.SessionKeys;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInput;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.ProtocolException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.UUID;

/**
 * How a connection between two processes begins. The process that accepts sends a greeting with a
 * random nonce. The one that connects answers with a claim: what the connection is for, the name of
 * the secret, the process that it wants to reach, a nonce of its own, and a proof that it knows the
 * secret and has made this claim for this greeting ({@link SessionKeys}). So the secret is never
 * sent, and a claim is worth nothing on another connection or at another process.
 *
 * <p>Control messages that follow are sealed with the keys of the connection, in both directions;
 * that is how the connecting side knows that the other one has the secret too. The data of a link
 * is neither sealed nor signed.
 */
public final class Handshake {
  private static final int NONCE_BYTES = 32;
  private static final String PROTOCOL = "nccl4j reference";
  private static final byte[] NOTHING = new byte[0];

  public static final int GREETING_BYTES = 2 * Integer.BYTES + NONCE_BYTES;

  /** The longest body of a claim: all that a process takes before the other one is known. */
  static final int MOST_CLAIM_BYTES = 256;

  private Handshake() {}

  /** Returns a new greeting. */
  public static byte[] greeting() {
    return ByteBuffer.allocate(GREETING_BYTES)
        .putInt(Message.MAGIC)
        .putInt(Message.VERSION)
        .put(SessionKeys.randomBytes(NONCE_BYTES))
        .array();
  }

  private static SessionKeys keys(Secret secret, byte[] greeting, byte[] claim) {
    return new SessionKeys(secret.toBytes(), PROTOCOL, greeting, claim);
  }

  private static void checkVersion(int version) throws ProtocolException {
    if (version != Message.VERSION) {
      throw new ProtocolException(
          "it speaks version " + version + "; this process speaks " + Message.VERSION);
    }
  }

  /**
   * What the connecting side wants.
   *
   * @param kind one of those that open a connection
   * @param process the process that is to be reached
   * @param world the world that is to be reached, if the kind needs one
   * @param detail what the kind needs beside that
   */
  public record Opening(
      Message.Kind kind, Secret secret, UUID process, long communicator, Message.Body detail) {
    /**
     * Makes the claim that answers a greeting.
     *
     * @throws ProtocolException if the other side speaks something else
     */
    public Answer answer(byte[] greeting) throws ProtocolException {
      ByteBuffer said = ByteBuffer.wrap(greeting);
      int magic = said.getInt();
      if (magic != Message.MAGIC) {
        throw new ProtocolException("its greeting has magic 0x%08x".formatted(magic));
      }
      checkVersion(said.getInt());
      byte[] claim = claim();
      SessionKeys keys = keys(secret, greeting, claim);
      byte[] proof = keys.proof(kind.name(), NOTHING);
      ByteBuffer message =
          Message.of(
              kind,
              out -> {
                out.write(claim);
                out.write(proof);
              });
      return new Answer(message, keys);
    }

    private byte[] claim() {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      DataOutputStream out = new DataOutputStream(bytes);
      try {
        out.writeInt(Message.VERSION);
        ProcessAddress.writeUuid(out, secret.name());
        ProcessAddress.writeUuid(out, process);
        out.write(SessionKeys.randomBytes(NONCE_BYTES));
        out.writeLong(communicator);
        detail.write(out);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
      return bytes.toByteArray();
    }
  }

  /** The connecting side's first message, and the keys of what follows. */
  public record Answer(ByteBuffer message, SessionKeys keys) {}

  /** What the accepting side was asked for; not to be believed before it has been proved. */
  public static final class Claim {
    private final Message.Kind kind;
    private final byte[] said;
    private final byte[] proof;
    private final UUID secretName;
    private final UUID process;
    private final long communicator;
    private final DataInput detail;

    private Claim(Message.Kind kind, byte[] said, byte[] proof) throws IOException {
      this.kind = kind;
      this.said = said;
      this.proof = proof;
      DataInputStream in = new DataInputStream(new ByteArrayInputStream(said));
      checkVersion(in.readInt());
      this.secretName = ProcessAddress.readUuid(in);
      this.process = ProcessAddress.readUuid(in);
      in.skipNBytes(NONCE_BYTES);
      this.communicator = in.readLong();
      this.detail = in;
    }

    /**
     * Reads a claim.
     *
     * @throws IOException if the message is none
     */
    public static Claim read(Message message) throws IOException {
      if (!message.kind().opens()) {
        throw new ProtocolException("it begins with a " + message.kind() + " message");
      }
      byte[] whole = message.bytes();
      int end = Math.max(0, whole.length - SessionKeys.PROOF_BYTES);
      return new Claim(
          message.kind(), Arrays.copyOf(whole, end), Arrays.copyOfRange(whole, end, whole.length));
    }

    /**
     * Returns the keys of the connection.
     *
     * @param greeting what this connection was greeted with
     * @throws ProtocolException if the other side does not know the secret
     */
    public SessionKeys prove(Secret secret, byte[] greeting) throws ProtocolException {
      SessionKeys keys = keys(secret, greeting, said);
      if (!keys.isProof(proof, kind.name(), NOTHING)) {
        throw new ProtocolException(
            "it does not know the secret that it names, or replays what another has sent");
      }
      return keys;
    }

    Message.Kind kind() {
      return kind;
    }

    UUID secretName() {
      return secretName;
    }

    UUID process() {
      return process;
    }

    long communicator() {
      return communicator;
    }

    /** Returns what the kind needs beside that, to be read once. */
    DataInput detail() {
      return detail;
    }
  }
}
