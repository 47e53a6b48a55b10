package io.nccl4j.rendezvous;

import java.security.GeneralSecurityException;
import javax.crypto.AEADBadTagException;
import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;

/** AES-256-GCM for one message, under a key of its own, bound to what was said before it. */
final class Seal {
  static final int KEY_BYTES = 32;

  private static final int TAG_BITS = 128;
  // Each key seals one message, so its nonce need not vary.
  private static final byte[] ONLY_IV = new byte[12];

  private final SecretKeySpec key;
  private final byte[] context;

  /**
   * Makes the seal of one message.
   *
   * @param keys holds the key from an offset on
   * @param context what is not sealed, but must be the same on both sides
   */
  Seal(byte[] keys, int offset, byte[] context) {
    this.key = new SecretKeySpec(keys, offset, KEY_BYTES, "AES");
    this.context = context;
  }

  byte[] close(byte[] message) {
    try {
      return cipher(Cipher.ENCRYPT_MODE).doFinal(message);
    } catch (GeneralSecurityException e) {
      throw Secret.missing(e);
    }
  }

  /**
   * Opens what the other side has sealed.
   *
   * @throws AEADBadTagException if it was sealed with another key or context, or not at all
   */
  byte[] open(byte[] sealed) throws AEADBadTagException {
    try {
      return cipher(Cipher.DECRYPT_MODE).doFinal(sealed);
    } catch (AEADBadTagException e) {
      throw e;
    } catch (GeneralSecurityException e) {
      throw Secret.missing(e);
    }
  }

  private Cipher cipher(int mode) throws GeneralSecurityException {
    Cipher cipher = Cipher.getInstance("AES/GCM/NoPadding");
    cipher.init(mode, key, new GCMParameterSpec(TAG_BITS, ONLY_IV));
    cipher.updateAAD(context);
    return cipher;
  }
}
