package io.nccl4j.benchmarks;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.reference.ReferenceBackend;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * Measures the reference's all-reduce by type and operator, with two ranks in one process. The
 * arguments are types with operators ({@code bfloat16:sum}) and sizes; the results have the format
 * of {@code measure.h}.
 */
public final class ReferenceTypes {
  private static final int COMPILING_TURNS = 4;
  private static final double COMPILING_SECONDS = 0.05;
  private static final double SECOND = 1e9;
  private static final double SCALAR = 2;
  private static final long DOUBLE_BIAS = 1023;
  private static final int DOUBLE_MANTISSA = 52;

  // Every type represents their sums, products, averages and multiples exactly.
  private static final double[][] FLOATS = {{0.5, 1, 1.5, 2}, {1, 2}};
  private static final double[][] INTEGERS = {{1, 2, 3, 4}, {1, 2}};

  /** The operators; {@code MULSUM} is a {@link ReduceOp.PreMulSum} of the communicator. */
  enum Reducer {
    SUM,
    PROD,
    MIN,
    MAX,
    AVG,
    MULSUM;

    double of(double first, double second, DataType type) {
      return switch (this) {
        case SUM -> first + second;
        case PROD -> first * second;
        case MIN -> Math.min(first, second);
        case MAX -> Math.max(first, second);
        case AVG -> type.floating() ? (first + second) / 2 : (int) (first + second) / 2;
        case MULSUM -> SCALAR * (first + second);
      };
    }

    private ReduceOp standard() {
      return switch (this) {
        case SUM -> ReduceOp.SUM;
        case PROD -> ReduceOp.PROD;
        case MIN -> ReduceOp.MIN;
        case MAX -> ReduceOp.MAX;
        case AVG -> ReduceOp.AVG;
        case MULSUM -> throw new IllegalStateException("MULSUM is created by a communicator");
      };
    }
  }

  /** A type and an operator. */
  record Reduction(DataType type, Reducer operator) {
    static Reduction parse(String text) {
      String[] parts = text.toUpperCase(Locale.ROOT).split(":", 2);
      return new Reduction(DataType.valueOf(parts[0]), Reducer.valueOf(parts[1]));
    }

    @Override
    public String toString() {
      return (type + ":" + operator).toLowerCase(Locale.ROOT);
    }
  }

  private final RankClock clock;
  private final Reduction reduction;
  private final Sizing size;
  private final Buffer send;
  private final Buffer recv;
  private final ReduceOp operator;
  private final double[] taken;

  private ReferenceTypes(RankClock clock, Reduction reduction, Sizing size) {
    Communicator communicator = clock.communicator();
    DataType type = reduction.type();
    long count = size.bytes() / type.bytes();
    this.clock = clock;
    this.reduction = reduction;
    this.size = size;
    this.taken = new double[size.batches()];
    this.send = communicator.newBuffer(type, count);
    this.recv = communicator.newBuffer(type, count);
    this.operator =
        reduction.operator() == Reducer.MULSUM
            ? communicator.newPreMulSum(type, SCALAR)
            : reduction.operator().standard();
    for (long i = 0; i < count; i++) {
      set(send.segment(), type, i, bits(type, value(communicator.rank(), i)));
    }
  }

  /**
   * Measures the given reductions at each size.
   *
   * @param args types with operators, and sizes
   */
  public static void main(String[] args) {
    List<Reduction> reductions = new ArrayList<>();
    List<Sizing> sizes = new ArrayList<>();
    for (String argument : args) {
      if (Character.isDigit(argument.charAt(0))) {
        sizes.add(Sizing.parse(argument));
      } else {
        reductions.add(Reduction.parse(argument));
      }
    }
    try (Backend backend = ReferenceBackend.open(2)) {
      backend.runRanks(2, communicator -> measure(communicator, reductions, sizes));
    }
  }

  private static void measure(
      Communicator communicator, List<Reduction> reductions, List<Sizing> sizes) {
    try (RankClock clock = new RankClock(communicator)) {
      for (Sizing size : sizes) {
        measure(clock, reductions, size);
      }
    }
  }

  /**
   * Measures all reductions in turn, since they are compared with each other. They are also
   * compiled in turn, because one operator may cause shared code to be recompiled.
   */
  private static void measure(RankClock clock, List<Reduction> reductions, Sizing size) {
    List<ReferenceTypes> all =
        reductions.stream().map(reduction -> new ReferenceTypes(clock, reduction, size)).toList();
    all.forEach(ReferenceTypes::check);
    for (int turn = 0; turn < COMPILING_TURNS; turn++) {
      all.forEach(ReferenceTypes::compile);
    }
    for (int batch = 0; batch < size.batches(); batch++) {
      for (ReferenceTypes one : all) {
        one.taken[batch] = one.time();
      }
    }
    all.forEach(ReferenceTypes::print);
    all.forEach(ReferenceTypes::close);
  }

  private void compile() {
    long start = System.nanoTime();
    while (clock.maxOverRanks((System.nanoTime() - start) / SECOND) < COMPILING_SECONDS) {
      time();
    }
  }

  private double time() {
    return clock.time(size.operations(), this::reduce);
  }

  private void print() {
    if (clock.communicator().rank() == 0) {
      System.out.printf(Locale.ROOT, "%d %s %.4f%n", size.bytes(), reduction, Report.median(taken));
    }
  }

  private void reduce() {
    clock.communicator().allReduce(send, recv, operator, clock.stream());
  }

  private double value(int rank, long index) {
    double[] values = (reduction.type().floating() ? FLOATS : INTEGERS)[rank];
    return values[(int) (index % values.length)];
  }

  private void check() {
    reduce();
    clock.stream().synchronize();
    DataType type = reduction.type();
    for (long i = 0; i < recv.count(); i++) {
      double expected = reduction.operator().of(value(0, i), value(1, i), type);
      long found = get(recv.segment(), type, i);
      if (found != bits(type, expected)) {
        throw new IllegalStateException(
            "%s gives the bits %x at %d; they are those of %s, %x"
                .formatted(reduction, found, i, expected, bits(type, expected)));
      }
    }
  }

  /** Returns the bits of a nonzero number that the type can represent. */
  private static long bits(DataType type, double value) {
    return switch (type) {
      case FLOAT64 -> Double.doubleToRawLongBits(value);
      case FLOAT32 -> Float.floatToRawIntBits((float) value) & 0xFFFFFFFFL;
      case BFLOAT16 -> bits(value, 8, 7);
      case FLOAT16 -> bits(value, 5, 10);
      case FLOAT8E4M3 -> bits(value, 4, 3);
      case FLOAT8E5M2 -> bits(value, 5, 2);
      case INT8, UINT8, INT32, UINT32, INT64, UINT64 -> (long) value;
    };
  }

  private static long bits(double value, int exponentBits, int mantissaBits) {
    long bits = Double.doubleToRawLongBits(value);
    long exponent = (bits >> DOUBLE_MANTISSA) - DOUBLE_BIAS + (1L << (exponentBits - 1)) - 1;
    long mantissa = bits >> (DOUBLE_MANTISSA - mantissaBits) & ((1L << mantissaBits) - 1);
    return exponent << mantissaBits | mantissa;
  }

  private static void set(MemorySegment memory, DataType type, long index, long bits) {
    switch (type.bytes()) {
      case Byte.BYTES -> memory.set(ValueLayout.JAVA_BYTE, index, (byte) bits);
      case Short.BYTES -> memory.setAtIndex(ValueLayout.JAVA_SHORT, index, (short) bits);
      case Integer.BYTES -> memory.setAtIndex(ValueLayout.JAVA_INT, index, (int) bits);
      default -> memory.setAtIndex(ValueLayout.JAVA_LONG, index, bits);
    }
  }

  private static long get(MemorySegment memory, DataType type, long index) {
    return switch (type.bytes()) {
      case Byte.BYTES -> memory.get(ValueLayout.JAVA_BYTE, index) & 0xFFL;
      case Short.BYTES -> memory.getAtIndex(ValueLayout.JAVA_SHORT, index) & 0xFFFFL;
      case Integer.BYTES -> memory.getAtIndex(ValueLayout.JAVA_INT, index) & 0xFFFFFFFFL;
      default -> memory.getAtIndex(ValueLayout.JAVA_LONG, index);
    };
  }

  private void close() {
    if (operator instanceof ReduceOp.PreMulSum preMulSum) {
      preMulSum.close();
    }
    recv.close();
    send.close();
  }
}
