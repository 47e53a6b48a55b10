package io.nccl4j.reference;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.security.SecureRandom;

/**
 * What processes show each other to prove that they were given the same unique id. 128 random bits,
 * which nothing prints.
 */
record Secret(long high, long low) {
  private static final SecureRandom RANDOM = new SecureRandom();

  static Secret random() {
    return new Secret(RANDOM.nextLong(), RANDOM.nextLong());
  }

  /** Returns a number that nobody else draws. */
  static long number() {
    return RANDOM.nextLong();
  }

  static Secret read(DataInput in) throws IOException {
    return new Secret(in.readLong(), in.readLong());
  }

  void write(DataOutput out) throws IOException {
    out.writeLong(high);
    out.writeLong(low);
  }

  @Override
  public String toString() {
    return "Secret";
  }
}
