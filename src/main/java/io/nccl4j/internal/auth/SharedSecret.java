package io.nccl4j.internal.auth;

import java.nio.charset.StandardCharsets;

/** What the ranks of a run know and nobody else, as keys are made from it. It is never shown. */
public final class SharedSecret {
  /** The environment variable that users put it into. */
  public static final String VARIABLE = "NCCL4J_SECRET";

  private static final String PROTOCOL = "nccl4j rendezvous";

  private final byte[] bytes;

  /** Takes bytes over. */
  public SharedSecret(byte[] bytes) {
    this.bytes = bytes;
  }

  /** Returns what stands for a secret where there is none: everybody knows it. */
  public static SharedSecret none() {
    return new SharedSecret("nccl4j without a secret".getBytes(StandardCharsets.US_ASCII));
  }

  /** Returns the keys of one connection to rank 0. */
  public SessionKeys sessionKeys(byte[] greeting, byte[] claim) {
    return new SessionKeys(bytes, PROTOCOL, greeting, claim);
  }

  /** Returns a cipher for the one message of a context. */
  public AeadCipher cipher(byte[] context) {
    return new AeadCipher(SessionKeys.derive(bytes, PROTOCOL, context, AeadCipher.KEY_BYTES), 0);
  }
}
