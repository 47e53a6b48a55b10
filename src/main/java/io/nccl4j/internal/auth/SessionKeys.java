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
 * The keys of one connection between two processes that know the same secret. The side that accepts
 * sends a random greeting, the side that connects answers with a claim that holds a random number
 * of its own; the keys come from the secret and both messages by HKDF-SHA256. So they are new on
 * every connection, and what was recorded on one is worth nothing on another.
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
   * @param secret what both sides know and nobody else
   * @param protocol tells the protocol from others that use the same secret
   * @param greeting what the accepting side has sent
   * @param claim what the connecting side has answered, without its proof
   */
  public SessionKeys(byte[] secret, String protocol, byte[] greeting, byte[] claim) {
    ByteArrayOutputStream said = new ByteArrayOutputStream();
    said.writeBytes(greeting);
    said.writeBytes(claim);
    this.transcript = said.toByteArray();
    this.keys = derive(secret, protocol, transcript, ALL_BYTES);
  }

  /** Returns the greeting and the claim. */
  public byte[] transcript() {
    return transcript.clone();
  }

  /**
   * Returns the connecting side's proof that it knows the secret: an HMAC-SHA256 over a label, the
   * transcript and what else is to be proved.
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

  /** Returns whether a proof is right, in a time that does not depend on where it differs. */
  public boolean isProof(byte[] shown, String label, byte[] more) {
    return MessageDigest.isEqual(shown, proof(label, more));
  }

  /** Returns a new cipher for what the accepting side sends. */
  public AeadCipher toConnector() {
    return new AeadCipher(keys, TO_CONNECTOR);
  }

  /** Returns a new cipher for what the connecting side sends. */
  public AeadCipher toAcceptor() {
    return new AeadCipher(keys, TO_ACCEPTOR);
  }

  /** Returns the bytes of keys that are for one protocol and context and no other. */
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

  /** Returns bytes that nobody can guess. */
  public static byte[] randomBytes(int count) {
    byte[] bytes = new byte[count];
    RANDOM.nextBytes(bytes);
    return bytes;
  }

  /** Describes a Java platform without the algorithms that are needed here. */
  static IllegalStateException missing(GeneralSecurityException cause) {
    return new IllegalStateException(
        "this Java platform lacks SHA-256, HMAC-SHA256, HKDF-SHA256 or AES-GCM", cause);
  }
}
