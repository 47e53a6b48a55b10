package io.nccl4j.rendezvous;

import io.nccl4j.wire.SessionKeys;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.HexFormat;

/** 128 bits that stand for one thing and no other: one attempt, one process, one run. */
record Token(long high, long low) {
  static final int BYTES = 16;

  /** The token of nothing; no random token comes out so. */
  static final Token NONE = new Token(0, 0);

  private static final SecureRandom RANDOM = new SecureRandom();

  static Token random() {
    Token token = new Token(RANDOM.nextLong(), RANDOM.nextLong());
    return token.equals(NONE) ? random() : token;
  }

  static Token ofText(String text) {
    return read(ByteBuffer.wrap(sha256(text.getBytes(StandardCharsets.UTF_8))));
  }

  static Token read(ByteBuffer from) {
    return new Token(from.getLong(), from.getLong());
  }

  void write(ByteBuffer to) {
    to.putLong(high).putLong(low);
  }

  String toHex() {
    return HexFormat.of().toHexDigits(high) + HexFormat.of().toHexDigits(low);
  }

  static byte[] randomBytes(int count) {
    byte[] bytes = new byte[count];
    RANDOM.nextBytes(bytes);
    return bytes;
  }

  static byte[] sha256(byte[] bytes) {
    return SessionKeys.sha256(bytes);
  }
}
