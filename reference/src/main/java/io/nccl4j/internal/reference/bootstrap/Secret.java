package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.internal.auth.SessionKeys;
import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.UUID;

/**
 * The secret of a unique id, whose knowledge processes prove to each other. It consists of 128
 * random bits, which are never printed, and sent only sealed.
 */
public final class Secret {
  private static final byte[] NAME = "nccl4j secret name".getBytes(StandardCharsets.US_ASCII);

  private final long high;
  private final long low;
  // Computed on use, since only processes that connect to others need it.
  private volatile UUID name;

  private Secret(long high, long low) {
    this.high = high;
    this.low = low;
  }

  public static Secret random() {
    ByteBuffer bytes = ByteBuffer.wrap(SessionKeys.randomBytes(2 * Long.BYTES));
    return new Secret(bytes.getLong(), bytes.getLong());
  }

  static Secret read(DataInput in) throws IOException {
    return new Secret(in.readLong(), in.readLong());
  }

  public void write(DataOutput out) throws IOException {
    out.writeLong(high);
    out.writeLong(low);
  }

  byte[] toBytes() {
    return ByteBuffer.allocate(2 * Long.BYTES).putLong(high).putLong(low).array();
  }

  /** Returns a part of the digest of the secret, by which processes name it in clear text. */
  public UUID name() {
    UUID known = name;
    if (known == null) {
      byte[] bytes =
          ByteBuffer.allocate(NAME.length + 2 * Long.BYTES).put(NAME).put(toBytes()).array();
      ByteBuffer digest = ByteBuffer.wrap(SessionKeys.sha256(bytes));
      known = new UUID(digest.getLong(), digest.getLong());
      name = known;
    }
    return known;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Secret secret && high == secret.high && low == secret.low;
  }

  @Override
  public int hashCode() {
    return Long.hashCode(high);
  }

  @Override
  public String toString() {
    return "Secret";
  }
}
