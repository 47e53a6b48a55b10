package io.nccl4j.internal.auth;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import javax.crypto.AEADBadTagException;
import org.junit.jupiter.api.Test;

class AeadCipherTest {
  private static final byte[] SECRET = "a secret".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] HELLO = "hello".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] NONE = new byte[0];

  private static SessionKeys keys(int greeting, int claim) {
    return new SessionKeys(SECRET, "test", new byte[] {(byte) greeting}, new byte[] {(byte) claim});
  }

  @Test
  void messagesOpenInOrderOnly() throws Exception {
    AeadCipher sender = keys(1, 2).toAcceptor();
    byte[] first = sender.seal(HELLO, NONE);
    byte[] second = sender.seal(HELLO, NONE);
    assertFalse(Arrays.equals(first, second));
    AeadCipher receiver = keys(1, 2).toAcceptor();
    assertArrayEquals(HELLO, receiver.open(first, NONE));
    assertArrayEquals(HELLO, receiver.open(second, NONE));
    assertThrows(AEADBadTagException.class, () -> receiver.open(second, NONE));
    assertThrows(AEADBadTagException.class, () -> keys(1, 2).toAcceptor().open(second, NONE));
  }

  /** As after an error when memory is exhausted: no message was sent, so none is missing. */
  @Test
  void failedSealIsNotCounted() throws Exception {
    AeadCipher sender = keys(1, 2).toAcceptor();
    assertThrows(IllegalArgumentException.class, () -> sender.seal(null, NONE));
    byte[] sealed = sender.seal(HELLO, NONE);
    assertArrayEquals(HELLO, keys(1, 2).toAcceptor().open(sealed, NONE));
  }

  @Test
  void otherDirectionOrContextDoesNotOpen() {
    byte[] sealed = keys(1, 2).toAcceptor().seal(HELLO, NONE);
    assertThrows(AEADBadTagException.class, () -> keys(1, 2).toConnector().open(sealed, NONE));
    assertThrows(AEADBadTagException.class, () -> keys(1, 2).toAcceptor().open(sealed, HELLO));
    assertThrows(AEADBadTagException.class, () -> keys(1, 3).toAcceptor().open(sealed, NONE));
    assertThrows(AEADBadTagException.class, () -> keys(3, 2).toAcceptor().open(sealed, NONE));
  }

  @Test
  void proofIsBoundToLabelAndConnection() {
    byte[] proof = keys(1, 2).proof("label", HELLO);
    assertTrue(keys(1, 2).isProof(proof, "label", HELLO));
    assertFalse(keys(1, 2).isProof(proof, "other", HELLO));
    assertFalse(keys(1, 2).isProof(proof, "label", NONE));
    assertFalse(keys(2, 2).isProof(proof, "label", HELLO));
    assertFalse(keys(1, 2).isProof(NONE, "label", HELLO));
  }
}
