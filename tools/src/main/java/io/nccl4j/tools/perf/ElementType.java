package io.nccl4j.tools.perf;

import io.nccl4j.DataType;
import java.util.Locale;

/** The element types, with their names in nccl-tests. */
enum ElementType {
  INT8(DataType.INT8, 8),
  UINT8(DataType.UINT8, 8),
  INT32(DataType.INT32, 32),
  UINT32(DataType.UINT32, 32),
  INT64(DataType.INT64, 64),
  UINT64(DataType.UINT64, 64),
  HALF(DataType.FLOAT16, 11),
  FLOAT(DataType.FLOAT32, 24),
  DOUBLE(DataType.FLOAT64, 53),
  BFLOAT16(DataType.BFLOAT16, 8),
  F8E4M3(DataType.FLOAT8E4M3, 4),
  F8E5M2(DataType.FLOAT8E5M2, 3);

  private final DataType type;
  private final int precision;

  ElementType(DataType type, int precision) {
    this.type = type;
    this.precision = precision;
  }

  /** Returns the name on the command line and in the table. */
  String label() {
    return name().toLowerCase(Locale.ROOT);
  }

  /** Returns nccl4j's data type. */
  DataType type() {
    return type;
  }

  /** Returns the bits of the significand including the implicit one; for integers, all bits. */
  int precision() {
    return precision;
  }
}
