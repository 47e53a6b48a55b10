package io.nccl4j.tools.perf;

import io.nccl4j.DataType;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;

/** The element types, with their names in nccl-tests. */
enum ElementType {
  INT8("int8", DataType.INT8, 8),
  UINT8("uint8", DataType.UINT8, 8),
  INT32("int32", DataType.INT32, 32),
  UINT32("uint32", DataType.UINT32, 32),
  INT64("int64", DataType.INT64, 64),
  UINT64("uint64", DataType.UINT64, 64),
  HALF("half", DataType.FLOAT16, 11),
  FLOAT("float", DataType.FLOAT32, 24),
  DOUBLE("double", DataType.FLOAT64, 53),
  BFLOAT16("bfloat16", DataType.BFLOAT16, 8),
  F8E4M3("f8e4m3", DataType.FLOAT8E4M3, 4),
  F8E5M2("f8e5m2", DataType.FLOAT8E5M2, 3);

  private final String label;
  private final DataType type;
  private final int precision;

  ElementType(String label, DataType type, int precision) {
    this.label = label;
    this.type = type;
    this.precision = precision;
  }

  /** Returns the name on the command line and in the table. */
  String label() {
    return label;
  }

  /** Returns nccl4j's data type. */
  DataType type() {
    return type;
  }

  /** Returns the bits of the significand including the implicit one; for integers, all bits. */
  int precision() {
    return precision;
  }

  /** Returns the type with a name, or all types for {@code all}. */
  static List<ElementType> named(String name) {
    if (name.equals("all")) {
      return List.of(values());
    }
    return Arrays.stream(values())
        .filter(type -> type.label.equals(name))
        .findAny()
        .map(List::of)
        .orElseThrow(
            () ->
                new IllegalArgumentException(
                    "'" + name + "' is not a data type; use one of " + names() + " or all"));
  }

  private static String names() {
    return Arrays.stream(values()).map(ElementType::label).collect(Collectors.joining(", "));
  }
}
