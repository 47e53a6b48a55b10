package io.nccl4j.internal.auth;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.SecureRandom;
import javax.crypto.KDF;
import javax.crypto.Mac;
import javax.crypto.spec.HKDFParameterSpec;
import javax.crypto.spec.SecretKeySpec;

/**
 * The keys of one connection between two processes that know the same secret. The accepting side
 * sends a random greeting; the connecting side replies with a claim that contains its own random
 * number. The keys are derived from the secret and both messages by HKDF-SHA256. So they differ for
 * every connection, and messages of one connection cannot be replayed on another.
 */
public final class SessionKeys {
  /** The size of a proof in bytes. */
  public static final int PROOF_BYTES = 32;

  private static final int PROOF_KEY_BYTES = 32;
  private static final int TO_CONNECTOR = PROOF_KEY_BYTES;
  private static final int TO_ACCEPTOR = TO_CONNECTOR + AeadCipher.KEY_BYTES;
  private static final int ALL_BYTES = TO_ACCEPTOR + AeadCipher.KEY_BYTES;

  private static final SecureRandom RANDOM = new SecureRandom();

  private final byte[] transcript;
  private final byte[] keys;

  /**
   * Derives the keys of a connection.
   *
   * @param secret the secret that only both sides know
   * @param protocol the name of the protocol, unique among those that use the same secret
   * @param greeting the message of the accepting side
   * @param claim the reply of the connecting side, without its proof
   */
  public SessionKeys(byte[] secret, String protocol, byte[] greeting, byte[] claim) {
    ByteArrayOutputStream messages = new ByteArrayOutputStream();
    messages.writeBytes(greeting);
    messages.writeBytes(claim);
    this.transcript = messages.toByteArray();
    this.keys = derive(secret, protocol, transcript, ALL_BYTES);
  }

  /** Returns the greeting and the claim. */
  public byte[] transcript() {
    return transcript.clone();
  }

  /**
   * Returns the connecting side's proof that it knows the secret: an HMAC-SHA256 over a label, the
   * transcript and more data.
   */
  public byte[] proof(String label, byte[] more) {
    try {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(keys, 0, PROOF_KEY_BYTES, "HmacSHA256"));
      mac.update(label.getBytes(StandardCharsets.US_ASCII));
      mac.update(transcript);
      return mac.doFinal(more);
    } catch (GeneralSecurityException e) {
      throw missing(e);
    }
  }

  /** Checks a proof in constant time. */
  public boolean isProof(byte[] received, String label, byte[] more) {
    return MessageDigest.isEqual(received, proof(label, more));
  }

  /** Returns a new cipher for messages from the accepting side. */
  public AeadCipher toConnector() {
    return new AeadCipher(keys, TO_CONNECTOR);
  }

  /** Returns a new cipher for messages from the connecting side. */
  public AeadCipher toAcceptor() {
    return new AeadCipher(keys, TO_ACCEPTOR);
  }

  /** Derives key bytes for one protocol and context. */
  public static byte[] derive(byte[] secret, String protocol, byte[] context, int length) {
    try {
      return KDF.getInstance("HKDF-SHA256")
          .deriveData(
              HKDFParameterSpec.ofExtract()
                  .addIKM(secret)
                  .addSalt(protocol.getBytes(StandardCharsets.US_ASCII))
                  .thenExpand(sha256(context), length));
    } catch (GeneralSecurityException e) {
      throw missing(e);
    }
  }

  /** Returns the SHA-256 digest of some bytes. */
  public static byte[] sha256(byte[] bytes) {
    try {
      return MessageDigest.getInstance("SHA-256").digest(bytes);
    } catch (NoSuchAlgorithmException e) {
      throw missing(e);
    }
  }

  /** Returns cryptographically secure random bytes. */
  public static byte[] randomBytes(int count) {
    byte[] bytes = new byte[count];
    RANDOM.nextBytes(bytes);
    return bytes;
  }

  /** Returns the exception for a Java platform without the required algorithms. */
  static IllegalStateException missing(GeneralSecurityException cause) {
    return new IllegalStateException(
        "this Java platform lacks SHA-256, HMAC-SHA256, HKDF-SHA256 or AES-GCM", cause);
  }
}
