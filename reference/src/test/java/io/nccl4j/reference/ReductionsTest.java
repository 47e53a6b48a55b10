package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.math.BigInteger;
import java.util.Random;
import java.util.function.Function;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Every operator on every type, with pairs of all kinds of values (all pairs for 8-bit types),
 * against arithmetic in doubles and big integers that is rounded once per step.
 */
class ReductionsTest {
  private static final long SEED = Long.getLong("test.seed", 20261120);
  private static final int COUNT = 1 << 16;
  private static final ReferenceOptions RING =
      ReferenceOptions.defaults().withAlgorithm(Algorithm.RING);

  enum Op {
    SUM,
    PROD,
    MAX,
    MIN,
    AVG,
    MULSUM;

    ReduceOp standard() {
      return switch (this) {
        case SUM -> ReduceOp.SUM;
        case PROD -> ReduceOp.PROD;
        case MAX -> ReduceOp.MAX;
        case MIN -> ReduceOp.MIN;
        case AVG -> ReduceOp.AVG;
        case MULSUM -> throw new IllegalStateException("a communicator makes this one");
      };
    }
  }

  static Stream<Arguments> typesAndOperators() {
    return Stream.of(DataType.values())
        .flatMap(type -> Stream.of(Op.values()).map(op -> Arguments.of(type, op)));
  }

  @ParameterizedTest
  @MethodSource("typesAndOperators")
  void twoRanksReduceEveryPairOfValuesCorrectly(DataType type, Op op) {
    try (Arena arena = Arena.ofShared()) {
      MemorySegment left = values(type, arena, new Random(SEED), 8);
      MemorySegment right = values(type, arena, new Random(SEED + 1), 0);
      Ranks.run(
          2,
          RING,
          (comm, stream) -> {
            try (Buffer data = comm.newBuffer(type, COUNT)) {
              data.copyFromAsync(comm.rank() == 0 ? left : right, stream);
              reduce(comm, data, op, stream);
              for (int i = 0; i < COUNT; i++) {
                assertElement(type, op, left, right, i, data.segment());
              }
            }
          });
    }
  }

  private static void reduce(Communicator comm, Buffer data, Op op, io.nccl4j.Stream stream) {
    if (op != Op.MULSUM) {
      comm.allReduce(data, data, op.standard(), stream);
      stream.synchronize();
      return;
    }
    try (ReduceOp.PreMulSum scaled =
        comm.newPreMulSum(data.type(), scalar(data.type(), comm.rank()))) {
      comm.allReduce(data, data, scaled, stream);
    }
    stream.synchronize();
  }

  private static double scalar(DataType type, int rank) {
    return rank == 0 ? 3 : type.floating() ? 0.5 : 2;
  }

  /** All kinds of bit patterns; for 8-bit types the two ranks together have all pairs. */
  private static MemorySegment values(DataType type, Arena arena, Random random, int shift) {
    MemorySegment values = arena.allocate((long) COUNT * type.bytes(), 64);
    for (int i = 0; i < COUNT; i++) {
      switch (type.bytes()) {
        case 1 -> values.set(ValueLayout.JAVA_BYTE, i, (byte) (i >>> shift));
        case 2 -> values.setAtIndex(ValueLayout.JAVA_SHORT, i, (short) random.nextInt());
        case 4 -> values.setAtIndex(ValueLayout.JAVA_INT, i, random.nextInt());
        default -> values.setAtIndex(ValueLayout.JAVA_LONG, i, random.nextLong());
      }
    }
    if (type.floating() && type.bytes() > 1) {
      double[] special = {0, -0.0, 1, -1, 1e-40, 65504, 3e38, -3e38, 1 / 0.0, -1 / 0.0, 0 / 0.0};
      for (int i = 0; i < COUNT; i += 3) {
        double value = special[random.nextInt(special.length)];
        type.set(values, i, new SoftArithmetic(type).roundFactor(value));
      }
    }
    return values;
  }

  private static void assertElement(
      DataType type, Op op, MemorySegment left, MemorySegment right, int i, MemorySegment got) {
    if (!type.floating()) {
      BigInteger expected = expected(type, op, integer(type, left, i), integer(type, right, i));
      assertEquals(
          expected,
          integer(type, got, i),
          () -> integer(type, left, i) + " " + op + " " + integer(type, right, i));
      return;
    }
    double a = type.get(left, i);
    double b = type.get(right, i);
    double expected = expected(type, op, a, b);
    double actual = type.get(got, i);
    assertTrue(
        Double.doubleToLongBits(expected) == Double.doubleToLongBits(actual),
        () ->
            a + " " + op + " " + b + " is " + expected + ", not " + actual + " (seed " + SEED
                + ")");
  }

  private static double expected(DataType type, Op op, double a, double b) {
    Function<Double, Double> round = new SoftArithmetic(type)::round;
    return switch (op) {
      case SUM -> round.apply(a + b);
      case PROD -> round.apply(a * b);
      case MAX -> round.apply(Double.isNaN(a) ? b : Double.isNaN(b) ? a : Math.max(a, b));
      case MIN -> round.apply(Double.isNaN(a) ? b : Double.isNaN(b) ? a : Math.min(a, b));
      case AVG -> round.apply(round.apply(a * 0.5) + round.apply(b * 0.5));
      case MULSUM ->
          round.apply(round.apply(a * scalar(type, 0)) + round.apply(b * scalar(type, 1)));
    };
  }

  private static BigInteger expected(DataType type, Op op, BigInteger a, BigInteger b) {
    return switch (op) {
      case SUM -> wrap(type, a.add(b));
      case PROD -> wrap(type, a.multiply(b));
      case MAX -> a.max(b);
      case MIN -> a.min(b);
      case AVG -> wrap(type, a.add(b)).divide(BigInteger.TWO);
      case MULSUM -> wrap(type, a.multiply(BigInteger.valueOf(3)).add(b.multiply(BigInteger.TWO)));
    };
  }

  private static BigInteger wrap(DataType type, BigInteger value) {
    int bits = 8 * type.bytes();
    BigInteger low = value.mod(BigInteger.ONE.shiftLeft(bits));
    return unsigned(type) || !low.testBit(bits - 1)
        ? low
        : low.subtract(BigInteger.ONE.shiftLeft(bits));
  }

  private static boolean unsigned(DataType type) {
    return type.name().startsWith("UINT");
  }

  private static BigInteger integer(DataType type, MemorySegment values, int i) {
    return wrap(type, BigInteger.valueOf(type.getLong(values, i)));
  }

  @ParameterizedTest
  @MethodSource("typesAndOperators")
  void oneRankCopiesUnlessItsOperatorMultiplies(DataType type, Op op) {
    try (Arena arena = Arena.ofShared()) {
      MemorySegment only = values(type, arena, new Random(SEED), 8);
      Ranks.run(
          1,
          RING,
          (comm, stream) -> {
            try (Buffer data = comm.newBuffer(type, COUNT)) {
              data.copyFromAsync(only, stream);
              reduce(comm, data, op, stream);
              for (int i = 0; i < COUNT; i++) {
                assertAlone(type, op, only, i, data.segment());
              }
            }
          });
    }
  }

  private static void assertAlone(
      DataType type, Op op, MemorySegment only, int i, MemorySegment got) {
    if (!type.floating()) {
      BigInteger value = integer(type, only, i);
      assertEquals(
          op == Op.MULSUM ? wrap(type, value.multiply(BigInteger.valueOf(3))) : value,
          integer(type, got, i));
      return;
    }
    double value = type.get(only, i);
    // An average multiplies by 1, which saturates an infinite float8.
    SoftArithmetic soft = new SoftArithmetic(type);
    double expected =
        switch (op) {
          case MULSUM -> soft.round(value * 3);
          case AVG -> soft.round(value);
          default -> value;
        };
    assertEquals(expected, type.get(got, i));
  }

  /** The Javadoc of {@link ReduceOp#AVG} has these differences. */
  @ParameterizedTest(name = "{0} of {1} ranks")
  @CsvSource({"BFLOAT16, 6, 0.010", "BFLOAT16, 7, 0.011", "FLOAT16, 7, 0.0013", "FLOAT16, 8, 0"})
  void averageOfEqualValuesDiffersFromThem(DataType type, int ranks, double expected) {
    Ranks.run(
        ranks,
        ReferenceOptions.defaults(),
        CommunicatorConfig.defaults(),
        (comm, stream) -> {
          Buffer data = comm.newBuffer(type, 128);
          for (int i = 0; i < 128; i++) {
            type.set(data.segment(), i, 1 + i / 128.0);
          }
          comm.allReduce(data, data, ReduceOp.AVG, stream);
          stream.synchronize();
          double worst = 0;
          for (int i = 0; i < 128; i++) {
            double value = 1 + i / 128.0;
            worst = Math.max(worst, Math.abs(type.get(data.segment(), i) / value - 1));
          }
          assertEquals(expected, worst, 0.06 * expected, "the largest relative difference");
        });
  }
}
