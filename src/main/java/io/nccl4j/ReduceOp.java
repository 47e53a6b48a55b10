package io.nccl4j;

import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * The operator that a reduction applies: one of the five constants, or an operator that a
 * communicator created.
 *
 * <p>Integer sums and products wrap around. Floating-point minimum and maximum ignore NaN, as
 * {@code fminf} and {@code fmaxf} do. The average of integers is their wrapped sum, divided by the
 * number of ranks and truncated.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html#ncclredop-t">ncclRedOp_t</a>
 */
@NullMarked
public abstract sealed class ReduceOp {
  /** The sum. */
  public static final ReduceOp SUM = new Standard(0, "sum");

  /** The product. */
  public static final ReduceOp PROD = new Standard(1, "prod");

  /** The largest value. */
  public static final ReduceOp MAX = new Standard(2, "max");

  /** The smallest value. */
  public static final ReduceOp MIN = new Standard(3, "min");

  /**
   * The average. Each rank's floating-point input is multiplied by 1/n, rounded to the type, before
   * the sum, which rounds again after each addition. So the average of equal values may differ from
   * them: in bfloat16 by 1 % for 6 or 7 ranks and by more for more, in float16 by 0.1 %. It is
   * exact only for a few ranks whose number is a power of two. Integers are summed, with
   * wrap-around, and the sum is divided, rounding toward zero.
   */
  public static final ReduceOp AVG = new Standard(4, "avg");

  private final String label;

  private ReduceOp(String label) {
    this.label = label;
  }

  /** {@return the {@code ncclRedOp_t} code of this operator in its communicator} */
  public abstract int code();

  @Override
  public String toString() {
    return label;
  }

  /** Returns the buffer from which a running reduction reads the scalar, or null. */
  @Nullable Buffer scalar() {
    return null;
  }

  /** Throws unless the operator can reduce this type in this communicator. */
  abstract void check(CommunicatorCore communicator, DataType type);

  private static final class Standard extends ReduceOp {
    private final int code;

    Standard(int code, String label) {
      super(label);
      this.code = code;
    }

    @Override
    public int code() {
      return code;
    }

    @Override
    void check(CommunicatorCore communicator, DataType type) {
      // Every communicator has the five standard operators, for every type.
    }
  }

  /**
   * An operator that multiplies each rank's data by that rank's scalar and then sums. It is valid
   * for one communicator and one type.
   *
   * {@snippet :
   * double share = (double) ownSamples / allSamples;
   * try (ReduceOp.PreMulSum weighted = comm.newPreMulSum(DataType.FLOAT32, share)) {
   *   comm.allReduce(gradients, gradients, weighted, stream);
   * }
   * }
   *
   * <p>The caller of {@link Communicator#newPreMulSum(DataType, double)} owns the operator and must
   * close it before its communicator. Operations already enqueued are not affected. Closing is
   * idempotent; any thread that may use the communicator may close the operator.
   */
  public static final class PreMulSum extends ReduceOp implements AutoCloseable {
    private final CommunicatorCore communicator;
    private final DataType type;
    private final int code;
    // The buffer from which a running reduction reads the scalar, or null.
    private final @Nullable Buffer scalar;
    private volatile boolean closed;

    PreMulSum(CommunicatorCore communicator, DataType type, int code, @Nullable Buffer scalar) {
      super("mulsum");
      this.communicator = communicator;
      this.type = type;
      this.code = code;
      this.scalar = scalar;
    }

    @Override
    @Nullable Buffer scalar() {
      return scalar;
    }

    @Override
    public int code() {
      return code;
    }

    /** {@return the type of the scalar, and of the data that the operator reduces} */
    public DataType type() {
      return type;
    }

    @Override
    void check(CommunicatorCore user, DataType dataType) {
      if (closed) {
        throw new IllegalStateException("op is closed: " + this);
      }
      if (user != communicator) {
        throw new IllegalArgumentException(
            "op was created by " + communicator + "; only that communicator can use it");
      }
      if (dataType != type) {
        throw new IllegalArgumentException(
            "op was created for " + type + "; it cannot reduce " + dataType);
      }
      if (scalar != null) {
        scalar.checkOpen("op's scalar");
      }
    }

    /** Destroys the operator. C: {@code ncclRedOpDestroy}. */
    @Override
    public void close() {
      synchronized (this) {
        if (closed) {
          return;
        }
        closed = true;
      }
      communicator.driver().destroyOperator(code);
    }
  }
}
