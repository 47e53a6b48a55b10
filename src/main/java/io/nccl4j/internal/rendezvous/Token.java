package io.nccl4j.internal.rendezvous;

import io.nccl4j.internal.auth.SessionKeys;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/** A 128-bit identifier of an attempt, a process or a run. */
public record Token(long high, long low) {
  public static final int BYTES = 16;

  /** The null token; {@link #random} never returns it. */
  public static final Token NONE = new Token(0, 0);

  public static Token random() {
    Token token = read(ByteBuffer.wrap(SessionKeys.randomBytes(BYTES)));
    return token.equals(NONE) ? random() : token;
  }

  public static Token ofText(String text) {
    return read(ByteBuffer.wrap(SessionKeys.sha256(text.getBytes(StandardCharsets.UTF_8))));
  }

  public static Token read(ByteBuffer from) {
    return new Token(from.getLong(), from.getLong());
  }

  public void write(ByteBuffer to) {
    to.putLong(high).putLong(low);
  }

  public String toHex() {
    return HexFormat.of().toHexDigits(high) + HexFormat.of().toHexDigits(low);
  }
}
