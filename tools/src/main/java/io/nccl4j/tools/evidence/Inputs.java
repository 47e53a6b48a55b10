package io.nccl4j.tools.evidence;

import io.nccl4j.DataType;
import java.lang.foreign.MemorySegment;
import java.util.SplittableRandom;

/**
 * The input of each rank of a call; every process computes the input of every rank.
 *
 * <p>Data that is only moved has random bits, and so have reduced integers, whose arithmetic wraps
 * around. Floats have a random mantissa and magnitude and are not NaN, infinite or zero.
 */
final class Inputs {
  private Inputs() {}

  /** Returns the input of one rank, whose reduction depends on the order of the ranks. */
  static MemorySegment orderDependent(Call call, int rank) {
    return of(call, rank, false);
  }

  /**
   * Returns the input of one rank of at most two, whose reduction is the same in any order: one
   * operation, rounded once. For an average or a pre-multiplied sum, floats are small even numbers,
   * exact in every type and at every step.
   */
  static MemorySegment orderIndependent(Call call, int rank) {
    return of(call, rank, call.combine().scales());
  }

  private static MemorySegment of(Call call, int rank, boolean small) {
    DataType type = call.type();
    byte[] bytes = new byte[Math.toIntExact(call.sendCount() * type.bytes())];
    SplittableRandom random =
        new SplittableRandom(
            call.count() * 31 + call.label().hashCode() * 1009L + type.code() * 37L + rank);
    random.nextBytes(bytes);
    MemorySegment data = MemorySegment.ofArray(bytes);
    if (call.operation().reduces() && type.floating()) {
      for (long i = 0; i < call.sendCount(); i++) {
        type.set(data, i, small ? 2.0 * random.nextInt(-2, 3) : randomMagnitude(random));
      }
    }
    return data;
  }

  private static double randomMagnitude(SplittableRandom random) {
    double value = Math.scalb(1 + random.nextDouble(), random.nextInt(-5, 7));
    return random.nextBoolean() ? value : -value;
  }
}
