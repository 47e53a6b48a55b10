package io.nccl4j.internal.rendezvous;

import io.nccl4j.internal.auth.SessionKeys;
import io.nccl4j.internal.auth.SharedSecret;
import java.nio.ByteBuffer;

/**
 * How a connection to a {@link StoreServer} begins. The server sends a greeting with a random
 * number. The client answers with its claim, which has its run, its rank and its own random number,
 * and a proof over both messages that it knows the secret. The server's verdict is one byte.
 *
 * <p>This only keeps strangers from the store. What the client gets there is sealed with the secret
 * ({@link SealedStore}), so it does not have to trust the server.
 */
final class Handshake {
  private static final int NONCE_BYTES = 32;

  static final int HEADER_BYTES = Long.BYTES + Integer.BYTES;
  static final int GREETING_BYTES = HEADER_BYTES + NONCE_BYTES;
  static final int CLAIM_BYTES = HEADER_BYTES + Token.BYTES + Integer.BYTES + NONCE_BYTES;

  // Verdicts.
  static final int ADMITTED = 0;
  static final int WRONG_VERSION = 1;
  static final int WRONG_SECRET = 2;
  static final int OTHER_RUN = 3;

  private static final long MAGIC = 0x4e43434c344a5354L; // NCCL4JST
  private static final int VERSION = 1;
  private static final String LABEL = "claim";
  private static final byte[] NOTHING = {};

  private Handshake() {}

  static byte[] greeting() {
    ByteBuffer greeting = ByteBuffer.allocate(GREETING_BYTES).putLong(MAGIC).putInt(VERSION);
    return greeting.put(SessionKeys.randomBytes(NONCE_BYTES)).array();
  }

  /** Returns the claim that answers a greeting, followed by its proof. */
  static byte[] claim(byte[] greeting, SharedSecret secret, Token run, int rank) {
    ByteBuffer bytes = ByteBuffer.allocate(CLAIM_BYTES).putLong(MAGIC).putInt(VERSION);
    run.write(bytes);
    byte[] claim = bytes.putInt(rank).put(SessionKeys.randomBytes(NONCE_BYTES)).array();
    byte[] proof = secret.sessionKeys(greeting, claim).proof(LABEL, NOTHING);
    return ByteBuffer.allocate(CLAIM_BYTES + proof.length).put(claim).put(proof).array();
  }

  static boolean hasMagic(byte[] message) {
    return ByteBuffer.wrap(message).getLong() == MAGIC;
  }

  static boolean hasVersion(byte[] message) {
    return ByteBuffer.wrap(message).getInt(Long.BYTES) == VERSION;
  }

  static boolean isProof(byte[] proof, byte[] greeting, byte[] claim, SharedSecret secret) {
    return secret.sessionKeys(greeting, claim).isProof(proof, LABEL, NOTHING);
  }
}
