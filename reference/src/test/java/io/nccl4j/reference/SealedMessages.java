package io.nccl4j.reference;

import io.nccl4j.internal.auth.AeadCipher;
import io.nccl4j.internal.reference.bootstrap.Message;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;

/** Seals arbitrary messages, as a process that knows the secret can. */
final class SealedMessages {
  /** A limit, so that sealing allocates little; the last message takes the rest. */
  private static final int MAX_MESSAGES = 100;

  private SealedMessages() {}

  /**
   * Seals consecutive messages; each begins with the magic number.
   *
   * @param sealer the cipher that sealed the earlier messages of the connection
   * @param announced whether a header keeps its announced size, instead of the true one
   */
  static byte[] seal(byte[] plain, AeadCipher sealer, boolean announced) {
    ByteArrayOutputStream sealed = new ByteArrayOutputStream();
    ByteBuffer messages = ByteBuffer.wrap(plain);
    int at = 0;
    int left = MAX_MESSAGES;
    while (plain.length - at >= Message.HEADER_BYTES) {
      int begin = at + Message.HEADER_BYTES;
      left--;
      int end = left > 0 ? begin : plain.length;
      while (end < plain.length
          && (plain.length - end < Integer.BYTES || messages.getInt(end) != Message.MAGIC)) {
        end++;
      }
      int size = announced ? messages.getInt(at + 2 * Integer.BYTES) : end - begin;
      byte[] header =
          Message.headerOf(Arrays.copyOfRange(plain, at, begin), size + AeadCipher.TAG_BYTES);
      sealed.writeBytes(header);
      sealed.writeBytes(sealer.seal(Arrays.copyOfRange(plain, begin, end), header));
      at = end;
    }
    sealed.write(plain, at, plain.length - at);
    return sealed.toByteArray();
  }
}
