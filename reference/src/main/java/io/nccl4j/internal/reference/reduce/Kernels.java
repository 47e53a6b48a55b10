package io.nccl4j.internal.reference.reduce;

import io.nccl4j.DataType;

/** Creates kernels. */
final class Kernels {
  private Kernels() {}

  /** Creates the kernel of a type for maximum and minimum. */
  static Kernel<?> ofMinMax(DataType type) {
    return switch (type) {
      case FLOAT16, BFLOAT16, FLOAT32 -> new FloatMinMaxKernel(type);
      default -> of(type);
    };
  }

  /** Creates the kernel of a type. */
  static Kernel<?> of(DataType type) {
    return switch (type) {
      case INT8 -> new Int8Kernel(false);
      case UINT8 -> new Int8Kernel(true);
      case INT32 -> new Int32Kernel(false);
      case UINT32 -> new Int32Kernel(true);
      case INT64 -> new Int64Kernel(false);
      case UINT64 -> new Int64Kernel(true);
      case FLOAT16 -> new Float16Kernel();
      case FLOAT32 -> new Float32Kernel();
      case FLOAT64 -> new Float64Kernel();
      case BFLOAT16 -> new Bfloat16Kernel();
      case FLOAT8E4M3, FLOAT8E5M2 -> new Float8Kernel(type);
    };
  }
}
