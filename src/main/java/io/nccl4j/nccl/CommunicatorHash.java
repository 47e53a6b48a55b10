package io.nccl4j.nccl;

import io.nccl4j.UniqueId;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.util.Arrays;

/**
 * The hash by which NCCL 2.26 and later name a communicator in its RAS service and its log: of the
 * unique id, or of the parent's hash and what distinguishes its children.
 */
final class CommunicatorHash {
  private long sum = 1;
  private long mix = 1;

  private CommunicatorHash() {}

  /** Returns the hash of a communicator that was created with an id. */
  static long ofId(UniqueId id) {
    return new CommunicatorHash().add(id.toBytes()).result();
  }

  /**
   * Returns the hash of a child.
   *
   * @param parent the parent's hash
   * @param number the number of the split among the splits and grows of the parent, from 1; 0 for a
   *     shrink
   * @param color the color of a split; 0 for a shrink
   */
  static long ofChild(long parent, int number, int color) {
    return new CommunicatorHash()
        .add(bytes(8).putLong(parent).array())
        .add(bytes(4).putInt(number).array())
        .add(bytes(4).putInt(color).array())
        .result();
  }

  private static ByteBuffer bytes(int count) {
    return ByteBuffer.allocate(count).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Adds a value, padded to words of eight bytes. */
  private CommunicatorHash add(byte[] value) {
    int words = (value.length + 7) / 8;
    LongBuffer padded =
        ByteBuffer.wrap(Arrays.copyOf(value, words * 8))
            .order(ByteOrder.LITTLE_ENDIAN)
            .asLongBuffer();
    sum ^= value.length;
    while (padded.hasRemaining()) {
      sum += mix;
      mix ^= sum;
      sum = (sum ^ sum >>> 31) * 0x9de62bbc8cef3ce3L;
      mix = (mix ^ mix >>> 32) * 0x485cd6311b599e79L;
      sum += padded.get();
    }
    return this;
  }

  private long result() {
    long hash = (sum ^ sum >>> 31) * 0xbac3bd562846de6bL + mix;
    return (hash ^ hash >>> 32) * 0x995a187a14e7b445L;
  }
}
