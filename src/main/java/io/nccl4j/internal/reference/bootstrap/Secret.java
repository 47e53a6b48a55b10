package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.internal.auth.SessionKeys;
import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.UUID;

/**
 * What processes prove to each other to know, since they were given the same unique id. 128 random
 * bits, which nothing prints, and which are sent only where they are sealed.
 */
public final class Secret {
  private static final byte[] NAME = "nccl4j secret name".getBytes(StandardCharsets.US_ASCII);

  private final long high;
  private final long low;
  // Only processes that talk to others need it.
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

  /** Returns what a process may say in clear to tell which secret it knows: a part of a digest. */
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
