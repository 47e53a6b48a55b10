package io.nccl4j.contract;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.fixtures.Seed;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;

/** Inputs of all ranks, in host memory, chosen so that the correct result is known. */
final class TestData {
  private TestData() {}

  /** Returns random bytes, for operations that move data and must preserve every bit. */
  static List<MemorySegment> bytes(DataType type, int ranks, long count, String name) {
    SplittableRandom random = Seed.random(name + type + ranks + "/" + count);
    List<MemorySegment> inputs = new ArrayList<>();
    for (int rank = 0; rank < ranks; rank++) {
      byte[] bytes = new byte[Math.toIntExact(count * type.bytes())];
      random.nextBytes(bytes);
      inputs.add(MemorySegment.ofArray(bytes));
    }
    return inputs;
  }

  /**
   * Returns data whose reduction is exact in any order: integers of any value (they wrap), or
   * floating-point values all of whose partial results are representable.
   */
  static List<MemorySegment> exact(DataType type, ReduceOp op, int ranks, long count) {
    if (!type.floating()) {
      return bytes(type, ranks, count, "exact " + op);
    }
    SplittableRandom random = Seed.random("exact " + op + type + ranks + "/" + count);
    List<MemorySegment> inputs = empty(type, ranks, count);
    for (long i = 0; i < count; i++) {
      double[] column =
          op == ReduceOp.PROD ? factors(random, ranks) : terms(random, type, op, ranks);
      for (int rank = 0; rank < ranks; rank++) {
        type.set(inputs.get(rank), i, column[rank]);
      }
    }
    return inputs;
  }

  /** Returns random values between 0.75 and 1.25 in magnitude, so that products do not overflow. */
  static List<MemorySegment> random(DataType type, ReduceOp op, int ranks, long count) {
    if (!type.floating()) {
      return bytes(type, ranks, count, "random " + op);
    }
    SplittableRandom random = Seed.random("random " + op + type + ranks + "/" + count);
    List<MemorySegment> inputs = empty(type, ranks, count);
    for (MemorySegment input : inputs) {
      for (long i = 0; i < count; i++) {
        type.set(input, i, random.nextDouble(0.75, 1.25) * (random.nextBoolean() ? 1 : -1));
      }
    }
    return inputs;
  }

  private static List<MemorySegment> empty(DataType type, int ranks, long count) {
    List<MemorySegment> inputs = new ArrayList<>();
    for (int rank = 0; rank < ranks; rank++) {
      inputs.add(MemorySegment.ofArray(new byte[Math.toIntExact(count * type.bytes())]));
    }
    return inputs;
  }

  /**
   * Returns integers whose magnitudes sum to at most the largest integer up to which the type
   * represents every integer; for averages, multiples of the number of ranks.
   */
  private static double[] terms(SplittableRandom random, DataType type, ReduceOp op, int ranks) {
    long budget = Precision.of(type).exactIntegers();
    long each = budget / ranks;
    int stride = (int) Math.ceilDiv(ranks, budget);
    int offset = random.nextInt(stride);
    double scale = op == ReduceOp.AVG ? ranks : Math.scalb(1.0, random.nextInt(-4, 3));
    double[] column = new double[ranks];
    for (int rank = 0; rank < ranks; rank++) {
      if (each > 0) {
        column[rank] = random.nextLong(-each, each + 1) * scale;
      } else if (rank % stride == offset) {
        column[rank] = random.nextBoolean() ? scale : -scale;
      }
    }
    return column;
  }

  /** Returns factors of 1 and -1, one of 1.5, and at most six of 2 or 1/2. */
  private static double[] factors(SplittableRandom random, int ranks) {
    double[] column = new double[ranks];
    for (int rank = 0; rank < ranks; rank++) {
      column[rank] = random.nextBoolean() ? 1 : -1;
    }
    column[random.nextInt(ranks)] *= 1.5;
    for (int i = 0; i < Math.min(6, ranks); i++) {
      int rank = random.nextInt(ranks);
      if (Math.abs(column[rank]) <= 1.5 && Math.abs(column[rank]) >= 1) {
        column[rank] *= random.nextBoolean() ? 2 : 0.5;
      }
    }
    return column;
  }
}
