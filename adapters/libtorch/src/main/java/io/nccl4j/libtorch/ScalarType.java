package io.nccl4j.libtorch;

import io.nccl4j.DataType;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * The element types of libtorch and what NCCL has for them. Most constants are named as libtorch's
 * functions {@code aoti_torch_dtype_...} are, which tell the codes.
 */
enum ScalarType {
  FLOAT32(DataType.FLOAT32),
  FLOAT16(DataType.FLOAT16),
  BFLOAT16(DataType.BFLOAT16),
  FLOAT64(DataType.FLOAT64),
  FLOAT8_E4M3FN(DataType.FLOAT8E4M3),
  FLOAT8_E5M2(DataType.FLOAT8E5M2),
  UINT8(DataType.UINT8),
  INT8(DataType.INT8),
  INT32(DataType.INT32),
  INT64(DataType.INT64),
  UINT32(DataType.UINT32),
  UINT64(DataType.UINT64),
  /** NCCL would add truths as numbers: true and true would be 2. */
  BOOL(null),
  INT16(null),
  UINT16(null),
  COMPLEX32(null),
  COMPLEX64(null),
  COMPLEX128(null),
  FLOAT8_E4M3FNUZ(null),
  FLOAT8_E5M2FNUZ(null),
  // libtorch has no functions for these; it writes their numbers into files, so they stay.
  QINT8(12),
  QUINT8(13),
  QINT32(14),
  QUINT4X2(16),
  QUINT2X4(17),
  FLOAT8_E8M0FNU(44);

  private final DataType dataType;
  private final OptionalInt number;

  ScalarType(DataType dataType) {
    this.dataType = dataType;
    number = OptionalInt.empty();
  }

  ScalarType(int number) {
    dataType = null;
    this.number = OptionalInt.of(number);
  }

  /** Returns what NCCL calls it, if it has it. */
  Optional<DataType> dataType() {
    return Optional.ofNullable(dataType);
  }

  /** Returns what libtorch calls it. */
  String label() {
    return name().toLowerCase(Locale.ROOT);
  }

  /** Returns its code, if there is no function that tells it. */
  OptionalInt number() {
    return number;
  }

  /** Returns the function that tells its code. */
  String codeFunction() {
    return "aoti_torch_dtype_" + label();
  }
}
