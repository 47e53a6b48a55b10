package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.DataType;
import io.nccl4j.tools.perf.Collective.Shape;
import io.nccl4j.tools.perf.TestData.Range;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.HashSet;
import java.util.Set;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Results are exact in every order, and data differs by position, rank and repetition. */
class TestDataTest {
  private static final int COUNT = Pattern.PERIOD + 5;

  static Stream<Object[]> exactCases() {
    return Stream.of(ElementType.values())
        .filter(element -> element.type().floating())
        .flatMap(
            element ->
                Stream.of(Operator.values())
                    .flatMap(
                        op ->
                            IntStream.of(1, 2, 3, 4, 7, 16, 17, 64)
                                .filter(n -> op != Operator.AVG || Integer.bitCount(n) == 1)
                                .mapToObj(n -> new Object[] {element, op, n})));
  }

  private static MemorySegment filled(DataType type, Range range) {
    MemorySegment segment = Arena.ofAuto().allocate(range.count() * type.bytes(), 8);
    range.pattern().write(segment, range.start());
    return segment;
  }

  /** Combines two elements and rounds to the type, as the least exact backend does at each step. */
  private static double combine(
      DataType type, Operator op, double a, double b, MemorySegment cell) {
    double value =
        switch (op) {
          case SUM, AVG, MULSUM -> a + b;
          case PROD -> a * b;
          case MAX -> Math.max(a, b);
          case MIN -> Math.min(a, b);
        };
    type.set(cell, 0, value);
    return type.get(cell, 0);
  }

  @ParameterizedTest
  @MethodSource("exactCases")
  void resultIsExactInEveryOrder(ElementType element, Operator op, int ranks) {
    DataType type = element.type();
    TestData data = new TestData(Collective.ALL_REDUCE, element, op, ranks, -1);
    Shape shape = new Shape(COUNT, COUNT, COUNT, 0, 0);
    MemorySegment[] inputs = new MemorySegment[ranks];
    for (int rank = 0; rank < ranks; rank++) {
      inputs[rank] = filled(type, data.sent(rank, shape, 3));
    }
    MemorySegment cell = Arena.ofAuto().allocate(8);
    MemorySegment up = Arena.ofAuto().allocate((long) COUNT * type.bytes(), 8);
    MemorySegment down = Arena.ofAuto().allocate((long) COUNT * type.bytes(), 8);
    for (int i = 0; i < COUNT; i++) {
      double ascending = scaled(type, op, inputs[0], 0, ranks, i);
      double descending = scaled(type, op, inputs[ranks - 1], ranks - 1, ranks, i);
      for (int step = 1; step < ranks; step++) {
        int last = ranks - 1 - step;
        ascending =
            combine(type, op, ascending, scaled(type, op, inputs[step], step, ranks, i), cell);
        descending =
            combine(type, op, descending, scaled(type, op, inputs[last], last, ranks, i), cell);
      }
      type.set(up, i, ascending);
      type.set(down, i, descending);
    }
    Range expected = data.received(0, shape, 3, false).getFirst();
    assertEquals(0, expected.pattern().wrong(up, expected.start()));
    assertEquals(0, expected.pattern().wrong(down, expected.start()));
  }

  private static double scaled(
      DataType type, Operator op, MemorySegment input, int rank, int ranks, int i) {
    double value = type.get(input, i);
    return switch (op) {
      case AVG -> value / ranks;
      case MULSUM -> value * TestData.factor(type, rank);
      default -> value;
    };
  }

  @Test
  void inputsDifferByPositionRankAndRepetition() {
    Shape shape = new Shape(COUNT, COUNT, COUNT, 0, 0);
    for (ElementType element : ElementType.values()) {
      TestData data = new TestData(Collective.ALL_REDUCE, element, Operator.SUM, 2, -1);
      DataType type = element.type();
      MemorySegment first = filled(type, data.sent(0, shape, 1));
      Set<Double> values = new HashSet<>();
      for (int i = 0; i < 1000; i++) {
        values.add(type.get(first, i));
      }
      assertTrue(values.size() > 10, element.label() + " has " + values.size() + " values");
      for (Range other : new Range[] {data.sent(1, shape, 1), data.sent(0, shape, 2)}) {
        long different = other.pattern().wrong(first, other.start());
        assertTrue(different > COUNT / 2, element.label() + ": " + different);
      }
    }
  }

  @Test
  void averageToleratesOnlyRounding() {
    Shape shape = new Shape(COUNT, COUNT, COUNT, 0, 0);
    TestData data = new TestData(Collective.ALL_REDUCE, ElementType.FLOAT, Operator.AVG, 3, -1);
    MemorySegment result = Arena.ofAuto().allocate(COUNT * 4L, 8);
    for (int i = 0; i < COUNT; i++) {
      float sum = 0;
      for (int rank = 0; rank < 3; rank++) {
        Range sent = data.sent(rank, shape, 1);
        int at = (int) ((sent.start() + i) % Pattern.PERIOD);
        sum += (float) DataType.FLOAT32.get(sent.pattern().elements(), at) * (1f / 3);
      }
      DataType.FLOAT32.set(result, i, sum);
    }
    Range expected = data.received(0, shape, 1, false).getFirst();
    assertEquals(0, expected.pattern().wrong(result, expected.start()));
    DataType.FLOAT32.set(result, 7, DataType.FLOAT32.get(result, 7) + 0.01);
    DataType.FLOAT32.set(result, 8, Double.NaN);
    assertEquals(2, expected.pattern().wrong(result, expected.start()));
  }
}
