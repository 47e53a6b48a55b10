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
 * The handshake at the start of a connection between two processes. The accepting process sends a
 * greeting with a random nonce. The connecting process answers with a claim: the purpose of the
 * connection, the name of the secret, the process that it wants to reach, its own nonce, and a
 * proof that it knows the secret and has made this claim for this greeting ({@link SessionKeys}).
 * So the secret is never sent, and a claim is invalid on another connection or at another process.
 *
 * <p>The control messages that follow are sealed with the keys of the connection, in both
 * directions; they prove to the connecting side that the other one knows the secret too. The data
 * of a link is neither sealed nor signed.
 */
public final class Handshake {
  private static final int NONCE_BYTES = 32;
  private static final String PROTOCOL = "nccl4j reference";
  private static final byte[] NOTHING = new byte[0];

  public static final int GREETING_BYTES = 2 * Integer.BYTES + NONCE_BYTES;

  /** The longest body of a claim, the only message accepted before authentication. */
  static final int MAX_CLAIM_BYTES = 256;

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
          "it uses protocol version " + version + "; this process uses " + Message.VERSION);
    }
  }

  /**
   * The request of the connecting side.
   *
   * @param kind a kind that opens a connection
   * @param process the process to reach
   * @param communicator the id of the communicator to reach, if the kind needs one
   * @param detail further content that depends on the kind
   */
  public record Opening(
      Message.Kind kind, Secret secret, UUID process, long communicator, Message.Body detail) {
    /**
     * Returns the claim that answers a greeting.
     *
     * @throws ProtocolException if the other side uses another protocol or version
     */
    public Answer answer(byte[] greeting) throws ProtocolException {
      ByteBuffer received = ByteBuffer.wrap(greeting);
      int magic = received.getInt();
      if (magic != Message.MAGIC) {
        throw new ProtocolException("its greeting has magic 0x%08x".formatted(magic));
      }
      checkVersion(received.getInt());
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

  /** The first message of the connecting side, and the keys of the messages that follow. */
  public record Answer(ByteBuffer message, SessionKeys keys) {}

  /** The request that the accepting side has received; untrusted until it is proved. */
  public static final class Claim {
    private final Message.Kind kind;
    private final byte[] content;
    private final byte[] proof;
    private final UUID secretName;
    private final UUID process;
    private final long communicator;
    private final DataInput detail;

    private Claim(Message.Kind kind, byte[] content, byte[] proof) throws IOException {
      this.kind = kind;
      this.content = content;
      this.proof = proof;
      DataInputStream in = new DataInputStream(new ByteArrayInputStream(content));
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
     * @throws IOException if the message is not a claim
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
     * @param greeting the greeting that was sent on this connection
     * @throws ProtocolException if the other side does not know the secret
     */
    public SessionKeys prove(Secret secret, byte[] greeting) throws ProtocolException {
      SessionKeys keys = keys(secret, greeting, content);
      if (!keys.isProof(proof, kind.name(), NOTHING)) {
        throw new ProtocolException(
            "it does not know the secret that it names, or replays a message of another process");
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

    /** Returns the content that depends on the kind; it can be read once. */
    DataInput detail() {
      return detail;
    }
  }
}
