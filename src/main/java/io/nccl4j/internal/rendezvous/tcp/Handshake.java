package io.nccl4j.internal.rendezvous.tcp;

import io.nccl4j.internal.auth.SessionKeys;
import io.nccl4j.internal.auth.SharedSecret;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.Token;
import java.nio.ByteBuffer;
import java.util.Arrays;
import javax.crypto.AEADBadTagException;

/**
 * Authenticates and encrypts one connection between rank 0 and a client.
 *
 * <p>Rank 0 sends a greeting with a random nonce. The client answers with its claim, its own nonce,
 * and an HMAC-SHA256 over both messages. Rank 0's answer is sealed with AES-256-GCM and bound to
 * both messages. The client confirms with an HMAC over all three. The keys ({@link SessionKeys})
 * are derived from the secret and both nonces, so they are new on every connection: recorded
 * messages are useless on another connection, and each side has proved that it knows the secret.
 */
public final class Handshake {
  public static final int GREETING_BYTES = Long.BYTES + Integer.BYTES + Handshake.NONCE_BYTES;
  public static final int PROOF_BYTES = SessionKeys.PROOF_BYTES;
  public static final int CLAIM_BYTES =
      Long.BYTES + 5 * Integer.BYTES + 2 * Token.BYTES + Handshake.NONCE_BYTES + PROOF_BYTES;

  private static final long MAGIC = 0x4e43434c344a5256L; // NCCL4JRV
  private static final int VERSION = 2;
  private static final int NONCE_BYTES = 32;
  private static final String CLAIM_LABEL = "claim";
  private static final String RECEIPT_LABEL = "receipt";
  private static final byte[] NOTHING = new byte[0];

  private final byte[] transcript;
  private final SessionKeys keys;

  private Handshake(SharedSecret secret, byte[] greeting, byte[] claim) {
    this.keys = secret.sessionKeys(greeting, claim);
    this.transcript = keys.transcript();
  }

  /**
   * A client's identity.
   *
   * @param rank its rank
   * @param size its world size
   * @param round the round it is in
   * @param backend the backend that it will use the id with
   * @param jobId identifies its run
   * @param instance identifies its attempt: connections with the same value are of one process
   */
  public record Claim(
      int rank, int size, int round, RankBackend backend, Token jobId, Token instance) {}

  /** Returns a new greeting of rank 0. */
  public static byte[] greeting() {
    return ByteBuffer.allocate(GREETING_BYTES)
        .putLong(MAGIC)
        .putInt(VERSION)
        .put(SessionKeys.randomBytes(NONCE_BYTES))
        .array();
  }

  /** Returns the client's side, given the greeting that it received. */
  public static Handshake ofClient(SharedSecret secret, byte[] greeting, Claim claim)
      throws RejectedException {
    checkHeader(greeting, GREETING_BYTES);
    ByteBuffer bytes = ByteBuffer.allocate(CLAIM_BYTES - PROOF_BYTES);
    bytes.putLong(MAGIC).putInt(VERSION);
    bytes.putInt(claim.rank()).putInt(claim.size()).putInt(claim.round());
    bytes.putInt(claim.backend().code());
    claim.jobId().write(bytes);
    claim.instance().write(bytes);
    bytes.put(SessionKeys.randomBytes(NONCE_BYTES));
    return new Handshake(secret, greeting, bytes.array());
  }

  /**
   * Returns rank 0's side, given the client's first message.
   *
   * @throws RejectedException if the client has not proved that it knows the secret
   */
  public static Handshake ofServer(SharedSecret secret, byte[] greeting, byte[] message)
      throws RejectedException {
    checkHeader(message, CLAIM_BYTES);
    byte[] claim = Arrays.copyOf(message, CLAIM_BYTES - PROOF_BYTES);
    Handshake handshake = new Handshake(secret, greeting, claim);
    byte[] proof = Arrays.copyOfRange(message, CLAIM_BYTES - PROOF_BYTES, CLAIM_BYTES);
    if (!handshake.keys.isProof(proof, CLAIM_LABEL, NOTHING)) {
      throw new RejectedException(RejectReason.NOT_AUTHENTIC, "its proof is wrong");
    }
    return handshake;
  }

  private static void checkHeader(byte[] message, int length) throws RejectedException {
    ByteBuffer bytes = ByteBuffer.wrap(message);
    if (message.length < Long.BYTES + Integer.BYTES || bytes.getLong() != MAGIC) {
      throw new RejectedException(
          RejectReason.MALFORMED, "its first message lacks nccl4j's magic number");
    }
    int version = bytes.getInt();
    if (version != VERSION) {
      throw new RejectedException(
          RejectReason.WRONG_VERSION, "it uses version " + version + "; this side uses " + VERSION);
    }
    if (message.length != length) {
      throw new RejectedException(
          RejectReason.MALFORMED,
          "its first message has " + message.length + " bytes; it must have " + length);
    }
  }

  /** Returns the client's first message. */
  public byte[] claimMessage() {
    byte[] claim = Arrays.copyOfRange(transcript, GREETING_BYTES, transcript.length);
    return ByteBuffer.allocate(CLAIM_BYTES)
        .put(claim)
        .put(keys.proof(CLAIM_LABEL, NOTHING))
        .array();
  }

  /** Returns the client's claim. */
  public Claim claim() {
    ByteBuffer bytes = ByteBuffer.wrap(transcript);
    bytes.position(GREETING_BYTES + Long.BYTES + Integer.BYTES);
    return new Claim(
        bytes.getInt(),
        bytes.getInt(),
        bytes.getInt(),
        RankBackend.ofCode(bytes.getInt()),
        Token.read(bytes),
        Token.read(bytes));
  }

  /** Returns the client's receipt for a sealed answer. */
  public byte[] receipt(byte[] sealed) {
    return keys.proof(RECEIPT_LABEL, sealed);
  }

  public boolean isReceipt(byte[] message, byte[] sealed) {
    return keys.isProof(message, RECEIPT_LABEL, sealed);
  }

  /** Seals rank 0's answer. */
  public byte[] seal(byte[] answer) {
    return keys.toConnector().seal(answer, transcript);
  }

  /** Opens rank 0's sealed answer. */
  public byte[] open(byte[] sealed) throws RejectedException {
    try {
      return keys.toConnector().open(sealed, transcript);
    } catch (AEADBadTagException e) {
      RejectedException rejected =
          new RejectedException(
              RejectReason.NOT_AUTHENTIC, "its answer is not sealed with the secret");
      rejected.initCause(e);
      throw rejected;
    }
  }
}
