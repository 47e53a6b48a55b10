package io.nccl4j.internal.auth;

import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import javax.crypto.AEADBadTagException;
import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;

/**
 * AES-256-GCM for the messages of one sender under one key. The nonce of each message is its
 * number, so that no message can be dropped, replayed or reordered. Not thread-safe.
 */
public final class AeadCipher {
  /** The size of a key in bytes. */
  public static final int KEY_BYTES = 32;

  /** The difference in length between a sealed message and its plain text, in bytes. */
  public static final int TAG_BYTES = 16;

  private static final int NONCE_BYTES = 12;

  private final SecretKeySpec key;
  private long messages;

  /**
   * Creates a cipher for message 0.
   *
   * @param keys an array with the key
   * @param offset the offset of the key in it
   */
  public AeadCipher(byte[] keys, int offset) {
    this.key = new SecretKeySpec(keys, offset, KEY_BYTES, "AES");
  }

  /**
   * Seals the next message. If this throws, for example because memory is exhausted, the message is
   * not counted and the other side does not miss it.
   *
   * @param context data that is authenticated but not sealed; it must be the same on both sides
   */
  public byte[] seal(byte[] message, byte[] context) {
    try {
      byte[] sealed = cipher(Cipher.ENCRYPT_MODE, context).doFinal(message);
      messages++;
      return sealed;
    } catch (GeneralSecurityException e) {
      throw SessionKeys.missing(e);
    }
  }

  /**
   * Opens the next message.
   *
   * @throws AEADBadTagException if it is not the next message that was sealed with this key and
   *     context
   */
  public byte[] open(byte[] sealed, byte[] context) throws AEADBadTagException {
    try {
      byte[] message = cipher(Cipher.DECRYPT_MODE, context).doFinal(sealed);
      messages++;
      return message;
    } catch (AEADBadTagException e) {
      throw e;
    } catch (GeneralSecurityException e) {
      throw SessionKeys.missing(e);
    }
  }

  private Cipher cipher(int mode, byte[] context) throws GeneralSecurityException {
    byte[] nonce = ByteBuffer.allocate(NONCE_BYTES).putLong(Integer.BYTES, messages).array();
    Cipher cipher = Cipher.getInstance("AES/GCM/NoPadding");
    cipher.init(mode, key, new GCMParameterSpec(TAG_BYTES * Byte.SIZE, nonce));
    cipher.updateAAD(context);
    return cipher;
  }
}
