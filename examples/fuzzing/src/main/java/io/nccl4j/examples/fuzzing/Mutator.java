package io.nccl4j.examples.fuzzing;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.random.RandomGenerator;

/** Makes inputs of valid ones: a few fields changed, added, missing or in another order. */
final class Mutator {
  private static final int MOST_ADDED_BYTES = 70_000;

  /** Where sizes, counts, indices and codes tend to go wrong; also one off each. */
  private static final long[] EDGES = {
    0,
    0x7F,
    0xFF,
    0x7FFF,
    0xFFFF,
    1 << 16,
    1 << 20,
    16 << 20,
    Integer.MAX_VALUE,
    Integer.MIN_VALUE,
    0xFFFF_FFFFL,
    1L << 32,
    Long.MAX_VALUE,
    Long.MIN_VALUE
  };

  private final List<Sample> samples;

  Mutator(List<Sample> samples) {
    this.samples = List.copyOf(samples);
  }

  byte[] next(RandomGenerator random) {
    List<byte[]> parts = new ArrayList<>(any(samples, random).fields());
    // None in some, as valid messages also come again, or in the wrong place.
    for (int left = random.nextInt(5); left > 0; left--) {
      mutate(parts, random);
    }
    byte[] whole = Sample.join(parts);
    return random.nextInt(8) == 0 ? Arrays.copyOf(whole, random.nextInt(whole.length + 1)) : whole;
  }

  private void mutate(List<byte[]> parts, RandomGenerator random) {
    if (parts.isEmpty()) {
      parts.addAll(any(samples, random).fields());
      return;
    }
    int at = random.nextInt(parts.size());
    switch (random.nextInt(12)) {
      case 0, 1, 2, 3 -> parts.set(at, number(parts.get(at), random));
      case 4 -> parts.set(at, flipped(parts.get(at), random));
      case 5 -> parts.set(at, bytes(parts.get(at).length, random));
      case 6 -> parts.remove(at);
      case 7 -> parts.add(random.nextInt(parts.size() + 1), parts.get(at));
      case 8 -> parts.set(at, parts.set(random.nextInt(parts.size()), parts.get(at)));
      case 9 -> parts.set(at, any(any(samples, random).fields(), random));
      case 10 -> parts.addAll(any(samples, random).fields());
      default -> parts.add(at, added(parts.get(at), random));
    }
  }

  private static <T> T any(List<T> of, RandomGenerator random) {
    return of.get(random.nextInt(of.size()));
  }

  /** Returns a number of the same width: one of the edges, or near to what it was. */
  private static byte[] number(byte[] field, RandomGenerator random) {
    ByteOrder order = random.nextBoolean() ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN;
    int width = field.length;
    if (width == 0 || (width & (width - 1)) != 0 || width > Long.BYTES) {
      return flipped(field, random);
    }
    byte[] wide = new byte[Long.BYTES];
    boolean big = order == ByteOrder.BIG_ENDIAN;
    System.arraycopy(field, 0, wide, big ? Long.BYTES - width : 0, width);
    ByteBuffer buffer = ByteBuffer.wrap(wide).order(order);
    long value = random.nextInt(3) == 0 ? buffer.getLong(0) : EDGES[random.nextInt(EDGES.length)];
    buffer.putLong(0, value + random.nextInt(-2, 3));
    return big
        ? Arrays.copyOfRange(wide, Long.BYTES - width, Long.BYTES)
        : Arrays.copyOf(wide, width);
  }

  private static byte[] flipped(byte[] field, RandomGenerator random) {
    byte[] changed = field.clone();
    if (changed.length > 0) {
      changed[random.nextInt(changed.length)] ^= (byte) (1 << random.nextInt(8));
    }
    return changed;
  }

  private static byte[] bytes(int count, RandomGenerator random) {
    byte[] bytes = new byte[count];
    random.nextBytes(bytes);
    return bytes;
  }

  /** Returns noise, or a field many times; mostly short, now and then more than anybody takes. */
  private static byte[] added(byte[] field, RandomGenerator random) {
    int count = 1 + random.nextInt(random.nextInt(10) == 0 ? MOST_ADDED_BYTES : 16);
    if (field.length == 0 || random.nextBoolean()) {
      return bytes(count, random);
    }
    byte[] added = new byte[count];
    for (int i = 0; i < count; i++) {
      added[i] = field[i % field.length];
    }
    return added;
  }
}
