package io.nccl4j.tools.evidence;

import io.nccl4j.DataType;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.SplittableRandom;

/**
 * The input of each rank in a cross-check; every process computes the input of every rank.
 *
 * <p>Data that is only moved has random bits, and so have reduced integers, whose arithmetic wraps
 * around. Floats reduced by at most two ranks have a random mantissa and magnitude and are not NaN,
 * infinite or zero: one operation, rounded once, has the same result in any order. For an average,
 * a pre-multiplied sum or more than two ranks they are small even numbers, exact in every type and
 * at every step.
 */
final class Inputs {
  private static final int MAX_EXACT_RANKS = 2;

  private Inputs() {}

  /** Returns the input of one rank for a call. */
  static MemorySegment of(Call call, int rank, long seed) {
    DataType type = call.type();
    long count = call.sendCount();
    MemorySegment data = MemorySegment.ofArray(new byte[Math.toIntExact(count * type.bytes())]);
    SplittableRandom random =
        new SplittableRandom(
            seed * 31 + call.combine().name().hashCode() * 1009L + type.code() * 37L + rank);
    boolean anyBits = call.combine() == Call.Combine.NOTHING || !type.floating();
    if (anyBits) {
      for (long at = 0; at < data.byteSize(); at++) {
        data.set(ValueLayout.JAVA_BYTE, at, (byte) random.nextInt());
      }
      return data;
    }
    boolean exact = call.combine() == Call.Combine.AVG || call.combine() == Call.Combine.MULSUM;
    for (long i = 0; i < count; i++) {
      boolean small = exact || call.ranks() > MAX_EXACT_RANKS;
      type.set(data, i, small ? 2.0 * random.nextInt(-2, 3) : randomMagnitude(random));
    }
    return data;
  }

  /**
   * Returns the input of one rank for a reduction whose result depends on the order of the ranks:
   * floats with a random mantissa and magnitude.
   */
  static MemorySegment orderDependent(Call call, int rank) {
    DataType type = call.type();
    byte[] bytes = new byte[Math.toIntExact(call.sendCount() * type.bytes())];
    SplittableRandom random = new SplittableRandom(call.count() * 31 + type.code() * 37L + rank);
    random.nextBytes(bytes);
    MemorySegment data = MemorySegment.ofArray(bytes);
    if (type.floating()) {
      for (long i = 0; i < call.sendCount(); i++) {
        type.set(data, i, randomMagnitude(random));
      }
    }
    return data;
  }

  private static double randomMagnitude(SplittableRandom random) {
    double value = Math.scalb(1 + random.nextDouble(), random.nextInt(-5, 7));
    return random.nextBoolean() ? value : -value;
  }
}
