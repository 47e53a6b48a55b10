package io.nccl4j.internal.auth;

import java.nio.charset.StandardCharsets;

/** The secret that the ranks of a run share. Keys are derived from it; it is never printed. */
public final class SharedSecret {
  /** The environment variable in which users set the secret. */
  public static final String VARIABLE = "NCCL4J_SECRET";

  private static final String PROTOCOL = "nccl4j rendezvous";

  private final byte[] bytes;

  /** Creates a secret from an array, without a copy. */
  public SharedSecret(byte[] bytes) {
    this.bytes = bytes;
  }

  /** Returns the well-known placeholder for runs without a secret. */
  public static SharedSecret none() {
    return new SharedSecret("nccl4j without a secret".getBytes(StandardCharsets.US_ASCII));
  }

  /** Derives the keys of one connection to rank 0. */
  public SessionKeys sessionKeys(byte[] greeting, byte[] claim) {
    return new SessionKeys(bytes, PROTOCOL, greeting, claim);
  }

  /** Returns a cipher for the single message of a context. */
  public AeadCipher cipher(byte[] context) {
    return new AeadCipher(SessionKeys.derive(bytes, PROTOCOL, context, AeadCipher.KEY_BYTES), 0);
  }
}
