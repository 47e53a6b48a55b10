package io.nccl4j.libtorch;

import io.nccl4j.DataType;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * The element types of libtorch and the corresponding NCCL types. Most constants are named after
 * libtorch's functions {@code aoti_torch_dtype_...}, which return the codes.
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
  /** Unsupported because NCCL would add the values as numbers: true + true = 2. */
  BOOL(null),
  INT16(null),
  UINT16(null),
  COMPLEX32(null),
  COMPLEX64(null),
  COMPLEX128(null),
  FLOAT8_E4M3FNUZ(null),
  FLOAT8_E5M2FNUZ(null),
  // libtorch has no functions for these. Their codes are stable, since it writes them to files.
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

  /** Returns the corresponding NCCL type, if any. */
  Optional<DataType> dataType() {
    return Optional.ofNullable(dataType);
  }

  /** Returns libtorch's name of the type. */
  String label() {
    return name().toLowerCase(Locale.ROOT);
  }

  /** Returns the fixed code, if no function returns it. */
  OptionalInt number() {
    return number;
  }

  /** Returns the name of the function that returns the code. */
  String codeFunction() {
    return "aoti_torch_dtype_" + label();
  }
}
